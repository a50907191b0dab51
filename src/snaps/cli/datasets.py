"""The commands of `snaps datasets`: list, fetch, verify."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from snaps.cli._help import Program, argument, option
from snaps.cli._options import AS_JSON
from snaps.errors import SnapsError

if TYPE_CHECKING:
    from snaps.datasets.registry import Spec

DATA_DIR = option(
    "Folder of .npz files in the manifest's layout.", value="folder", shown="SNAPS_DATA"
)


def list_(*, data_dir: Path | None = DATA_DIR, as_json: bool = AS_JSON) -> None:
    """Show all datasets, the paper's statistics of them, and where they are found.

    Found files are not opened for this: 'snaps datasets verify' checks them.
    """
    from dataclasses import asdict

    from snaps._tables import print_table
    from snaps.datasets.load import folders, found_files
    from snaps.datasets.registry import DATASETS

    rows = list[dict[str, Any]]()
    for spec in DATASETS.values():
        place, path = next(iter(found_files(spec, data_dir).items()), (None, None))
        row = {"name": spec.name, "title": spec.title, **asdict(spec.statistics)}
        row |= {"found_in": place, "path": None if path is None else str(path)}
        rows.append(row | {"notes": _notes(spec, path)})
    if as_json:
        print(json.dumps(rows))
        return
    header = ["name", "nodes", "features", "edges", "classes", "homophily", "found in", "notes"]
    cells = [
        [
            row["name"],
            *(f"{row[column]:,}" for column in header[1:5]),
            f"{row['homophily']:.2%}",
            row["found_in"] or "not here",
            "; ".join(row["notes"]),
        ]
        for row in rows
    ]
    print_table(header, cells, texts=header[-2:])
    for place, folder in folders(data_dir).items():
        print(f"{place}: {folder}")


def fetch(
    *,
    names: list[str] = argument("Names of datasets, or 'all'.", "NAME"),
    mirror: str | None = option(
        "Address of a copy made by 'wget -x'.", value="address", shown="SNAPS_MIRROR"
    ),
) -> None:
    """Download datasets into the cache; sound copies there are kept.

    Reads the upstream files with the laboratory: pip install -c lab/constraints.txt -e lab.
    """
    from snaps.datasets.load import fetch as fetch_one
    from snaps.datasets.registry import DATASETS, find_spec

    chosen = list(DATASETS) if names == ["all"] else [find_spec(name).name for name in names]
    failed: dict[str, SnapsError] = {}
    for name in chosen:
        try:
            print(f"{name}: {fetch_one(name, mirror=mirror)}", flush=True)
        except SnapsError as error:
            # One upstream that is down should not keep the others away.
            failed[name] = error
    if failed:
        first, *others = failed
        likewise = f" (and likewise {', '.join(others)})" if others else ""
        raise SnapsError(f"{failed[first]}{likewise}")


def verify(
    *,
    names: list[str] | None = argument("Names of datasets.  [default: all]", "NAME", default=None),
    data_dir: Path | None = DATA_DIR,
    as_json: bool = AS_JSON,
) -> None:
    """Check the checksum and the statistics of every file that is there."""
    from dataclasses import asdict

    from snaps._tables import print_table
    from snaps.datasets.load import verify as verify_files

    verdicts = verify_files(names or None, data_dir, progress=True)
    if as_json:
        print(json.dumps([asdict(verdict) for verdict in verdicts], default=str))
    else:
        header = ["name", "state", "found in", "details"]
        cells = [[each.name, each.state, each.place, each.detail] for each in verdicts]
        print_table(
            header, cells, bold=[each.state == "damaged" for each in verdicts], texts=header
        )
    damaged = [f"'{verdict.path}'" for verdict in verdicts if verdict.state == "damaged"]
    if damaged:
        raise SnapsError(f"damaged: {', '.join(damaged)}")


@click.group(
    cls=Program,
    invoke_without_command=True,
    help="The graphs of the paper: list, download, check.",
    epilog="Start with: snaps datasets list",
)
@click.pass_context
def datasets(context: click.Context) -> None:
    if context.invoked_subcommand is None:
        context.invoke(datasets.commands["list"])


datasets.add(list_, "datasets list --data-dir /data/graphs", "list")
datasets.add(fetch, "datasets fetch cora_ml amazon_photo")
datasets.add(verify, "datasets verify cora_ml")


def _notes(spec: Spec, path: Path | None) -> list[str]:
    """What can be said without reading the arrays."""
    from snaps.io.files import open_npz

    notes = [] if spec.in_paper else ["not in the paper"]
    if "classes" in spec.corrections:
        notes.append(f"has {spec.corrections['classes'][0]} classes in truth")
    if path is not None:
        try:
            with open_npz(path) as arrays:
                if "x_is_surrogate" in arrays:
                    notes.append("the file found has surrogate features")
        except SnapsError:
            notes.append("the file found is damaged")
    return notes
