"""`snaps reproduce`: tables next to the paper's, cells on disk, and clear errors."""

from __future__ import annotations

import importlib
import io
import json
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import numpy as np
import pytest

import snaps
from snaps.cli import main
from snaps.datasets import make_graph
from snaps.predictor.estimator import method_of
from snaps_lab.reproduce import catalogue, common, protocol, render, tables
from snaps_lab.reproduce.store import Store, fingerprint

pytest.importorskip("torch")

OPTIONS = ["--datasets", "cora_ml", "--splits", "20", "--jobs", "1"]


def table1(folder: Path, data_dir: Path, models: int, out: str = "out") -> list[str]:
    """The arguments of a command."""
    command = ["reproduce", "table1", *OPTIONS, "--models", str(models)]
    places = {"--data-dir": data_dir, "--runs": folder / "runs", "--out": folder / out}
    return command + [str(part) for pair in places.items() for part in pair]


def rows(folder: Path, out: str = "out") -> list[dict]:
    return json.loads((folder / out / "table1.json").read_text())["rows"]


# ---- the table ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real(tmp_path_factory, data_dir):
    """The table of the real graph, and what the command printed."""
    folder, text = tmp_path_factory.mktemp("real"), io.StringIO()
    with redirect_stdout(text), pytest.raises(SystemExit) as stopped:
        main(table1(folder, data_dir, 1))
    assert stopped.value.code == 0
    return folder, text.getvalue()


def test_table_shows_ours_the_papers_and_the_difference(real):
    folder, text = real
    found = rows(folder)
    assert [row["method"] for row in found] == ["APS", "RAPS", "DAPS", "SNAPS"]
    assert found[0]["paper_size"] == 2.42
    assert all(row["inside_law"] for row in found)
    assert found[3]["size"] < found[0]["size"]
    difference = found[0]["size_nonempty"] / 2.42 - 1
    assert f"{difference:+.1%}" in text
    assert {p.name for p in (folder / "out").iterdir()} == {
        "table1.json", "table1.csv", "table1.md",
    }  # fmt: skip
    assert "Processor time" in text


def test_page_holds_every_table_found(real, tmp_path):
    folder, _ = real
    render.page(folder / "out", tmp_path / "results.md")
    text = (tmp_path / "results.md").read_text()
    assert "## table1" in text and "CoraML" in text
    with pytest.raises(snaps.SnapsError, match="must hold results"):
        render.page(tmp_path / "nothing", tmp_path / "page.md")


@pytest.mark.parametrize("name", ["mlp", "table1-as-authors", "figure3"])
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "not valid JSON"),
        *(
            (text, "not a result of 'snaps reproduce {}'")
            for text in ("{}", "[]", "1", "null", '{"table": "TABLE"}', '{"table": "datasets"}')
        ),
        (
            '{"table": "TABLE", "title": "", "settings": {"as_authors": AUTHORS}, "rows": [1],'
            ' "notes": {}, "skipped": {}}',
            "not a result of 'snaps reproduce {}'",
        ),
    ],
)
def test_a_page_of_files_that_are_no_results_is_refused(name, text, why, two_tables, tmp_path):
    table = name.removesuffix("-as-authors")
    text = text.replace("TABLE", table).replace("AUTHORS", str(table != name).lower())
    (tmp_path / "out").mkdir()
    source = tmp_path / "out" / f"{name}.json"
    source.write_text(text)
    error = io.StringIO()
    with redirect_stderr(error):
        assert run(tmp_path, "datasets", "--page", f"{tmp_path}/page.md") == 2
    expected = f"snaps: error: cannot read '{source}': {why.format(table)}\n"
    assert error.getvalue() == expected
    assert not (tmp_path / "page.md").exists()


# ---- protocol -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def made():
    return make_graph(1200, 3, seed=0)


def test_draws_are_twenty_and_twenty_a_class_and_the_rest(made):
    draw = protocol.draw_nodes(made, seed=0, draw=3)
    assert np.bincount(made.labels[draw.train]).tolist() == [20, 20, 20]
    assert np.bincount(made.labels[draw.valid]).tolist() == [20, 20, 20]
    everything = np.sort(np.concatenate([draw.train, draw.valid, draw.pool]))
    assert np.array_equal(everything, np.arange(1200))
    assert not np.array_equal(draw.train, protocol.draw_nodes(made, seed=0, draw=4).train)


