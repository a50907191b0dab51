"""Files that lie about their size, their depth or their contents: one line, and little memory."""

from __future__ import annotations

import io
import json
import struct
import subprocess
import sys
import tracemalloc
import zipfile
from contextlib import contextmanager
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp

import snaps
from snaps.datasets.load import known_sha256
from snaps.datasets.registry import DATASETS
from snaps.errors import NotEnoughMemory
from snaps.folder import read_folder, write_folder
from snaps.io import parquet as _parquet
from snaps.io.files import read_npz, write_npz
from tests.helpers import small
from tests.helpers.small import LABELS, NUM_NODES, PROBS, error_line

DAMAGED = "damaged, or not an .npz archive of plain arrays"
GRAPH = {"adj_indptr": np.array([0, 1, 2]), "adj_indices": np.array([1, 0])}


@contextmanager
def at_most(megabytes):
    """The block must not take more memory than this."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < 1e6 * megabytes
    finally:
        tracemalloc.stop()


def npy(header, data=b""):
    """The bytes of an .npy with any header."""
    text = header.encode("latin1") + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data


def pack(path, members, method=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)


def plain(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


# ---- Sizes ---------------------------------------------------------------------------------------


def test_a_member_that_is_not_asked_for_takes_no_memory(tmp_path):
    bomb = plain(np.zeros(4_000_000))
    pack(tmp_path / "g.npz", {k: plain(v) for k, v in GRAPH.items()} | {"junk": bomb})
    small.calibrated().save(tmp_path / "cp.snaps")
    arrays = {k: plain(v) for k, v in read_npz(tmp_path / "cp.snaps").items()}
    pack(tmp_path / "cp.snaps", arrays | {"junk": bomb, "near7_data": bomb})
    folder = small.write(tmp_path / "f")
    small.change(folder, "nodes", features=None)
    pack(folder / "features.npz", {"x": plain(small.FEATURES), "junk": bomb})
    outputs = {"logits": PROBS, "features": small.FEATURES, "labels": LABELS}
    pack(tmp_path / "o.npz", {k: plain(v) for k, v in outputs.items()} | {"junk": bomb})
    assert (tmp_path / "o.npz").stat().st_size < 1e6
    del bomb
    snaps.load(tmp_path / "cp.snaps")  # what is imported and compiled once does not count
    with at_most(20):
        assert snaps.Graph.from_npz(tmp_path / "g.npz").num_nodes == 2
        snaps.load(tmp_path / "cp.snaps").predict_set()
        assert read_folder(folder).graph.features.shape == (60, 4)
        assert len(snaps.images.load(tmp_path / "o.npz").labels) == 60


HEADERS = {
    "more than there is": "{'descr': '<f8', 'fortran_order': False, 'shape': (1099511627776,), }",
    "no bytes an item": "{'descr': '<U0', 'fortran_order': False, 'shape': (1099511627776,), }",
    "negative": "{'descr': '<f8', 'fortran_order': False, 'shape': (-2, -4), }",
    "objects": "{'descr': '|O', 'fortran_order': False, 'shape': (8,), }",
    "records": "{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (8,), }",
    "a table an item": "{'descr': ('<f8', (99999999,)), 'fortran_order': False, 'shape': (), }",
    "brackets": "[" * 9000,
    "more brackets": "[" * 60_000,
    "minus signs": "{'descr': '<f8', 'fortran_order': False, 'shape': " + "-" * 9000 + "1}",
    "nothing": "",
    "too little": "{'descr': '<f8', 'fortran_order': False, 'shape': (7,), }",
}


@pytest.mark.parametrize("header", HEADERS)
def test_headers_of_arrays(tmp_path, header):
    path = tmp_path / "x.npz"
    data = b"" if "<U0" in HEADERS[header] else bytes(64)
    pack(path, {"adj_indptr": npy(HEADERS[header], data), "adj_indices": plain(np.arange(2))})
    with at_most(20):
        assert error_line(snaps.Graph.from_npz, path) == f"cannot read '{path}': {DAMAGED}"


def test_headers_as_numpy_writes_them(tmp_path):
    """In either order, of either version, and of any plain type."""
    table = np.arange(12.0).reshape(3, 4)
    long = np.zeros(2, [("a" * 70_000, "<f8")])  # whose header has another version
    arrays = {
        "c": table, "f": np.asfortranarray(table), "scalar": np.array(3), "none": table[:0],
        "big": table.astype(">f4"), "text": np.array(["", "é"]), "flags": table > 3,
        "dates": np.array(["2020"], "M8[D]"), "complex": table + 1j,
    }  # fmt: skip
    np.savez_compressed(tmp_path / "x.npz", **arrays)
    write_npz(tmp_path / "y.npz", arrays)
    for path in (tmp_path / "x.npz", tmp_path / "y.npz"):
        found = read_npz(path)
        assert list(found) == list(arrays)
        for name, array in arrays.items():
            np.testing.assert_array_equal(found[name], array, strict=True)
            assert found[name].flags.f_contiguous == array.flags.f_contiguous
    with pytest.warns(UserWarning, match="format 2.0"):
        np.savez(tmp_path / "z.npz", long=long)
    assert error_line(read_npz, tmp_path / "z.npz").endswith(DAMAGED)


def declare(path, name, size):
    """Let the directory of an archive say another size of a member."""
    data = bytearray(path.read_bytes())
    place = data.rindex(f"{name}.npy".encode()) - 46 + 24
    data[place : place + 4] = struct.pack("<I", size)
    path.write_bytes(data)


def test_directories_of_archives(tmp_path):
    """Of other sizes, of members twice or on top of one another, and of other compressions."""
    path = tmp_path / "x.npz"
    members = {k: plain(v) for k, v in GRAPH.items()}
    broken = f"cannot read '{path}': {DAMAGED}"
    for size in (0, 10, 4_000_000_000):
        pack(path, members)
        declare(path, "adj_indptr", size)
        with at_most(20):
            assert error_line(snaps.Graph.from_npz, path) == broken
    header = "{'descr': '|u1', 'fortran_order': False, 'shape': (2147483648,), }"
    pack(path, {"adj_indptr": npy(header), "adj_indices": members["adj_indices"]})
    declare(path, "adj_indptr", len(npy(header)) + 2**31)  # which agree with one another
    with at_most(20):
        assert error_line(snaps.Graph.from_npz, path) == broken
    for method in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        pack(path, members, method)
        assert error_line(snaps.Graph.from_npz, path) == broken
    with pytest.warns(UserWarning, match="Duplicate name"), zipfile.ZipFile(path, "w") as archive:
        for _ in range(2):
            archive.writestr("adj_indptr.npy", members["adj_indptr"])
    assert error_line(snaps.Graph.from_npz, path) == broken
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
        first = archive.infolist()[0]
        for copy in range(5):  # names for the same bytes
            again = zipfile.ZipInfo(f"copy{copy}.npy")
            for each in ("header_offset", "CRC", "compress_size", "file_size"):
                setattr(again, each, getattr(first, each))
            archive.filelist.append(again)
            archive.NameToInfo[again.filename] = again
    assert error_line(snaps.Graph.from_npz, path) == broken


SHORT_OF_MEMORY = """
import resource, sys
import numpy as np
import snaps
from snaps.folder import read_folder

