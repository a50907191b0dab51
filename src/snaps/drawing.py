"""Which nodes people should label, and their labels back in the folder, with a record of both.

Calibration nodes must be a random draw from the nodes to predict. A hash of seed and node id ranks
the nodes of the pool, and the first ones are drawn: uniformly, whatever the order of the rows, and
so that a larger number with the same seed contains the smaller one. With chances, each node is
drawn by itself if its hash, as a number from 0 to 1, is below its chance.

The record, draw.json in the folder, can be shown to an auditor. Once labels are in the folder, or
on their way into it, a further draw must contain all nodes whose labels were seen.
"""

from __future__ import annotations

import csv
import datetime
import hashlib
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from snaps._checks import check_integer, check_seed, plainly, shown
from snaps._runtime.randomness import DRAW_STREAM, hashes, node_keys
from snaps.errors import SnapsError
from snaps.folder import read_states
from snaps.io.csv import CsvColumns
from snaps.io.files import atomic_path, check_apart, check_writable, read_json, sha256, write_json
from snaps.io.folders import change_nodes, check_folder, folder_files, open_folder
from snaps.io.parquet import is_text

RECORD, FORMAT, VERSION = "draw.json", "snaps-draw", 1


@dataclass(frozen=True, eq=False)
class Nodes:
    """The nodes of a folder: ids, roles, whose label is known, and who was drawn (by the record).

    `classes` are the names of the classes, where the folder has them; `chances` the column asked
    for.
    """

    path: Path
    ids: np.ndarray
    roles: np.ndarray
    labelled: np.ndarray
    drawn: np.ndarray
    classes: Sequence[str] | None
    chances: np.ndarray | None = None

    @property
    def seen(self) -> np.ndarray:
        """Which nodes have been drawn and labelled."""
        return self.drawn & (self.roles == "calib")

    @property
    def pool(self) -> np.ndarray:
        """Positions of the nodes to predict, and of those drawn from them before.

        To predict are those with role test, or without a role if none has it; not those whose
        label is known.
        """
        role = "test" if (self.roles == "test").any() else ""
        return np.flatnonzero(((self.roles == role) & ~self.labelled) | self.seen)


