"""`snaps report`: the report of the library, on what predict writes."""

from __future__ import annotations

import json

import numpy as np
import pytest

import snaps
from snaps.folder import write_folder
from tests.helpers import small
from tests.report.common import Page

pytestmark = pytest.mark.usefixtures("here")
REPORT = ("report", "g", "--alpha", 0.2, "--out", "r.html")


def test_the_command_reports_on_what_predict_writes(run, tmp_path):
    code, out, err = run(*REPORT, "--show", "node-7")
    assert (code, err) == (0, "") and out.endswith("wrote r.html\n")
    page = Page(tmp_path / "r.html")
    cp = small.calibrated(snaps.SNAPS(0.2), named=True)
    assert page.numbers["coverage"] == [cp.evaluate(small.LABELS, small.TEST)["coverage"]]
    assert page.numbers["size"] == [cp.predict_set(small.TEST).sizes.mean()]
    assert "Prediction sets · g" in page.text
    assert "g (SHA-256: nodes.parquet " in page.text
    code, out, _ = run(*REPORT, "--json")
    assert code == 0 and json.loads(out)["nodes"] == len(small.TEST)


def test_the_command_with_a_kept_predictor(run, tmp_path):
    assert run("calibrate", "g", "--alpha", 0.2, "--out", "m.snaps")[0] == 0
    assert run(*REPORT)[0] == 0
    whole = (tmp_path / "r.html").read_bytes()
    assert run("report", "g", "--with", "m.snaps", "--out", "r.html")[0] == 0
    assert (tmp_path / "r.html").read_bytes() == whole


def test_the_command_shows_what_watch_has_counted(run, tmp_path):
    assert run("calibrate", "g", "--alpha", 0.2, "--out", "m.snaps")[0] == 0
    audited = "".join(f"{small.NAMES[i]},{small.LABELS[i]}\n" for i in small.TEST[:12])
    (tmp_path / "audit.csv").write_text(f"id,label\n{audited}")
    assert run("watch", "m.snaps", "g", "--labels", "audit.csv")[0] == 0
    code, _, err = run("report", "g", "--with", "m.snaps", "--out", "r.html")
    assert (code, err) == (0, "") and "12 audited labels" in Page(tmp_path / "r.html").text
    code, _, err = run("report", "g", "--with", "m.snaps", "--alpha", 0.3, "--out", "r.html")
    assert code == 0 and "m.snaps.watch.json' is left out of the report" in err
    assert "audited labels" not in Page(tmp_path / "r.html").text


def test_nodes_that_trained_are_not_reported_on(run, tmp_path):
    roles = small.ROLES.copy()
    roles[small.TEST] = ""
    roles[small.TEST[:10]] = "train"
    small.write(tmp_path / "g", roles=roles)
    assert run(*REPORT)[0] == 0
    assert Page(tmp_path / "r.html").numbers["n_nodes"] == [20]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("report", "nowhere", "--out", "r.html"), "cannot read 'nowhere': no such folder"),
        (("report", "g", "--out", "no/r.html"), "cannot write 'no/r.html': there is no folder"),
        (("report", "g", "--out", "-"), "'--out' must name a file, got '-'"),
        (("calibrate", "g", "--out", "-"), "'--out' must name a file, got '-'"),
        (("report", "g", "--out", "g"), "cannot write 'g': it is a folder"),
        (("report", "g", "--out", "g/nodes.parquet"), "'--out' must not be an input"),
        (("report", "g", "--out", "r.pdf"), "'--out' must end in .html or .htm, got 'r.pdf'"),
        ((*REPORT, "--show", "ann"), "'--show' must name nodes of the folder, got 'ann'"),
        (("report", "g", "--with", "g/nodes.parquet", "--out", "r.html"), "cannot"),
        ((*REPORT, "--threshold", "keep"), "'--threshold' must go with --with"),
        ((*REPORT, "--alpha", 2), "'--alpha' must"),
    ],
)
def test_bad_input_of_the_command(run, arguments, words):
    code, out, err = run(*arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("snaps: error: ") and words in err


@pytest.mark.parametrize(
    ("column", "words"),
    [("probs", "must have a column 'probs'"), ("label", "column 'label' must be given"),
     ("role", "must mark calibration nodes 'calib'")],
)  # fmt: skip
def test_a_folder_that_lacks_something(run, tmp_path, column, words):
    small.change(tmp_path / "g", "nodes", **{column: None})
    code, out, err = run(*REPORT)
    assert (code, out, err.count("\n")) == (2, "", 1) and words in err


def test_a_predictor_of_another_version(run, tmp_path):
    assert run("calibrate", "g", "--alpha", 0.2, "--out", "m.snaps")[0] == 0
    with np.load(tmp_path / "m.snaps") as archive:
        arrays = dict(archive)
    header = json.loads(arrays["header"].tobytes()) | {"version": 99}
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
    with open(tmp_path / "m.snaps", "wb") as file:
        np.savez(file, **arrays)
    code, _, err = run("report", "g", "--with", "m.snaps", "--out", "r.html")
    assert code == 2 and "version" in err and err.count("\n") == 1


@pytest.mark.parametrize("method", ["snaps", "daps", "pooled"])
def test_the_command_with_a_kept_threshold_on_another_graph(run, tmp_path, method):
    """Of the calibration nodes the other folder has a third."""
    assert run("calibrate", "g", "--alpha", 0.2, "--method", method, "--out", "m.snaps")[0] == 0
    kept = np.arange(20, small.NUM_NODES)
    places = np.full(small.NUM_NODES, -1)
    places[kept] = np.arange(len(kept))
    edges = places[small.EDGES]
    edges = edges[:, (edges >= 0).all(axis=0)]
    graph = snaps.Graph(edges, small.FEATURES[kept], ids=small.NAMES[kept])
    given = small.PROBS[kept], small.LABELS[kept], small.ROLES[kept]
    write_folder(tmp_path / "other", graph, *given)
    kept = ("--with", "m.snaps", "--threshold", "keep", "--out", "r.html")
    code, _, err = run("report", "other", *kept)
    assert code == 0 and "Traceback" not in err
    assert Page(tmp_path / "r.html").numbers["n_nodes"] == [30]
