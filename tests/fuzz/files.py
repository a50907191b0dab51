"""The attacker of files: bits flipped, bytes cut, moved or added, members of archives exchanged.

Reading the file gives a `SnapsError` of one line, or what the file held before. A member
that is exchanged for another one may make another file, which is no fault; no other exception may
come of it.
"""

from __future__ import annotations

import io
import json
import shutil
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import snaps
from snaps.folder import read_folder, write_folder
from tests.fuzz.arrays import GRAPH, NAMED, PLAIN, Outcome, Target, graph_outcome, outcome
from tests.fuzz.spellings import Array, N, Random

_ROLES = np.where(np.arange(N) < 20, "calib", "test")


# ---- kinds of file: how one is written, and what reading it gives --------------------------------


def _arrays(graph: snaps.Graph) -> dict[str, Array]:
    adjacency, features = graph.adjacency, sp.csr_array(graph.features)
    parts = {f"adj_{each}": getattr(adjacency, each) for each in ("data", "indices", "indptr")}
    parts |= {f"x_{each}": getattr(features, each) for each in ("data", "indices", "indptr")}
    return parts | {"x_shape": np.array(features.shape)}


def _write_npz(place: Path) -> None:
    np.savez(place / "graph.npz", **_arrays(GRAPH))


def _write_small_npz(place: Path) -> None:
    np.savez_compressed(place / "graph.npz", **_arrays(GRAPH))


def _write_outputs(place: Path) -> None:
    given = PLAIN["logits"], PLAIN["features"], PLAIN["labels"]
    snaps.images.Outputs(*given).save(place / "outputs.npz")


def _write_folder(place: Path) -> None:
    classes = np.array(["ant", "bee", "cat"])
    labels = classes[PLAIN["labels"]]
    write_folder(place, NAMED, PLAIN["probs"], labels, _ROLES, classes=classes)


def _write_sparse_folder(place: Path) -> None:
    graph = snaps.Graph(PLAIN["edges"], PLAIN["sparse"], N)
    write_folder(place, graph, PLAIN["probs"], PLAIN["labels"], _ROLES)


def _saver(method: Callable[[], Any], data: bool) -> Callable[[Path], None]:
    def write(place: Path) -> None:
        given = PLAIN["probs"], PLAIN["labels"], PLAIN["nodes"]
        method().calibrate(NAMED, *given, known_nodes=PLAIN["rest"]).save(place / "x.snaps", data)

    return write


def _read_npz(place: Path) -> tuple[Array, ...]:
    return graph_outcome(snaps.Graph.from_npz(place / "graph.npz", weighted=True))


def _read_outputs(place: Path) -> tuple[Array, ...]:
    found = snaps.images.load(place / "outputs.npz")
    return found.logits, found.features, found.labels


def _read_folder(place: Path) -> tuple[Array, ...]:
    found = read_folder(place)
    classes = np.empty(0) if found.classes is None else found.classes
    return (*graph_outcome(found.graph), found.probs, found.labels, found.roles, classes)


def _read_saved(place: Path) -> tuple[Array, ...]:
    found = snaps.load(place / "x.snaps")
    answer = (*outcome(found), found.calib_ids_, found.classes_)
    for verb in (  # what is loaded can be used, or refuses
        lambda: repr(found),
        lambda: found.evaluate(PLAIN["labels"]),
        lambda: found.explain(N - 1),
        found.exchangeability,
        lambda: found.report(place / "report.html"),
        lambda: found.save(place / "again.snaps"),
        lambda: found.recalibrate(NAMED, PLAIN["probs"], refit=False),
    ):
        with suppress(snaps.SnapsError):
            verb()
    return answer


def _read_bare(place: Path) -> tuple[Array, ...]:
    found = snaps.load(place / "x.snaps")
    again = found.recalibrate(NAMED, PLAIN["probs"])
    return (*outcome(again), found.calib_ids_, found.calib_labels_, found.classes_)


KINDS: dict[str, tuple[Callable[[Path], None], Callable[[Path], tuple[Array, ...]]]] = {
    "graph.npz": (_write_npz, _read_npz),
    "compressed graph.npz": (_write_small_npz, _read_npz),
    "outputs.npz": (_write_outputs, _read_outputs),
    "folder": (_write_folder, _read_folder),
    "folder with features.npz": (_write_sparse_folder, _read_folder),
    "saved SNAPS": (_saver(lambda: snaps.SNAPS(0.2, k=4, weights=(0.3, 0.2)), True), _read_saved),
    "saved Pooled": (_saver(lambda: snaps.Pooled(0.4, k=4), True), _read_saved),
    "saved without data": (_saver(lambda: snaps.DAPS(0.2), False), _read_bare),
}


