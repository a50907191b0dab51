"""Memory, predicted and measured."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from snaps.cli import main
from snaps.cli._resources import needed, shape_of
from snaps.io.folders import open_folder

N = 900


def needs(folder, estimator, **options):
    """Bytes that a prediction from a folder is said to take, in memory and mapped."""
    with open_folder(folder) as files:
        return needed(shape_of(files, **options), estimator)


def predict(*options):
    with pytest.raises(SystemExit) as ended:
        main(["predict", "g", *options])
    return ended.value.code


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
    not os.path.exists("/proc/self/status"), reason="the system does not report it"
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
