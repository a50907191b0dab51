"""Large graphs: blocks, mapped files and memory limits change no answer."""

import errno
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

import snaps
import snaps._runtime.memory as memory
from snaps._kernels.aggregation import neighbour_mean
from snaps._kernels.linking import link
from snaps._runtime.progress import recorded, stage
from snaps._runtime.threads import limit_threads
from snaps.cli import main
from snaps.cli._resources import needed, read_size, shape_of, shown_size
from snaps.datasets import make_graph
from snaps.folder import read_folder, write_folder
from snaps.io.folders import open_folder
from snaps.models import smoothed_regression
from snaps.predictor.estimator import method_of
from snaps.scoring import context as _context
from snaps.scoring import regression as _regression
from snaps.scoring.evidence import Evidence
from snaps.search import approximate as _cells
from tests.helpers import small

N = 900
METHODS = [
    snaps.SplitConformal(0.1),
    snaps.DAPS(0.1),
    snaps.SNAPS(0.1, k=8),
    snaps.SNAPS(0.1, k=8, score=snaps.RAPS()),
    snaps.SNAPS(0.1, k=8, candidates=300, class_conditional=True),
    snaps.Pooled(0.1, k=8),
]


@pytest.fixture(scope="module")
def data():
    made = make_graph(N, 5, seed=3)
    order = np.random.default_rng(0).permutation(N)
    probs = smoothed_regression(made.graph, made.labels, order[:100])
    return made, probs, order[:100], order[100:500], order[500:]


@pytest.fixture
def in_blocks(monkeypatch):
    """All tables are large, and blocks hold few rows."""
    monkeypatch.setattr(memory, "LARGE", 1)
    monkeypatch.setattr(memory, "BLOCK", 1 << 12)


def needs(folder, estimator, **options):
    """Bytes that a prediction from a folder is said to take, in memory and mapped."""
    with open_folder(folder) as files:
        return needed(shape_of(files, **options), estimator)


def calibrated(method, data):
    made, probs, known, calib, _ = data
    evidence = {"known_nodes": known} if method_of(method).uses_evidence else {}
    cp = type(method)(**method.get_params())
    return cp.calibrate(made.graph, probs, made.labels, calib, **evidence)


# ---- The same answer -----------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS, ids=repr)
@pytest.mark.parametrize("mapped", [False, True])
def test_blocks_and_mapped_files_change_no_bit(monkeypatch, tmp_path, data, method, mapped):
    test = data[-1]
    whole = calibrated(method, data)
    expected = whole.scores_, whole.predict_set(test).mask, whole.predict_set(test[:9]).mask
    monkeypatch.setattr(memory, "LARGE", 1)
    monkeypatch.setattr(memory, "BLOCK", 1 << 12)
    with memory.placed(tmp_path if mapped else None), limit_threads(1 + mapped):
        cp = calibrated(method, data)
        assert cp.part_weights_ == whole.part_weights_ and cp.neighbours_ == whole.neighbours_
        np.testing.assert_array_equal(cp.threshold_, whole.threshold_)
        for found, wanted in zip(
            (cp.scores_, cp.predict_set(test).mask, cp.predict_set(test[:9]).mask),
            expected,
            strict=True,
        ):
            np.testing.assert_array_equal(found, wanted)
        told, expected = cp.explain(test[3]), whole.explain(test[3])
        np.testing.assert_array_equal(told.mixed, whole.scores_[test[3]])
        assert str(told) == str(expected)
        if isinstance(method, snaps.Pooled):
            np.testing.assert_array_equal(cp.probs_, whole.probs_)
        assert os.listdir(tmp_path) == []


def test_splits_are_evaluated_alike(in_blocks, monkeypatch, data):
    made, probs, _, calib, test = data
    pool = np.concatenate([calib, test])
    asked = (made.graph, probs, made.labels, pool, 200)
    in_parts = snaps.evaluate_splits(snaps.SNAPS(0.1, k=8), *asked, n_splits=20)
    monkeypatch.undo()
    whole = snaps.evaluate_splits(snaps.SNAPS(0.1, k=8), *asked, n_splits=20)
    for name, values in whole.items():
        np.testing.assert_array_equal(in_parts[name], values)


def test_coverage_obeys_its_law_in_blocks(in_blocks, data):
    made, probs, _, calib, test = data
    pool = np.concatenate([calib, test])
    result = snaps.evaluate_splits(
        snaps.SNAPS(0.1, k=8, weights=(0.3, 0.3)), made.graph, probs, made.labels, pool, 300,
        n_splits=400,
    )  # fmt: skip
    law = snaps.conformal.coverage_law(300, len(pool) - 300, 0.1)
    spread = law.std() / (len(pool) - 300) / np.sqrt(400)
    # Splits of one pool are drawn anew each time, the sets of a node are not: four deviations.
    assert abs(result["coverage"].mean() - law.mean() / (len(pool) - 300)) < 4 * spread