read_folder(sys.argv[3])  # what is imported once does not count
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 150_000_000,) * 2)
for read, path in ((snaps.Graph.from_npz, sys.argv[1]), (read_folder, sys.argv[2])):
    try:
        read(path)
    except MemoryError as error:
        print(isinstance(error, snaps.SnapsError), error)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory are Linux's")
def test_too_little_memory_is_no_damage(tmp_path):
    path, folder, tiny = (
        tmp_path / "g.npz",
        small.write(tmp_path / "f"),
        small.write(tmp_path / "t"),
    )
    write_npz(path, GRAPH | {"x": np.zeros((2, 20_000_000), np.float32)}, compress=True)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(60 * 400_000)), 400_000)
    small.change(folder, "nodes", features=lists)
    command = [sys.executable, "-c", SHORT_OF_MEMORY, str(path), str(folder), str(tiny)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300)
    archive, *table = run.stdout.splitlines()
    assert archive == f"True cannot read '{path}': there is not enough memory for it", run.stderr
    assert not any("damaged" in line for line in table)  # some pools of Arrow's hold enough


def test_memory_is_one_line_of_a_command(monkeypatch, capsys, tmp_path):
    from snaps.cli import main

    def fail(*_, **__):
        raise MemoryError("Unable to allocate 9 TiB")

    small.write(tmp_path / "g")
    monkeypatch.setattr("snaps.similarity.similarity_graph", fail)
    with pytest.raises(SystemExit) as ended:
        main(["evaluate", str(tmp_path / "g")])
    message = "snaps: error: there is not enough memory: Unable to allocate 9 TiB\n"
    assert (ended.value.code, capsys.readouterr().err) == (1, message)


