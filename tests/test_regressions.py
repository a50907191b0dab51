"""Faults that once were; each test failed before its fault was mended."""

from __future__ import annotations

import numpy as np
import pytest

import snaps
from snaps.datasets import make_graph
from snaps.images import EmbeddedSNAPS
from snaps.predictor.estimator import method_of
from snaps.scoring.evidence import Labelled
from tests.helpers import small
from tests.helpers.small import CALIB, LABELS, NAMES, NUM_NODES, PROBS

# ---- coverage -----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
@pytest.mark.parametrize("rows", [1, 4], ids=["one row", "four rows"])
def test_smoothed_sets_meet_the_level_for_every_seed(seed, rows, one_thread):
    """The draws of ties differ from one calibration set to the next, or a pool has its own bias."""
    random = np.random.default_rng(9)
    tables = random.dirichlet(np.full(3, 2.0), rows)
    probs = tables[random.integers(rows, size=300)]
    labels = (random.random((300, 1)) > probs.cumsum(axis=1)).sum(axis=1).clip(max=2)
    hits, splits, n = 0, 1500, 100
    for _ in range(splits):
        order = random.permutation(300)
        cp = snaps.SplitConformal(0.1, score=snaps.THR(), seed=seed)
        cp.calibrate(None, probs, labels, order[:n])
        test = order[n:]
        mask = cp.predict_set(test, smoothed=True).mask
        hits += mask[np.arange(len(test)), labels[test]].mean()
    # The spread of one split's coverage: that of the threshold and that of the draws.
    error = np.sqrt((0.09 / n + 0.09 / 200) / splits)
    assert abs(hits / splits - 0.9) < 4.5 * error


# ---- what is memoised ----------------------------------------------------------------------------


class Heated(snaps.THR):
    """A parameter that the equality of its base class does not see."""

    def __init__(self, heat):
        object.__setattr__(self, "heat", heat)

    def compute(self, probs, draws):
        probs **= 1 / self.heat  # in place, too
        return 1 - probs / probs.sum(axis=1, keepdims=True)


def test_scores_of_the_users_own_are_distinguished():
    pool = np.arange(NUM_NODES)
    methods = {
        "cold": snaps.DAPS(0.2, score=Heated(1.0)),
        "hot": snaps.DAPS(0.2, score=Heated(5.0)),
    }
    given = (small.graph(), PROBS, LABELS, pool, 30, 5)
    together = snaps.evaluate_splits(methods, *given)
    for name, method in methods.items():
        alone = snaps.evaluate_splits(method, *given)
        np.testing.assert_array_equal(together[name]["threshold"], alone["threshold"])
    assert (together["cold"]["threshold"] != together["hot"]["threshold"]).all()


def test_a_changed_score_of_the_users_own_is_refused():
    cp = small.calibrated(snaps.SplitConformal(0.2, score=Heated(1.0)))
    cp.score = Heated(5.0)
    with pytest.raises(snaps.SnapsError, match="'score' must not be changed after calibration"):
        cp.predict_set()


