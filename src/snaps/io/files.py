"""Files that appear whole or not at all, and archives that are read without trust."""

from __future__ import annotations

import hashlib
import json
import math
import os
import secrets
import shutil
import sys
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
import scipy.sparse as sp

from snaps._checks import check_path, shown
from snaps._runtime.memory import room
from snaps.errors import NotEnoughMemory, SnapsError


def check_writable(path: str | os.PathLike[str]) -> Path:
    """Where a file will lie, links followed, if it can be written there at all."""
    target = _resolved(path)
    if os.path.exists(target) and not os.path.isfile(target):
        kind = "a folder" if os.path.isdir(target) else "not a regular file"
        raise SnapsError(f"cannot write '{path}': it is {kind}")
    if not os.path.isdir(target.parent):
        raise SnapsError(f"cannot write '{path}': there is no folder '{target.parent}'")
    if not os.access(target.parent, os.W_OK):
        raise SnapsError(f"cannot write '{path}': no permission in '{target.parent}'")
    most = os.pathconf(target.parent, "PC_NAME_MAX") if hasattr(os, "pathconf") else 255
    if len(os.fsencode(target.name)) > most:
        raise SnapsError(
            f"cannot write {shown(target.name)}: its name must have at most {most} bytes, "
            f"got {len(os.fsencode(target.name))}"
        )
    return target


def check_output(path: str | os.PathLike[str], name: str = "path") -> str:
    """The format that `PredictionSets.write` would write, if it can: a suffix, or - for stdout."""
    place = check_path(path, name)
    if str(place) == "-":
        if sys.stdout is None:
            raise SnapsError(f"'{name}' must not be -, for standard output is closed")
        return "-"
    suffix = place.suffix.lower()
    if suffix not in FORMATS:
        raise SnapsError(
            f"'{name}' must end in {', '.join(FORMATS)}, or be - for standard output, "
            f"got {shown(str(path))}"
        )
    check_writable(path)
    return suffix


def check_metadata(metadata: Any) -> dict[str, str]:
    """Strings by strings that can be written; none by default."""
    if metadata is None:
        return {}
    texts: list[Any] = [*chain(*metadata.items())] if isinstance(metadata, Mapping) else [None]
    if not all(isinstance(text, str) for text in texts):
        raise SnapsError(f"'metadata' must map strings to strings, got {shown(metadata)}")
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError as error:  # halves of characters
            raise SnapsError(
                f"'metadata' must be text that can be written, got {shown(text)}"
            ) from error
    return dict(metadata)


def check_page(path: str | os.PathLike[str], name: str) -> None:
    """Refuse a name that says that the file is another than an HTML page."""
    if Path(path).suffix.lower() not in (".html", ".htm"):
        raise SnapsError(f"'{name}' must end in .html or .htm, got {shown(str(path))}")


def check_named(path: Path) -> None:
    """Refuse '-', which commands that write to standard output take for it."""
    if str(path) == "-":
        raise SnapsError("'--out' must name a file, got '-'")


def _resolved(path: str | os.PathLike[str]) -> Path:
    """A path with links followed."""
    place = check_path(path)
    if not place.is_absolute():
        check_working_directory()
    return Path(os.path.realpath(place))


def check_working_directory() -> None:
    """The folder that a process runs in may have been deleted."""
    try:
        os.getcwd()
    except OSError as error:
        raise SnapsError("the working directory must exist, got one that was deleted") from error


def check_apart(outputs: Mapping[str, Any], inputs: Iterable[Path]) -> None:
    """Files to be written, by the option that names them, must be no inputs and not one another."""
    targets: dict[str, Path] = {}
    sources = [Path(os.path.realpath(path)) for path in inputs]
    for name, path in outputs.items():
        target = _resolved(path)
        for source in sources:
            if source in target.parents or _same_file(target, source):
                raise SnapsError(f"'{name}' must not be an input, got '{path}'")
        for option, taken in targets.items():
            if _same_file(target, taken):
                raise SnapsError(f"'{name}' must not be the file of '{option}', got '{path}'")
        targets[name] = target


def _same_file(target: Path, other: Path) -> bool:
    try:
        return target == other or os.path.samefile(target, other)
    except OSError:
        return False


@contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a path to be written, which becomes `path` when the block succeeds.

    Whatever goes wrong (no folder, no permission, a full disk), the old file stays as it was. Where
    the system can, the new one has no name before it is whole: nothing is left if we are killed.
    """
    target = check_writable(path)
    # Hidden, in the same folder, and short enough for any name that is itself allowed.
    temporary = target.with_name(f".{target.name[:40]}.{secrets.token_hex(4)}")
    handle = _open_nameless(target.parent)
    try:
        kept = _mode(target) if target.exists() else None
        if handle is None:
            os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        place = temporary if handle is None else _opened(handle)
        usual = _mode(place)  # to ask for the umask would be to change it, for all threads
        place.chmod(0o600)
        yield place
        # A file that is replaced keeps its mode: what was private stays private.
        place.chmod(usual if kept is None else kept)
        if handle is None or not _linked(handle, target):  # no link replaces a file
            if handle is not None and not _linked(handle, temporary):  # links may be forbidden
                shutil.copy(place, temporary)
            os.replace(temporary, target)
    except OSError as error:
        # Arrow wraps the system's words in others, but passes its number on.
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise SnapsError(f"cannot write '{path}': {reason}") from error
    finally:
        if handle is not None:
            os.close(handle)
        with suppress(OSError):  # mostly it is not there
            temporary.unlink()


def _open_nameless(folder: Path) -> int | None:
    """A new file of a folder, without a name; None where system or file system have no such."""
    if not hasattr(os, "O_TMPFILE"):
        return None
    try:
        handle = os.open(folder, os.O_TMPFILE | os.O_RDWR, 0o666)
    except OSError:  # if it is for another reason, a file with a name will tell
        return None
    if os.path.exists(_opened(handle)):
        return handle
    os.close(handle)  # there is no /proc to write it or to name it by
    return None


def _opened(handle: int) -> Path:
    return Path(f"/proc/self/fd/{handle}")


def _linked(handle: int, name: Path) -> bool:
    """Whether an open file without a name could be given one."""
    try:
        # Only with a folder to start from, which a whole path does not need, is the link followed.
        os.link(_opened(handle), name, src_dir_fd=handle, follow_symlinks=True)
    except OSError:
        return False
    return True


def _mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


def sha256(path: str | os.PathLike[str]) -> str:
    """The checksum of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# -- pictures and JSON ---------------------------------------------------------------------------

PICTURES = (".png", ".svg", ".pdf")
FORMATS = (".parquet", ".csv", ".jsonl")  # of sets and lists


