"""Draws are uniform, reproducible and can be extended; labels come back whole or not at all."""

from __future__ import annotations

import csv
import json
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import stats

import snaps
from snaps import drawing
from snaps.cli import main
from snaps.folder import read_folder
from tests import kill
from tests.helpers import small
from tests.helpers.small import error_line

TRUTH = dict(zip(small.NAMES.tolist(), small.LABELS.tolist(), strict=True))
ROLES = np.array([*["train"] * 6, *["valid"] * 5, *["tune"] * 4, *[""] * 45])
POOL = small.NAMES[15:]


@pytest.fixture(params=["parquet", "csv"])
def folder(request, tmp_path):
    """A graph folder whose labels are known for training, validation and tuning nodes alone."""
    return write(tmp_path / "g", request.param)


def write(place, kind="parquet"):
    labels = np.where(ROLES == "", -1, small.LABELS)
    small.write(place, labels=labels, roles=ROLES)
    if kind == "csv":
        table = pq.read_table(place / "nodes.parquet").drop(["probs", "features"])
        columns = dict(zip(table.column_names, table.columns, strict=True))
        for y in range(3):
            columns[f"p_{y}"] = pa.array(small.PROBS[:, y])
        write_csv(place / "nodes.csv", {k: v.to_pylist() for k, v in columns.items()})
        (place / "nodes.parquet").unlink()
        edges = pq.read_table(place / "edges.parquet").replace_schema_metadata(None)
        pq.write_table(edges, place / "edges.parquet")
    return place


def write_csv(path, columns):
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        rows = zip(*columns.values(), strict=True)
        writer.writerows([["" if value is None else value for value in row] for row in rows])


def rows_of(path):
    with open(path, newline="") as file:
        return [row["id"] for row in csv.DictReader(file)]


def fill(path, truth=TRUTH, leave=()):
    """What people do: fill in the labels, but for some nodes."""
    ids = rows_of(path)
    labels = ["" if id_ in leave else truth[id_] for id_ in ids]
    write_csv(path, {"id": ids, "label": labels})
    return path


def run(*words):
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    return ended.value.code


# ---- The draw ------------------------------------------------------------------------------------


def uniform_p(chosen_by):
    """p-value of 'every node is drawn equally often' over 5,000 seeds, 10 of 45 nodes each."""
    counts = np.zeros(len(POOL))
    for seed in range(5000):
        counts[chosen_by(seed)] += 1
    share = 10 / len(POOL)
    # Counts of one draw are negatively correlated: the sum of squares is chi-square with N - 1.
    spread = 5000 * share * (1 - share) * len(POOL) / (len(POOL) - 1)
    return stats.chi2.sf(((counts - 5000 * share) ** 2).sum() / spread, len(POOL) - 1)


@pytest.mark.parametrize("ids", [POOL, np.arange(15, 60)], ids=["names", "numbers"])
def test_draws_are_uniform(ids):
    assert uniform_p(lambda seed: drawing.ranked(ids, seed, 10)) > 1e-4


def test_pairs_are_drawn_alike():
    """Of every two nodes both are drawn equally often, too."""
    both = np.zeros((45, 45))
    for seed in range(5000):
        chosen = drawing.ranked(POOL, seed, 10)
        both[np.ix_(chosen, chosen)] += 1
    pairs = both[np.triu_indices(45, 1)]
    share = 10 * 9 / (45 * 44)
    assert abs(pairs - 5000 * share).max() < 5 * np.sqrt(5000 * share * (1 - share))


def test_chances_are_kept():
    chances = np.linspace(0.05, 0.95, 45)
    counts = np.zeros(45)
    for seed in range(5000):
        counts[drawing.ranked(POOL, seed, None, chances)] += 1
    scaled = (counts - 5000 * chances) / np.sqrt(5000 * chances * (1 - chances))
    assert stats.chi2.sf((scaled**2).sum(), 45) > 1e-4


def test_a_draw_by_position_is_noticed():
    """Nodes go by id: whatever the order of rows, the same are drawn."""
    order = np.random.default_rng(0).permutation(45)

    def same(draw):
        return set(POOL[draw(POOL)]) == set(POOL[order][draw(POOL[order])])

    assert all(same(lambda ids, s=seed: drawing.ranked(ids, s, 10)) for seed in range(20))
    assert not same(lambda ids: drawing.ranked(np.arange(len(ids)), 7, 10))  # by position


