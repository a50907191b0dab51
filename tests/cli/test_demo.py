"""`snaps demo`: what it prints and writes."""

from __future__ import annotations

import json

import pyarrow.parquet as pq

import snaps
from tests.cli.common import SNAPS, read_sets, shell


def test_demo_as_a_program(tmp_path):
    done = shell(SNAPS, "demo", "--nodes", "400", "--out", "d", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert all(name in done.stdout for name in ("APS", "RAPS", "DAPS", "SNAPS", "coverage"))
    written = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    graph = ("nodes.parquet", "edges.parquet", "features.npz")
    assert written == {
        "d/demo.png",
        "d/report.html",
        "d/sets.parquet",
        *(f"d/graph/{name}" for name in graph),
    }
    assert (tmp_path / "d" / "demo.png").read_bytes().startswith(b"\x89PNG")
    assert (
        "Next: snaps predict d/graph --method pooled --alpha 0.05 --out sets.parquet" in done.stdout
    )


def test_sets_of_the_demo_say_how_they_were_made(here, run):
    run("demo", "--nodes", 200, "--out", "d", "--seed", 3)
    made = pq.read_schema(here / "d" / "sets.parquet").metadata
    assert made[b"snaps.method"] == b"Pooled" and made[b"snaps.seed"] == b"3"
    assert made[b"snaps.version"] == snaps.__version__.encode()


def test_demo(here, run):
    code, out, err = run("demo", "--nodes", 300, "--alpha", 0.1, "--out", "d", "--json")
    assert (code, err) == (0, "")
    report = json.loads(out)
    methods = ["APS", "RAPS", "DAPS", "SNAPS", "Pooled"]
    assert [row["method"] for row in report["results"]] == methods
    assert all(abs(row["coverage"] - 0.9) < 0.05 for row in report["results"])
    again = ["--method", "pooled", "--alpha", 0.1, "--out", "again.parquet"]
    assert run("predict", "d/graph", *again)[0] == 0
    assert read_sets("again.parquet") == read_sets("d/sets.parquet")