@pytest.mark.parametrize("column", ["probs", "features", "src"])
def test_rows_that_no_memory_holds(tmp_path, monkeypatch, column):
    """Equal values cost next to nothing in a file: what they take in memory is found before."""
    folder = small.write(tmp_path)
    monkeypatch.setattr(_parquet, "machine_memory", lambda: 20_000.0)
    kind = "edges" if column == "src" else "nodes"
    wide = pa.array(np.zeros((NUM_NODES, 100)).tolist())
    many = pa.array([small.NAMES[0]] * 1000)
    changes = {"src": many, "dst": many} if column == "src" else {column: wide}
    small.change(folder, kind, **changes)
    with pytest.raises(NotEnoughMemory) as caught:
        read_folder(folder)
    what = {"src": "src and dst in 1000 rows"}.get(column, f"{column} in 60 rows")
    message = f"cannot read '{folder}/{kind}.parquet': {what} take 0.0 GB of memory or more, and"
    assert str(caught.value) == f"{message} this machine has 0.0"


# ---- Depth ---------------------------------------------------------------------------------------

DEEP = ("[" * 100_000, '{"a":' * 100_000, "[" * 100_000 + "]" * 100_000)


@pytest.mark.parametrize("text", DEEP, ids=["open", "objects", "closed"])
def test_json_that_is_nested_deeply(tmp_path, text):
    write_npz(tmp_path / "cp.snaps", {"header": np.frombuffer(text.encode(), np.uint8)})
    message = error_line(snaps.load, tmp_path / "cp.snaps")
    assert message == f"cannot load '{tmp_path}/cp.snaps': not a saved snaps estimator"
    (tmp_path / "cora_ml.json").write_text(text)
    message = error_line(known_sha256, DATASETS["cora_ml"], tmp_path / "cora_ml.npz")
    assert message == f"'{tmp_path}/cora_ml.json' must be a JSON record with a 'sha256'"


# ---- Other arrays than are due -------------------------------------------------------------------


def every_scalar(arrays):
    """The arrays, each in turn of no dimension; numbers, text and a flag."""
    for name in arrays:
        for value in (3, -1, 0.5, "x", True, np.nan):
            yield {**arrays, name: np.array(value)}


@pytest.mark.filterwarnings("ignore::snaps.SnapsWarning")
def test_arrays_of_no_dimension(tmp_path):
    """Each is refused in one line, or makes no difference."""
    path = tmp_path / "x.npz"
    cp, folder = small.calibrated(), small.write(tmp_path / "g")
    cp.save(path)
    saved, clean = read_npz(path), cp.predict_set().mask
    for arrays in every_scalar(saved):
        write_npz(path, arrays)
        try:
            assert (snaps.load(path).predict_set().mask == clean).all()
        except snaps.SnapsError:
            pass
    table = sp.csr_array(small.FEATURES)
    sparse = {f"x_{part}": getattr(table, part) for part in ("data", "indices", "indptr", "shape")}
    graph = {**GRAPH, "adj_data": np.ones(2)}
    for arrays in [*every_scalar(graph | {"x": np.eye(2)}), *every_scalar(graph | sparse)]:
        write_npz(path, arrays)
        try:
            snaps.Graph.from_npz(path)
        except snaps.SnapsError:
            pass
    small.change(folder, "nodes", features=None)
    for kind in ("csr", "csc", "coo", "bsr", "dia"):
        sp.save_npz(folder / "features.npz", getattr(sp, f"{kind}_array")(small.FEATURES))
        whole = dict(np.load(folder / "features.npz"))
        found = read_folder(folder).graph.features.toarray()
        np.testing.assert_array_equal(found, small.FEATURES)
        for arrays in every_scalar(whole):
            write_npz(folder / "features.npz", arrays)
            try:
                np.testing.assert_array_equal(read_folder(folder).graph.features.toarray(), found)
            except snaps.SnapsError:
                pass
    outputs = {"logits": PROBS, "features": small.FEATURES, "labels": LABELS}
    for arrays in every_scalar(outputs):
        write_npz(path, arrays)
        error_line(snaps.images.load, path)


@pytest.mark.parametrize("name", ["row", "col", "shape"])
def test_indices_are_not_rounded(tmp_path, name):
    folder = small.write(tmp_path)
    small.change(folder, "nodes", features=None)
    sp.save_npz(folder / "features.npz", sp.coo_array(small.FEATURES))
    arrays = dict(np.load(folder / "features.npz"))
    write_npz(folder / "features.npz", {**arrays, name: arrays[name] + 0.25})
    message = error_line(read_folder, folder)
    assert message.endswith("must hold a valid sparse matrix: shape, row and col must be integers")


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "bsr", "dia"])
def test_a_sparse_table_of_any_number_of_rows(tmp_path, kind):
    """The rows that it declares are held against the nodes before they take memory."""
    folder = small.write(tmp_path)
    small.change(folder, "nodes", features=None)
    path = folder / "features.npz"
    sp.save_npz(path, getattr(sp, f"{kind}_array")(small.FEATURES))
    write_npz(path, {**np.load(path), "shape": np.array([2**40, 4])})
    with at_most(20):
        message = error_line(read_folder, folder)
    assert message == f"'{path}' must have one row a node (60), got 1099511627776"


