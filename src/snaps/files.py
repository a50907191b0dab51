"""Files that appear whole or not at all, and archives that are read without trust."""

from __future__ import annotations

import os
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from snaps.errors import SnapsError


@contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary name beside `path` that becomes `path` when the block succeeds.

    Whatever goes wrong (no folder, no permission, a full disk), the old file stays as it was.
    """
    target = Path(path)
    if target.is_dir():
        raise SnapsError(f"cannot write '{target}': it is a folder")
    try:
        handle, name = tempfile.mkstemp(
            prefix=f".{target.name}.", suffix=target.suffix, dir=target.parent
        )
        os.close(handle)
    except OSError as error:
        raise SnapsError(f"cannot write '{target}': {error.strerror}") from error
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o666 & ~_umask())
        os.replace(temporary, target)
    except OSError as error:
        raise SnapsError(f"cannot write '{target}': {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)


def _umask() -> int:
    current = os.umask(0o022)
    os.umask(current)
    return current


def read_npz(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """Read every array of an .npz archive; pickled objects are refused."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise SnapsError(f"cannot read '{path}': not an .npz archive")
            return {name: archive[name] for name in archive.files}
    except OSError as error:
        raise SnapsError(f"cannot read '{path}': {error.strerror or error}") from error
    except (ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        if isinstance(error, SnapsError):
            raise
        raise SnapsError(f"cannot read '{path}': damaged or not an .npz archive") from error
