"""Files appear whole or not at all, and files from elsewhere are read without trust."""

from __future__ import annotations

import errno
import json
import os
import stat
import subprocess
import sys
import tomllib
import zipfile
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

import snaps
from snaps.folder import read_folder, write_folder
from snaps.io.files import atomic_path, read_npz
from tests.helpers import small
from tests.helpers.small import CALIB, LABELS, PROBS, TEST

ROOT = Path(__file__).parents[2]

# ---- Whole or not at all -------------------------------------------------------------------------


@pytest.fixture(params=["can", "another system", "another file system", "no /proc"])
def nameless(request, monkeypatch, tmp_path):
    """Whether files without a name can be written."""
    real = os.open

    def refuse(path, flags, *rest):
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, "Operation not supported")
        return real(path, flags, *rest)

    if request.param == "can":
        if not small.can_be_nameless(tmp_path):
            pytest.skip(f"{tmp_path} can have no file without a name")
        return True
    if request.param == "another system":
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    elif request.param == "another file system":
        monkeypatch.setattr(os, "open", refuse)
    else:
        monkeypatch.setattr("snaps.io.files._opened", lambda handle: Path(f"/nowhere/{handle}"))
    return False


@pytest.mark.parametrize("old", [None, b"old"])
def test_a_file_appears_when_it_is_whole(tmp_path, nameless, old):
    target = tmp_path / "x.bin"
    if old is not None:
        target.write_bytes(old)
    with atomic_path(target) as temporary:
        temporary.write_bytes(b"new")
        assert (target.read_bytes() if target.exists() else None) == old
        hidden = set(os.listdir(tmp_path)) - {"x.bin"}
        assert hidden == (set() if nameless else {temporary.name})
        assert all(name.startswith(".x.bin.") for name in hidden)
    assert target.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["x.bin"]
    assert not open_files(tmp_path)


@pytest.mark.parametrize("old", [None, b"old"])
def test_a_file_gets_its_name_where_links_are_forbidden(tmp_path, monkeypatch, old):
    def refuse(*arguments, **options):
        raise OSError(errno.EPERM if old is None else errno.EEXIST, "no links")

    monkeypatch.setattr(os, "link", refuse)
    target = tmp_path / "x.bin"
    if old is not None:
        target.write_bytes(old)
        target.chmod(0o640)
    with atomic_path(target) as temporary:
        temporary.write_bytes(b"new")
    assert target.read_bytes() == b"new" and os.listdir(tmp_path) == ["x.bin"]
    (tmp_path / "usual").touch()
    usual = stat.S_IMODE((tmp_path / "usual").stat().st_mode) if old is None else 0o640
    assert stat.S_IMODE(target.stat().st_mode) == usual


def open_files(folder):
    """Files of a folder that this process holds open."""
    links = Path("/proc/self/fd")
    found = [os.readlink(one) for one in links.iterdir() if one.is_symlink()]
    return [path for path in found if path.startswith(str(folder))]


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError, OSError("no more")])
def test_the_old_file_stays(tmp_path, nameless, error):
    target = tmp_path / "x.bin"
    target.write_bytes(b"old")
    expected = snaps.SnapsError if isinstance(error, OSError) else error
    with pytest.raises(expected), atomic_path(target) as temporary:
        temporary.write_bytes(b"half of the ne")
        raise error
    assert target.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["x.bin"]


def test_a_file_that_is_replaced_keeps_its_mode(tmp_path, nameless):
    target = tmp_path / "x.bin"
    target.touch()
    target.chmod(0o640)
    with atomic_path(target) as temporary:
        temporary.write_bytes(b"new")
        assert stat.S_IMODE(temporary.stat().st_mode) == 0o600
    assert stat.S_IMODE(target.stat().st_mode) == 0o640


def test_a_file_gets_the_usual_permissions(tmp_path, nameless):
    (tmp_path / "usual").touch()
    with atomic_path(tmp_path / "ours") as temporary:
        temporary.touch()
    usual, ours = ((tmp_path / name).stat().st_mode for name in ("usual", "ours"))
    assert stat.S_IMODE(usual) == stat.S_IMODE(ours)


