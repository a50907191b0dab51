"""Estimators are safe to hold: parameters, clones, copies, and changes that are refused."""

from __future__ import annotations

import copy
import pickle
from fractions import Fraction

import numpy as np
import pytest
import sklearn.base

import snaps
from snaps.images import EmbeddedSNAPS
from tests.helpers import small
from tests.helpers import transcription as t
from tests.helpers.small import CALIB, LABELS, PROBS, TEST, error_line

ESTIMATORS = [
    snaps.SplitConformal(0.2, score=snaps.RAPS()),
    snaps.DAPS(Fraction(1, 5), weight=0.3, seed=4),
    snaps.SNAPS(0.2, k=5, weights=(0.3, 0.2)),
    snaps.SNAPS(0.2, k=5, weights=[0.3, 0.2], class_conditional=True),
    snaps.Pooled(0.2, k=5, parts=["own", "linked"]),
    EmbeddedSNAPS(0.2, eta="tune", k=4),
]
each_estimator = pytest.mark.parametrize(
    "estimator", ESTIMATORS, ids=lambda estimator: type(estimator).__name__
)


@each_estimator
def test_parameters_clones_and_equality(estimator):
    params = estimator.get_params()
    assert type(estimator)(**params) == estimator
    for twin in (sklearn.base.clone(estimator), copy.copy(estimator), copy.deepcopy(estimator),
                 pickle.loads(pickle.dumps(estimator))):  # fmt: skip
        assert twin == estimator and twin is not estimator and twin.get_params() == params
        assert repr(twin) == repr(estimator)
        assert twin.set_params(seed=99) is twin and twin.seed == 99
        assert twin != estimator and estimator.get_params() == params
    assert estimator != "SNAPS" and estimator != snaps.SplitConformal(0.5)
    assert error_line(estimator.set_params, beta=1).startswith("'beta' must be one of alpha, ")
    with pytest.raises(TypeError):
        hash(estimator)


@each_estimator
def test_clones_are_not_calibrated_and_copies_are(estimator):
    cp = small.calibrated(sklearn.base.clone(estimator))
    sets = cp.predict_set(TEST).mask
    assert error_line(sklearn.base.clone(cp).predict_set) == (
        f"this {type(cp).__name__} must be calibrated first: call calibrate()"
    )
    assert cp.__sklearn_is_fitted__() and not sklearn.base.clone(cp).__sklearn_is_fitted__()
    for twin in (copy.copy(cp), copy.deepcopy(cp), pickle.loads(pickle.dumps(cp))):
        assert twin == cp and repr(twin) == repr(cp)
        np.testing.assert_array_equal(twin.predict_set(TEST).mask, sets)
        np.testing.assert_array_equal(twin.scores_, cp.scores_)
        assert str(twin.explain(40)) == str(cp.explain(40))
        # What becomes of a copy is its own affair.
        twin.calibrate(small.graph(), PROBS[:, ::-1], LABELS, CALIB)
        np.testing.assert_array_equal(cp.predict_set(TEST).mask, sets)


class Own(snaps.Score):
    """A score of the user's, which knows no equality."""

    def __init__(self, power=1.0):
        self.power = power

    def compute(self, probs, draws):
        return 1 - probs**self.power


def test_a_score_of_ones_own_is_safe_to_hold():
    cp = small.calibrated(snaps.SNAPS(0.2, k=5, weights=(0.3, 0.2), score=Own(2.0)))
    sets = cp.predict_set(TEST).mask
    for twin in (copy.copy(cp), copy.deepcopy(cp), pickle.loads(pickle.dumps(cp))):
        np.testing.assert_array_equal(twin.predict_set(TEST).mask, sets)
    sklearn.base.clone(cp)


