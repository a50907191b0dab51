"""Files that appear whole or not at all, and archives that are read without trust."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from snaps._checks import check_path
from snaps._errors import SnapsError


def check_writable(path: str | os.PathLike[str]) -> Path:
    """Where a file will lie, links followed, if it can be written there at all."""
    target = Path(os.path.realpath(check_path(path)))
    if target.exists() and not target.is_file():
        kind = "a folder" if target.is_dir() else "not a regular file"
        raise SnapsError(f"cannot write '{path}': it is {kind}")
    if not target.parent.is_dir():
        raise SnapsError(f"cannot write '{path}': there is no folder '{target.parent}'")
    if not os.access(target.parent, os.W_OK):
        raise SnapsError(f"cannot write '{path}': no permission in '{target.parent}'")
    return target


def check_apart(outputs: Mapping[str, Any], inputs: Iterable[Path]) -> None:
    """Files to be written, by the option that names them, must be no inputs and not one another."""
    places: dict[str, Path] = {}
    for name, path in outputs.items():
        target = Path(os.path.realpath(check_path(path)))
        for other in inputs:
            whole = Path(os.path.realpath(other))
            if target == whole or whole in target.parents or _same_file(target, whole):
                raise SnapsError(f"'{name}' must not be an input, got '{path}'")
        for option, taken in places.items():
            if target == taken or _same_file(target, taken):
                raise SnapsError(f"'{name}' must not be the file of '{option}', got '{path}'")
        places[name] = target


def _same_file(one: Path, two: Path) -> bool:
    try:
        return os.path.samefile(one, two)
    except OSError:
        return False


@contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary name beside `path` that becomes `path` when the block succeeds.

    Whatever goes wrong (no folder, no permission, a full disk), the old file stays as it was.
    """
    target = check_writable(path)
    try:
        handle, name = tempfile.mkstemp(
            prefix=f".{target.name}.", suffix=target.suffix, dir=target.parent
        )
        os.close(handle)
    except OSError as error:
        raise SnapsError(f"cannot write '{path}': {error.strerror}") from error
    temporary = Path(name)
    try:
        yield temporary
        # A file that is replaced keeps its mode: what was private stays private.
        temporary.chmod(target.stat().st_mode & 0o7777 if target.exists() else 0o666 & ~_umask())
        os.replace(temporary, target)
    except OSError as error:
        raise SnapsError(f"cannot write '{path}': {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)


def _umask() -> int:
    current = os.umask(0o022)
    os.umask(current)
    return current


def read_npz(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """Read every array of an .npz archive; pickled objects are refused."""
    try:
        file = open(check_path(path), "rb")
    except OSError as error:
        raise SnapsError(f"cannot read '{path}': {error.strerror}") from error
    with file:
        try:
            archive = np.load(file, allow_pickle=False)
            arrays = {name: archive[name] for name in archive.files}
        except Exception as error:  # zipfile, zlib and NumPy raise whatever flipped bits suggest
            raise SnapsError(
                f"cannot read '{path}': damaged, or not an .npz archive of plain arrays"
            ) from error
    # A member that is not an array comes as bytes.
    foreign = [name for name, array in arrays.items() if not isinstance(array, np.ndarray)]
    if foreign:
        raise SnapsError(f"cannot read '{path}': '{foreign[0]}' in it is not an array")
    return arrays


def csr_from_arrays(
    arrays: Mapping[str, np.ndarray], name: str, file: str, shape: Any
) -> sp.csr_array:
    """The matrix that the arrays `name`_indptr, `name`_indices and `name`_data (or ones) make."""
    indptr, indices = arrays[f"{name}_indptr"], arrays[f"{name}_indices"]
    data = arrays.get(f"{name}_data")
    try:
        if indptr.dtype.kind not in "iu" or indices.dtype.kind not in "iu":
            raise TypeError("indptr and indices must be integers")  # SciPy would cut floats
        if data is None:
            data = np.ones(indices.shape, np.float32)
        matrix = sp.csr_array((data, indices, indptr), shape=shape)
        matrix.check_format(full_check=True)
    except Exception as error:  # SciPy has no one error for what may be wrong
        raise SnapsError(f"{file} must hold a valid sparse matrix '{name}_*': {error}") from error
    return matrix


def features_from_arrays(arrays: Mapping[str, np.ndarray], path: Any) -> Any:
    """The features among the arrays of an .npz: `x`, or `x_data` and its kin, or None."""
    if "x" in arrays or "x_indptr" not in arrays:
        return arrays.get("x")
    missing = {"x_data", "x_indices", "x_shape"} - set(arrays)
    if missing:
        raise SnapsError(f"'{path}' must hold the array '{min(missing)}' beside 'x_indptr'")
    shape = tuple(arrays["x_shape"].reshape(-1).tolist())
    return csr_from_arrays(arrays, "x", f"'{path}'", shape)