def test_the_first_of_more_are_the_same():
    for seed in range(20):
        more = drawing.ranked(POOL, seed, 30)
        assert drawing.ranked(POOL, seed, 12).tolist() == more[:12].tolist()
        few, many = (drawing.ranked(POOL, seed, None, np.full(45, p)) for p in (0.2, 0.6))
        assert set(few.tolist()) <= set(many.tolist())


# ---- On folders ----------------------------------------------------------------------------------


def test_from_a_draw_to_sets(folder, tmp_path, capsys):
    out = tmp_path / "to_label.csv"
    assert run("draw", folder, "--nodes", 20, "--out", out, "--seed", 7) == 0
    ids = rows_of(out)
    assert len(set(ids)) == 20 and set(ids) <= set(POOL)
    before = read_folder(folder)
    assert run("label", folder, fill(out)) == 0
    data = read_folder(folder)
    calib = data.nodes("calib")
    assert set(data.graph.ids[calib]) == set(ids)
    assert data.labels[calib].tolist() == small.LABELS[calib].tolist()
    others = np.setdiff1d(np.arange(60), calib)
    for name in ("labels", "roles", "probs"):
        np.testing.assert_array_equal(getattr(data, name)[others], getattr(before, name)[others])
    np.testing.assert_array_equal(data.probs, before.probs)
    assert (data.graph.adjacency != before.graph.adjacency).nnz == 0
    record = json.loads((folder / "draw.json").read_text())
    assert record["seed"] == 7 and record["ids"] == ids
    (draw,), (label,) = record["draws"], record["labels"]
    assert draw["pool_nodes"] == 45 and draw["pool_sha256"] == drawing.pool_digest(POOL)
    assert label["labelled"] == 20 and label["missing"] == [] and len(label["sha256"]) == 64
    assert run("predict", folder, "--alpha", 0.2, "--k", 5, "--out", tmp_path / "s.csv") == 0


def test_a_second_draw_must_extend_the_first(folder, tmp_path):
    first, more = tmp_path / "first.csv", tmp_path / "more.csv"
    drawing.draw(folder, tmp_path / "other.csv", nodes=12, seed=3)  # nothing was seen yet
    drawing.draw(folder, first, nodes=12, seed=7)
    drawing.label(folder, fill(first))
    words = "'--seed' must be 7, as in the draw whose labels were seen"
    assert words in error_line(drawing.draw, folder, more, nodes=20, seed=8)
    words = "'--nodes' must be at least 12"
    assert words in error_line(drawing.draw, folder, more, nodes=11, seed=7)
    assert "no label yet" in error_line(drawing.draw, folder, more, nodes=12, seed=7)
    assert not more.exists()
    drawing.draw(folder, more, nodes=20, seed=7)
    assert len(rows_of(more)) == 8 and not set(rows_of(more)) & set(rows_of(first))
    drawing.label(folder, fill(more))
    whole = write(tmp_path / "whole")
    drawing.draw(whole, tmp_path / "whole.csv", nodes=20, seed=7)
    assert set(rows_of(tmp_path / "whole.csv")) == set(rows_of(first)) | set(rows_of(more))
    assert len(json.loads((folder / "draw.json").read_text())["draws"]) == 3


def test_a_lost_record_is_no_way_to_a_second_look(folder, tmp_path):
    drawing.draw(folder, tmp_path / "a.csv", nodes=12, seed=7)
    drawing.label(folder, fill(tmp_path / "a.csv"))
    (folder / "draw.json").unlink()
    found = error_line(drawing.draw, folder, tmp_path / "b.csv", nodes=20, seed=8)
    assert "must be calib for nodes drawn by 'snaps draw' alone, got 12 others" in found


def test_a_pool_that_has_grown(tmp_path):
    """The draw of a larger pool contains the one before, if it is as large as that takes."""
    old = write(tmp_path / "old")
    small.change(old, "nodes", role=lambda r: [*r[:40], *["train"] * 20])  # are not there yet
    drawing.draw(old, tmp_path / "a.csv", nodes=10, seed=7)
    drawing.label(old, fill(tmp_path / "a.csv"))
    new = write(tmp_path / "new")
    ids = rows_of(tmp_path / "a.csv")
    known = pq.read_table(new / "nodes.parquet")["label"].to_pylist()
    place = {name: i for i, name in enumerate(small.NAMES.tolist())}
    roles = [("calib" if n in ids else r) for n, r in zip(small.NAMES, ROLES, strict=True)]
    labels = [TRUTH[n] if n in ids else known[place[n]] for n in small.NAMES.tolist()]
    small.change(new, "nodes", role=lambda _: [r or None for r in roles], label=lambda _: labels)
    (new / "draw.json").write_bytes((old / "draw.json").read_bytes())
    assert "'--nodes' must be at least" in error_line(
        drawing.draw, new, tmp_path / "b.csv", nodes=10, seed=7
    )
    drawing.draw(new, tmp_path / "b.csv", nodes=25, seed=7)
    drawn = set(ids) | set(rows_of(tmp_path / "b.csv"))
    assert drawn == set(POOL[drawing.ranked(POOL, 7, 25)])