@pytest.mark.parametrize("as_authors", [False, True])
def test_methods_pay_for_tuning_from_the_same_budget(made, as_authors):
    draw = protocol.draw_nodes(made, 0, 0)
    near = snaps.similarity_graph(made.graph.features, ids=made.graph.keys)
    logits = np.eye(3)[made.labels] + np.random.default_rng(0).normal(size=(1200, 3))
    out = protocol.evaluate_draw(
        made, logits, draw, near, suite="main", alpha=0.1, splits=5, seed=0, as_authors=as_authors
    )
    budget = min(1000, len(draw.pool) // 2)
    tuned = budget - (60 if as_authors else budget // 2)
    assert [out[name]["n_calib"] for name in out] == [budget, tuned, tuned, tuned]


@pytest.mark.parametrize(
    ("name", "weights"),
    [("own", (0, 0)), ("linked", (0, 1)), ("similar", (1, 0))],
)
def test_ablation_with_one_part_has_nothing_to_tune(name, weights):
    scorer = method_of(protocol.SUITES["ablation"][name](0.1, 0)).scorer
    assert not scorer.needs_tuning
    assert scorer.grid == (weights,)


def test_ablation_grids_leave_out_what_is_off():
    grids = {
        name: method_of(m(0.1, 0)).scorer.grid for name, m in protocol.SUITES["ablation"].items()
    }
    assert len(grids["own+linked+similar"]) == 231
    assert all(lam == 0 for lam, _ in grids["own+linked"])
    assert all(mu == 0 for _, mu in grids["own+similar"])
    assert all(lam + mu == 1 for lam, mu in grids["linked+similar"])
    assert len(grids["own+linked"]) == len(grids["linked+similar"]) == 21


# ---- store ----------------------------------------------------------------------------------


def test_fingerprint_tells_settings_and_arrays_apart():
    marks = {
        fingerprint(1, "a"), fingerprint(1, "b"), fingerprint(2, "a"),
        fingerprint(np.arange(3)), fingerprint(np.arange(3.0)), fingerprint(np.arange(4)),
    }  # fmt: skip
    assert len(marks) == 6


def test_store_gives_back_what_it_was_given(tmp_path):
    store = Store(tmp_path / "runs")
    assert store.read_json("cells", "a") is None
    store.write_json("cells", "a", {"x": 0.1})
    assert store.read_json("cells", "a") == {"x": 0.1}
    store.write_arrays("logits", "b", {"x": np.arange(3)})
    assert store.read_arrays("logits", "b")["x"].tolist() == [0, 1, 2]


# ---- errors ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tabel1"], "'TABLE' must be a known table such as table1"),
        (["table1", "--models", "0"], "'--models' must be an integer of at least 1, got 0"),
        (["table1", "--splits", "-1"], "'--splits' must be an integer of at least 1, got -1"),
        (["table1", "--datasets", "cora_mll"], "cora_ml"),
        (["table1", "--datasets", ""], "'--datasets' must name at least one, got ''"),
        (["all", "--datasets", " , "], "'--datasets' must name at least one, got ' , '"),
        (
            ["table1", "--datasets", "cora_ml,citeseer,cora_ml"],
            "'--datasets' must name each one once, got 'cora_ml' again",
        ),
        (["all", "--data-dir", "no"], "'--data-dir' must be a folder with .npz files, got 'no'"),
        (["table1", "--seed", "-1"], "'--seed' must be an integer of at least 0, got -1"),
    ],
)
def test_errors_are_one_line(arguments, message, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["reproduce", *arguments])
    error = capsys.readouterr().err
    assert stopped.value.code == 2
    assert message in error
    assert len(error.strip().splitlines()) == 1


WHOLLY = [
    "table1", "gcn-0.1", "gat", "appnp", "mlp", "raps", "ablation", "thirds", "accuracy",
    "figure1a", "figure4",
]  # fmt: skip


def test_as_authors_goes_with_what_can_be_made_so_wholly():
    assert [name for name in catalogue.EXPERIMENTS if catalogue.as_authors(name)] == WHOLLY


@pytest.mark.parametrize("name", [each for each in catalogue.EXPERIMENTS if each not in WHOLLY])
def test_other_tables_refuse_to_be_made_as_the_authors_did(name, tmp_path, capsys):
    assert run(tmp_path, name, "--as-authors") == 2
    known = ", ".join(WHOLLY)
    error = f"snaps: error: '--as-authors' must go with one of {known}, got '{name}'\n"
    assert capsys.readouterr() == ("", error)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("place", ["file", "file/out", "file/out/more"])