def test_the_umask_of_other_threads_is_left_alone(tmp_path, nameless, monkeypatch):
    """It is the whole process's: files that another thread opens meanwhile would get it too."""
    before = os.umask(0o027)
    monkeypatch.setattr(os, "umask", None)  # whoever calls it fails
    try:
        with atomic_path(tmp_path / "ours") as temporary:
            temporary.touch()
        assert stat.S_IMODE((tmp_path / "ours").stat().st_mode) == 0o640
    finally:
        monkeypatch.undo()
        os.umask(before)


def test_a_link_stays_a_link(tmp_path, nameless):
    (tmp_path / "deep").mkdir()
    link, target = tmp_path / "link", tmp_path / "deep" / "file"
    link.symlink_to(target)
    with atomic_path(link) as temporary:
        temporary.write_bytes(b"new")
    assert link.is_symlink() and target.read_bytes() == b"new"


# ---- A full disk ---------------------------------------------------------------------------------

FULL_DISK = """
import resource, signal, sys
from pathlib import Path
import matplotlib.font_manager
import numpy as np
import snaps
from snaps.cli.demo import draw
from snaps.folder import write_folder

probs = np.random.default_rng(0).dirichlet(np.ones(4), 20000)
cp = snaps.SplitConformal(0.1).calibrate(None, probs, np.zeros(20000, int), np.arange(100))
graph = snaps.Graph(None, probs)
methods = ("APS", "RAPS", "DAPS", "SNAPS", "Pooled")
results = {name: {"coverage": [0.9], "size": [2.0]} for name in methods}
write = {
    "estimator.npz": cp.save,
    "sets.parquet": cp.predict_set().to_parquet,
    "nodes.parquet": lambda path: write_folder(path.parent, graph, probs),
    "demo.png": lambda path: draw(path, results, {"APS": np.array([1, 2])}, 0.1),
}

# A file may not grow beyond 4 kB: to the writer that is a disk that is full.
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
for name, call in write.items():
    try:
        call(Path(sys.argv[1], name, name))
    except snaps.SnapsError as error:
        print(error)
"""
NAMES = ["estimator.npz", "sets.parquet", "nodes.parquet", "demo.png"]


