"""The fit of `Pooled`: exact derivatives, its minimum, and its weights."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import approx_fprime, minimize

import snaps
from snaps.scoring import logpool as _logpool
from tests.scoring.common import evidence_of


def test_gradient_and_hessian_are_exact():
    random = np.random.default_rng(1)
    stack, labels = random.normal(size=(3, 4, 40)), random.integers(0, 4, 40)
    point = random.normal(size=7)

    def derivatives(x):
        return _logpool._derivatives(stack, _logpool._loss(x, stack, labels)[1], labels)

    gradient, hessian = derivatives(point)
    loss = approx_fprime(point, lambda x: _logpool._loss(x, stack, labels)[0], 1e-7)
    np.testing.assert_allclose(gradient, loss, atol=1e-4)
    change = approx_fprime(point, lambda x: derivatives(x)[0], 1e-7)
    np.testing.assert_allclose(hessian, change, atol=1e-4)


@pytest.mark.parametrize("scale", [1, 100])
def test_fit_ends_where_a_general_minimiser_ends(scale):
    """Where whole steps of Newton's method would go too far, too: rows of a hundredfold size."""
    random = np.random.default_rng(5)
    stack, labels = scale * random.normal(size=(3, 4, 60)), random.integers(0, 4, 60)
    stack[0, labels, np.arange(60)] += 2.0 * scale
    centre, pull = np.r_[np.full(3, 1 / 3), np.zeros(4)], np.r_[np.full(3, 10.0), np.full(4, 5.0)]

    def objective(x):
        return _logpool._loss(x, stack, labels)[0] + 0.5 * pull @ (x - centre) ** 2

    found = _logpool._minimise(stack, labels, 5.0)
    other = minimize(objective, centre, method="BFGS", options={"gtol": 1e-6})
    assert objective(found) <= other.fun + 1e-9
    np.testing.assert_allclose(found, other.x, atol=1e-3)


def test_fit_is_at_its_minimum_and_finds_the_part_that_tells():
    random = np.random.default_rng(2)
    labels = random.integers(0, 3, 400)
    informative = np.log(np.full((400, 3), 0.15) + 0.55 * np.eye(3)[labels])
    noise = np.log(random.dirichlet(np.ones(3), 400))
    tuning = evidence_of(np.arange(400), labels)
    weights, bias = _logpool.fit_pool({"noise": noise, "informative": informative}, tuning)
    assert weights["informative"] > 1 > 0.2 > abs(weights["noise"])
    again = _logpool.fit_pool({"noise": noise, "informative": informative}, tuning)
    assert again[0] == weights and (again[1] == bias).all()


def test_biases_of_many_classes_are_pulled_to_zero():
    """A handful of nodes for 200 classes must not move the classes apart."""
    random = np.random.default_rng(3)
    labels = random.integers(0, 200, 60)
    parts = {"own": np.log(random.dirichlet(np.ones(200), 60))}
    _, bias = _logpool.fit_pool(parts, evidence_of(np.arange(60), labels))
    assert np.abs(bias).max() < 0.1


def test_few_tuning_nodes_mean_equal_weights(case):
    graph, probs, labels, pool = case
    with pytest.warns(snaps.SnapsWarning, match="5 nodes are too few to tune on: using equal"):
        cp = snaps.Pooled(0.1).calibrate(graph, probs, labels, pool[5:300], pool[:5])
    assert set(cp.weights_.values()) == {1 / 8} and not cp.bias_.any()
