"""Where the files of datasets lie, and what their checksums should be."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from snaps._checks import check_path
from snaps.datasets.registry import Spec
from snaps.errors import SnapsError
from snaps.io.files import parse_json


def cache_dir() -> Path:
    """Where downloads are kept: SNAPS_CACHE, else the user's cache folder."""
    named = os.environ.get("SNAPS_CACHE")
    if named:
        return Path(named) / "datasets"
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "snaps" / "datasets"


def folders(data_dir: str | os.PathLike[str] | None = None) -> dict[str, Path]:
    """The folders to look in, first things first, by the word that messages use for them."""
    word, named = "data_dir", data_dir
    if named is None:
        # An empty variable is one that a Makefile or a shell script left unset.
        word, named = "SNAPS_DATA", os.environ.get("SNAPS_DATA") or None
    if named is None:
        return {"cache": cache_dir()}
    folder = check_path(named, word)
    if not folder.is_dir():
        raise SnapsError(f"'{word}' must be a folder with .npz files, got '{folder}'")
    return {word: folder, "cache": cache_dir()}


def found_files(spec: Spec, data_dir: str | os.PathLike[str] | None = None) -> dict[str, Path]:
    """The files of a dataset that exist, by the word for their folder."""
    paths = {word: folder / f"{spec.name}.npz" for word, folder in folders(data_dir).items()}
    return {word: path for word, path in paths.items() if path.is_file()}


def how_to_get(spec: Spec) -> str:
    """What to do on a machine without network."""
    return (
        f"run 'snaps datasets fetch {spec.name}' on a machine with network and put its "
        f"{spec.name}.npz and {spec.name}.json into '{cache_dir()}' or into the folder that "
        "SNAPS_DATA names, or set SNAPS_MIRROR to a copy of the upstream sites"
    )


# --- Checksums ---------------------------------------------------------------------------------


def record_path(path: Path) -> Path:
    """The record that `fetch` leaves beside a file."""
    return path.with_suffix(".json")


def sha256(path: Path) -> str:
    """The checksum of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def known_sha256(spec: Spec, path: Path) -> str | None:
    """What a file's checksum should be: the record beside it says, else the data manifest."""
    record = record_path(path)
    if not record.exists():
        return spec.sha256
    try:
        return str(parse_json(record.read_bytes())["sha256"])
    except (OSError, ValueError, KeyError, TypeError):
        raise SnapsError(f"'{record}' must be a JSON record with a 'sha256'") from None


def check_sha256(spec: Spec, path: Path) -> None:
    """Complain about a file that is not what its record, or the data manifest, says."""
    expected = known_sha256(spec, path)
    if expected is None or (actual := sha256(path)) == expected:
        return
    record = record_path(path)
    witness = f"'{record.name}'" if record.exists() else "the data manifest"
    hint = "" if record.exists() else f" (a fetched file needs its {record.name} beside it)"
    raise SnapsError(
        f"'{path}' has the wrong checksum: sha256 {actual[:12]}... where {witness} says "
        f"{expected[:12]}...{hint}"
    )