def test_means_over_some_rows(data):
    adjacency = data[0].graph.adjacency
    for width in (1, 4, 47):
        table = np.random.default_rng(width).random((N, width))
        whole = neighbour_mean(adjacency, table)
        dense = adjacency.toarray() @ table / np.maximum(adjacency.sum(axis=1), 1)[:, None]
        linked = np.diff(adjacency.indptr) > 0
        np.testing.assert_allclose(whole[linked], dense[linked], rtol=1e-12)
        np.testing.assert_array_equal(whole[~linked], table[~linked])
        for some in (slice(0, 10), slice(333, 700), slice(890, N)):
            np.testing.assert_array_equal(neighbour_mean(adjacency, table, rows=some), whole[some])


@dataclass
class Scaled(snaps.Score):
    """APS without its draws, in another unit; equal to others, and without a hash."""

    unit: float

    def compute(self, probs, draws):
        return self.unit * snaps.APS(randomized=False).compute(probs, draws)


@pytest.mark.parametrize("in_parts", [False, True])
def test_scores_of_any_size_are_averaged_alike(monkeypatch, data, in_parts):
    """Beyond single precision as well: a power of two changes no rounding."""
    if in_parts:
        monkeypatch.setattr(memory, "LARGE", 1)
        monkeypatch.setattr(memory, "BLOCK", 1 << 12)
    small, large = (
        calibrated(snaps.SNAPS(0.1, k=8, weights=(0.3, 0.3), score=Scaled(unit)), data)
        for unit in (1.0, 2.0**200)
    )
    np.testing.assert_array_equal(2.0**200 * small.scores_, large.scores_)
    heavy = calibrated(snaps.SNAPS(0.1, k=8, score=snaps.RAPS(k_reg=1, penalty=1e50)), data)
    assert np.isfinite(heavy.scores_).all()


def test_scores_are_averaged_in_single_precision(data):
    """Half the bytes that the means fetch; a node's own score keeps all of its digits."""
    from snaps.scoring.local import Inputs
    from snaps.scoring.parts import Averaged, Links, Mean, Own

    made, probs, *_ = data
    inputs, own = Inputs.read(made.graph, probs), Own(snaps.APS(), 0)
    table, single = inputs.get(own), inputs.get(Averaged(own))
    assert table.dtype == np.float64 and single.dtype == np.float32
    np.testing.assert_array_equal(table.astype(np.float32), single)
    mean = neighbour_mean(made.graph.adjacency, single, table, exact=True)
    np.testing.assert_array_equal(inputs.get(Mean(Links(), own)), mean)


@pytest.mark.parametrize("both", [True, False])
@pytest.mark.parametrize("loops", [True, False])
def test_edges_as_a_matrix(both, loops):
    rng = np.random.default_rng(0)
    for n, count in ((1, 0), (1, 3), (7, 40), (30_000, 50_000)):
        source, target = rng.integers(n, size=(2, count))
        rank = rng.permutation(n).astype(np.int32)
        keep = (source != target) | loops
        ends = np.stack([source, target])[:, keep]
        if both:
            ends = np.hstack([ends, ends[::-1]])
        expected = sp.coo_array((np.ones(ends.shape[1]), tuple(ends)), (n, n)).tocsr()
        found = link(source, target, rank, both, loops)
        assert (found.data == 1).all() and found.nnz == expected.nnz
        rows = np.repeat(np.arange(n), np.diff(found.indptr))
        same = rows[1:] == rows[:-1]
        assert (np.diff(rank[found.indices])[same] > 0).all()
        assert ((found != 0) != (expected != 0)).nnz == 0  # SciPy sorts to compare


# ---- Files and limits ----------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path, monkeypatch, data):
    """A graph folder whose files have many row groups."""
    made, probs, known, calib, _ = data
    roles = np.full(N, "test", "U5")
    roles[known], roles[calib] = "valid", "calib"
    write_folder(tmp_path / "g", made.graph, probs, made.labels, roles)
    for name in ("nodes", "edges"):
        path = tmp_path / "g" / f"{name}.parquet"
        pq.write_table(pq.read_table(path), path, row_group_size=100)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "g"


def predict(*options):
    with pytest.raises(SystemExit) as ended:
        main(["predict", "g", *options])
    return ended.value.code


def test_row_groups_are_read_one_after_another(folder, data):
    made, probs, *_ = data
    read = read_folder(folder)
    np.testing.assert_array_equal(read.probs, probs)
    features = made.graph.features
    same = read.graph.features != (features if sp.issparse(features) else np.asarray(features))
    assert not (same.nnz if sp.issparse(same) else same.any())
    assert (read.graph.adjacency != made.graph.adjacency).nnz == 0


