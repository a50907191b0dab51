"""Finished pieces of work on disk: each appears whole or not at all, and is never made twice.

A cell's name holds a fingerprint of everything it depends on, so a changed setting is another cell,
a run that was killed carries on where it stood, and two runs at once only repeat each other's work.
A cell carries a checksum: one that was changed or cut is not believed, and made again.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from snaps.errors import NotEnoughMemory, SnapsError, warn
from snaps.io.files import atomic_path, parse_json, read_npz, write_npz


def default_folder() -> Path:
    """Where cells are kept: SNAPS_CACHE, else the user's cache folder."""
    named = os.environ.get("SNAPS_CACHE")
    if named:
        return Path(named) / "runs"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "snaps" / "runs"


def fingerprint(*parts: Any) -> str:
    """A short hash of settings and arrays."""
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        if isinstance(part, np.ndarray):
            digest.update(f"{part.dtype}{part.shape}".encode())
            digest.update(np.ascontiguousarray(part).data)
        else:
            digest.update(json.dumps(part, sort_keys=True, default=str).encode())
    return digest.hexdigest()


class Store:
    """A folder of cells, by kind and name."""

    def __init__(self, folder: str | os.PathLike[str] | None = None):
        self.folder = default_folder() if folder is None else Path(folder)

    def path(self, kind: str, name: str, suffix: str) -> Path:
        """Where a cell lies or will lie; makes its folder."""
        place = self.folder / kind
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SnapsError(f"cannot write '{place}': {error.strerror}") from error
        return place / f"{name}{suffix}"

    def read_json(self, kind: str, name: str) -> Any:
        """A JSON cell, or None when it is not there or not as it was written."""
        path = self.path(kind, name, ".json")
        if not path.exists():
            return None
        try:
            cell = parse_json(path.read_bytes())
            if cell["checksum"] == fingerprint(cell["value"]):
                return cell["value"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            pass
        _distrust(path)
        return None

    def write_json(self, kind: str, name: str, value: Any) -> None:
        """Keep a JSON cell."""
        plain = json.loads(json.dumps(value))  # keys and tuples as they will be read
        with atomic_path(self.path(kind, name, ".json")) as temporary:
            temporary.write_text(json.dumps({"checksum": fingerprint(plain), "value": plain}))

    def has_arrays(self, kind: str, name: str) -> bool:
        """Whether an array cell is there, as it was written."""
        return self.read_arrays(kind, name) is not None

    def read_arrays(self, kind: str, name: str) -> dict[str, np.ndarray] | None:
        """An array cell, or None when it is not there or not as it was written."""
        path = self.path(kind, name, ".npz")
        if not path.exists():
            return None
        try:
            arrays = read_npz(path)
        except NotEnoughMemory:
            raise
        except SnapsError:
            arrays = {}
        kept = arrays.pop("checksum", None)
        if kept is not None and kept.tobytes() == _checksum(arrays).tobytes():
            return arrays
        _distrust(path)
        return None

    def write_arrays(self, kind: str, name: str, arrays: dict[str, Any]) -> None:
        """Keep an array cell."""
        write_npz(self.path(kind, name, ".npz"), {**arrays, "checksum": _checksum(arrays)})


def _checksum(arrays: Mapping[str, Any]) -> np.ndarray:
    parts = [part for name in sorted(arrays) for part in (name, np.asarray(arrays[name]))]
    return np.frombuffer(bytes.fromhex(fingerprint(*parts)), np.uint8)


def _distrust(path: Path) -> None:
    """Say that a cell will be made again, and make room for it."""
    path.unlink(missing_ok=True)
    text = f"'{path}' is not as it was written: what it held is computed again"
    warn(text)
