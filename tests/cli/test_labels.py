"""Labels drawn with unequal chances, on the command line: from a draw to sets."""

from __future__ import annotations

import csv

import numpy as np
import pytest

import snaps
from snaps.cli import main
from tests.helpers import small


def run(capsys, *words) -> tuple[int, str]:
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    captured = capsys.readouterr()
    return ended.value.code or 0, captured.out + captured.err


def test_a_folder_from_draw_to_sets(tmp_path, capsys):
    folder, out, model = tmp_path / "g", tmp_path / "a.csv", tmp_path / "m.snaps"
    roles = np.array([*["train"] * 10, *[""] * 50])
    small.write(folder, labels=np.where(roles == "", -1, small.LABELS), roles=roles)
    risk = [None] * 10 + np.where(np.arange(50) % 2, 0.4, 0.7).tolist()
    small.change(folder, "nodes", risk=risk)
    assert run(capsys, "draw", folder, "--chances", "risk", "--out", out)[0] == 0
    truth = dict(zip(small.NAMES.tolist(), small.LABELS.tolist(), strict=True))
    with open(out, newline="") as file:
        ids = [row["id"] for row in csv.DictReader(file)]
    with open(out, "w", newline="") as file:
        csv.writer(file).writerows([["id", "label"], *([id_, truth[id_]] for id_ in ids)])
    assert run(capsys, "label", folder, out)[0] == 0
    options = ("--method", "split", "--alpha", "0.2")
    sets = tmp_path / "sets.csv"
    code, text = run(capsys, "predict", folder, *options, "--out", sets)
    assert code == 2
    assert "'--chances' must be risk" in text
    assert not sets.exists()
    assert "'--chances' must be risk" in run(capsys, "check", folder, *options)[1]
    code, text = run(capsys, "check", folder, *options, "--chances", "risk")
    assert code == 0 and "predict" in text and "of draws" not in text  # there is no interval
    code, text = run(capsys, "accept", folder, *options, "--out", sets)
    assert code == 2 and "drawn evenly, got nodes drawn by 'risk'; 'snaps predict" in text
    code, text = run(capsys, "predict", folder, *options, "--chances", "risk", "--out", sets)
    assert code == 0
    assert "effective number" in text
    with open(sets, newline="") as file:
        found = {row["id"]: row["size"] for row in csv.DictReader(file)}
    assert set(found) == set(small.NAMES[10:].tolist()) - set(ids)
    cp = snaps.SplitConformal(0.2).calibrate(
        small.graph(ids=small.NAMES), small.PROBS, small.LABELS, ids,
        chances=np.array(risk, float),
    )  # fmt: skip
    assert found == {
        each: str(size)
        for each, size in zip(found, cp.predict_set(list(found)).sizes.tolist(), strict=True)
    }
    code, _ = run(capsys, "calibrate", folder, *options, "--chances", "risk", "--out", model)
    assert code == 0
    again = tmp_path / "again.csv"
    given = ("predict", folder, "--with", model, "--out", again)
    assert "'--chances' must be risk" in run(capsys, *given)[1]
    assert run(capsys, *given, "--chances", "risk")[0] == 0
    assert again.read_bytes() == sets.read_bytes()
    page = tmp_path / "r.html"
    report = ("report", folder, *options, "--chances", "risk", "--out", page)
    assert run(capsys, *report)[0] == 0
    assert "Effective labels" in page.read_text()
    for words in (
        ("watch", model, folder, "--labels", out),
        ("select", folder, "--label", "0", "--chances", "risk", "--out", tmp_path / "l.csv"),
        ("accept", folder, "--chances", "risk", "--out", tmp_path / "l.csv"),
        ("predict", folder, "--chances", "edges", "--out", tmp_path / "l.csv"),
        ("predict", folder, "--chances", "risk", "--class-floor", 0.8, "--out", tmp_path / "l.csv"),
        ("evaluate", folder, "--chances", "risk", "--goal", "smallest"),
    ):
        code, text = run(capsys, *words)
        assert code == 2
        assert "chances" in text
        assert not (tmp_path / "l.csv").exists()


def test_chances_of_a_folder_are_checked_before_any_work(tmp_path, capsys):
    folder = tmp_path / "g"
    small.write(folder, roles=np.array([*["calib"] * 30, *["test"] * 30]))
    for value, shown in ((0.0, "0"), (1.0, "1"), (None, "nan")):
        small.change(folder, "nodes", risk=[0.5] * 40 + [value] + [0.5] * 19)
        code, text = run(
            capsys, "predict", folder, "--chances", "risk", "--out", tmp_path / "s.csv"
        )
        assert code == 2
        assert "nodes.parquet column 'risk' must lie between 0 and 1, both excluded" in text
        assert f"got {shown} for id '{small.NAMES[40]}'" in text
    small.change(folder, "nodes", edges=[0.5] * 60)
    code, text = run(capsys, "predict", folder, "--chances", "edges", "--out", tmp_path / "s.csv")
    assert code == 2
    assert "'--chances' must not be edges where nodes.parquet has a column of that name" in text


def test_evaluate_draws_by_a_column(tmp_path, capsys):
    folder = tmp_path / "g"
    small.write(folder, roles=np.full(60, ""))
    small.change(folder, "nodes", risk=np.linspace(0.2, 0.8, 60).tolist())
    words = ("evaluate", folder, "--chances", "risk", "--calib", 30, "--splits", 3, "--json")
    code, text = run(capsys, *words, "--alpha", 0.2)
    assert code == 0
    assert "n_effective" in text