def test_a_memory_limit_changes_nothing_but_memory(folder, capsys):
    assert predict("--out", "whole.parquet", "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert predict("--out", "x.parquet", "--memory", "1MB") == 2
    told = capsys.readouterr().err
    smallest = told.split("at least ")[1].split()[0]
    assert told == (
        f"snaps: error: '--memory' must be at least {smallest} for this graph, got 1 MB\n"
    )
    assert predict("--out", "least.parquet", "--memory", smallest, "--json") == 0
    again = json.loads(capsys.readouterr().out)
    for one in (report, again):
        assert one.pop("seconds")["total"] > 0 and one.pop("peak_memory") > 0 and one.pop("out")
    assert again == report
    assert pq.read_table("whole.parquet").equals(pq.read_table("least.parquet"))
    assert sorted(os.listdir()) == ["g", "least.parquet", "whole.parquet"]


@pytest.fixture
def full_disk(monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(memory, "BLOCK", 1 << 12)
    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)


def test_a_full_disk_is_no_fault_of_a_matrix(full_disk, tmp_path):
    table = sp.random_array((1000, 50), density=0.5, format="csr", rng=0)
    with memory.placed(tmp_path), pytest.raises(snaps.SnapsError, match=r"^cannot write 0 MB to '"):
        snaps.Graph(None, table)


def test_a_full_disk_is_told_in_a_line(folder, full_disk, monkeypatch, capsys):
    monkeypatch.setattr("snaps.cli._resources.needed", lambda *_: (2**60, 0))
    assert predict("--out", "x.parquet", "--memory", "2GB") == 2
    told = capsys.readouterr().err
    assert told.startswith("snaps: error: cannot write ") and told.count("\n") == 1
    assert told.endswith(": No space left on device\n")
    assert os.listdir() == ["g"]


def test_who_is_killed_leaves_nothing_behind(folder):
    code = (
        "import os, signal, sys, snaps._runtime.memory as m\n"
        "import snaps.cli._resources as r\n"
        "from snaps.sets import PredictionSets\n"
        "m.BLOCK = 4096; r.needed = lambda *_: (2**60, 0)\n"
        "PredictionSets.write = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)\n"
        "from snaps.cli import main\n"
        "main(['predict', 'g', '--out', 'x.parquet', '--memory', '2GB'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=300)
    assert done.returncode == -9, done.stderr
    assert os.listdir() == ["g"]


@pytest.mark.parametrize(
    "options",
    [
        ["--method", "snaps", "--candidates", "100"],
        ["--method", "daps"],
        ["--method", "split"],
        ["--method", "pooled"],
        ["--with", "m.snaps"],
    ],
)
def test_stages_add_up_to_the_whole_time(folder, capsys, options):
    assert predict("--out", "x.parquet", "--save", "m.snaps") == 0
    capsys.readouterr()
    assert predict("--out", "x.parquet", "--json", *options) == 0
    seconds = json.loads(capsys.readouterr().out)["seconds"]
    total = seconds.pop("total")
    assert 0.9 * total <= sum(seconds.values()) <= total
    assert {"reading", "calibration", "scores", "sets", "writing", "summary"} <= set(seconds)


def test_a_stage_within_another_counts_once(monkeypatch):
    moments = iter(range(100))
    monkeypatch.setattr("time.perf_counter", lambda: next(moments))
    with recorded() as seconds, stage("outer"):
        with stage("inner"), stage("innermost"):
            pass
        with pytest.raises(RuntimeError), stage("inner"):
            raise RuntimeError
    assert seconds == {"outer": 3, "inner": 3, "innermost": 1}


WRITING = """
import os, signal, sys
from pyarrow.parquet import ParquetWriter
number, ignored = map(int, sys.argv[1:])
if number != signal.SIGKILL:  # whoever runs the tests may ignore it, as nohup does
    signal.signal(number, signal.SIG_IGN if ignored else signal.SIG_DFL)
real = ParquetWriter.write_table
def write(writer, table):  # the end of the file is written after
    real(writer, table)
    os.kill(os.getpid(), number)
ParquetWriter.write_table = write
from snaps.cli import main
main(["predict", "g", "--out", "x.parquet"])
"""


def ended_while_writing(number, ignored=False):
    command = [sys.executable, "-c", WRITING, str(int(number)), str(int(ignored))]
    return subprocess.run(command, capture_output=True, timeout=100)


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGTERM, 128 + signal.SIGTERM),
        (signal.SIGHUP, 128 + signal.SIGHUP),
        (signal.SIGKILL, -signal.SIGKILL),
    ],
)
def test_who_ends_while_writing_leaves_no_half_of_a_file(folder, number, code):
    if number == signal.SIGKILL and not small.can_be_nameless(folder):
        pytest.skip(f"{folder} can have no file without a name")
    done = ended_while_writing(number)
    assert (done.returncode, done.stderr) == (code, b"")
    assert os.listdir() == ["g"]


def test_who_ignores_the_end_of_the_terminal_goes_on(folder):
    done = ended_while_writing(signal.SIGHUP, ignored=True)
    assert done.returncode == 0, done.stderr
    assert sorted(os.listdir()) == ["g", "x.parquet"]


def test_features_beside_the_nodes_count_as_they_unfold(tmp_path):
    """An archive may be a thousandth of its table."""
    graph, n = snaps.Graph([[0], [1]], num_nodes=2000), 2000
    write_folder(tmp_path, graph, np.full((n, 4), 0.25), np.zeros(n), np.full(n, "calib"))
    bare = needs(tmp_path, snaps.SNAPS())
    np.savez_compressed(tmp_path / "features.npz", x=np.ones((n, 500), np.float32))
    assert (tmp_path / "features.npz").stat().st_size < 10**5
    whole, least = needs(tmp_path, snaps.SNAPS())
    assert whole - bare[0] >= 4 * 500 * n and least - bare[1] >= 4 * 500 * n
    assert needs(tmp_path, snaps.SNAPS(candidates=100))[1] < least  # the search copies nothing


