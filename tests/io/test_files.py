"""Files appear whole or not at all, and files from elsewhere are read without trust."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

import snaps
from snaps.folder import read_folder, write_folder
from snaps.io.files import atomic_path, read_npz
from tests.helpers import small
from tests.helpers.small import PROBS, TEST

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


def test_a_folder_that_is_gone_is_one_error_and_leaves_nothing_open(tmp_path):
    folder = tmp_path / "gone"
    folder.mkdir()
    before = len(os.listdir("/proc/self/fd"))
    with (
        pytest.raises(snaps.SnapsError, match=r"cannot write '.*x.bin': "),
        atomic_path(folder / "x.bin") as temporary,
    ):
        temporary.write_bytes(b"new")
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()
        folder.write_bytes(b"a file in its place")
    assert len(os.listdir("/proc/self/fd")) == before


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
    monkeypatch.setattr(os, "umask", None)  # any call of it fails
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


# ---- Outputs next to inputs ----------------------------------------------------------------------


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
        error = capsys.readouterr().err
        assert error == f"snaps: error: '--out' must not be an input, got '{out}'\n"
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
        else:  # a bit of the statistics or of a name that is never read
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
