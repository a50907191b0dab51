"""Record the results of every method, and compare them after a change.

    python -m tests.contract.golden --record [words dense ...]
    python -m tests.contract.golden --compare [words dense ...]

Record with OPENBLAS_NUM_THREADS=1 OPENBLAS_CORETYPE=Haswell. `--compare` prints for each entry
whether it is equal bit for bit, or else its largest difference; exit code 1 if an entry is off by
more than its tolerance.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .cases import CASES, REAL, Entries
from .files import FILES
from .graphs import setting

FOLDER = Path(__file__).parent / "golden"
# What floats may be off by, so that another processor passes. Where L-BFGS ends depends on the last
# bits of products: with BLAS kernels of other processors, Pooled moves by up to 2e-11. So does the
# temperature, by 1.3e-11, where NumPy has other exponentials.
TOLERANCE = 1e-12
FITTED_TOLERANCE = 2e-10
GROUPS = {**{name: tuple(cases) for name, cases in CASES.items()}, "files": tuple(FILES)}


def compute(name: str, group: str, data_dir: Path | None = None) -> Entries:
    """The entries of a group of cases."""
    if name == "files":
        entries = FILES[group]()
    else:
        entries = CASES[name][group](setting(name, data_dir if name in REAL else None))
    return {f"{group}/{key}": _plain(value) for key, value in entries.items()}


def _plain(value: object) -> np.ndarray | str:
    """Text, or an array of one of three kinds."""
    if isinstance(value, str):
        return value
    array = np.asarray(value)
    if array.dtype.kind == "f":
        return array.astype(np.float64)
    return array if array.dtype == np.uint8 else array.astype(np.int64)


# -- files: arrays of a kind joined into one, as hundreds of members would be mostly headers ------


def write(name: str, entries: Entries) -> None:
    """Write entries to the file of this name."""
    index, parts = [], {"float64": [], "int64": [], "uint8": []}
    for key, value in sorted(entries.items()):
        if isinstance(value, str):
            index.append([key, "text", value])
        else:
            index.append([key, value.dtype.name, list(value.shape)])
            parts[value.dtype.name].append(value.reshape(-1))
    arrays = {kind: np.concatenate([np.empty(0, kind), *each]) for kind, each in parts.items()}
    text = json.dumps(index, separators=(",", ":")).encode()
    np.savez_compressed(FOLDER / f"{name}.npz", index=np.frombuffer(text, np.uint8), **arrays)


def read(name: str) -> Entries:
    """The recorded entries of the file of this name."""
    entries: Entries = {}
    with np.load(FOLDER / f"{name}.npz") as file:
        arrays = {kind: file[kind] for kind in ("float64", "int64", "uint8")}
        index = json.loads(file["index"].tobytes())
    start = dict.fromkeys(arrays, 0)
    for key, kind, about in index:
        if kind == "text":
            entries[key] = about
            continue
        stop = start[kind] + int(np.prod(about))
        entries[key] = arrays[kind][start[kind] : stop].reshape(about)
        start[kind] = stop
    return entries


# -- comparison -----------------------------------------------------------------------------------


class Row(NamedTuple):
    """How an entry compares with the recorded one."""

    name: str
    identical: bool
    difference: float
    """The largest absolute one of floats; infinite for all else that is not equal."""

    @property
    def accepted(self) -> bool:
        # --compare prints the digest of a float array's bits; it is not part of the contract.
        if self.name.endswith(".bits"):
            return True
        return self.difference <= tolerance(self.name)

    def __str__(self) -> str:
        if self.identical:
            return f"{self.name}: equal bit for bit"
        size = f"differs by {self.difference:.3g}" if np.isfinite(self.difference) else "differs"
        return f"{self.name}: {size}{'' if self.accepted else ' (not accepted)'}"


def tolerance(name: str) -> float:
    """What an entry may be off by; advice and two of the commands are about Pooled too."""
    fitted = ("pooled", "temperature", "advice/", "/calibrated.", "/evaluated.", "/solver.")
    return FITTED_TOLERANCE if any(each in name for each in fitted) else TOLERANCE


def compare(recorded: Entries, computed: Entries) -> Iterator[Row]:
    """A row for each entry of either."""
    for name in sorted(recorded | computed):
        before, after = recorded.get(name), computed.get(name)
        if before is None or after is None:
            yield Row(f"{name} ({'new' if before is None else 'gone'})", False, np.inf)
        elif isinstance(before, str) or isinstance(after, str):
            same = isinstance(before, type(after)) and before == after
            yield Row(name, same, 0.0 if same else np.inf)
        else:
            yield Row(name, *_difference(before, after))


def _difference(before: np.ndarray, after: np.ndarray) -> tuple[bool, float]:
    if before.dtype != after.dtype or before.shape != after.shape:
        return False, np.inf
    if before.tobytes() == after.tobytes():
        return True, 0.0
    if before.dtype.kind != "f":
        return False, np.inf
    other = ~((before == after) | (np.isnan(before) & np.isnan(after)))
    gap = np.abs(before[other] - after[other])
    largest = float(gap.max(initial=0.0))
    return False, np.inf if np.isnan(largest) else largest


# -- command --------------------------------------------------------------------------------------


def _data_dir() -> Path:
    shared = Path(__file__).resolve().parents[3] / "shared" / "data"
    return Path(os.environ.get("SNAPS_DATA") or shared)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.contract.golden")
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--record", action="store_true", help="write the files")
    action.add_argument("--compare", action="store_true", help="compare with the files")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(GROUPS))
    given = parser.parse_args()
    failed = 0
    for name in given.names or GROUPS:
        if name in REAL and not (_data_dir() / f"{name}.npz").is_file():
            print(f"{name}: skipped, as it is not in {_data_dir()}; set SNAPS_DATA to its folder")
            continue
        computed: Entries = {}
        for group in GROUPS[name]:
            computed |= compute(name, group, _data_dir())
        if given.record:
            write(name, computed)
            print(f"{name}: {len(computed)} entries")
            continue
        rows = list(compare(read(name), computed))
        for row in rows:
            print(f"{name}/{row}")
        failed += sum(not row.accepted for row in rows)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
