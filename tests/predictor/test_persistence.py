"""Saving and loading: the same estimator comes back, and tampered files are refused."""

from __future__ import annotations

import json
import zipfile
from fractions import Fraction

import numpy as np
import pytest

import snaps
from snaps.io.files import read_npz
from tests.helpers import small
from tests.helpers.small import CALIB, LABELS, PROBS

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


def test_a_loaded_estimator_calibrates_again_as_the_first_one_would(tmp_path):
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
    "'by_class' must agree with the parameter class_conditional": header(by_class=True),
    "it must hold a valid sparse matrix 'adj_*': indptr must ascend from 0": arrays(
        adj_indptr=lambda old: -old
    ),
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
    message = small.error_line(snaps.load, tmp_path / "bad.npz")
    assert "'groups' must be different strings or numbers" in message