@each_estimator
def test_alpha_may_change_after_calibration_and_is_used(tmp_path, estimator):
    cp = small.calibrated(sklearn.base.clone(estimator))
    at = {alpha: cp.predict_set(TEST, alpha).mask for alpha in (0.2, 0.5)}
    assert not np.array_equal(at[0.2], at[0.5])
    cp.set_params(alpha=0.5)
    np.testing.assert_array_equal(cp.predict_set(TEST).mask, at[0.5])
    assert cp.evaluate(LABELS, TEST)["coverage"] == at[0.5][np.arange(30), LABELS[TEST]].mean()
    assert np.array_equal(cp.explain(40).inside, at[0.5][10])
    own = cp.calib_scores_
    if not cp.class_conditional:
        assert cp.threshold_ == t.threshold(own.tolist(), 0.5)
    assert "alpha=0.5" in repr(cp)
    cp.save(tmp_path / "cp")
    again = snaps.load(tmp_path / "cp")
    assert again.alpha == 0.5
    np.testing.assert_array_equal(again.predict_set(TEST).mask, at[0.5])
    cp.alpha = 2
    for verb in (cp.predict_set, lambda: cp.threshold_, lambda: cp.explain(40),
                 lambda: cp.evaluate(LABELS), lambda: cp.save(tmp_path / "cp")):  # fmt: skip
        assert error_line(verb) == "'alpha' must lie strictly between 0 and 1, got 2"


def test_an_alpha_that_is_too_small_is_noted_when_it_is_used():
    cp = small.calibrated()
    cp.alpha = 0.01
    with pytest.warns(snaps.SnapsWarning, match="30 calibration nodes are too few for alpha=0.01"):
        assert (cp.predict_set(TEST).sizes == 3).all()


@pytest.mark.parametrize(
    "name, value",
    [("k", 6), ("seed", 1), ("class_conditional", True), ("weights", "tune"),
     ("score", snaps.THR())],
)  # fmt: skip
def test_other_parameters_may_not_change_after_calibration(tmp_path, name, value):
    cp = small.calibrated()
    before = getattr(cp, name)
    setattr(cp, name, value)
    for verb in (cp.predict_set, cp.predict_p, lambda: cp.evaluate(LABELS), lambda: cp.threshold_,
                 lambda: cp.explain(3), lambda: cp.save(tmp_path / "cp"),
                 lambda: cp.recalibrate(small.graph(), PROBS)):  # fmt: skip
        assert error_line(verb).startswith(f"'{name}' must not be changed after calibration, got ")
    setattr(cp, name, before)
    cp.predict_set()
    small.calibrated(cp.set_params(**{name: value})).predict_set()


def test_a_list_that_is_changed_in_place_is_noticed():
    cp = small.calibrated(snaps.SNAPS(0.2, k=5, weights=[0.3, 0.2]))
    cp.weights[0] = 0.6
    assert error_line(cp.predict_set) == (
        "'weights' must not be changed after calibration, got [0.6, 0.2] for [0.3, 0.2]: "
        "call calibrate() again"
    )
    cp = small.calibrated(snaps.Pooled(0.2, parts=["own", "linked"]))
    cp.parts.append("two_hop")
    assert error_line(cp.predict_set).startswith("'parts' must not be changed after calibration")


def test_equal_parameters_are_no_change():
    cp = small.calibrated()
    cp.set_params(weights=np.array([0.3, 0.2]), score=snaps.APS(), k=np.int64(5))
    cp.predict_set()


def test_a_calibration_that_fails_changes_nothing():
    cp = small.calibrated()
    sets = cp.predict_set().mask
    error_line(cp.calibrate, small.graph(), PROBS, LABELS, [0, 0])
    error_line(cp.recalibrate, small.graph(), PROBS[:-1])
    np.testing.assert_array_equal(cp.predict_set().mask, sets)


def test_the_repr_tells_whether_it_is_calibrated_and_with_what(tmp_path):
    cp = snaps.SNAPS(0.2, k=5)
    text = "SNAPS(alpha=0.2, score=APS(randomized=True), seed=0, class_conditional=False, k=5, "
    text += "weights='tune', neighbours='auto', recall=0.95, candidates=None"
    assert repr(cp) == f"{text})"
    small.calibrated(cp)
    assert repr(cp) == f"{text}; calibrated on 19 nodes, tuned on 11)"
    cp.save(tmp_path / "cp", data=False)
    assert repr(snaps.load(tmp_path / "cp")) == (
        f"{text}; calibrated on 19 nodes, tuned on 11, saved without data)"
    )
    assert repr(small.calibrated()).endswith("; calibrated on 30 nodes)")
