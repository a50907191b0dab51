"""What the tests of several commands share: calls, and what they wrote."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

import snaps
from tests.helpers import small
from tests.helpers.small import NUM_NODES

SNAPS = str(Path(sys.executable).with_name("snaps"))

PREDICT, EVALUATE = ["predict", "g", "--out", "sets.parquet"], ["evaluate", "g"]


def shell(*command, **options):
    """Run a command in a process of its own."""
    environment = {**os.environ, "COLUMNS": "120", **options.pop("env", {})}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=300, env=environment, **options
    )


def read_sets(path="sets.parquet"):
    table = pq.read_table(path)
    return dict(zip(table["id"].to_pylist(), table["labels"].to_pylist(), strict=True))


def as_read(sets):
    return {
        id: labels.tolist() for id, labels in zip(sets.ids.tolist(), sets.labels(), strict=True)
    }


def predict(run, *options, note=""):
    """What `snaps predict g --json` reports."""
    code, out, err = run(*PREDICT, "--alpha", 0.2, "--json", *options)
    assert (code, err) == (0, note)
    return same_each_time(json.loads(out))


def same_each_time(report):
    """A report without what it took."""
    assert report.pop("peak_memory") > 0 and report.pop("seconds")["total"] > 0
    return report


def roles_of(**nodes):
    roles = np.full(NUM_NODES, "", "U5")
    for role, places in nodes.items():
        roles[places] = role
    return roles


def read_csv(lines):
    """Sets by id, as `PredictionSets.write` says that they are read."""
    return {
        row["id"]: next(csv.reader([row["labels"]], delimiter=";"), [])
        for row in csv.DictReader(lines)
    }


def as_text(sets):
    return {id: [str(y) for y in labels] for id, labels in as_read(sets).items()}


def sha256(folder, *names):
    files = [folder / f"{name}.parquet" for name in names]
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


COLOURS = np.array(["red", "green", "blue"])
REGIONS = np.array(["north", "south"])[np.arange(NUM_NODES) % 2]


def by_region(**options):
    return small.calibrated(snaps.SNAPS(0.2, **options), named=True, groups=REGIONS)


CALIBRATE = ["calibrate", "g", "--out", "cp.snaps", "--alpha", "0.2"]
WITH = ["--with", "cp.snaps", "--out", "sets.parquet"]


def good(result):
    code, out, err = result
    assert (code, err) == (0, ""), err
    return out
