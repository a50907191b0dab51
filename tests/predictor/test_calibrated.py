"""One state at a time: verbs read it once, also while another thread recalibrates."""

from __future__ import annotations

import threading

import pytest

import snaps
from tests.helpers.small import made
from tests.predictor.common import METHODS, another_run, roles

pytestmark = pytest.mark.usefixtures("one_thread")

VERBS = {
    "evaluate": lambda cp, path: cp.evaluate(made().labels),
    "predict_set": lambda cp, path: cp.predict_set().mask.tolist(),
    "smoothed": lambda cp, path: cp.predict_set(smoothed=True).mask.tolist(),
    "predict_p": lambda cp, path: cp.predict_p(smoothed=True).tolist(),
    "exchangeability": lambda cp, path: str(cp.exchangeability()),
    "explain": lambda cp, path: str(cp.explain(250)),
    "scores_": lambda cp, path: cp.scores_.tolist(),
    "neighbours_": lambda cp, path: cp.neighbours_,
    "report": lambda cp, path: cp.report(path, made().labels) or path.read_text(),
    "save": lambda cp, path: cp.save(path) or path.read_bytes(),
    "save without data": lambda cp, path: cp.save(path, data=False) or path.read_bytes(),
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("name", ["SNAPS", "Pooled"])
def test_a_verb_reads_the_state_once(tmp_path, monkeypatch, name, verb):
    """Another thread may recalibrate in between: each answer is of one calibration."""
    case = made()
    cp = METHODS[name]().calibrate(case.graph, case.probs, case.labels, **roles())
    states, answers = [], []
    for probs in (case.probs, another_run()):
        cp.recalibrate(case.graph, probs)
        states.append(cp._fitted)
        answers.append(VERBS[verb](cp, tmp_path / "file.html"))
    assert verb == "neighbours_" or answers[0] != answers[1]
    reads = []

    def another(self):
        reads.append(None)
        return states[len(reads) % 2]

    monkeypatch.setattr(type(cp), "_fitted", property(another))
    for _ in range(4):
        reads.append(None)
        assert VERBS[verb](cp, tmp_path / "file.html") in answers


def test_threads_that_evaluate_while_one_recalibrates():
    case = made()
    cp = snaps.SNAPS(0.1, weights=(0.3, 0.3))
    cp.calibrate(case.graph, case.probs, case.labels, **roles())
    right = []
    for probs in (another_run(), case.probs):
        cp.recalibrate(case.graph, probs)
        right.append(cp.evaluate(case.labels))
    wrong, done = [], threading.Event()

    def evaluate():
        while not done.is_set():
            result = cp.evaluate(case.labels)
            if result not in right:
                wrong.append(result)

    threads = [threading.Thread(target=evaluate) for _ in range(3)]
    for thread in threads:
        thread.start()
    for turn in range(20):
        cp.recalibrate(case.graph, case.probs if turn % 2 else another_run())
    done.set()
    for thread in threads:
        thread.join()
    assert not wrong
