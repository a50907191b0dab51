"""The version, for outputs that say what made them."""

__version__ = "0.1.0"
