"""The right layer: calibration scores in, thresholds, sets and p-values out. It knows no graph."""

from snaps.conformal.calibration import Calibration
from snaps.conformal.coverage import coverage_interval, coverage_law, coverage_pmf
from snaps.conformal.rank import conformal_rank, fewest_nodes

__all__ = [
    "Calibration",
    "conformal_rank",
    "coverage_interval",
    "coverage_law",
    "coverage_pmf",
    "fewest_nodes",
]
