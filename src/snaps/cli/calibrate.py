"""`snaps calibrate`: what predict does before it predicts, kept for later."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from snaps.cli._help import option
from snaps.cli._options import (
    AsJson,
    FolderOptions,
    MethodOptions,
    SavedOptions,
    with_options,
)


@with_options
def calibrate(
    out: Annotated[Path, option("File for the calibrated predictor.", value="file")],
    source: FolderOptions,
    how: MethodOptions,
    data: Annotated[
        bool, option("Keep graph and probabilities in the file, too.", "--data")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Calibrate on a graph folder, and save the result for later.

    Roles and methods are as for 'snaps predict', which goes on with the file by --with. The file
    holds parameters, and the ids and labels of the calibration, tuning and known nodes. Later they
    are matched by id in a folder that may have grown, and the threshold is set again there.
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
