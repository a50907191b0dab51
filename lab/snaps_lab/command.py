"""`snaps reproduce`: the paper's tables and figures, each by one command."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from snaps.cli._help import Program, argument, flag, option
from snaps_lab.reproduce.catalogue import EXPERIMENTS

if TYPE_CHECKING:
    from snaps_lab.reproduce.runner import Setting


@contextmanager
def _interrupted_once() -> Iterator[None]:
    """Let the first Ctrl-C end the program, and no second one disturb that end."""
    try:
        yield
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        raise


@_interrupted_once()
def reproduce(
    *,
    table: str = argument(
        "One of: " + ", ".join(EXPERIMENTS) + "; or all that the available data allow.", "TABLE"
    ),
    datasets: str | None = option("Only these, separated by commas.", value="names"),
    files: list[Path] | None = option(
        "For images: outputs of your own, an .npz; may be repeated.", "--file", value="file"
    ),
    models: int = option(
        "Draws of training nodes, a model each; trials of images.", default=10, value="number"
    ),
    splits: int = option("Calibration/test splits per model.", default=100, value="number"),
    seed: int = option("Fixes every random choice.", default=0, value="number"),
    as_authors: bool = flag("Do all as the authors did; with the main tables.", "--as-authors"),
    data_dir: Path | None = option(
        "Folder with the graphs.", value="folder", shown="SNAPS_DATA, the cache"
    ),
    out: Path = option("Folder for numbers and pictures.", default=Path("results"), value="folder"),
    page: Path | None = option(
        "Also write one page of all in --out; 'all' writes results.md there.", value="file"
    ),
    runs: Path | None = option("Folder for finished pieces.", value="folder", shown="the cache"),
    jobs: int | None = option("Models to train at once.", value="number"),
    as_json: bool = flag("Print the results as JSON, and files to stderr.", "--json"),
) -> None:
    """Make a table or figure of the paper, next to its numbers.

    Our numbers, the published ones, and the difference. The work is cut into pieces (dataset,
    model, draw) that are kept on disk: a run that was interrupted carries on where it stood.
    """
    import os
    import sys

    from snaps._checks import check_integer, check_seed
    from snaps.cli._show import provenance
    from snaps.errors import SnapsError
    from snaps.io.files import check_working_directory
    from snaps_lab.reproduce import render
    from snaps_lab.reproduce.catalogue import find
    from snaps_lab.reproduce.runner import Setting
    from snaps_lab.reproduce.store import Store

    check_working_directory()  # torch would end the process
    wanted = list(EXPERIMENTS) if table == "all" else [table]
    for name in wanted:
        find(name)
    if files and "images" not in wanted:
        raise SnapsError(f"'--file' must go with the table 'images', got {table!r}")
    if data_dir is not None and not data_dir.is_dir():
        raise SnapsError(f"'--data-dir' must be a folder with .npz files, got '{data_dir}'")
    chosen = _choices(wanted, datasets, files or ())
    if page is None and table == "all":
        page = out / "results.md"
    render.check_places(wanted, out, page)
    setting = Setting(
        Store(runs),
        data_dir,
        draws=check_integer(models, "--models", low=1),
        splits=check_integer(splits, "--splits", low=1),
        seed=check_seed(seed, "--seed"),
        as_authors=as_authors,
        jobs=check_integer(os.cpu_count() if jobs is None else jobs, "--jobs", low=1),
        files=tuple(files or ()),
    )
    aside = sys.stderr if as_json else sys.stdout
    made, skipped = list[dict[str, Any]](), dict[str, SnapsError]()
    for name, about in chosen.items():
        try:
            if as_authors:
                _check_as_authors(name)
            result = find(name).build(name, about, setting, _track)
        except SnapsError as error:
            if table != "all":
                raise
            skipped[name] = error
            continue
        if result["rows"]:
            result |= provenance(_inputs(result, setting))
            made.append(result)
            if not as_json:
                render.terminal(result)
            for path in render.write(result, out):
                print(f"wrote {path}", file=aside)
        for dataset, why in result["skipped"].items():
            print(f"skipped {dataset}: {why}", file=aside)
    for name, reason in skipped.items():
        print(f"skipped {name}: {reason}", file=aside)
    if not made and skipped:
        raise next(iter(skipped.values()))
    if page is not None:
        render.page(out, page)
        print(f"wrote {page}", file=aside)
    if as_json:
        reasons = {name: str(reason) for name, reason in skipped.items()}
        print(render.as_json({"results": made, "skipped": reasons}))


def _inputs(result: dict[str, Any], setting: Setting) -> dict[str, str]:
    """Digests of the files that the rows of a table are about."""
    from snaps.datasets.load import folders
    from snaps.io.folders import digests

    own = {path.stem: path for path in setting.files}
    paths = []
    for name in dict.fromkeys(row["dataset"] for row in result["rows"] if "dataset" in row):
        candidates = [folder / f"{name}.npz" for folder in folders(setting.data_dir).values()]
        paths += [path for path in [own.get(name), *candidates] if path and path.is_file()][:1]
    return digests(paths)


def _check_as_authors(name: str) -> None:
    """Refuse tables of which only a part could be made as the authors did, or none."""
    from snaps.errors import SnapsError
    from snaps_lab.reproduce.catalogue import as_authors

    if not as_authors(name):
        known = ", ".join(table for table in EXPERIMENTS if as_authors(table))
        raise SnapsError(f"'--as-authors' must go with one of {known}, got {name!r}")


def _choices(
    wanted: list[str], datasets: str | None, files: Iterable[Path]
) -> dict[str, list[str] | None]:
    """The datasets asked for, by the tables that are about them; None stands for the usual ones."""
    from snaps.datasets.registry import find_spec
    from snaps.errors import SnapsError
    from snaps_lab.reproduce.catalogue import find

    if datasets is None:
        return dict.fromkeys(wanted)
    parts = [part.strip() for part in datasets.split(",") if part.strip()]
    if not parts:
        raise SnapsError(f"'--datasets' must name at least one, got {datasets!r}")
    own = {
        table: [*find(table).NAMES, *(path.stem for path in files)]
        for table in wanted
        if hasattr(find(table), "NAMES")
    }
    foreign = [part for part in parts if not any(part in names for names in own.values())]
    if foreign and len(own) == len(wanted):
        known = ", ".join(dict.fromkeys(name for names in own.values() for name in names))
        raise SnapsError(f"'--datasets' must be among {known}, got {foreign[0]!r}")
    graphs: list[str] = [find_spec(part).name for part in foreign]
    named = [*graphs, *(part for part in parts if part not in foreign)]
    for name in named:
        if named.count(name) > 1:
            raise SnapsError(f"'--datasets' must name each one once, got {name!r} again")
    chosen: dict[str, list[str] | None] = {}
    for table in wanted:
        here = [part for part in parts if part in own[table]] if table in own else graphs
        if here or len(wanted) == 1:
            chosen[table] = here
    return chosen


def _track(label: str, total: int) -> Any:
    from snaps._runtime.progress import track

    return track(True, label, total)


def register(app: Program) -> None:
    """Add the command to the program; the entry point of the group `snaps.commands`."""
    app.add(reproduce, "reproduce table1 --datasets cora_ml,citeseer")
