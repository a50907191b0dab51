"""`snaps reproduce images`: the table, from files of the user's own too."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

import snaps
from lab.tests.images.common import SEED, write
from snaps.cli import main
from snaps.images import Outputs
from snaps_lab.command import _choices
from snaps_lab.reproduce.images import NAMES


def run(*arguments):
    with pytest.raises(SystemExit) as stopped:
        main([str(argument) for argument in arguments])
    return stopped.value.code


def reproduce(folder, *options):
    assert run("reproduce", "images", *options, "--runs", folder / "runs", "--out", folder) == 0
    return json.loads((folder / "images.json").read_text())


@pytest.mark.parametrize(
    "name", ["cifar10_resnet20", "cifar10_resnet56", "tinyimagenet_val_efficientnet_lite0"]
)
def test_sets_are_smaller_than_those_of_aps_and_cover(name, data_dir, tmp_path):
    result = reproduce(tmp_path, "--data-dir", data_dir, "--datasets", name, "--models", 1)
    assert len(result["rows"]) == 12
    for alpha in (0.05, 0.1):
        rows = {row["method"]: row for row in result["rows"] if row["alpha"] == alpha}
        assert list(rows) == [
            "APS", "SNAPS", "SNAPS, paper's pool", "THR", "Pooled without regression", "Pooled",
        ]  # fmt: skip
        assert rows["SNAPS"]["size"] < rows["APS"]["size"]
        assert rows["Pooled"]["size"] < 1.01 * rows["THR"]["size"]
        assert all(rows[method]["inside_law"] for method in ("APS", "SNAPS", "THR", "Pooled"))
        assert rows["SNAPS"]["n_calib"] == rows["SNAPS"]["n_test"] == 4500
    assert not any("paper_size" in row for row in result["rows"])


@pytest.fixture
def file(tmp_path):
    """Outputs over a thousand classes with the name of a network in the paper."""
    random = np.random.default_rng(SEED)
    labels = random.integers(1000, size=300)
    features = np.eye(1000)[labels][:, :40] + 0.1 * random.random((300, 40))
    logits = 5 * np.eye(1000)[labels] + random.normal(size=(300, 1000))
    path = tmp_path / "imagenet_val_resnet101.npz"
    Outputs(logits.astype(np.float16), features.astype(np.float16), labels).save(path)
    return path


def test_a_file_of_the_users_own_next_to_the_papers_numbers(file, tmp_path, capsys):
    result = reproduce(tmp_path, "--file", file, "--models", 2)
    sizes = [row["paper_size"] for row in result["rows"] if "paper_size" in row]
    assert sizes == [22.9, 9.83, 9.83, 10.82, 3.62, 3.62]
    assert {row["dataset"] for row in result["rows"]} == {"imagenet_val_resnet101"}
    assert "paper SSCV" in (tmp_path / "images.md").read_text()
    assert "2 trials, seed 0" in capsys.readouterr().out


def test_finished_trials_are_kept_and_damaged_ones_made_again(outputs, tmp_path):
    file = tmp_path / "mine.npz"
    Outputs(outputs.logits[:300], outputs.features[:300], outputs.labels[:300]).save(file)
    first = reproduce(tmp_path, "--file", file, "--models", 2)
    cells = sorted((tmp_path / "runs" / "images").iterdir())
    assert len(cells) == 2
    cells[0].write_text("{")
    kept = cells[1].stat().st_mtime_ns
    assert reproduce(tmp_path, "--file", file, "--models", 2) == first
    assert cells[1].stat().st_mtime_ns == kept
    other = reproduce(tmp_path, "--file", file, "--models", 2, "--seed", 1)
    assert other["rows"] != first["rows"]


def test_rows_in_order_of_class_are_split_at_random(outputs, tmp_path):
    order = np.argsort(outputs.labels, kind="stable")
    path = tmp_path / "sorted.npz"
    Outputs(outputs.logits[order], outputs.features[order], outputs.labels[order]).save(path)
    result = reproduce(tmp_path, "--file", path, "--models", 3)
    assert all(row["inside_law"] for row in result["rows"] if row["method"] in ("APS", "SNAPS"))


def test_missing_files_are_named(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("SNAPS_CACHE", str(tmp_path / "cache"))
    options = ["--data-dir", tmp_path, "--datasets", "cifar10_resnet20", "--out", tmp_path / "out"]
    assert run("reproduce", "images", *options) == 0
    assert capsys.readouterr().out == (
        "skipped cifar10_resnet20: 'cifar10_resnet20.npz' is neither in SNAPS_DATA nor in the "
        "cache\n"
    )
    assert not (tmp_path / "out").exists()


def test_errors_of_the_command(file, tmp_path, capsys):
    def error_of(*arguments):
        assert run("reproduce", *arguments, "--runs", tmp_path / "runs", "--out", tmp_path) == 2
        return capsys.readouterr().err

    assert error_of("table1", "--file", file) == (
        "snaps: error: '--file' must go with the table 'images', got 'table1'\n"
    )
    known = ", ".join(NAMES)
    assert error_of("images", "--datasets", "cifar") == (
        f"snaps: error: '--datasets' must be among {known}, got 'cifar'\n"
    )
    assert error_of("images", "--file", tmp_path / "no.npz") == (
        f"snaps: error: cannot read '{tmp_path / 'no.npz'}': No such file or directory\n"
    )
    assert re.fullmatch(
        r"snaps: error: '--file' must not repeat a name, got \[.*\]\n",
        error_of("images", "--file", file, "--file", file),
    )
    write(tmp_path / "few.npz")
    assert error_of("images", "--file", tmp_path / "few.npz") == (
        f"snaps: error: cannot use '{tmp_path / 'few.npz'}': "
        "it must hold at least 100 items, got 4\n"
    )
    unknown = {"logits": np.eye(200), "features": np.eye(200), "labels": np.full(200, -1)}
    write(tmp_path / "unknown.npz", **unknown)
    assert error_of("images", "--file", tmp_path / "unknown.npz") == (
        f"snaps: error: cannot use '{tmp_path / 'unknown.npz'}': "
        "'labels' must be labelled, got 200 without a label (first: 0)\n"
    )


def test_every_table_gets_the_datasets_it_is_about(tmp_path):
    own = [tmp_path / "mine.npz"]
    assert _choices(["table1", "images"], None, []) == {"table1": None, "images": None}
    asked = "CoraML, cifar10_resnet20,mine"
    assert _choices(["table1", "images", "mlp"], asked, own) == {
        "table1": ["cora_ml"], "images": ["cifar10_resnet20", "mine"], "mlp": ["cora_ml"],
    }  # fmt: skip
    assert _choices(["table1", "images"], "mine", own) == {"images": ["mine"]}
    with pytest.raises(snaps.SnapsError, match="there is no dataset 'cora_mll'"):
        _choices(["table1", "images"], "cora_mll", own)
