"""The manifest of a graph folder: which files were written together.

A folder is several files, and each is replaced on its own. A writer that stops half way, or one
file copied from elsewhere, leaves edges of one graph with labels of another, which no file shows.
The manifest does: it holds rows, bytes and a digest of each. So that this costs no second reading
of the data, the digest is one of the file's own table of contents, which holds checksums of what
is in the file: those of the columns in the footer of a Parquet file, those of the arrays in the
directory of an .npz. The checksums themselves are held against the data when it is read.
"""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from snaps._checks import shown
from snaps.errors import SnapsError
from snaps.io.files import parse_json, unreadable

NAME = "manifest.json"
FEATURE_FILES = ("features.npz", "features.npy")
CSV_FILES = ("nodes.csv", "edges.csv")
_DATA = ("nodes.parquet", "edges.parquet", *FEATURE_FILES, *CSV_FILES)
_REMEDY = (
    f"delete {NAME} if the change is meant, or write the folder again with "
    "snaps.folder.write_folder"
)


def folder_files(folder: str | os.PathLike[str]) -> list[Path]:
    """The files and folders of parts that a graph folder may consist of."""
    return [Path(folder) / name for name in (*_DATA, NAME)]


def column_checksums(table: Any) -> dict[str, str]:
    """A checksum of each column of an Arrow table, for the metadata of its file."""
    sums = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        crc = 0
        for chunk in column.chunks:
            for buffer in chunk.buffers():
                crc = zlib.crc32(b"" if buffer is None else buffer, crc)
        sums[f"snaps.crc32.{name}"] = f"{crc:08x}"
    return sums


def as_text(files: dict[str, Path]) -> str:
    """The manifest of files that will have these names."""
    described = {name: _describe(path, Path(name).suffix) for name, path in files.items()}
    return json.dumps({"files": described}, indent=1) + "\n"


@contextmanager
def steady(root: Path) -> Iterator[None]:
    """A folder that is as its manifest says, if it has one, and stays so while it is read."""
    _check(root)
    before = _stamps(root)
    yield
    if _stamps(root) != before:
        raise SnapsError(f"'{root}' must not change while it is read: read it again")


def _check(root: Path) -> None:
    path = root / NAME
    if not os.path.exists(path):
        return
    try:
        listed = dict(parse_json(path.read_bytes())["files"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SnapsError(f"'{path}' must be a manifest that snaps wrote; {_REMEDY}") from error
    here = [name for name in _DATA if os.path.lexists(root / name)]
    for name in dict.fromkeys([*listed, *here]):
        if name not in here:
            wrong = f"{shown(name)} is missing"
        elif name not in listed:
            wrong = f"'{name}' was not written with the others"
        elif listed[name] != _describe(root / name, Path(name).suffix):
            wrong = f"'{name}' was replaced or changed"
        else:
            continue
        raise SnapsError(f"'{root}' must be as its {NAME} says, but {wrong}: {_REMEDY}")


def _describe(path: Path, suffix: str) -> dict[str, Any] | None:
    """Rows, bytes and digest of a file that we write; None of any other."""
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if suffix == ".parquet":
                return {"bytes": size, **_parquet_footer(file)}
            if suffix == ".npz":
                return {"bytes": size, **_zip_directory(file)}
    except Exception:  # whatever it is, it is not what was written
        pass
    return None


def _parquet_footer(file: Any) -> dict[str, Any]:
    from pyarrow.parquet import read_metadata

    rows = read_metadata(file).num_rows
    file.seek(-8, os.SEEK_END)
    length = int.from_bytes(file.read(4), "little")
    file.seek(-8 - length, os.SEEK_END)
    return {"rows": rows, "digest": _digest([file.read(length)])}


def _zip_directory(file: Any) -> dict[str, Any]:
    with zipfile.ZipFile(file) as archive:
        members = [f"{m.filename} {m.CRC} {m.file_size}".encode() for m in archive.infolist()]
    return {"digest": _digest(members)}


def _digest(parts: Iterable[bytes]) -> str:
    return hashlib.blake2b(b"\n".join(parts), digest_size=16).hexdigest()


def part_files(folder: Path) -> list[Path]:
    """All files below a folder, links followed, in the order of their names."""
    found = list[Path]()
    _walk(folder, (), found)
    return sorted(found)


def _walk(folder: Path, above: tuple[str, ...], found: list[Path]) -> None:
    place = os.path.realpath(folder)
    if place in above:
        raise SnapsError(f"cannot read '{folder}': the link leads to a folder that it is in")
    try:
        inside = list(folder.iterdir())
    except OSError as error:
        raise unreadable(folder, error, "not a folder") from error
    for path in inside:
        if path.is_dir():
            _walk(path, (*above, place), found)
        elif os.path.exists(path):
            found.append(path)
        elif not path.name.startswith((".", "_")):  # which no reader of Parquet looks at
            raise _dangling(path)


def _dangling(path: Path) -> SnapsError:
    return SnapsError(f"cannot read '{path}': the link leads to no file")


def _stamps(root: Path) -> list[tuple[str, int, int, int]]:
    """What tells that a file is another one: its inode, size and time."""
    found = []
    for path in folder_files(root):
        if os.path.islink(path) and not os.path.exists(path):
            raise _dangling(path)
        for file in [path, *part_files(path)] if path.is_dir() else [path]:
            if os.path.exists(file):
                state = file.stat()
                found.append((str(file), state.st_ino, state.st_size, state.st_mtime_ns))
    return found