def test_labels_that_are_missing(folder, tmp_path, capsys):
    out = tmp_path / "a.csv"
    drawing.draw(folder, out, nodes=24, seed=1)
    left = rows_of(out)[3:6]
    found = error_line(drawing.label, folder, fill(out, leave=left))
    assert "for each of the 24 nodes drawn, got 3 without" in found
    short = [id_ for id_ in rows_of(out) if id_ not in left]  # rows that were taken out
    write_csv(tmp_path / "b.csv", {"id": short, "label": [TRUTH[id_] for id_ in short]})
    assert "got 3 without" in error_line(drawing.label, folder, tmp_path / "b.csv")
    before = kill.contents(folder)
    assert run("label", folder, out) == 2 and kill.contents(folder) == before
    assert run("label", folder, out, "--allow-missing") == 0
    command = ["calibrate", folder, "--alpha", 0.25, "--method", "split", "--out", tmp_path / "m"]
    assert run(*command) == 0
    cp = snaps.load(tmp_path / "m")
    assert (len(cp.calib_ids_), cp.missing_labels_) == (21, 3)
    # The rank of 24 among 21 scores: as if three were infinite.
    assert cp.threshold_ == np.sort([*cp.calib_scores_, *[np.inf] * 3])[19 - 1]
    assert run("predict", folder, "--with", tmp_path / "m", "--out", tmp_path / "s.csv") == 0
    assert run("label", folder, fill(out)) == 2  # late labels are no second look


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_missing_labels_keep_the_guarantee(seed):
    """Whichever are missing: here always the hardest of those drawn."""
    draws = np.random.default_rng(seed)
    coverage = {True: [], False: []}
    for _ in range(150):
        chance = draws.random(300)
        probs, labels = np.stack([chance, 1 - chance], axis=1), np.zeros(300, int)
        nodes = np.argsort(chance[:100])[10:]  # the ten with the highest scores are missing
        for counted, found in coverage.items():
            cp = snaps.SplitConformal(0.2, score=snaps.THR())
            cp.calibrate(None, probs, labels, nodes, missing_labels=10 * counted)
            found.append(cp.predict_set(np.arange(100, 300)).mask[:, 0].mean())
            p = cp.predict_p(np.arange(100, 300))[:, 0]
            assert ((p > 0.2) == cp.predict_set(np.arange(100, 300)).mask[:, 0]).all()
    error = 4 * np.std(coverage[True]) / np.sqrt(150)
    assert abs(np.mean(coverage[True]) - 81 / 101) < error
    assert np.mean(coverage[False]) < 0.8 - error


def test_what_is_refused(folder, tmp_path):
    out = tmp_path / "a.csv"
    draw = error_line
    assert "at most 45, the size of the pool" in draw(drawing.draw, folder, out, nodes=46)
    assert "'--nodes' must be given" in draw(drawing.draw, folder, out)
    assert "must end in .csv" in draw(drawing.draw, folder, tmp_path / "a.txt", nodes=5)
    assert "draw.json' must exist" in error_line(drawing.label, folder, out)
    assert sorted(os.listdir(tmp_path)) == ["g"] and "draw.json" not in os.listdir(folder)
    drawing.draw(folder, out, nodes=5)
    assert "must not exist" in draw(drawing.draw, folder, out, nodes=5)
    ids = rows_of(out)
    for labels, words in (
        (["0", "1", "2", "0", "cat"], "must be one of 0, 1, 2, got cat"),
        (["0", "1", "2", "0", "3"], "must be one of 0, 1, 2, got 3"),
    ):
        write_csv(out, {"id": ids, "label": labels})
        assert words in error_line(drawing.label, folder, out)
    write_csv(out, {"id": [*ids, "node-0"], "label": ["0"] * 6})
    assert "must have nodes that were drawn, got node-0" in error_line(drawing.label, folder, out)
    write_csv(out, {"id": [*ids, ids[0]], "label": ["0"] * 6})
    assert "must not repeat a node" in error_line(drawing.label, folder, out)