def draw(
    folder: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    nodes: int | None = None,
    chances: str | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """Draw nodes to be labelled from the pool of a folder: see `snaps draw --help`.

    Returns a summary: how many nodes were drawn, how many of them are to be labelled, of how many.
    """
    if (nodes is None) == (chances is None):
        raise SnapsError("'--nodes' must be given, or --chances instead, got both or none")
    if nodes is not None:
        check_integer(nodes, "--nodes", low=1)
    seed, root = check_seed(seed, "--seed"), check_folder(folder)
    place = check_writable(out)
    check_apart({"--out": out}, [*folder_files(root), root / RECORD])
    if place.suffix.lower() != ".csv":
        raise SnapsError(f"'--out' must end in .csv, got {shown(str(out))}")
    if place.exists():
        raise SnapsError(f"'--out' must not exist: labels may be in it, got '{out}'")
    record = _read_record(root)
    state = _read_nodes(root, record, chances)
    pool = state.pool
    by_node = None if state.chances is None else state.chances[pool]
    order = ranked(state.ids[pool], seed, nodes, by_node)
    chosen = pool[order]
    _check_second(record, state, chosen, seed=seed, chances=chances, nodes=nodes)
    if nodes is not None and nodes > len(pool):
        raise SnapsError(
            f"'--nodes' must be at most {len(pool)}, the size of the pool, got {nodes}"
        )
    wanted = chosen[~state.seen[chosen]]
    if not wanted.size:
        raise SnapsError(
            f"'{'--nodes' if chances is None else '--chances'}' must draw a node that has no label "
            f"yet, got {len(chosen)} nodes, all of them labelled"
        )
    with atomic_path(place) as temporary:
        with open(temporary, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["id", "label"])
            writer.writerows([id_, ""] for id_ in state.ids[wanted].tolist())
        entry = {
            "date": _now(),
            "seed": seed,
            "chances": chances,
            "nodes": len(chosen),
            "pool_nodes": len(pool),
            "pool_sha256": pool_digest(state.ids[pool]),
            "file": place.name,
            "sha256": sha256(temporary),
        }
        record |= {"seed": seed, "chances": chances, "ids": state.ids[chosen].tolist()}
        write_json(root / RECORD, record | {"draws": [*record["draws"], entry]})
    return {"out": str(out), "to_label": len(wanted), "record": str(root / RECORD), **entry}


def ranked(
    ids: np.ndarray, seed: int, nodes: int | None, chances: np.ndarray | None = None
) -> np.ndarray:
    """Positions of the nodes drawn, in the order of their hashes.

    Examples
    --------
    >>> names = np.array(["ann", "bob", "eve", "joe"])
    >>> names[ranked(names, 7, 2)], names[ranked(names, 7, 3)]
    (array(['eve', 'bob'], dtype='<U3'), array(['eve', 'bob', 'ann'], dtype='<U3'))
    """
    words = hashes(seed, node_keys(ids), DRAW_STREAM)
    order = np.argsort(words, kind="stable")
    if chances is None:
        return order[:nodes]
    return order[((words >> np.uint64(11)) * 2.0**-53 < chances)[order]]


def label(
    folder: str | os.PathLike[str], file: str | os.PathLike[str], *, allow_missing: bool = False
) -> dict[str, Any]:
    """Put labels that people filled in into a folder, with role calib: see `snaps label --help`.

    Returns a summary: how many labels are new, how many are missing.
    """
    root = check_folder(folder)
    record = _read_record(root)
    if not record["draws"]:
        raise SnapsError(f"'{root / RECORD}' must exist: 'snaps draw' writes it, got no such file")
    state = _read_nodes(root, record)
    given = read_labels(Path(file), state.ids)
    position = {id_: place for place, id_ in enumerate(state.ids.tolist())}
    for id_ in given:
        if id_ not in position or not state.drawn[position[id_]]:
            raise SnapsError(f"'{file}' must have nodes that were drawn, got {plainly(id_)}")
    wanted = np.flatnonzero(state.drawn & ~state.seen)
    if not wanted.size:
        raise SnapsError(f"'{file}' must have labels of nodes without one, got none such")
    names = state.ids[wanted].tolist()
    labels = [given.get(id_, "") for id_ in names]
    missing = [id_ for id_ in names if not given.get(id_)]
    if missing and not allow_missing:
        raise SnapsError(
            f"'{file}' must have a label for each of the {len(wanted)} nodes drawn, got "
            f"{len(missing)} without (first: {plainly(missing[0])}): leaving out the hard ones "
            "breaks the guarantee; --allow-missing counts them as not covered"
        )
    for text in filter(None, labels):
        if state.classes is not None and text not in state.classes:
            listed = ", ".join(state.classes[:8]) + ", ..." * (len(state.classes) > 8)
            raise SnapsError(
                f"'{file}' column 'label' must be one of {listed}, got {plainly(text)}"
            )
    counts = Counter(filter(None, labels))
    entry = {
        "date": _now(),
        "file": Path(file).name,
        "sha256": sha256(file),
        "labelled": len(wanted) - len(missing),
        "missing": missing,
    }
    # Named last: until then the folder is as it was, and what is repeated gives the same.
    with atomic_path(state.path) as temporary:
        columns = {"label": labels, "role": ["calib"] * len(wanted)}
        change_nodes(state.path, temporary, wanted, columns)
        before = [each for each in record["labels"] if each["sha256"] != entry["sha256"]]
        write_json(root / RECORD, record | {"labels": [*before, entry]})
    return {"record": str(root / RECORD), "classes": dict(counts), **entry}


def missing_ids(folder: str | os.PathLike[str]) -> set[int | str]:
    """Ids of calibration nodes whose labels did not come back and count as not covered."""
    record = _read_record(Path(folder))
    return {id_ for entry in record["labels"] for id_ in entry["missing"]}


def drawn_with(folder: str | os.PathLike[str]) -> str | None:
    """The column of chances that the record says nodes were drawn with, or edges."""
    record = _read_record(Path(folder))
    return record.get("chances") if record["draws"] else None


def check_drawn(folder: str | os.PathLike[str], chances: str | None) -> None:
    """Refuse chances that are not those which the record says nodes were drawn with."""
    record = _read_record(Path(folder))
    if record["draws"] and record.get("chances") != chances:
        raise SnapsError(
            f"'--chances' must be {record.get('chances') or 'left out'}, as calibration nodes were "
            f"drawn by {Path(folder) / RECORD}, got {chances or 'none'}"
        )


def pool_digest(ids: np.ndarray) -> str:
    """SHA-256 of the ids of a pool, sorted, one per line.

    Examples
    --------
    >>> pool_digest(np.array([2, 1])) == hashlib.sha256(b"1\\n2\\n").hexdigest()
    True
    """
    lines = "".join(f"{id_}\n" for id_ in np.sort(ids).tolist())
    return hashlib.sha256(lines.encode()).hexdigest()


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def _read_record(root: Path) -> dict[str, Any]:
    """The record of a folder; one without draws if there is none."""
    empty = {"format": FORMAT, "version": VERSION, "ids": [], "draws": [], "labels": []}
    if not os.path.exists(root / RECORD):
        return empty
    record = read_json(root / RECORD, FORMAT)
    lists = all(isinstance(record.get(name), list) for name in ("ids", "draws", "labels"))
    if record.get("version") != VERSION or not lists:
        raise SnapsError(f"cannot read '{root / RECORD}': not a record of version {VERSION}")
    return record


def _read_nodes(root: Path, record: dict[str, Any], chances: str | None = None) -> Nodes:
    """The nodes of a folder, held against its record."""
    with open_folder(root) as files:
        nodes = files.nodes
        ids, roles, labelled = read_states(nodes)
        before = set(record["ids"])
        drawn = np.array([id_ in before for id_ in ids.tolist()], bool)
        named = [name.removeprefix("p_") for name in nodes.types if name.startswith("p_")]
        width = 0 if named else nodes.width("probs")[0]
        texts = is_text(nodes.types.get("label"))
        values = None
        if chances is not None:
            values = read_numbers(nodes.values(chances), nodes.title(chances))
    classes = named or (None if texts or not width else [str(y) for y in range(width)])
    state = Nodes(nodes.path, ids, roles, labelled, drawn, classes, values)
    others = np.flatnonzero((roles == "calib") & ~drawn)
    if others.size:
        raise SnapsError(
            f"{nodes.file} column 'role' must be calib for nodes drawn by 'snaps draw' alone, got "
            f"{len(others)} others (first: {plainly(ids[others[0]])}): keep {RECORD} of the folder "
            "they were drawn in, or give them role tune"
        )
    if values is not None:
        bad = state.pool[~((values[state.pool] > 0) & (values[state.pool] <= 1))]
        if bad.size:
            raise SnapsError(
                f"{nodes.file} column '{chances}' must be above 0 and at most 1, "
                f"got {values[bad[0]]:g} for id {plainly(ids[bad[0]])}"
            )
    return state


def read_numbers(values: np.ndarray, title: str) -> np.ndarray:
    """A column as numbers; in CSV, numbers of columns without a meaning of their own are text."""
    try:
        return np.asarray(values, np.float64)
    except (TypeError, ValueError) as error:
        raise SnapsError(f"{title} must be numbers, got {shown(values[0])}") from error


def _check_second(record: dict[str, Any], state: Nodes, chosen: np.ndarray, **asked: Any) -> None:
    """Refuse a draw that does not extend the one whose labels were seen."""
    if not (state.seen.any() or record["labels"]):
        return
    rule = "the draw whose labels were seen: a second draw must extend the first"
    for name in ("seed", "chances"):
        if asked[name] != record[name]:
            raise SnapsError(
                f"'--{name}' must be {plainly(record[name])}, as in {rule}, "
                f"got {plainly(asked[name])}"
            )
    left_out = np.setdiff1d(np.flatnonzero(state.drawn), chosen)
    if left_out.size:
        words = hashes(asked["seed"], node_keys(state.ids), DRAW_STREAM)
        least = int((words[state.pool] <= words[state.drawn].max()).sum())
        option, limit, got = "--nodes", f"at least {least}", asked["nodes"]
        if asked["chances"] is not None:
            option, limit, got = "--chances", "no smaller than before", "smaller chances"
        raise SnapsError(f"'{option}' must be {limit}, to contain {rule}, got {got}")


def read_labels(path: Path, ids: np.ndarray) -> dict[int | str, str]:
    """Labels by id, as text, from a CSV file with columns id and label; "" where there is none."""
    columns = CsvColumns(path, ("id", "label") if ids.dtype.kind == "U" else ("label",))
    names, texts = columns.ids("id"), columns.read(["label"], nulls=True)[0].to_pylist()
    if len(names) and (names.dtype.kind == "U") != (ids.dtype.kind == "U"):
        kind = "strings" if ids.dtype.kind == "U" else "integers"
        raise SnapsError(f"{path.name} column 'id' must be {kind} as the nodes' ids are")
    values, repeated = np.unique(names, return_counts=True)
    if (repeated > 1).any():
        first = values[repeated > 1][0]
        raise SnapsError(f"{path.name} column 'id' must not repeat a node, got {plainly(first)}")
    texts = [(text or "").strip() for text in texts]
    return dict(zip(names.tolist(), texts, strict=True))
