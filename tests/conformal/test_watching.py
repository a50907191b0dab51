"""False alarms are as rare as promised, misses raise alarms, and a node counts once."""

from __future__ import annotations

import json
from itertools import permutations

import numpy as np
import pytest
from scipy import stats

import snaps
from snaps.conformal.watching import Watch, wealth
from tests.helpers import small
from tests.helpers.small import error_line

# ---- The arithmetic ------------------------------------------------------------------------------


def miss_sequences(n, rank, t):
    """Which of t later scores are missed, for every order of n calibration scores and these."""
    orders = np.array(list(permutations(range(n + t))))
    threshold = np.sort(orders[:, :n], axis=1)[:, rank - 1]
    return orders[:, n:] > threshold[:, None]


def miss_probability(n, rank, labels, hits):
    """The probability that the next label is missed, after so many hits among so many labels."""
    return (n + 1 - rank + labels - hits) / (n + 1 + labels)


def mean_wealth(n, rank, t, pretended=None):
    """The mean of the wealth after t labels, over every order; 1 for a fair bet."""
    hits = t - miss_sequences(n, rank, t).sum(axis=1)
    return wealth(n if pretended is None else pretended, rank, t, hits).mean()


@pytest.mark.parametrize(("n", "rank"), [(3, 3), (4, 2), (4, 4), (5, 4)])
def test_the_urn_is_exact(n, rank):
    misses = miss_sequences(n, rank, 3)
    for t in range(3):
        for hits in range(t + 1):
            past = (~misses[:, :t]).sum(axis=1) == hits
            if past.any():
                assert np.isclose(misses[past, t].mean(), miss_probability(n, rank, t, hits))


@pytest.mark.parametrize(("n", "rank"), [(3, 3), (4, 2), (4, 4), (5, 4)])
def test_the_bet_is_fair(n, rank):
    for t in (1, 2, 3):
        assert np.isclose(mean_wealth(n, rank, t), 1)