def test_chances_of_a_column(folder, tmp_path):
    chances = [0.0] * 15 + [0.5] * 45
    if (folder / "nodes.csv").exists():
        with open(folder / "nodes.csv", newline="") as file:
            header, *rows = csv.reader(file)
        rows = [[*row, str(c)] for row, c in zip(rows, chances, strict=True)]
        with open(folder / "nodes.csv", "w", newline="") as file:
            csv.writer(file).writerows([[*header, "risk"], *rows])
    else:
        small.change(folder, "nodes", risk=chances)
    out = tmp_path / "a.csv"
    assert run("draw", folder, "--chances", "risk", "--out", out, "--seed", 7) == 0
    assert set(rows_of(out)) == set(POOL[drawing.ranked(POOL, 7, None, np.full(45, 0.5))])
    assert json.loads((folder / "draw.json").read_text())["chances"] == "risk"
    drawing.label(folder, fill(out))
    found = error_line(drawing.draw, folder, tmp_path / "b.csv", nodes=40, seed=7)
    assert "'--chances' must be risk" in found
    with open(out) as file:
        assert "risk" not in file.read()  # who labels should not see it


def test_a_killed_label_leaves_the_folder_as_it_was(tmp_path):
    place, out = write(tmp_path / "g"), tmp_path / "a.csv"
    drawing.draw(place, out, nodes=20, seed=7)
    fill(out)
    before, drawn = kill.contents(place), (place / "draw.json").read_bytes()
    nodes = place / "nodes.parquet"

    def look():
        found, record = nodes.read_bytes(), json.loads((place / "draw.json").read_text())
        data = read_folder(place)
        assert len(data.nodes("calib")) in (0, 20)
        state = "as it was" if found == before["nodes.parquet"] else "labelled"
        assert state == "as it was" or record["labels"]
        nodes.write_bytes(before["nodes.parquet"])
        (place / "draw.json").write_bytes(drawn)
        return state

    seen = set()
    for renames in range(12):
        code = kill.code_of(kill.child(lambda: drawing.label(place, out), renames))
        kill.take_hidden(place)
        seen.add((look(), code in kill.KILLED))
        if code == 0:
            break
    assert ("as it was", True) in seen and ("labelled", False) in seen
    drawing.label(place, out)
    assert len(read_folder(place).nodes("calib")) == 20


# ---- Watching on the command line ----------------------------------------------------------------


def test_watch_on_a_folder(folder, tmp_path, capsys):
    model, audit = tmp_path / "model.snaps", tmp_path / "audit.csv"
    drawing.draw(folder, tmp_path / "a.csv", nodes=20, seed=7)
    drawing.label(folder, fill(tmp_path / "a.csv"))
    assert run("calibrate", folder, "--alpha", 0.2, "--k", 5, "--out", model) == 0
    drawing.draw(folder, audit, nodes=40, seed=7)
    ids = rows_of(audit)
    fill(audit, leave=ids[10:])  # the others come later
    capsys.readouterr()
    watch = ["watch", model, folder, "--labels", audit, "--alarm", 0.05]
    assert run(*watch, "--json", "--plot", tmp_path / "w.png") == 0
    first = json.loads(capsys.readouterr().out)
    assert first["labels"] == 10 and (tmp_path / "w.png").exists()
    fill(audit)
    assert run(*watch) == 0
    assert "20 labels" in capsys.readouterr().out
    state = snaps.Watch.load(tmp_path / "model.snaps.watch.json")
    assert list(state.ids) == ids and [count for _, count in state.batches] == [10, 10]
    cp = snaps.load(model)
    data = read_folder(folder)
    small.noted(cp.recalibrate, data.graph, data.probs, classes=data.classes)
    sets = {id_: set(labels.tolist()) for id_, labels in zip(*both(cp, ids), strict=True)}
    assert state.hits.tolist() == [TRUTH[id_] in sets[id_] for id_ in ids]
    assert run("watch", model, folder, "--labels", audit, "--alarm", 0.01) == 2
    assert "'--alarm' must stay as it was" in capsys.readouterr().err
    write_csv(audit, {"id": ids[:1], "label": ["cat"]})
    assert run(*watch) == 2 and "must be one of 0, 1, 2" in capsys.readouterr().err
    drawing.label(folder, fill_all(audit, ids))
    assert run("calibrate", folder, "--alpha", 0.2, "--k", 5, "--out", model) == 0
    assert run(*watch) == 2  # these are calibration nodes now
    capsys.readouterr()


def both(cp, ids):
    sets = cp.predict_set(ids)
    return sets.ids.tolist(), sets.labels()


def fill_all(path, ids):
    write_csv(path, {"id": ids, "label": [TRUTH[id_] for id_ in ids]})
    return path