# ---- Writing -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [np.longdouble, ">f8", ">f4", np.float16, ">i4"], ids=str)
def test_numbers_of_other_kinds_are_written(tmp_path, kind):
    probs = (PROBS * 8).round().astype(kind)
    write_folder(tmp_path, small.graph(), probs, LABELS)
    np.testing.assert_array_equal(read_folder(tmp_path).probs, probs.astype(np.float64))
    write_folder(tmp_path, small.graph(), probs, classes=["a", "b", "c"])
    np.testing.assert_array_equal(read_folder(tmp_path).probs, probs.astype(np.float64))


def test_what_cannot_be_written(tmp_path):
    graph = small.graph()
    for probs, wrong in {
        "must hold numbers, got complex128": PROBS + 0j,
        "must have at least two classes, got 0": PROBS[:, :0],
        "must have at least two classes, got 1": PROBS[:, :1],
    }.items():
        assert error_line(write_folder, tmp_path / "g", graph, wrong) == f"'probs' {probs}"
    assert not (tmp_path / "g").exists()


def test_objects_are_not_pickled(tmp_path):
    with pytest.raises(ValueError, match="Object arrays cannot be saved"):
        write_npz(tmp_path / "x.npz", {"x": np.array([{}])})
    assert list(tmp_path.iterdir()) == []


NUMBERS = {
    "fraction": (snaps.SAPS(Fraction(1, 7)), {}),
    "longdouble": (snaps.SAPS(np.longdouble(1) / 7), {}),
    "penalty": (snaps.RAPS(k_reg=1, penalty=Fraction(1, 9)), {}),
    "weights": (snaps.APS(), {"weights": (Fraction(1, 3), np.longdouble(1) / 3)}),
    "half": (snaps.APS(), {"weights": (np.float16(0.3), np.float32(0.1))}),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_of_other_kinds_are_saved(tmp_path, name):
    """They are used as floats, and so the sets are the same to the last one."""
    score, options = NUMBERS[name]
    method = snaps.SNAPS(0.2, k=5, score=score, **({"weights": (0.3, 0.2)} | options))
    cp = small.calibrated(method)
    cp.save(tmp_path / "cp.snaps")
    again = snaps.load(tmp_path / "cp.snaps")
    np.testing.assert_array_equal(cp.scores_, again.scores_)
    np.testing.assert_array_equal(cp.predict_set().mask, again.predict_set().mask)
    np.testing.assert_array_equal(small.calibrated(again).scores_, cp.scores_)


def test_what_cannot_be_saved(tmp_path):
    for wrong in ({0.25, 0.5}, {0.25: 1, 0.5: 2}.keys()):
        cp = small.calibrated(snaps.SNAPS(0.2, k=5, weights=wrong))
        message = error_line(cp.save, tmp_path / "cp.snaps")
        assert message.startswith(
            "parameters must be numbers, strings, lists or tuples to be saved"
        )
    groups = np.array([frozenset({1}), frozenset({2})], object)[np.arange(NUM_NODES) % 2]
    cp = small.calibrated(groups=groups)
    message = error_line(cp.save, tmp_path / "cp.snaps")
    assert message.startswith("'groups' must be strings or numbers to be saved, got frozenset(")
    assert list(tmp_path.iterdir()) == []


def test_a_saved_estimator_tells_which_version_wrote_it(tmp_path):
    small.calibrated().save(tmp_path / "cp.snaps")
    header = json.loads(read_npz(tmp_path / "cp.snaps")["header"].tobytes())
    assert header["snaps"] == snaps.__version__


@pytest.mark.parametrize("inner, last", [(2**29, 0), (1, -(2**31))])
def test_row_pointers_that_scipy_passes_over_are_refused(tmp_path, inner, last):
    pointers = np.full(51, inner, np.int32)
    pointers[0], pointers[-1] = 0, last
    arrays = {"data": np.ones(4, np.float32), "indices": np.zeros(4, np.int32), "indptr": pointers}
    write_npz(tmp_path / "graph.npz", {f"adj_{name}": array for name, array in arrays.items()})
    with at_most(50), pytest.raises(snaps.SnapsError, match="indptr must ascend from 0"):
        snaps.Graph.from_npz(tmp_path / "graph.npz")
