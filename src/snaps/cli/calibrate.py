"""`snaps calibrate`: what predict does before it predicts, kept for later."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from snaps.cli._options import AsJson, FolderOptions, MethodOptions, SavedOptions, with_options


@with_options
def calibrate(
    out: Annotated[Path, typer.Option(help="File for the calibrated predictor.")],
    source: FolderOptions,
    how: MethodOptions,
    data: Annotated[
        bool, typer.Option("--data", help="Keep graph and probabilities in the file, too.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Calibrate on the nodes of a graph folder and save the result for 'snaps predict --with'.

    Nodes with role calib are the calibration set. The weights are tuned on role tune, else on
    valid, else on a part of the calibration nodes; for method pooled, to which valid is evidence,
    on tune or on a part of the calibration nodes. The file holds parameters, and the ids and labels
    of these nodes: later they are matched by id in a folder that may have grown, and the threshold
    is set again there.
    """
    from snaps.cli._calibration import calibrated
    from snaps.cli._show import describe, print_calibration
    from snaps.io.files import check_apart, check_named, check_writable
    from snaps.io.folders import folder_files

    check_named(out)
    check_writable(out)  # before the work is done, not after
    check_apart({"--out": out}, folder_files(source.folder))
    estimator, _, inputs = calibrated(source, how, SavedOptions())
    estimator.save(out, data=data)
    print_calibration({"out": str(out), **describe(estimator, inputs)}, as_json)