def test_a_disk_that_is_full(tmp_path):
    for name in NAMES:
        (tmp_path / name).mkdir()
        (tmp_path / name / name).write_bytes(b"the old file")
    command = [sys.executable, "-c", FULL_DISK, str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert (run.returncode, run.stderr) == (0, "")
    for name, message in zip(NAMES, run.stdout.splitlines(), strict=True):
        target = tmp_path / name / name
        assert message == f"cannot write '{target}': File too large"
        assert target.read_bytes() == b"the old file"
        # The edges of a folder are written before its nodes, and whole.
        assert set(os.listdir(target.parent)) - {"edges.parquet"} == {name}


# ---- Reading without trust -----------------------------------------------------------------------


def test_read_npz(tmp_path):
    arrays = {"a": np.arange(5), "b": np.eye(2), "c": np.array(["x", "yz"])}
    np.savez_compressed(tmp_path / "x.npz", **arrays)
    found = read_npz(tmp_path / "x.npz")
    assert list(found) == list(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)


class Bomb:
    """Unpickling this would write a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


@pytest.mark.parametrize("kind", ["npz", "npy", "pickle"])
def test_nothing_is_unpickled(tmp_path, kind):
    path, trace = tmp_path / "x.npz", tmp_path / "trace"
    bomb = np.array([Bomb(str(trace))], object)
    with open(path, "wb") as file:
        if kind == "npz":
            np.savez(file, header=bomb, adj_indptr=bomb, adj_indices=bomb)
        elif kind == "npy":
            np.save(file, bomb)
        else:
            bomb.dump(file)
    for read in (read_npz, snaps.load, snaps.Graph.from_npz):
        with pytest.raises(snaps.SnapsError, match=r"not an \.npz archive of plain arrays"):
            read(path)
    assert not trace.exists()


def test_a_plain_array_is_no_archive(tmp_path):
    np.save(tmp_path / "x.npy", np.eye(3))
    with pytest.raises(snaps.SnapsError, match=r"damaged, or not an \.npz archive"):
        read_npz(tmp_path / "x.npy")


def test_a_foreign_zip(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("header", b'{"format": "snaps-estimator", "version": 1}')
    with pytest.raises(snaps.SnapsError, match="'header' in it is not an array"):
        snaps.load(tmp_path / "x.npz")


def test_a_truncated_file_is_refused_wherever_it_ends(tmp_path):
    path = tmp_path / "x.npz"
    small.calibrated().save(path)
    whole = path.read_bytes()
    for end in np.linspace(0, len(whole) - 1, 60).astype(int):
        path.write_bytes(whole[:end])
        with pytest.raises(snaps.SnapsError, match=r"damaged, or not an \.npz archive"):
            snaps.load(path)


def test_flipped_bits_give_the_same_sets_or_an_error(tmp_path):
    """Bits outside of the checked contents (dates, say) may flip unnoticed; no others."""
    path = tmp_path / "x.npz"
    cp = small.calibrated()
    cp.save(path)
    whole = path.read_bytes()
    refused = 0
    for place in np.linspace(0, len(whole) - 1, 200).astype(int):
        broken = bytearray(whole)
        broken[place] ^= 1 << (place % 8)
        path.write_bytes(broken)
        try:
            again = snaps.load(path)
        except snaps.SnapsError:
            refused += 1
        else:
            assert (again.predict_set().mask == cp.predict_set().mask).all()
    assert refused > 100


# ---- Saving and loading --------------------------------------------------------------------------

ESTIMATORS = {
    "split": snaps.SplitConformal(0.2),
    "split, fraction": snaps.SplitConformal(Fraction(1, 7), score=snaps.THR(), seed=3),
    "split, numpy numbers": snaps.SplitConformal(
        np.float64(0.2), score=snaps.SAPS(np.float32(0.25)), seed=np.int64(2**40)
    ),
    "split, tuned score": snaps.SplitConformal(0.2, score=snaps.RAPS()),
    "daps": snaps.DAPS(0.2, weight=0.4),
    "daps, tuned": snaps.DAPS(0.2),
    "snaps": snaps.SNAPS(0.2, k=5, weights=(0.3, 0.2)),
    "snaps, tuned": snaps.SNAPS(0.2, k=5, score=snaps.RAPS(k_reg=np.int64(1))),
    "snaps, weights in an array": snaps.SNAPS(
        0.2, k=np.int32(5), weights=np.array([0.25, 0.5]), class_conditional=np.bool_(False)
    ),
    "snaps, class thresholds": snaps.SNAPS(
        0.4, k=5, weights=(0.3, 0.2), score=snaps.APS(randomized=False), class_conditional=True
    ),
}


def same_estimator(one, two):
    assert type(one) is type(two)
    assert one.weights_ == two.weights_ and one.score_ == two.score_
    for name in ("threshold_", "scores_", "calib_nodes_", "calib_labels_", "tune_nodes_"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name), strict=True)
    for alpha in (None, 0.3):
        first, second = one.predict_set(alpha=alpha), two.predict_set(alpha=alpha)
        np.testing.assert_array_equal(first.mask, second.mask)
        np.testing.assert_array_equal(first.ids, second.ids, strict=True)
    np.testing.assert_array_equal(one.predict_p(smoothed=True), two.predict_p(smoothed=True))
    assert one.evaluate(LABELS)["coverage"] == two.evaluate(LABELS)["coverage"]
    assert str(one.explain(40)) == str(two.explain(40))


@pytest.mark.parametrize("named", [False, True], ids=["positions", "names"])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_save_and_load(tmp_path, name, named):
    cp = small.calibrated(ESTIMATORS[name], named=named)
    cp.save(tmp_path / "x.npz")
    again = snaps.load(tmp_path / "x.npz")
    same_estimator(cp, again)
    again.save(tmp_path / "y.npz")
    same_estimator(cp, snaps.load(tmp_path / "y.npz"))


def test_save_and_load_without_a_graph(tmp_path):
    cp = snaps.SplitConformal(0.2).calibrate(None, PROBS, LABELS, CALIB)
    cp.save(tmp_path / "x.npz")
    same_estimator(cp, snaps.load(tmp_path / "x.npz"))


def test_save_and_load_without_features(tmp_path):
    graph = snaps.Graph(small.EDGES, num_nodes=small.NUM_NODES, directed=True, self_loops=True)
    with pytest.warns(snaps.SnapsWarning, match="no features"):
        cp = snaps.SNAPS(0.2, weights=(0.3, 0.3)).calibrate(graph, PROBS, LABELS, CALIB)
    cp.save(tmp_path / "x.npz")
    same_estimator(cp, snaps.load(tmp_path / "x.npz"))


def test_a_loaded_estimator_calibrates_anew_as_the_first_one_would(tmp_path):
    cp = small.calibrated(snaps.SNAPS(0.2, k=5))
    cp.save(tmp_path / "x.npz")
    again = small.calibrated(snaps.load(tmp_path / "x.npz"))
    same_estimator(cp, again)


def test_no_pickle_is_written(tmp_path):
    cp = small.calibrated(named=True)
    cp.save(tmp_path / "x.npz")
    assert all(array.dtype != object for array in read_npz(tmp_path / "x.npz").values())


# ---- Files that were tampered with ---------------------------------------------------------------


def header(**changes):
    """Change the header of a saved estimator; names with dots reach into it."""

    def change(arrays):
        head = json.loads(arrays["header"].tobytes())
        for name, value in changes.items():
            *path, last = name.split("__")
            place = head
            for step in path:
                place = place[step]
            place[last] = value
        return {"header": np.frombuffer(json.dumps(head).encode(), np.uint8)}

    return change


def arrays(**changes):
    """Replace arrays of a saved estimator; None leaves one out."""
    return lambda found: changes


NAN = np.full((small.NUM_NODES, 3), np.nan)
FIT = "its contents don't fit together"
TAMPERED = {
    "version 1, this snaps reads 2: calibrate and save it again": header(version=1),
    "version 3, this snaps reads 2": header(version=3),
    "version None, this snaps reads 2": header(version=None),
    "not a saved snaps estimator": header(format="other"),
    "not a saved snaps estimator ": arrays(header=None),
    "not a saved snaps estimator  ": arrays(header=np.array([1.5])),
    "not a saved snaps estimator   ": arrays(header=np.frombuffer(b"[1, 2]", np.uint8)),
    "'MySNAPS' is missing or unknown": header(estimator="MySNAPS"),
    "'probs' is missing or unknown": arrays(probs=None),
    "'calib_ids' is missing or unknown": arrays(calib_ids=None),
    "'calib_labels' is missing or unknown": arrays(calib_labels=None),
    "'calib_scores' is missing or unknown": arrays(calib_scores=None),
    "'tune_ids' is missing or unknown": arrays(tune_ids=None),
    "'adj_indices' is missing or unknown": arrays(adj_indices=None),
    "'near0_indptr' is missing or unknown": arrays(near0_indptr=None),
    "'ids' is missing or unknown": arrays(ids=None),
    "it must hold a valid sparse matrix 'adj_*': index pointer size": arrays(ids=np.arange(3)),
    "'probs' must be finite, got nan in row 0": arrays(probs=NAN),
    "'probs' must be numbers (60, 3), got (60,)": arrays(probs=NAN[:, 0]),
    "'probs' must be numbers (60, 3), got (60, 3)": arrays(probs=np.zeros((60, 3), int)),
    "its nodes must be in its graph": arrays(calib_ids=CALIB + 31),
    "'calib_ids' must be unique, got 0 twice or more": arrays(calib_ids=CALIB * 0),
    "'calib_ids' must be a list of integers or of strings, got": arrays(calib_ids=CALIB + 0.5),
    "'calib_ids' must hold at least one node, got none": arrays(
        calib_ids=CALIB[:0], calib_labels=CALIB[:0]
    ),
    "calibration, tuning and known nodes must not overlap": arrays(
        tune_ids=np.array([3]), tune_labels=np.array([0])
    ),
    "'calib_labels' must have shape (30,), got (29,)": arrays(calib_labels=LABELS[1:30]),
    "'calib_labels' must lie from 0 to 2, or be -1 where unknown, got 9 at node 0": arrays(
        calib_labels=np.full(30, 9)
    ),
    "'calib_labels' must be labelled, got 30 without a label (first: 0)": arrays(
        calib_labels=np.full(30, -1)
    ),
    "'calib_scores' must be numbers (30,), got (29,)": arrays(calib_scores=np.zeros(29)),
    "'calib_scores' must be finite": arrays(calib_scores=np.full(30, np.inf)),
    "it must hold a valid sparse matrix 'adj_*': ": arrays(adj_indices=lambda old: old + 60),
    "it must hold a valid sparse matrix 'adj_*': indptr and indices must be integers": arrays(
        adj_indptr=lambda old: old + 0.5
    ),
    "it must hold a valid sparse matrix 'near0_*': ": arrays(near0_indptr=np.arange(5)),
    "'near0' must be finite, got nan in row 0": arrays(near0_data=lambda old: old * np.nan),
    "'weights' must sum to at most 1, got 0.9 + 0.9": header(scorer__weights=[0.9, 0.9]),
    "'weights' must be (lam, mu), 'tune' or 'minimum', got [1]": header(scorer__weights=[1]),
    "'lam' must be a number from 0 to 1, got nan": header(scorer__weights=[float("nan"), 0]),
    "'scorer' must be mixing or pooling, got 'other'": header(scorer__kind="other"),
    "'classes' must be a list of names, got 3": header(classes=3),
    "'k' must be an integer of at least 1, got 0": header(parameters__k=0),
    "'alpha' must lie strictly between 0 and 1, got 2.0": header(parameters__alpha="2.0"),
    "'penalty' must be a number of at least 0, got -1": header(
        scorer__score={"name": "RAPS", "k_reg": 1, "penalty": -1}
    ),
    "'k' must be an integer of at least 1, got [1]": header(
        scorer__similar={"k": [1], "weighting": "cosine", "search": None}
    ),
    "'weighting' must be cosine or uniform, got 'other'": header(
        scorer__similar={"k": 5, "weighting": "other", "search": None}
    ),
    # To update rows longer than k would write beyond the end of an array.
    "'near0' must have at most 2 neighbours per node": header(
        near=[{"kind": "Similar", "k": 2, "weighting": "cosine", "search": None, "made": None}]
    ),
    "'seed' must be an integer of at least 0, got -1": header(scorer__seed=-1),
    "'used_keys' must be a list of keys, got int64": arrays(used_keys=CALIB),
    "'used' must have finite fingerprints (30, 4), got (30, 3)": arrays(
        used_probs=np.zeros((30, 3))
    ),
    "'alpha' must lie strictly between 0 and 1, got 3.0": header(calibrated_alpha="3.0"),
    f"{FIT} (fingerprints)": header(fingerprints=[1]),
    f"{FIT} (alpha)": header(parameters__alpha="1/0"),
    f"{FIT} (parameter)": header(parameters__more=1),
    f"{FIT} (parameters)": header(parameters=[1, 2]),
    f"{FIT} (score)": header(scorer__score="APS"),
}


@pytest.mark.parametrize("message", TAMPERED)
def test_tampered_files(tmp_path, message):
    path = tmp_path / "x.npz"
    small.calibrated().save(path)
    found = read_npz(path)
    for name, value in TAMPERED[message](found).items():
        found[name] = value(found[name]) if callable(value) else value
    np.savez(path, **{name: array for name, array in found.items() if array is not None})
    with pytest.raises(snaps.SnapsError) as caught:
        snaps.load(path)
    expected = f"cannot load '{path}': {message.partition(' (')[0] if FIT in message else message}"
    assert str(caught.value).startswith(expected.rstrip(" "))


# ---- Sets as Parquet -----------------------------------------------------------------------------


@pytest.mark.parametrize("named", [False, True], ids=["positions", "names"])
def test_sets_as_parquet(tmp_path, named):
    sets = small.calibrated(named=named).predict_set(TEST)
    sets.to_parquet(tmp_path / "sets.parquet")
    table = pq.read_table(tmp_path / "sets.parquet")
    kinds = [str(kind).replace("element", "item") for kind in table.schema.types]
    assert table.column_names == ["id", "labels", "size"]
    assert kinds == ["string" if named else "int64", "list<item: int32>", "int32"]
    assert table["id"].to_pylist() == sets.ids.tolist()
    assert table["labels"].to_pylist() == [labels.tolist() for labels in sets.labels()]
    assert table["size"].to_pylist() == sets.sizes.tolist()


def test_no_sets_as_parquet(tmp_path):
    small.calibrated().predict_set([]).to_parquet(tmp_path / "sets.parquet")
    assert pq.read_table(tmp_path / "sets.parquet").to_pylist() == []


def test_writing_over_a_folder_leaves_no_old_features(tmp_path):
    edges = small.EDGES
    sparse = snaps.Graph(edges, sp.csr_array(small.FEATURES), small.NUM_NODES)
    write_folder(tmp_path, sparse, PROBS)
    assert read_folder(tmp_path).graph.features.shape == (60, 4)
    write_folder(tmp_path, snaps.Graph(edges, num_nodes=small.NUM_NODES), PROBS)
    assert read_folder(tmp_path).graph.features is None


# ---- Outputs beside inputs -----------------------------------------------------------------------


def test_outputs_that_are_inputs_are_refused(tmp_path, monkeypatch, capsys):
    """An input is never written over, whatever name it goes by."""
    from snaps.cli import main

    monkeypatch.chdir(tmp_path)
    small.write(tmp_path / "g")
    inputs = {path: path.read_bytes() for path in (tmp_path / "g").iterdir()}
    os.link("g/nodes.parquet", "hard.parquet")
    os.symlink("g/edges.parquet", "soft.parquet")
    os.mkdir("linked")
    os.rmdir("linked")
    os.symlink("g", "linked")
    for out in ("g/nodes.parquet", "hard.parquet", "soft.parquet", "linked/nodes.parquet"):
        with pytest.raises(SystemExit) as stopped:
            main(["predict", "g", "--alpha", "0.2", "--k", "5", "--out", out])
        assert stopped.value.code == 2
        told = capsys.readouterr().err
        assert told == f"snaps: error: '--out' must not be an input, got '{out}'\n"
    for command in (
        ["predict", "g", "--out", "x.parquet", "--save", "./x.parquet"],
        ["calibrate", "g", "--out", "g/nodes.parquet"],
    ):
        with pytest.raises(SystemExit) as stopped:
            main(command)
        assert stopped.value.code == 2 and "must not be" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in inputs} == inputs


def test_a_private_file_stays_private(tmp_path):
    path = tmp_path / "cp.snaps"
    path.write_bytes(b"")
    path.chmod(0o600)
    small.calibrated().save(path)
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("name", ["nodes.parquet", "edges.parquet"])
def test_flipped_bits_of_a_folder_are_noticed(tmp_path, name):
    """Pages carry checksums: a bit that flips in the data is an error, not another label."""
    folder = small.write(tmp_path / "g")
    path, clean = folder / name, read_folder(folder)
    whole = path.read_bytes()
    refused = 0
    for place in np.linspace(4, len(whole) - 1, 150).astype(int):
        broken = bytearray(whole)
        broken[place] ^= 1 << (place % 8)
        path.write_bytes(broken)
        try:
            again = read_folder(folder)
        except snaps.SnapsError:
            refused += 1
        else:  # a bit of the statistics or of a name that nobody reads
            assert (again.labels == clean.labels).all() and (again.probs == clean.probs).all()
            assert (again.graph.adjacency != clean.graph.adjacency).nnz == 0
            assert (again.roles == clean.roles).all() and (again.graph.ids == clean.graph.ids).all()
    assert refused > 60


# ---- Processes that are killed, and packages that are old ----------------------------------------


def test_killed_at_any_moment(tmp_path):
    """A few moments of each; `make kill` has more, and those of `snaps reproduce`."""
    command = [sys.executable, "-m", "tests.kill", "--times", "6", "--only", "calibrate,folder"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=ROOT)
    assert run.returncode == 0, run.stderr
    calibrate, folder = run.stdout.splitlines()
    assert "killed" in calibrate and "refused" in folder


def test_the_lowest_versions_allowed_are_the_ones_tested():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = project["dependencies"] + project["optional-dependencies"]["test"]
    lowest = dict(line.split(">=") for line in wanted)
    lines = (ROOT / "constraints-lowest.txt").read_text().splitlines()
    tested = dict(line.split("==") for line in lines if not line.startswith("#"))
    assert tested.keys() == lowest.keys()
    for name, version in lowest.items():
        parts = tested[name].split(".")
        assert parts[: version.count(".") + 1] == version.split("."), name
        assert set(parts[version.count(".") + 1 :]) <= {"0"}, name


def test_a_saved_estimator_is_compressed_where_that_pays(tmp_path):
    """Features that are mostly zeros take little room; what cannot shrink is stored as it is."""
    random = np.random.default_rng(0)
    table = np.where(random.random((small.NUM_NODES, 3000)) < 0.01, 1.0, 0.0)
    graph = snaps.Graph(small.EDGES, table)
    cp = snaps.SNAPS(0.2, k=5, weights=(0.3, 0.2)).calibrate(graph, PROBS, LABELS, CALIB)
    cp.save(tmp_path / "cp")
    assert (tmp_path / "cp").stat().st_size < table.nbytes / 10
    with zipfile.ZipFile(tmp_path / "cp") as archive:
        kinds = {each.filename: each.compress_type for each in archive.infolist()}
    assert kinds["x.npy"] == zipfile.ZIP_DEFLATED and kinds["probs.npy"] == zipfile.ZIP_STORED
    np.testing.assert_array_equal(snaps.load(tmp_path / "cp").scores_, cp.scores_)


@pytest.mark.parametrize("directed", [False, True])
def test_weights_of_any_size_are_loaded_as_they_were(tmp_path, directed):
    """Rows are scaled by powers of two of their own; a file has them scaled already."""
    random = np.random.default_rng(1)
    weights = 10.0 ** random.uniform(-290, 290, small.EDGES.shape[1])
    graph = snaps.Graph(
        small.EDGES, small.FEATURES, small.NUM_NODES, weighted=True, edge_weights=weights,
        directed=directed,
    )  # fmt: skip
    cp = snaps.DAPS(0.2, weight=0.9).calibrate(graph, PROBS, LABELS, CALIB)
    cp.save(tmp_path / "cp")
    loaded = snaps.load(tmp_path / "cp")
    np.testing.assert_array_equal(loaded.scores_, cp.scores_)
    np.testing.assert_array_equal(loaded.predict_set().mask, cp.predict_set().mask)
    assert str(loaded.exchangeability()) == str(cp.exchangeability())


def test_the_level_calibrated_for_is_kept(tmp_path):
    """The level may be changed after calibration; a report shows what was tuned for which."""
    cp = small.calibrated(snaps.DAPS(0.2)).set_params(alpha=0.4)
    cp.save(tmp_path / "cp")
    loaded = snaps.load(tmp_path / "cp")
    assert loaded.alpha == 0.4
    pages = []
    for each in (cp, loaded):
        each.report(tmp_path / "page.html")
        pages.append((tmp_path / "page.html").read_text())
    assert pages[0] == pages[1]


@pytest.mark.parametrize("names", [[[1], [2]], [{"a": 1}, 2], {"0": 1}, ["x", "x"], "xy"], ids=str)
def test_groups_of_a_file_are_names(tmp_path, names):
    groups = np.array(["x", "y"])[np.arange(small.NUM_NODES) % 2]
    small.calibrated(groups=groups).save(tmp_path / "cp")
    arrays = read_npz(tmp_path / "cp")
    header = json.loads(arrays["header"].tobytes())
    header["groups"] = names
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
    np.savez(tmp_path / "bad.npz", **arrays)
    message = small.complaint(snaps.load, tmp_path / "bad.npz")
    assert "'groups' must be different strings or numbers" in message
