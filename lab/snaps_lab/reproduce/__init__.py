"""The paper's experiments and the numbers it published."""
