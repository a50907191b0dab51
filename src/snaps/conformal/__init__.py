"""The right layer: calibration scores in, thresholds, sets and p-values out. It knows no graph."""