def test_the_bet_is_fair_at_every_step():
    for n, rank in ((50, 46), (19, 19), (500, 475), (10, 3)):
        t = np.arange(200)
        for hits in (t, t // 2, (0.9 * t).astype(int)):
            miss = miss_probability(n, rank, t, hits)
            after = miss * wealth(n, rank, t + 1, hits)
            after += (1 - miss) * wealth(n, rank, t + 1, hits + 1)
            np.testing.assert_allclose(after, wealth(n, rank, t, hits), rtol=1e-8)


def test_a_bet_without_the_plus_one_is_noticed():
    assert abs(mean_wealth(5, 4, 3, pretended=4) - 1) > 0.05  # n - r instead of n + 1 - r


@pytest.mark.parametrize(("n", "rank"), [(9, 9), (30, 10), (100, 91), (500, 476), (2000, 1000)])
def test_every_miss_adds_to_the_wealth(n, rank):
    """So that ties, which only turn misses into hits, raise no more alarms."""
    for t in (1, 5, 60, 1000):
        path = wealth(n, rank, t, np.arange(t + 1))
        path = path[(path > 1e-200) & (path < 1e200)]
        assert (np.diff(path) < 0).all()


# ---- Through the calls users make ----------------------------------------------------------------


def history(random, n, t, *, digits=None, worse=1.0):
    """An estimator calibrated on n nodes at alpha 0.1, t later nodes, and the labels."""
    chance = random.beta(4, 1, n + t)
    chance[n:] **= worse
    chance = chance if digits is None else chance.round(digits)
    probs = np.stack([chance, 1 - chance], axis=1)
    labels = np.zeros(n + t, int)
    cp = snaps.SplitConformal(0.1, score=snaps.THR())
    return cp.calibrate(None, probs, labels, np.arange(n)), np.arange(n, n + t), labels


def largest_wealths(seed, **options):
    """The largest wealth of each of 200 histories."""
    random, found = np.random.default_rng(seed), []
    for _ in range(200):
        cp, nodes, labels = history(random, 100, 300, **options)
        found.append(cp.watch(labels, nodes).wealth.max())
    return np.array(found)


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("digits", [None, 1])
def test_false_alarms_are_rare(seed, digits):
    largest = largest_wealths(seed, digits=digits)
    for alarm in (0.2, 0.05, 0.01):
        found = (largest >= 1 / alarm).sum()
        assert stats.binom.sf(found - 1, 200, alarm) > 1e-3


def test_misses_raise_an_alarm():
    assert (largest_wealths(0, worse=3.0) >= 100).mean() > 0.8


def test_batches_and_late_labels_give_the_same_as_all_at_once(tmp_path):
    cp, nodes, labels = history(np.random.default_rng(3), 100, 90, worse=6)
    whole = cp.watch(labels, nodes)
    state = None
    for begin in range(0, 90, 30):
        watch = cp.watch(labels, nodes[begin : begin + 30], state=state)
        watch.save(tmp_path / "watch.json")
        state = tmp_path / "watch.json"
    assert watch.ids == whole.ids and [count for _, count in watch.batches] == [30, 30, 30]
    np.testing.assert_array_equal(watch.wealth, whole.wealth)
    assert watch.first_alarm == whole.first_alarm is not None
    assert watch.num_covered + watch.num_missed == len(watch) == 90


def test_a_node_counts_once():
    cp, nodes, labels = history(np.random.default_rng(3), 100, 40)
    watch = cp.watch(labels, nodes[:20])
    again = cp.watch(labels, nodes, state=watch)
    assert again.ids == tuple(nodes.tolist())
    assert cp.watch(labels, nodes[:20], state=watch) is watch
    assert "'nodes' must not repeat" in error_line(cp.watch, labels, np.append(nodes, nodes[:1]))


def test_the_order_is_that_of_arrival():
    cp, nodes, labels = history(np.random.default_rng(3), 100, 60, worse=6)
    hits = cp.watch(labels, nodes).hits
    late = cp.watch(labels, np.concatenate([nodes[hits], nodes[~hits]]))
    early = cp.watch(labels, np.concatenate([nodes[~hits], nodes[hits]]))
    assert not early.hits[0] and late.hits[0]
    assert early.first_alarm < late.first_alarm
    assert np.isclose(early.wealth[-1], late.wealth[-1])


def test_the_verdict_says_what_it_means_and_what_to_do(tmp_path):
    cp, nodes, labels = history(np.random.default_rng(3), 100, 60, worse=6)
    watch = cp.watch(labels, nodes)
    for words in ("ALARM at label", "with probability at most 0.01", "slices", "draw", "recalibr"):
        assert words in str(watch)
    assert "<svg" in watch._repr_html_() and "ALARM" in watch._repr_html_()
    calm = cp.watch(labels, nodes[:3])
    assert "No alarm after 3 labels" in str(calm) and "proves nothing" in str(calm)
    watch.plot(tmp_path / "watch.svg")
    assert "Alarm at label" in (tmp_path / "watch.svg").read_text()
    json.dumps(watch.to_dict())


# ---- What is refused -----------------------------------------------------------------------------


def test_states_that_do_not_belong():
    cp, nodes, labels = history(np.random.default_rng(0), 100, 40)
    watch = cp.watch(labels, nodes[:10])
    other, *_ = history(np.random.default_rng(0), 90, 50)
    found = error_line(other.watch, labels, nodes, state=watch)
    assert "'state' must be of this calibration (rank 82 of 90 nodes)" in found
    cp.set_params(alpha=0.2)
    assert "got one of rank 91 of 100 nodes" in error_line(cp.watch, labels, nodes, state=watch)
    cp.set_params(alpha=0.1)
    found = error_line(cp.watch, labels, nodes, state=watch, alarm=0.05)
    assert "'alarm' must stay as it was when the watch began, 0.01" in found
    moved = snaps.SplitConformal(0.1, score=snaps.THR())
    moved.calibrate(None, np.full((140, 2), 0.5), labels, np.arange(1, 101))
    assert "100 other nodes" in error_line(moved.watch, labels, nodes[1:], state=watch)


def test_what_cannot_be_watched():
    graph = small.calibrated(snaps.SNAPS(0.2, k=5, weights=(0.3, 0.2), class_conditional=True))
    assert "one per class" in error_line(graph.watch, small.LABELS, small.TEST)
    graph = small.calibrated(groups=np.arange(60) % 2)
    assert "one per group" in error_line(graph.watch, small.LABELS, small.TEST)
    graph = small.calibrated()
    assert "the calibration nodes" in error_line(graph.watch, small.LABELS, small.CALIB)
    unknown = np.where(np.arange(60) < 40, small.LABELS, -1)
    assert "'nodes'" in error_line(graph.watch, unknown, small.TEST)
    assert "'alarm'" in error_line(graph.watch, small.LABELS, small.TEST, alarm=0)
    graph.set_params(alpha=0.01)
    assert "finite threshold" in error_line(graph.watch, small.LABELS, small.TEST)


def test_a_kept_threshold_is_watched_with_the_numbers_of_the_file(tmp_path):
    cp = small.calibrated()
    cp.save(tmp_path / "cp.snaps")
    kept = snaps.load(tmp_path / "cp.snaps")
    with pytest.warns(snaps.SnapsWarning, match="another graph"):
        kept.recalibrate(small.graph(ids=small.NAMES), small.PROBS, threshold="keep")
    watch = kept.watch(small.LABELS, small.NAMES[small.TEST])
    assert (watch.n, watch.rank) == (30, 25)


def changed(path, **entries):
    state = json.loads(path.read_text())
    path.write_text(json.dumps(state | entries))
    return error_line(Watch.load, path)


def test_damaged_states_are_refused(tmp_path):
    path = tmp_path / "watch.json"
    whole = Watch.start(99, 90).count(["ann", 7], [True, False], "2026-05-01")
    for entries in (
        {"version": 2}, {"hits": [1, 1]}, {"ids": ["ann", "ann"]}, {"t": 3}, {"n": -1}, {"ids": 5},
        {"batches": [["2026", 1]]}, {"alarm": 2}, {"hits": [1, 2]}, {"format": "x"}, {"rank": 100},
    ):  # fmt: skip
        whole.save(path)
        assert str(path) in changed(path, **entries), entries
    path.write_text("{")
    assert "not JSON" in error_line(Watch.load, path)
    assert "No such file" in error_line(Watch.load, tmp_path / "gone.json")
    whole.save(path)
    again = Watch.load(path)
    assert again.ids == whole.ids and again.batches == whole.batches
    np.testing.assert_array_equal(again.hits, whole.hits)
