"""The laboratory: the models, baselines and experiments of the paper. Not part of the library."""
