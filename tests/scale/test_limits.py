"""Memory limits change nothing but memory; full disks, ends and interrupts leave nothing behind."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

import snaps
import snaps._runtime.memory as memory
from snaps._runtime.progress import recorded, stage
from snaps.cli._resources import read_size, shown_size
from snaps.folder import read_folder
from snaps.search import approximate as _cells
from tests.helpers import small
from tests.scale.common import N, predict


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
    error = capsys.readouterr().err
    smallest = error.split("at least ")[1].split()[0]
    assert error == (
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


def test_a_full_disk_is_reported_in_a_line(folder, full_disk, monkeypatch, capsys):
    monkeypatch.setattr("snaps.cli._resources.needed", lambda *_: (2**60, 0))
    assert predict("--out", "x.parquet", "--memory", "2GB") == 2
    error = capsys.readouterr().err
    assert error.startswith("snaps: error: cannot write ") and error.count("\n") == 1
    assert error.endswith(": No space left on device\n")
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
if number != signal.SIGKILL:  # the process that runs the tests may ignore it, as nohup does
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


@pytest.mark.parametrize("options", [("--candidates", "50"), ("--neighbours", "exact")])
def test_recall_goes_with_an_approximate_search(folder, capsys, options):
    assert predict("--out", "x.parquet", "--recall", "0.9", *options) == 2
    error = capsys.readouterr().err
    assert (
        error.startswith("snaps: error: '--recall' must be left out with --") and "got 0.9" in error
    )


def test_an_approximate_search_is_reported(folder, capsys, monkeypatch):
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
    ("text", "shown_size"),
    [("8", "8 bytes"), ("0", "0 bytes"), ("8k", "8 kB"), ("8M", "8 MB"), ("0.5GB", "500 MB")],
)
def test_a_forgotten_unit_is_seen(folder, capsys, text, shown_size):
    assert predict("--out", "x.parquet", "--memory", text) == 2
    assert capsys.readouterr().err.endswith(f" for this graph, got {shown_size}\n")


def test_mapped_tables_lie_where_a_link_leads(folder, tmp_path, monkeypatch):
    """The folder of a link need not be one that can be written to."""
    (tmp_path / "far").mkdir()
    os.symlink(tmp_path / "far" / "x.parquet", "link.parquet")
    monkeypatch.setattr("snaps.cli._resources.needed", lambda *_: (2**60, 0))
    used = []
    monkeypatch.setattr("snaps.cli._calibration.place_tables", used.append)
    assert predict("--out", "link.parquet", "--memory", "2GB") == 0
    assert used == [str(tmp_path / "far")] and os.listdir(tmp_path / "far") == ["x.parquet"]


def test_a_missing_id_is_reported_within_a_limit(folder, capsys):
    path = folder / "nodes.parquet"
    pq.write_table(pq.read_table(path).drop_columns(["id"]), path)
    assert predict("--out", "x.parquet", "--memory", "2GB") == 2
    assert "nodes.parquet must have a column 'id', got " in capsys.readouterr().err


@pytest.mark.parametrize("of", ["string", "list", "struct", "null"])
def test_lists_of_no_numbers_are_named_within_a_limit(folder, capsys, of):
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