def test_nodes_with_names_are_read_in_batches(tmp_path, data):
    made, probs, *_ = data
    adjacency, features = made.graph.adjacency, made.graph.features
    names = np.array([f"node {i} \u00e9" for i in np.random.default_rng(2).permutation(N)])
    graph = snaps.Graph(adjacency, features, ids=names)
    write_folder(tmp_path, graph, probs, made.labels, np.full(N, "calib"))
    path = tmp_path / "edges.parquet"
    edges = pq.read_table(path)
    pq.write_table(edges, path, row_group_size=100)
    assert (read_folder(tmp_path).graph.adjacency != adjacency).nnz == 0
    for wrong, rule in (
        ("nobody", "must name nodes of the graph, got nobody"),
        (names[0] + "\0", "must not hold the character NUL, got 'node .*' in row 150"),
    ):
        ends = edges["dst"].to_pylist()
        ends[150] = wrong
        pq.write_table(edges.set_column(1, "dst", [ends]), path, row_group_size=100)
        with pytest.raises(snaps.SnapsError, match=f"edges.parquet column 'dst' {rule}"):
            read_folder(tmp_path)


# Runs what it is given, and prints the most anonymous memory that this took: mapped pages of files
# are no part of it.
MEASURE = """
import re, sys, threading, time
def anonymous():
    with open("/proc/self/status") as file:
        return 1024 * int(re.search(r"RssAnon:\\s*(\\d+)", file.read())[1])
most, done = [], threading.Event()
def watch():
    while not done.is_set():
        most.append(anonymous())
        time.sleep(0.002)
import pyarrow.dataset, pyarrow.parquet, snaps
from snaps.folder import read_folder
from snaps._runtime.memory import placed
before = anonymous()
threading.Thread(target=watch, daemon=True).start()
with placed("."):
    exec(sys.argv[1])
    done.set()
print(max(most) - before)
"""
MEASURED = pytest.mark.skipif(
    not os.path.exists("/proc/self/status"), reason="the system does not tell"
)