@cache
def _written(kind: str) -> dict[str, bytes]:
    """The files of a kind, by name."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        KINDS[kind][0](Path(folder))
        return {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir())}


# ---- what happens to the bytes -------------------------------------------------------------------


def flipped(raw: bytearray, random: Random) -> bytes:
    raw[random.integers(len(raw))] ^= 1 << random.integers(8)
    return bytes(raw)


def flipped_often(raw: bytearray, random: Random) -> bytes:
    for _ in range(random.integers(2, 20)):
        raw[random.integers(len(raw))] ^= 1 << random.integers(8)
    return bytes(raw)


def overwritten(raw: bytearray, random: Random) -> bytes:
    start, length = random.integers(len(raw)), random.integers(1, 40)
    raw[start : start + length] = random.bytes(len(raw[start : start + length]))
    return bytes(raw)


def zeroed(raw: bytearray, random: Random) -> bytes:
    start, length = random.integers(len(raw)), random.integers(1, 600)
    raw[start : start + length] = bytes(len(raw[start : start + length]))
    return bytes(raw)


def cut(raw: bytearray, random: Random) -> bytes:
    return bytes(raw[: random.integers(len(raw))])


def beheaded(raw: bytearray, random: Random) -> bytes:
    return bytes(raw[random.integers(1, len(raw)) :])


def shortened(raw: bytearray, random: Random) -> bytes:
    start = random.integers(len(raw))
    del raw[start : start + random.integers(1, 40)]
    return bytes(raw)


def lengthened(raw: bytearray, random: Random) -> bytes:
    start = random.integers(len(raw) + 1)
    raw[start:start] = random.bytes(random.integers(1, 40))
    return bytes(raw)


def doubled(raw: bytearray, random: Random) -> bytes:
    return bytes(raw + raw)


BYTES = (
    flipped, flipped, flipped, flipped_often, overwritten, zeroed, cut, beheaded, shortened,
    lengthened, doubled,
)  # fmt: skip


# ---- what happens to the members of an archive ---------------------------------------------------


def _npy(array: Array, **options: Any) -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array(out, array, **options)
    return out.getvalue()


MEMBERS: dict[str, Callable[[Array, Random], bytes]] = {
    "no dimension": lambda a, r: _npy(np.array(3)),
    "empty": lambda a, r: _npy(a[:0] if a.ndim else a),
    "one more axis": lambda a, r: _npy(a[None]),
    "shorter": lambda a, r: _npy(a[: len(a) // 2] if a.ndim else a),
    "twice": lambda a, r: _npy(np.concatenate([a, a]) if a.ndim else a),
    "backwards": lambda a, r: _npy(a[::-1].copy() if a.ndim else a),
    "as text": lambda a, r: _npy(a.astype("U8")),
    "as bytes": lambda a, r: _npy(np.frombuffer(a.tobytes() or b"0", "S1")),
    "as floats": lambda a, r: _npy(a.astype(float) if a.dtype.kind in "iuf" else a),
    "as complex": lambda a, r: _npy(np.zeros(a.shape, complex)),
    "as dates": lambda a, r: _npy(np.zeros(a.shape, "M8[s]")),
    "as records": lambda a, r: _npy(np.zeros(a.shape, [("a", int)])),
    "as objects": lambda a, r: _npy(a.astype(object), allow_pickle=True),
    "nothing": lambda a, r: b"",
    "noise": lambda a, r: r.bytes(200),
    "one other number": lambda a, r: _npy(_other(a, r)),
    "minus one": lambda a, r: _npy(np.full(a.shape, -1)),
    "far numbers": lambda a, r: _npy(np.full(a.shape, 2**62)),
    "nan": lambda a, r: _npy(np.full(a.shape, np.nan)),
    "swapped": lambda a, r: _npy(a.astype(a.dtype.newbyteorder())),
    "bad header": lambda a, r: _npy(a).replace(b"'shape': (", b"'shape': (9" * 3),
    "deep header": lambda a, r: b"\x93NUMPY\x02\x00\x9f\x86\x01\x00" + b"[" * 99_999,
}  # fmt: skip


def _other(array: Array, random: Random) -> Array:
    out = array.copy()
    if out.size and out.dtype.kind in "iuf":
        out.reshape(-1)[random.integers(out.size)] = random.choice([0, 1, 7, 200])
    elif out.size and out.dtype == np.uint8:
        out.reshape(-1)[random.integers(out.size)] ^= 1
    return out


FOREIGN = (
    None, -1, 0, 1, 2, "x", "", [], {}, [1, 2], {"a": 1}, 1e400, float("nan"), 2**70, True, False,
    "0.1", "1/0", "nan", [[1]], 0.5, -0.5, 10**6, "\ud800",
)  # fmt: skip


def _places(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where the values of some JSON are, by keys and positions."""
    if path:
        yield path
    if isinstance(node, dict):
        for key in node:
            yield from _places(node[key], (*path, key))
    elif isinstance(node, list):
        for place in range(min(len(node), 6)):
            yield from _places(node[place], (*path, place))