def new_axis(height: float = 3.6) -> Any:
    """The one axis of a matplotlib figure, drawn without a screen."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, height), layout="constrained")
    FigureCanvasAgg(figure)
    axis = figure.subplots()
    axis.spines[["top", "right"]].set_visible(False)
    return axis


def check_picture(path: str | os.PathLike[str], name: str = "path") -> str:
    """The format of a picture, by its name."""
    suffix = check_path(path, name).suffix.lower()
    if suffix not in PICTURES:
        raise SnapsError(f"'{name}' must end in {', '.join(PICTURES)}, got {shown(str(path))}")
    return suffix


def finished(axis: Any, title: str, path: str | os.PathLike[str] | None) -> Any:
    """The figure of an axis, with a title; if there is a path, written whole or not at all."""
    axis.set_title(title, fontsize=11)
    if path is not None:
        kind = check_picture(path)
        with atomic_path(path) as temporary:
            axis.figure.savefig(temporary, dpi=150, format=kind[1:])
    return axis.figure


def write_json(path: str | os.PathLike[str], value: Any) -> None:
    """Write a value as JSON, whole or not at all."""
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", "utf-8")


def read_json(path: str | os.PathLike[str], kind: str) -> dict[str, Any]:
    """An object that `write_json` wrote, whose entry `format` says that it is of this kind."""
    try:
        value = parse_json(check_path(path).read_bytes())
    except OSError as error:
        raise SnapsError(f"cannot read '{path}': {error.strerror}") from error
    except ValueError as error:
        raise unreadable(path, error, "not JSON") from error
    if not isinstance(value, dict) or value.get("format") != kind:
        raise SnapsError(f"cannot read '{path}': not a file of format {kind}")
    return value


# -- archives ------------------------------------------------------------------------------------

# What deflate can make of one byte, and what of none: more is a lie about the size.
_MOST_INFLATED, _FREE = 1032, 1024
_CHUNK = 1 << 20
_SAMPLE = 1 << 12  # bytes of each piece of an array that are compressed to see whether it pays
# What a graph may consist of.
GRAPH_ARRAYS = (
    "adj_indptr", "adj_indices", "adj_data", "x", "x_indptr", "x_indices", "x_data", "x_shape",
)  # fmt: skip


class Archive(Mapping[str, np.ndarray]):
    """The arrays of an .npz archive, each read when it is asked for; nothing is unpickled.

    No array takes more memory than the bytes of its member could hold, and members that are not
    asks for take none.
    """

    def __init__(self, path: str | os.PathLike[str], file: IO[bytes]):
        self._path, self._members = path, dict[str, zipfile.ZipInfo]()
        try:
            self._zip = zipfile.ZipFile(file)
            members = self._zip.infolist()
            self._members = {each.filename.removesuffix(".npy"): each for each in members}
            whole = os.fstat(file.fileno()).st_size
            # Members that share bytes would let a small file unfold into any number of arrays.
            if len(self._members) < len(members) or sum(m.compress_size for m in members) > whole:
                raise ValueError("members overlap")
            # Damage to the directory alone may hide members, or give them other names.
            file.seek(-22 - len(self._zip.comment), os.SEEK_END)
            if int.from_bytes(file.read(12)[10:], "little") != len(members):
                raise ValueError("not as many members as the directory says")
            for each in members:
                self._zip.open(each).close()
        except Exception as error:  # zipfile raises whatever flipped bits suggest
            raise self._unreadable(error) from error

    @property
    def comment(self) -> str:
        """What the archive says of itself."""
        return self._zip.comment.decode("ascii", "replace")

    @property
    def sizes(self) -> dict[str, int]:
        """The bytes of each array, as the archive says."""
        return {name: member.file_size for name, member in self._members.items()}

    def header(self, name: str) -> tuple[np.dtype, tuple[int, ...]]:
        """Type and shape of an array, which is not read."""
        member = self._members[name]
        try:
            with self._zip.open(member) as stream:
                return _array_header(stream, member)[:2]
        except Exception as error:
            raise self._unreadable(error) from error

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, name: object) -> bool:
        return name in self._members

    def __getitem__(self, name: str) -> np.ndarray:
        member = self._members[name]
        if not member.filename.endswith(".npy"):
            raise SnapsError(f"cannot read '{self._path}': {shown(name)} in it is not an array")
        try:
            with self._zip.open(member) as stream:
                kind, shape, order = _array_header(stream, member)
                memory = room((member.file_size - stream.tell(),), np.uint8)
                filled = 0
                while block := stream.read(_CHUNK):
                    memory[filled : filled + len(block)] = np.frombuffer(block, np.uint8)
                    filled += len(block)
                if filled < len(memory):
                    raise ValueError("too few bytes")
                return np.ndarray(shape, kind, memory, order=order)
        except SnapsError:  # there is no room for it
            raise
        except Exception as error:  # zipfile, zlib and NumPy have no one error either
            raise self._unreadable(error) from error

    def _unreadable(self, error: Exception) -> SnapsError:
        return unreadable(self._path, error, "damaged, or not an .npz archive of plain arrays")


def _array_header(
    stream: IO[bytes], member: zipfile.ZipInfo
) -> tuple[np.dtype, tuple[int, ...], Literal["C", "F"]]:
    """Type, shape and order of an array, if its member can hold as much."""
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError("a compression that NumPy does not write")
    if member.file_size > _MOST_INFLATED * member.compress_size + _FREE:
        raise ValueError("more bytes than the file could hold")
    try:
        read = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }[np.lib.format.read_magic(stream)]
        shape, fortran, kind = read(stream)
    except Exception as error:  # its nesting may exhaust Python's parser: that is no lack of memory
        raise ValueError("no header of an array") from error
    size = math.prod(shape)
    if kind.kind not in "biufcSUmM":
        raise ValueError("not a plain array")
    if size * kind.itemsize != member.file_size - stream.tell() or (size and not kind.itemsize):
        raise ValueError("not as many bytes as the header says")
    return kind, shape, "F" if fortran else "C"


@contextmanager
def open_npz(path: str | os.PathLike[str]) -> Iterator[Archive]:
    """The arrays of an .npz archive, to be read within the block."""
    try:
        file = open(check_path(path), "rb")
    except OSError as error:
        raise SnapsError(f"cannot read '{path}': {error.strerror}") from error
    with file:
        yield Archive(path, file)


def read_npz(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """Every array of an .npz archive."""
    with open_npz(path) as arrays:
        return dict(arrays)


def write_npz(
    path: str | os.PathLike[str], arrays: Mapping[str, Any], *, compress: bool = False
) -> None:
    """Write an .npz archive, whole or not at all."""
    with atomic_path(path) as temporary:
        pack_npz(temporary, arrays, compress=compress)


def pack_npz(
    path: Path, arrays: Mapping[str, Any], *, compress: bool = False, comment: str = ""
) -> None:
    """Fill an .npz archive, arrays compressed where that pays.

    Objects are refused, as they would be pickled.
    """
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.comment = comment.encode()
        for name, each in arrays.items():
            array, member = np.asanyarray(each), f"{name}.npy"
            pays = compress and _shrinks(array)
            # As text it is compressed like the archive, and a ZipInfo is stored as it is.
            with archive.open(
                member if pays else zipfile.ZipInfo(member), "w", force_zip64=True
            ) as stream:
                np.lib.format.write_array(stream, array, allow_pickle=False)


def _shrinks(array: np.ndarray) -> bool:
    """Whether compression takes off a quarter, by samples of the array."""
    flat = array.ravel(order="K")
    count = max(_SAMPLE // max(array.itemsize, 1), 1)
    starts = np.linspace(0, max(len(flat) - count, 0), 16, dtype=np.int64)
    sample = b"".join(flat[start : start + count].tobytes() for start in np.unique(starts))
    return len(zlib.compress(sample, 1)) < 0.75 * len(sample)


def unreadable(path: Any, error: BaseException, otherwise: str) -> SnapsError:
    """What to say of a file that could not be read: a lack of memory is no damage."""
    if isinstance(error, MemoryError):
        return NotEnoughMemory(f"cannot read '{path}': there is not enough memory for it")
    if isinstance(error, (FileNotFoundError, PermissionError)) and error.strerror:
        otherwise = error.strerror.lower()
    return SnapsError(f"cannot read '{path}': {otherwise}")


def parse_json(text: str | bytes | bytearray) -> Any:
    """JSON that need not be trusted; a ValueError whatever is wrong with it."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("JSON that is nested too deeply") from error