def memory_of(code):
    command = [sys.executable, "-c", MEASURE, code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return int(done.stdout.split()[-1])


def write_plainly(columns, n, num_edges=100, **options):
    """A graph folder in the current one, its nodes in row groups of all rows by default."""
    ends = np.random.default_rng(0).integers(n - 1, size=(2, num_edges))
    ids = columns.setdefault("id", pa.array(np.arange(n)))
    os.mkdir("g")
    pq.write_table(pa.table(columns), "g/nodes.parquet", use_dictionary=False, **options)
    edges = {"src": ids.take(pa.array(ends[0])), "dst": ids.take(pa.array(ends[1]))}
    pq.write_table(pa.table(edges), "g/edges.parquet")


def listed(table):
    return pa.FixedSizeListArray.from_arrays(pa.array(table.reshape(-1)), table.shape[1])


@MEASURED
@pytest.mark.parametrize("kind", ["columns", "lists", "narrow groups", "equal", "whole numbers"])
def test_mapped_tables_are_read_without_a_copy_in_memory(kind, tmp_path, monkeypatch):
    """Whatever the row groups are: it took four to seven times the table."""
    monkeypatch.chdir(tmp_path)
    n, width = 40_000, 1000
    rng = np.random.default_rng(0)
    if kind == "columns":
        n, width = 400_000, 50
        table = rng.dirichlet(np.ones(width), n)
        columns = {f"p_{i}": table[:, i] for i in range(width)}
    else:
        table = rng.random((n, width), np.float32)
        table = np.full_like(table, 7) if kind == "equal" else table
        table = (table * 100).astype(np.int32) if kind == "whole numbers" else table
        columns = {"features": listed(table), "probs": listed(np.full((n, 2), 0.5))}
    write_plainly(columns, n, row_group_size=2000 if kind == "narrow groups" else n)
    assert memory_of("read_folder('g')") < 1.5 * table.nbytes
    found = read_folder("g")
    np.testing.assert_array_equal(found.probs if kind == "columns" else found.graph.features, table)


@MEASURED
@pytest.mark.parametrize("lone", [False, True])
def test_sparse_features_are_mapped(tmp_path, monkeypatch, lone):
    """Also where a row has a single entry, and is scaled in a copy."""
    monkeypatch.chdir(tmp_path)
    n, width, each = 100_000, 5000, 100
    write_plainly({"probs": listed(np.full((n, 2), 0.5))}, n)
    rng = np.random.default_rng(0)
    columns = rng.integers(width // each, size=(n, each)) + np.arange(0, width, width // each)
    ends = columns.reshape(-1), np.arange(0, n * each + 1, each)
    table = sp.csr_array((rng.random(n * each), *ends), shape=(n, width))
    if lone:
        table.data[1:each] = 0
        table.eliminate_zeros()
    sp.save_npz("g/features.npz", table, compressed=False)
    search = "snaps.similarity.prepare(snaps._checks.features.check_features(read.graph.features))"
    assert memory_of(f"read = read_folder('g')\n{search}") < 12 * table.nnz  # and was three times
    assert (read_folder("g").graph.features != table).nnz == 0
    whole, least = needs(tmp_path / "g", snaps.SNAPS(candidates=10))
    assert whole - least > 2 * 12 * table.nnz
    sp.save_npz("g/features.npz", table.tocsc(), compressed=False)
    assert needs(tmp_path / "g", snaps.SNAPS(candidates=10))[1] - least > 12 * table.nnz


# Runs `snaps predict` and prints the most anonymous memory and the most memory of the process.
PREDICTING = """
import re, sys, threading, time
import snaps.cli._resources as resources
from snaps.cli import main
def held(name):
    with open("/proc/self/status") as file:
        return 1024 * int(re.search(name + r":\\s*(\\d+)", file.read())[1])
most, done = [], threading.Event()
def watch():
    while not done.is_set():
        most.append(held("RssAnon"))
        time.sleep(0.002)
threading.Thread(target=watch, daemon=True).start()
if sys.argv[1] == "mapped":
    resources.needed = lambda *_: (2**60, 0)
try:
    main(["predict", "g", "--out", "x.csv", "--memory", "900GB", *sys.argv[2:]])
except SystemExit as end:
    done.set()
    assert not end.code
print(max(most), held("VmHWM"))
"""


def predicted_within(how, *options):
    """The memory that predicting takes, with large tables mapped or not."""
    command = [sys.executable, "-c", PREDICTING, how, *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    anonymous, whole = map(int, done.stdout.split()[-2:])
    return anonymous if how == "mapped" else whole


# Folders of (nodes, edges, classes, columns of features), each heavy in a line of docs/scale.md.
HEAVY = {
    "graph": (200_000, 3_000_000, 2, 2, snaps.SplitConformal(), ["--method", "split"]),
    "classes": (50_000, 100, 200, 2, snaps.SplitConformal(), ["--method", "split"]),
    "features": (40_000, 100, 2, 500, snaps.SNAPS(candidates=50), ["--candidates", "50"]),
    "neighbours": (60_000, 100, 2, 4, snaps.SNAPS(k=100, candidates=200),
                   ["--k", "100", "--candidates", "200"]),
    "approximate": (80_000, 100, 2, 8, snaps.SNAPS(neighbours="approximate"),
                    ["--neighbours", "approximate"]),
    "pooled": (30_000, 30_000, 20, 16, snaps.Pooled(candidates=50),
               ["--method", "pooled", "--candidates", "50"]),
}  # fmt: skip


@MEASURED
@pytest.mark.parametrize("kind", HEAVY)
def test_a_prediction_stays_within_its_bound(tmp_path, monkeypatch, kind):
    """The bound of `--memory`, in memory and with large tables mapped."""
    monkeypatch.chdir(tmp_path)
    n, num_edges, num_classes, width, estimator, options = HEAVY[kind]
    rng = np.random.default_rng(0)
    roles = np.full(n, "test", object)
    roles[:1000], roles[1000:2000] = "calib", "train"
    columns = {
        "probs": listed(rng.dirichlet(np.ones(num_classes), n)),
        "features": listed(rng.random((n, width), np.float32)),
        "label": rng.integers(num_classes, size=n),
        "role": pa.array(roles),
    }
    write_plainly(columns, n, num_edges)
    whole, least = needs(tmp_path / "g", estimator)
    assert predicted_within("mapped", *options) < least
    assert predicted_within("whole", *options) < whole
    assert whole < 2 * 10**9  # which is not what would do for any graph


@MEASURED
def test_one_long_id_does_not_fill_the_memory(tmp_path, monkeypatch):
    """In an array of strings each takes the bytes of the longest."""
    monkeypatch.chdir(tmp_path)
    n, longest = 20_000, 4000
    ids = [f"n{i}" for i in range(n - 1)] + ["x" * longest]
    probs = listed(np.full((n, 2), 0.5))
    columns = {"id": pa.array(ids), "probs": probs, "label": np.arange(n) % 2}
    write_plainly({**columns, "role": ["calib", "test"] * (n // 2)}, n)
    taken = memory_of(
        "data = read_folder('g')\n"
        "cp = snaps.SplitConformal(0.1)\n"
        "cp.calibrate(data.graph, data.probs, data.labels, data.nodes('calib'))\n"
        "cp.predict_set(data.nodes('test')).write('sets.csv')"
    )
    assert taken < 4 * longest * n  # and was three times as much
    table = np.genfromtxt("sets.csv", str, delimiter=",", skip_header=1)
    assert [name.strip('"') for name in table[:, 0]] == ids[1::2]
    least, whole = sorted(needs(tmp_path / "g", snaps.SplitConformal()))
    assert whole > 3 * 4 * longest * n > least - 700 * 10**6


def test_numbers_of_several_types_have_a_common_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    columns = {"p_0": pa.array([1, 0], pa.int8()), "p_1": pa.array([0, 1], pa.float32())}
    write_plainly(columns, 2, 1)
    found = read_folder("g").probs
    assert found.dtype == np.float32 and found.tolist() == [[1, 0], [0, 1]]


def test_columns_that_part_files_leave_out_or_keep_otherwise(tmp_path, monkeypatch):
    """A batch has the type that all parts have in common."""
    monkeypatch.chdir(tmp_path)
    parts = {"p_0": pa.array([1, 0], pa.int32())}, {"p_0": pa.array([0.25, 0.5])}
    write_plainly({"p_0": [1.0, 0.0], "p_1": [0.0, 1.0]}, 2, 1)
    os.remove("g/nodes.parquet")
    for i, part in enumerate(parts):
        os.makedirs(f"g/nodes.parquet/p_1={i}")
        table = pa.table({"id": [2 * i, 2 * i + 1], **part})
        pq.write_table(table, f"g/nodes.parquet/p_1={i}/part.parquet")
    assert read_folder("g").probs.tolist() == [[1, 0], [0, 0], [0.25, 1], [0.5, 1]]
    pq.write_table(pa.table({"id": [4]}), "g/nodes.parquet/p_1=0/other.parquet")
    with pytest.raises(snaps.SnapsError, match="column 'p_0' must not be null, got null in row 0"):
        read_folder("g")


@pytest.mark.parametrize("first", [{"id": pa.array([], pa.int64())}, {}, {"id": [7, 8]}])
def test_lists_that_the_first_part_file_leaves_out(tmp_path, monkeypatch, first):
    monkeypatch.chdir(tmp_path)
    probs = listed(np.full((3, 2), 0.5))
    write_plainly({"probs": probs}, 3, 1)
    os.rename("g/nodes.parquet", "part")
    os.mkdir("g/nodes.parquet")
    os.rename("part", "g/nodes.parquet/b.parquet")
    pq.write_table(pa.table(first), "g/nodes.parquet/a.parquet")
    if first.get("id"):
        with pytest.raises(
            snaps.SnapsError, match="column 'probs' must not be null, got null in row 0"
        ):
            read_folder("g")
    else:
        assert read_folder("g").probs.tolist() == [[0.5, 0.5]] * 3
        needs(tmp_path / "g", snaps.SNAPS())


@pytest.mark.parametrize("options", [("--candidates", "50"), ("--neighbours", "exact")])
def test_recall_goes_with_an_approximate_search(folder, capsys, options):
    assert predict("--out", "x.parquet", "--recall", "0.9", *options) == 2
    told = capsys.readouterr().err
    assert (
        told.startswith("snaps: error: '--recall' must be left out with --") and "got 0.9" in told
    )


def test_an_approximate_search_is_told(folder, capsys, monkeypatch):
    monkeypatch.setattr(_cells, "ENOUGH", 20)
    monkeypatch.setattr(_cells, "WORTH", 2.0)
    assert predict("--out", "x.parquet", "--neighbours", "approximate") == 0
    assert "\nsimilar nodes: approximate, recall 0." in capsys.readouterr().out
    assert predict("--out", "x.parquet") == 0
    assert "similar nodes" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "size"),
    [("8GB", 8 * 10**9), ("8GiB", 2**33), ("1.5g", 15 * 10**8), ("500 MB", 5 * 10**8)],
)
def test_sizes(text, size):
    assert read_size(text, "--memory") == size
    assert shown_size(8 * 10**9) == "8.0 GB"


@pytest.mark.parametrize(
    ("text", "told"),
    [("8", "8 bytes"), ("0", "0 bytes"), ("8k", "8 kB"), ("8M", "8 MB"), ("0.5GB", "500 MB")],
)
def test_a_forgotten_unit_is_seen(folder, capsys, text, told):
    assert predict("--out", "x.parquet", "--memory", text) == 2
    assert capsys.readouterr().err.endswith(f" for this graph, got {told}\n")


def test_mapped_tables_lie_where_a_link_leads(folder, tmp_path, monkeypatch):
    """The folder of a link need not be one that can be written to."""
    (tmp_path / "far").mkdir()
    os.symlink(tmp_path / "far" / "x.parquet", "link.parquet")
    monkeypatch.setattr("snaps.cli._resources.needed", lambda *_: (2**60, 0))
    used = []
    monkeypatch.setattr("snaps.cli._calibration.place_tables", used.append)
    assert predict("--out", "link.parquet", "--memory", "2GB") == 0
    assert used == [str(tmp_path / "far")] and os.listdir(tmp_path / "far") == ["x.parquet"]


def test_a_missing_id_is_told_within_a_limit(folder, capsys):
    path = folder / "nodes.parquet"
    pq.write_table(pq.read_table(path).drop_columns(["id"]), path)
    assert predict("--out", "x.parquet", "--memory", "2GB") == 2
    assert "nodes.parquet must have a column 'id', got " in capsys.readouterr().err


@pytest.mark.parametrize("of", ["string", "list", "struct", "null"])
def test_lists_of_no_numbers_are_told_as_such_within_a_limit(folder, capsys, of):
    path = folder / "nodes.parquet"
    value = {"string": "a", "list": [1.0], "struct": {"a": 1}, "null": None}[of]
    nodes = pq.read_table(path)
    place = nodes.column_names.index("probs")
    column = pa.array([[value]] * N)
    pq.write_table(nodes.set_column(place, "probs", column), path)
    assert predict("--out", "x.parquet", "--memory", "2GB") == 2
    rule = f"nodes.parquet column 'probs' must be a list of numbers, got {column.type}"
    assert rule.split("<")[0] in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "much", "-1GB", "8 GBB", "8ib", "1e9"])
def test_what_is_no_size(folder, capsys, text):
    assert predict("--out", "x.parquet", "--memory", text) == 2
    rule = f"'--memory' must be a size such as 8GB or 500MB, got {text!r}"
    assert capsys.readouterr().err == f"snaps: error: {rule}\n"


# ---- Linear models of many labels ----------------------------------------------------------------


def test_a_regression_is_accumulated_in_blocks(monkeypatch, data):
    """The same model whatever the blocks, and guesses that never saw the node's own label."""
    rng = np.random.default_rng(0)
    rows, labels = rng.normal(size=(300, 12)), rng.integers(3, size=300)
    evidence = Evidence(np.arange(300), np.arange(300, dtype=np.uint64), labels)
    whole = _regression.solve(lambda some: rows[some], 12, evidence, 3)
    monkeypatch.setattr(_regression, "ROWS", 64)
    parts = _regression.solve(lambda some: rows[some], 12, evidence, 3)
    np.testing.assert_allclose(parts.coefficients, whole.coefficients, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(parts.left_out, whole.left_out, rtol=1e-10, atol=1e-12)
    # Which ridge was chosen follows from the coefficients; then by brute force.
    target = np.eye(3)[labels]

    def fitted(rows, target, ridge):
        return np.linalg.solve(rows.T @ rows + ridge * np.eye(12), rows.T @ target)

    ridge = next(
        r for r in _regression.RIDGES if np.allclose(fitted(rows, target, r), whole.coefficients)
    )
    for i in (0, 70, 299):
        others = np.arange(300) != i
        guess = rows[i] @ fitted(rows[others], target[others], ridge)
        np.testing.assert_allclose(parts.left_out[i], guess, rtol=1e-8)


@pytest.mark.parametrize("kind", [np.int8, np.float16, np.int32, np.float32])
@pytest.mark.parametrize("file", ["features.npy", "features.npz"])
def test_features_count_as_the_floats_that_they_become(tmp_path, monkeypatch, kind, file):
    monkeypatch.chdir(tmp_path)
    n, width = 1000, 600
    write_plainly({"probs": listed(np.full((n, 2), 0.5))}, n)
    least = needs(tmp_path / "g", snaps.SNAPS())[0]
    table = np.ones((n, width), kind)
    np.save(f"g/{file}", table) if file.endswith("npy") else np.savez(f"g/{file}", x=table)
    floats = read_folder("g").graph.features.astype(np.promote_types(kind, np.float32))
    own = table.nbytes if kind == np.float32 else table.nbytes + floats.nbytes
    # As read, in a copy with lone entries scaled, and as the search among all nodes has them.
    assert needs(tmp_path / "g", snaps.SNAPS())[0] - least >= 2 * own + 4 * n * width - n * 500


def test_names_of_groups_count(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    n, longest = 1000, 5000
    names = pa.array(["a" * longest] * n)
    write_plainly({"probs": listed(np.full((n, 2), 0.5)), "group": names}, n)
    without, least = needs(tmp_path / "g", snaps.SplitConformal())
    assert needs(tmp_path / "g", snaps.SplitConformal(), group_by="group") == (
        without + 12 * n * longest,
        least,
    )


@MEASURED
def test_features_are_summed_up_in_blocks(tmp_path, monkeypatch):
    """It took the table in double precision, and four of 136 columns."""
    monkeypatch.chdir(tmp_path)
    n, width = 60_000, 400
    write_plainly({"probs": listed(np.full((n, 2), 0.5))}, n)
    table = np.random.default_rng(0).random((n, width), np.float32)
    np.save("g/features.npy", table)
    code = "read = read_folder('g')\nsnaps.scoring.context.summary(read.graph)"
    assert memory_of(f"import snaps.scoring.context\n{code}") < 1.5 * table.nbytes


@pytest.mark.parametrize("width", [300, 5000])
@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
def test_features_are_summed_up_in_few_blocks(monkeypatch, make, width):
    """Each adds a table of all columns: wide rows must not come a few at a time."""
    counts = []
    real = _context.blocks
    monkeypatch.setattr(_context, "blocks", lambda *all: counts.append(real(*all)) or counts[-1])
    table = np.random.default_rng(0).random((1000, width)) * (np.arange(width) % 7 == 0)
    summed = _context.summary(snaps.Graph(None, make(table)))
    assert [len(parts) for parts in counts] == [3 if make is np.asarray and width == 5000 else 1]
    monkeypatch.undo()
    monkeypatch.setattr(_context, "_block_rows", lambda features: 100)
    again = _context.summary(snaps.Graph(None, make(table)))
    np.testing.assert_allclose(summed @ summed.T, again @ again.T, atol=1e-9)


def test_names_are_looked_up_many_at_a_time(tmp_path, monkeypatch):
    """Each look hashes all of the names: reading would grow with nodes times edges."""
    import pyarrow.compute as pc

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("snaps.io.parquet._MOST_ROWS", 100)
    n, num_edges, looks = 1000, 30_000, []
    probs = listed(np.full((n, 2), 0.5))
    write_plainly({"id": pa.array([f"n{i}" for i in range(n)]), "probs": probs}, n, num_edges)
    real = pc.index_in
    monkeypatch.setattr(pc, "index_in", lambda *names: looks.append(1) or real(*names))
    graph = read_folder("g").graph
    assert 2 < len(looks) < 40
    ends = np.random.default_rng(0).integers(n - 1, size=(2, num_edges))
    assert (graph.adjacency != snaps.Graph(ends, num_nodes=n).adjacency).nnz == 0
    edges = pq.read_table("g/edges.parquet")
    wrong = pa.array([*edges["dst"].to_pylist()[:-1], "nobody"])
    pq.write_table(edges.set_column(1, "dst", wrong), "g/edges.parquet")
    with pytest.raises(snaps.SnapsError, match="'dst' must name nodes of the graph, got nobody"):
        read_folder("g")


def test_a_column_twice_is_told(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_plainly({"probs": listed(np.full((3, 2), 0.5))}, 3, 1)
    nodes = pq.read_table("g/nodes.parquet")
    pq.write_table(nodes.append_column("id", nodes["id"]), "g/nodes.parquet")
    with pytest.raises(snaps.SnapsError, match="must have each column once, got one twice"):
        read_folder("g")


@MEASURED
def test_known_labels_are_propagated_a_few_folds_at_a_time(tmp_path, monkeypatch):
    """All folds at once took 36 tables of scores, which are not mapped if they are small."""
    monkeypatch.chdir(tmp_path)
    n, num_classes = 30_000, 60
    labels, roles = np.arange(n) % num_classes, np.full(n, "test", object)
    roles[:2000], roles[2000:12_000] = "calib", "train"
    probs = listed(np.full((n, num_classes), 1 / num_classes))
    write_plainly({"probs": probs, "label": labels, "role": pa.array(roles)}, n)
    taken = memory_of(
        "data = read_folder('g')\n"
        "cp = snaps.Pooled(0.1, parts=('own', 'propagated'))\n"
        "cp.calibrate(data.graph, data.probs, data.labels, data.nodes('calib'),\n"
        "             known_nodes=data.nodes('train'))"
    )
    assert taken < 28 * 8 * n * num_classes


@MEASURED
@pytest.mark.parametrize(
    ("method", "code"),
    [
        (snaps.Pooled(candidates=10), "import snaps.scoring.context as c\nc.summary(read.graph)"),
        (
            snaps.SNAPS(),
            "import snaps.search.approximate as c\nc._singular_vectors(read.graph.features)",
        ),
    ],
)
def test_singular_vectors_of_wide_features_count(tmp_path, monkeypatch, method, code):
    """They have a row for each column, which no file helps with: it took six such tables."""
    monkeypatch.chdir(tmp_path)
    n, width, each = 1000, 50_000, 20
    write_plainly({"probs": listed(np.full((n, 2), 0.5))}, n)
    columns = np.random.default_rng(0).integers(width, size=(n, each))
    ends = np.repeat(np.arange(n), each), columns.reshape(-1)
    table = sp.coo_array((np.ones(n * each), ends), shape=(n, width)).tocsr()
    sp.save_npz("g/features.npz", table)
    _, least = needs(tmp_path / "g", method)
    taken = memory_of(f"read = read_folder('g')\n{code}")
    assert 8 * 136 * width < taken < least - 600 * 10**6


@MEASURED
def test_means_at_some_nodes_of_a_dense_graph_are_made_in_blocks(tmp_path, monkeypatch):
    """Two steps from a few thousand nodes are all edges, which took seven times the graph."""
    monkeypatch.chdir(tmp_path)
    n, num_edges = 20_000, 4_000_000
    roles = np.full(n, "test", object)
    roles[:1000], roles[1000:6000] = "calib", "train"
    columns = {"probs": listed(np.full((n, 2), 0.5)), "label": np.arange(n) % 2}
    write_plainly({**columns, "role": pa.array(roles)}, n, num_edges)
    np.save("g/features.npy", np.random.default_rng(0).random((n, 4), np.float32))
    read = "data = read_folder('g')\n"
    work = (
        "cp = snaps.Pooled(0.1, k=2, parts=('own', 'regression'), candidates=50)\n"
        "cp.calibrate(data.graph, data.probs, data.labels, data.nodes('calib'),\n"
        "             known_nodes=data.nodes('train'))"
    )
    taken = min(memory_of(read + work) for _ in range(2))  # the first may compile
    assert taken - memory_of(read) < 16 * num_edges