# ---- what is handed out --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["classes_", "calib_scores_", "calib_labels_", "calib_ids_"])
@pytest.mark.parametrize("loaded", [False, True], ids=["made", "loaded"])
def test_what_is_handed_out_cannot_be_written_to(tmp_path, name, loaded):
    cp = small.calibrated(snaps.Pooled(0.2, k=5))
    if loaded:
        cp.save(tmp_path / "x.snaps")
        cp = snaps.load(tmp_path / "x.snaps")
    for each in (name, "bias_"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(cp, each)[:] = 0


def test_ids_and_features_of_a_graph_are_its_own():
    ids, features = NAMES.copy(), small.FEATURES.copy()
    graph = snaps.Graph(small.EDGES, features, NUM_NODES, ids=ids)
    cp = snaps.SNAPS(0.2, k=5, weights=(0.5, 0.2)).calibrate(graph, PROBS, LABELS, CALIB)
    ids[:], features[:] = "x", np.sqrt(features)[:, ::-1].copy()
    assert graph.ids.tolist() == NAMES.tolist()
    # Refreshed in place, as in production: nothing stale is taken over.
    again = snaps.Graph(small.EDGES, features, NUM_NODES, ids=NAMES)
    cp.recalibrate(again, PROBS)
    fresh = snaps.SNAPS(0.2, k=5, weights=(0.5, 0.2)).calibrate(again, PROBS, LABELS, CALIB)
    np.testing.assert_array_equal(cp.scores_, fresh.scores_)


# ---- the wall at run time ------------------------------------------------------------------------


def test_calibration_nodes_do_not_come_through_the_wall():
    roles = snaps.predictor.roles.Roles.read(small.graph(), 3, LABELS, CALIB)
    inputs = snaps.scoring.local.Inputs.read(small.graph(), PROBS)
    assert type(roles.calib) is Labelled
    for method in (snaps.SNAPS(0.2, k=5), snaps.Pooled(0.2, k=5)):
        for tuning, known in ((roles.calib, roles.known), (roles.tuning, roles.calib)):
            with pytest.raises(TypeError, match="Evidence alone, got Labelled"):
                method_of(method).scorer.fit(
                    inputs, tuning, known, [snaps._checks.check_alpha(0.2)]
                )


# ---- recalibration -------------------------------------------------------------------------------


def test_kept_on_a_graph_that_only_numbers_its_nodes_none_is_known():
    cp = small.calibrated(snaps.Pooled(0.2, k=5), known_nodes=np.arange(30, 50))
    other = snaps.Graph(small.EDGES[:, ::-1], small.FEATURES[::-1], NUM_NODES)
    named = snaps.Graph(small.EDGES[:, ::-1], small.FEATURES[::-1], NUM_NODES, ids=NAMES)
    found = []
    for graph in (other, named):
        with pytest.warns(snaps.SnapsWarning, match="of another graph"):
            cp.recalibrate(graph, PROBS, threshold="keep")
        assert len(cp.predict_set()) == NUM_NODES
        found.append(cp.scores_)
        cp = small.calibrated(snaps.Pooled(0.2, k=5), known_nodes=np.arange(30, 50))
    np.testing.assert_allclose(*found, rtol=1e-9)


def test_groups_after_recalibration_are_those_there_are():
    groups = np.where(np.arange(NUM_NODES) % 3 == 0, "c", "b")
    cp = small.calibrated(snaps.SNAPS(0.4, k=5, weights=(0.3, 0.2)), groups=groups)
    assert cp.groups_ == ("b", "c") and cp.threshold_.shape == (2,)
    renamed = np.where(groups == "c", "a", "b")
    cp.recalibrate(small.graph(), PROBS, groups=renamed)
    fresh = small.calibrated(snaps.SNAPS(0.4, k=5, weights=(0.3, 0.2)), groups=renamed)
    assert cp.groups_ == fresh.groups_ == ("a", "b")
    np.testing.assert_array_equal(cp.threshold_, fresh.threshold_)


def test_a_reference_that_is_gone_is_missed():
    features = np.random.default_rng(0).random((NUM_NODES, 6))
    items = snaps.Graph(None, features, ids=NAMES)
    cp = EmbeddedSNAPS(0.2)
    cp.calibrate(items, PROBS, LABELS, CALIB, reference=NAMES[40:])  # by name, too
    few = snaps.Graph(None, features[:45], ids=NAMES[:45])
    with pytest.raises(snaps.SnapsError, match="must have all 20 reference items, got 15 missing"):
        cp.recalibrate(few, PROBS[:45])
    assert len(cp.recalibrate(few, PROBS[:45], missing="drop").predict_set()) == 10


def test_weights_of_links_are_asked_for_again():
    weighted = snaps.Graph(
        small.EDGES, small.FEATURES, NUM_NODES, weighted=True, edge_weights=np.ones(90)
    )
    cp = snaps.DAPS(0.2, weight=0.5).calibrate(weighted, PROBS, LABELS, CALIB)
    with pytest.raises(snaps.SnapsError, match="'graph' must be weighted, as it was to calibrate"):
        cp.recalibrate(small.graph(), PROBS)
    other = small.calibrated(snaps.DAPS(0.2, weight=0.5))
    with pytest.raises(snaps.SnapsError, match="'graph' must be without weights"):
        other.recalibrate(weighted, PROBS)


# ---- small things --------------------------------------------------------------------------------


def test_parameters_are_changed_all_or_none():
    cp = snaps.SNAPS(0.2, k=5)
    with pytest.raises(snaps.SnapsError, match="'foo' must be one of alpha"):
        cp.set_params(k=9, foo=1)
    assert cp.k == 5


def test_p_values_of_calibration_nodes_come_with_a_warning():
    with pytest.warns(snaps.SnapsWarning, match="1 of the nodes were used to calibrate or tune"):
        small.calibrated().predict_p([0, 50])


def test_exchangeability_calls_classes_by_name():
    names = np.array(["ant", "bee", "cat"])
    random = np.random.default_rng(1)
    probs = np.eye(3)[random.integers(3, size=400)] * 0.7 + 0.1
    calib = np.flatnonzero(probs[:, 1] > 0.5)[:100]
    cp = snaps.SplitConformal(0.1).calibrate(
        None, probs, names[probs.argmax(axis=1)], calib, classes=names
    )
    look = cp.exchangeability()
    assert not look.alike
    assert {row.label for row in look.rows if row.label is not None} == {"bee"}


def test_groups_that_tell_the_label_are_refused(tmp_path, capsys):
    from snaps.cli import main

    small.write(tmp_path / "g")
    for column in ("label", "role", "id"):
        with pytest.raises(SystemExit) as stopped:
            main(["predict", str(tmp_path / "g"), "--group-by", column, "--out", "-"])
        assert stopped.value.code == 2
        assert f"got '{column}'" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_half_precision_probabilities_are_welcome(kind):
    """Rounded rows miss one by what the precision allows, whichever it is."""
    torch = pytest.importorskip("torch")
    table = np.random.default_rng(3).dirichlet(np.ones(8), 2000)
    half = torch.tensor(table).to(getattr(torch, kind))
    assert np.abs(half.double().sum(dim=1).numpy() - 1).max() > (
        1e-4 if kind == "float16" else 1e-3
    )
    labels = table.argmax(axis=1)
    for given in (half, half.float(), half.float().numpy()):
        cp = snaps.SplitConformal(0.1).calibrate(None, given, labels, np.arange(500))
        assert len(cp.predict_set()) == 1500


def test_structural_features_leave_the_graph_as_it_is():
    """SciPy sorts the columns of a matrix in place, which changed the last bits of later means."""
    graph = make_graph(300, 3, seed=0).graph
    adjacency = graph.adjacency
    adjacency.indices[: adjacency.indptr[1]] = adjacency.indices[: adjacency.indptr[1]][::-1].copy()
    adjacency.has_sorted_indices = False
    before = adjacency.indices.copy()
    snaps.structural_features(graph)
    np.testing.assert_array_equal(graph.adjacency.indices, before)