def _tampered(raw: bytes, random: Random) -> tuple[str, bytes]:
    """A JSON header with a value dropped, renamed or exchanged for a foreign one."""
    header = json.loads(np.lib.format.read_array(io.BytesIO(raw)).tobytes())
    places = list(_places(header))
    path = places[random.integers(len(places))]
    node = header
    for key in path[:-1]:
        node = node[key]
    how = random.integers(6)
    if how == 0:
        del node[path[-1]]
    elif how == 1 and isinstance(node, dict):
        node[f"{path[-1]}x"] = node.pop(path[-1])
    else:
        node[path[-1]] = FOREIGN[random.integers(len(FOREIGN))]
    text = np.frombuffer(json.dumps(header).encode(), np.uint8)
    return f"{path} tampered with ({how})", _npy(text)


def exchanged(raw: bytes, random: Random) -> tuple[str, bytes]:
    """An archive with one member dropped, renamed, listed twice or exchanged for another."""
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    if "header.npy" in members and random.random() < 0.5:
        how, members["header.npy"] = _tampered(members["header.npy"], random)
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as archive:
            for each, content in members.items():
                archive.writestr(each, content)
        return how, out.getvalue()
    name = list(members)[random.integers(len(members))]
    hows = ["dropped", "renamed", "listed twice", "not an array", *MEMBERS]
    how = hows[random.integers(len(hows))]
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for each, content in members.items():
            if each != name or how == "listed twice":
                archive.writestr(each, content)
            if each != name or how == "dropped":
                continue
            if how == "renamed":
                archive.writestr(f"z{each}", content)
            elif how == "not an array":
                archive.writestr(each.removesuffix(".npy"), b"text")
            elif how == "listed twice":
                archive.writestr(each, content)
            else:
                array = np.lib.format.read_array(io.BytesIO(content))
                archive.writestr(each, MEMBERS[how](array, random))
    return f"{name} {how}", out.getvalue()


# ---- a case --------------------------------------------------------------------------------------

_BASE: dict[str, Outcome] = {}


def _outcome(kind: str, files: dict[str, bytes]) -> Outcome:
    place = Path(tempfile.mkdtemp(prefix="fuzz"))
    try:
        for name, content in files.items():
            (place / name).write_bytes(content)
        return Outcome(Target(kind, lambda: KINDS[kind][1](place), {}), {})
    finally:
        shutil.rmtree(place)


def kind_of(seed: int, number: int) -> str:
    """The kind of file that a case is about."""
    return list(KINDS)[np.random.default_rng([seed, number]).integers(len(KINDS))]


def case(seed: int, number: int) -> tuple[str, str]:
    """Play one case; what was done, and what is wrong about what happened ("" if nothing)."""
    random = np.random.default_rng([seed, number])
    kind = list(KINDS)[random.integers(len(KINDS))]
    files = dict(_written(kind))
    if kind not in _BASE:
        _BASE[kind] = _outcome(kind, files)
        assert _BASE[kind].answer is not None, _BASE[kind].message or _BASE[kind].fault
    name = list(files)[random.integers(len(files))]
    if files[name][:2] == b"PK" and random.random() < 0.4:
        what, files[name] = exchanged(files[name], random)
        outcome = _outcome(kind, files)
        return f"{kind}, {name}: {what}", outcome.fault
    change = BYTES[random.integers(len(BYTES))]
    files[name] = change(bytearray(files[name]), random)
    outcome = _outcome(kind, files)
    what = f"{kind}, {name}: {change.__name__}"
    if outcome.fault or outcome.answer is None:
        return what, outcome.fault
    return what, "" if outcome.same(_BASE[kind], close=False) else "another answer"
