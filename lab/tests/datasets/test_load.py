"""Datasets: names, places, checks of files, and the commands."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import snaps.cli
from lab.tests.datasets.common import Small, assert_is, command, error_line, put
from snaps import datasets
from snaps.datasets.dataset import statistics
from snaps.datasets.load import cache_dir
from snaps.datasets.registry import DATASETS, find_spec
from snaps.io.files import sha256

HERE = [name for name in DATASETS if not name.startswith("ogbn")]


# --- Names -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spelling, name",
    [
        ("cora_ml", "cora_ml"),
        ("CoraML", "cora_ml"),
        ("cora-ml", "cora_ml"),
        ("Coauthor CS", "coauthor_cs"),
        ("physics", "coauthor_physics"),
        ("ogbn-products", "ogbn_products"),
        ("CoraFull*", "cora_full"),
    ],
)
def test_spellings(spelling, name):
    assert find_spec(spelling).name == name


@pytest.mark.parametrize(
    "wrong, near", [("cora", "cora_ml"), ("citeseeer", "citeseer"), ("amazon_foto", "amazon_photo")]
)
def test_an_unknown_name_gets_the_nearest(wrong, near):
    text = error_line(datasets.load, wrong)
    assert f"there is no dataset '{wrong}'" in text and f"'{near}'" in text


def test_a_name_far_from_all_gets_the_list():
    assert ", ".join(DATASETS) in error_line(datasets.load, "zzz")
    assert "'name' must be" in error_line(datasets.load, 3)


def test_the_paper_has_twelve():
    assert len([spec for spec in DATASETS.values() if spec.in_paper]) == 12


# --- The real files ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", HERE)
def test_real_graphs_match_the_paper(name, data_dir):
    data = datasets.load(name, data_dir, download=False)
    spec = DATASETS[name]
    counted = statistics(data, directed=spec.directed)
    due = spec.statistics
    assert (counted.nodes, counted.edges, counted.classes) == (due.nodes, due.edges, due.classes)
    # The table prints whole percents for the two directed graphs, cut hundredths for the others.
    assert counted.homophily == pytest.approx(due.homophily, abs=5e-3 if spec.directed else 1e-4)
    assert data.num_classes == due.classes and data.labels.min() == 0
    if name == "cora_full":
        assert data.notes == ("features are a surrogate: 128 columns instead of 8710",)
        values = data.graph.features
        assert len(np.unique(values[values > 0])) > 1000  # an embedding is not made binary
        assert np.bincount(data.labels).min() >= 50
    else:
        assert counted.features == due.features and data.notes == ()
        assert np.unique(data.graph.features.data).tolist() == [1.0]


@pytest.mark.parametrize(
    "name, sizes", [("chameleon", (1092, 729, 456)), ("squirrel", (2496, 1664, 1041))]
)
def test_geom_gcn_splits_and_directed_edges(name, sizes, data_dir):
    data = datasets.load(name, data_dir)
    codes = data.splits["geom_gcn"]
    assert codes.shape == (10, len(data.labels))
    assert [tuple(np.bincount(code, minlength=4)) for code in codes] == [(0, *sizes)] * 10
    assert data.directed_edges.shape == (2, DATASETS[name].statistics.edges)
    again = snaps.Graph(data.directed_edges, num_nodes=len(data.labels))
    assert (again.adjacency != data.graph.adjacency).nnz == 0


def test_pubmed_keeps_its_public_split(data_dir):
    splits = datasets.load("pubmed", data_dir).splits
    assert [len(splits[part]) for part in ("train", "valid", "test")] == [60, 500, 1000]


def test_verify_finds_the_real_files_sound(data_dir, capsys):
    verdicts = {verdict.name: verdict for verdict in datasets.verify(data_dir=data_dir)}
    assert {verdicts[name].state for name in HERE} == {"ok"}
    assert verdicts["ogbn_arxiv"].state in ("ok", "missing")
    assert "surrogate" in verdicts["cora_full"].detail
    code, out, _ = command(capsys, "verify", "cora_ml", "--data-dir", str(data_dir))
    assert code == 0 and "checksum and statistics match" in out


# --- Places ------------------------------------------------------------------------------------


def test_the_data_folder_comes_before_the_cache(cache, tmp_path, expect, monkeypatch):
    first, second = Small(seed=1), Small(seed=2)
    put(tmp_path / "data", "citeseer", first.manifest())
    put(cache, "citeseer", second.manifest())
    expect("citeseer", second.statistics())
    assert_is(datasets.load("citeseer"), second, (second.words > 0).astype(float))
    expect("citeseer", first.statistics())
    monkeypatch.setenv("SNAPS_DATA", str(tmp_path / "data"))
    assert_is(datasets.load("citeseer"), first, (first.words > 0).astype(float))
    monkeypatch.setenv("SNAPS_DATA", str(tmp_path))
    assert_is(datasets.load("citeseer", tmp_path / "data"), first, (first.words > 0).astype(float))


def test_cache_folder(monkeypatch, tmp_path):
    monkeypatch.delenv("SNAPS_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_dir() == tmp_path / "snaps" / "datasets"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_dir() == tmp_path / ".cache" / "snaps" / "datasets"


def test_a_data_folder_that_is_none(monkeypatch, tmp_path):
    assert "'data_dir' must be a folder" in error_line(datasets.load, "cora_ml", tmp_path / "no")
    monkeypatch.setenv("SNAPS_DATA", str(tmp_path / "no"))
    assert "'SNAPS_DATA' must be a folder" in error_line(datasets.load, "cora_ml")


def test_without_download_the_message_says_what_to_put_where(cache, tmp_path):
    text = error_line(datasets.load, "cora_ml", tmp_path, download=False)
    for part in (str(tmp_path), str(cache), "cora_ml.npz", "SNAPS_DATA", "snaps datasets fetch"):
        assert part in text


# --- Damaged and wrong files -------------------------------------------------------------------


@pytest.fixture
def copied(data_dir, tmp_path):
    """A writable copy of a real file in a data folder."""
    folder = tmp_path / "data"
    folder.mkdir()
    shutil.copyfile(data_dir / "citeseer.npz", folder / "citeseer.npz")
    return folder / "citeseer.npz"


def test_a_truncated_file(copied, capsys):
    copied.write_bytes(copied.read_bytes()[:5000])
    text = error_line(datasets.load, "citeseer", copied.parent)
    assert str(copied) in text and "damaged" in text
    code, out, err = command(capsys, "verify", "citeseer", "--data-dir", str(copied.parent))
    assert code == 2 and "damaged" in out
    assert err.splitlines()[-1].startswith("snaps: error: damaged: ") and str(copied) in err
    code, out, _ = command(capsys, "list", "--data-dir", str(copied.parent), "--json")
    assert code == 0 and "the file found is damaged" in out


def test_a_wrong_checksum(copied):
    arrays = dict(np.load(copied))
    arrays["y"] = arrays["y"][::-1].copy()
    np.savez_compressed(copied, **arrays)
    text = error_line(datasets.load, "citeseer", copied.parent)
    assert str(copied) in text and "wrong checksum" in text and "data manifest" in text
    assert "fetch" not in text.split(";")[-1]  # nothing fetched helps while this file is here
    [verdict] = datasets.verify(["citeseer"], copied.parent)
    assert verdict.state == "damaged" and "wrong checksum" in verdict.detail


def test_a_record_decides_over_the_manifest(copied):
    arrays = dict(np.load(copied))
    np.savez(copied, **arrays)
    assert "wrong checksum" in error_line(datasets.load, "citeseer", copied.parent)
    record = copied.with_suffix(".json")
    record.write_text(json.dumps({"sha256": sha256(copied)}))
    assert datasets.load("citeseer", copied.parent).graph.num_nodes == 4230
    record.write_text("{")
    assert "must be a JSON record" in error_line(datasets.load, "citeseer", copied.parent)


def test_labels_that_moved_are_noticed(copied, expect):
    """Counts alone would not show it; homophily does."""
    expect("citeseer", DATASETS["citeseer"].statistics)
    arrays = dict(np.load(copied))
    arrays["y"] = np.random.default_rng(0).permutation(arrays["y"])
    np.savez_compressed(copied, **arrays)
    assert "homophily" in error_line(datasets.load, "citeseer", copied.parent)


@pytest.mark.parametrize("field", ["nodes", "features", "edges", "classes"])
def test_statistics_that_differ_are_an_error(field, cache, expect):
    small = Small()
    due = small.statistics()
    actual = getattr(due, field)
    expect("amazon_photo", replace(due, **{field: actual + 1}))
    put(cache, "amazon_photo", small.manifest())
    text = error_line(datasets.load, "amazon_photo")
    assert f"{actual} {field} instead of {actual + 1}" in text and "paper's table" in text
    assert "snaps datasets fetch amazon_photo" in text


def test_known_deviations_become_notes(cache, expect):
    small = Small()
    due = replace(small.statistics(), classes=5, features=99)
    expect("ogbn_products", due, corrections={"classes": range(3, 4)})
    put(cache, "ogbn_products", small.manifest() | {"x_is_surrogate": np.array(True)})
    assert datasets.load("ogbn_products").notes == (
        "features are a surrogate: 12 columns instead of 99",
        "3 classes, where the paper's table says 5",
    )


@pytest.mark.parametrize(
    "change, part",
    [
        ({"y": None}, "'y'"),
        ({"adj_indptr": None}, "'adj_indptr'"),
        ({"y": np.zeros(7, int)}, "must have shape (60,)"),
        ({"train_idx": np.array([60])}, "train_idx"),
        ({"split_code": np.zeros((10, 3), np.int8)}, "split_code"),
        ({"edge_index_directed": np.zeros((3, 2), int)}, "edge_index_directed"),
        ({"edge_index_directed": np.full((2, 1), 60)}, "must lie from 0 to 59"),
    ],
)
def test_a_file_in_another_layout(change, part, cache, expect):
    small = Small()
    expect("amazon_photo", small.statistics())
    arrays = {k: v for k, v in (small.manifest() | change).items() if v is not None}
    path = put(cache, "amazon_photo", arrays)
    text = error_line(datasets.load, "amazon_photo")
    assert part in text and str(path) in text


def test_directed_graphs_need_their_directed_edges(cache, expect):
    small = Small()
    expect("chameleon", small.statistics())
    put(cache, "chameleon", small.manifest())
    assert "edge_index_directed" in error_line(datasets.load, "chameleon")


def test_no_permission_in_the_cache(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SNAPS_CACHE", str(tmp_path / "file" / "below"))
    text = error_line(datasets.fetch, "cora_ml")
    assert "cannot write to the cache" in text and "SNAPS_CACHE" in text


# --- Commands ----------------------------------------------------------------------------------


def test_list_shows_all(capsys, cache):
    code, out, _ = command(capsys)
    assert code == 0 and all(name in out for name in DATASETS)
    assert "not here" in out and "47 classes" in out and str(cache) in out


def test_verify_without_files(capsys):
    code, out, _ = command(capsys, "verify", "--json")
    assert code == 0 and {row["state"] for row in json.loads(out)} == {"missing"}


def test_an_unknown_name_at_the_command(capsys):
    code, out, err = command(capsys, "fetch", "coraml2")
    assert (code, out) == (2, "")
    assert err.startswith("snaps: error: there is no dataset 'coraml2'; did you mean 'cora_ml'")
    assert err.count("\n") == 1


def test_only_one_file_imports_ogb():
    folder = Path(datasets.__file__).parent
    for word in ("import torch\n", "from torch", "import ogb", "from ogb", 'require("ogb'):
        users = {path.name for path in folder.glob("*.py") if word in path.read_text()}
        assert users <= {"ogb.py"}, word


def test_the_commands_import_nothing_heavy():
    script = (
        "import sys, snaps.cli.datasets; "
        "sys.exit(str({'torch', 'torch_geometric', 'ogb', 'pandas'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert run.stderr.strip() == "set()"