def test_places_that_cannot_be_written_are_refused_before_any_work(place, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    for option in ("--out", "--page"):
        there = tmp_path / place / ("page.md" if option == "--page" else "")
        others = {"--out": tmp_path / "out", "--runs": tmp_path / "runs"} | {option: there}
        options = [str(part) for pair in others.items() for part in pair]
        with pytest.raises(SystemExit) as stopped:
            main(["reproduce", "table1", "--datasets", "cora_ml", *options])
        assert stopped.value.code == 2
        assert "cannot write" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_places_that_are_still_to_be_made_are_fine(tmp_path):
    out = tmp_path / "new" / "out"
    render.check_places(["table1"], out, out / "page.md")
    render.check_places(["table1"], out, tmp_path / "new" / "page.md")
    with pytest.raises(snaps.SnapsError, match="there is no folder"):
        render.check_places(["table1"], out, tmp_path / "else" / "page.md")
    (tmp_path / "table1.json").mkdir()
    with pytest.raises(snaps.SnapsError, match="it is a folder"):
        render.check_places(["table1"], tmp_path, None)


def test_runs_folder_that_cannot_be_written(tmp_path, data_dir, capsys, monkeypatch):
    monkeypatch.setenv("SNAPS_DATA", str(data_dir))
    (tmp_path / "file").write_text("")
    with pytest.raises(SystemExit) as stopped:
        main(["reproduce", "table1", *OPTIONS, "--runs", str(tmp_path / "file" / "runs")])
    assert stopped.value.code == 2
    assert "cannot write" in capsys.readouterr().err


def test_every_published_row_has_a_table():
    known = {(row["table"]) for row in common.published()["results"]}
    assert known <= set(tables.TABLES)


@pytest.fixture
def two_tables(monkeypatch):
    """Two tables, of which one finds no data."""
    commands = importlib.import_module("snaps_lab.command")  # the name is the command's

    def build(name, chosen, setting, track):
        if name == "table1":
            raise snaps.SnapsError("'cora_ml.npz' is not here")
        row = {"dataset": "cora_ml", "nodes": 1, "features": 1, "edges": 1, "classes": 1}
        result = {"table": name, "title": "T", "settings": {}, "notes": {}}
        skipped = {"actor": "'actor.npz' is not here"}
        odd = {"homophily": 0.5, "nothing": np.nan, "all": (np.inf, 1.0)}
        return result | {"rows": [row | odd], "skipped": skipped}

    monkeypatch.setattr(commands, "EXPERIMENTS", {"table1": "tables", "datasets": "statistics"})
    for name in ("table1", "datasets"):
        monkeypatch.setattr(catalogue.find(name), "build", build)


def run(tmp_path, *arguments):
    with pytest.raises(SystemExit) as stopped:
        main(["reproduce", *arguments, "--out", f"{tmp_path}/out", "--runs", f"{tmp_path}/runs"])
    return stopped.value.code


def test_all_says_what_it_leaves_out_and_why(two_tables, tmp_path, capsys):
    """The table that can be made is, and a page of it."""
    assert run(tmp_path, "all") in (0, None)
    out = capsys.readouterr().out
    assert "skipped table1: 'cora_ml.npz' is not here" in out
    assert "skipped actor: 'actor.npz' is not here" in out
    assert f"wrote {tmp_path}/out/results.md" in out
    assert "## datasets: T" in (tmp_path / "out" / "results.md").read_text()


def test_all_as_the_authors_leaves_out_what_cannot_be_made_so(two_tables, tmp_path, capsys):
    assert run(tmp_path, "all", "--as-authors") == 2  # the other table lacks its data here
    out, error = capsys.readouterr()
    assert "skipped datasets: '--as-authors' must go with one of table1, got 'datasets'" in out
    assert error == "snaps: error: 'cora_ml.npz' is not here\n"


def test_json_is_all_that_goes_to_stdout(two_tables, tmp_path, capsys):
    assert run(tmp_path, "all", "--json") in (0, None)
    out, error = capsys.readouterr()

    def refuse(word):
        raise AssertionError(f"{word} is no JSON")

    printed = json.loads(out, parse_constant=refuse)
    [result] = printed["results"]
    assert result["rows"][0]["homophily"] == 0.5
    assert result["rows"][0]["nothing"] is None and result["rows"][0]["all"] == [None, 1.0]
    assert printed["skipped"] == {"table1": "'cora_ml.npz' is not here"}
    assert result == json.loads((tmp_path / "out" / "datasets.json").read_text())
    for line in ("skipped table1: ", "skipped actor: ", "wrote "):
        assert line in error


def test_json_of_nothing_is_an_error_alone(two_tables, tmp_path, capsys):
    assert run(tmp_path, "table1", "--json") == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert error == "snaps: error: 'cora_ml.npz' is not here\n"


def test_a_working_directory_that_is_gone(tmp_path):
    """Torch would end the process there."""
    script = 'mkdir gone && cd gone && rmdir ../gone && exec "$@"'
    command = ["sh", "-c", script, "sh", sys.executable, "-m", "snaps", "reproduce", "table1"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    gone = "snaps: error: the working directory must exist, got one that was deleted\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", gone)