def csr_from_arrays(
    arrays: Mapping[str, np.ndarray], name: str, file: str, shape: Any
) -> sp.csr_array:
    """The matrix that the arrays `name`_indptr, `name`_indices and `name`_data (or ones) make."""
    indptr, indices = arrays[f"{name}_indptr"], arrays[f"{name}_indices"]
    data = arrays.get(f"{name}_data")
    try:
        if indptr.dtype.kind not in "iu" or indices.dtype.kind not in "iu":
            raise TypeError("indptr and indices must be integers")  # SciPy would cut floats
        if indptr[:1].any() or (indptr[1:] < indptr[:-1]).any():  # it checks no empty matrix
            raise ValueError("indptr must ascend from 0")
        if data is None:
            data = np.ones(indices.shape, np.float32)
        matrix = sp.csr_array((data, indices, indptr), shape=shape)
        matrix.check_format(full_check=True)
    except MemoryError as error:
        raise NotEnoughMemory(f"{file} takes more memory than there is") from error
    except Exception as error:  # SciPy has no one error for what may be wrong
        raise SnapsError(f"{file} must hold a valid sparse matrix '{name}_*': {error}") from error
    return matrix


def features_from_arrays(arrays: Mapping[str, np.ndarray], path: Any) -> Any:
    """The features among the arrays of an .npz: `x`, or `x_data` and its kin, or None."""
    if "x" in arrays or "x_indptr" not in arrays:
        return arrays.get("x")
    missing = {"x_data", "x_indices", "x_shape"} - set(arrays)
    if missing:
        raise SnapsError(f"'{path}' must hold the array '{min(missing)}' next to 'x_indptr'")
    shape = tuple(arrays["x_shape"].reshape(-1).tolist())
    return csr_from_arrays(arrays, "x", f"'{path}'", shape)
