"""The published numbers in `snaps/reproduce/paper.json` against each other.

The paper prints averages, repeats columns from table to table, and every row obeys what a
prediction set can be: a swapped column, a lost row or a wrong leading digit shows. Numbers are read
as decimals, so the digits that were printed say how exact a comparison may be.
"""

from __future__ import annotations

import json
from collections import Counter
from decimal import Decimal
from importlib import resources

import pytest

TEXT = (resources.files("snaps_lab.reproduce") / "paper.json").read_text(encoding="utf-8")
PAPER = json.loads(TEXT, parse_float=Decimal)

A05, A10, A15 = Decimal("0.05"), Decimal("0.1"), Decimal("0.15")
SMALL = [
    "cora_ml",
    "pubmed",
    "citeseer",
    "cora_full",
    "coauthor_cs",
    "coauthor_physics",
    "amazon_computers",
    "amazon_photo",
]
LARGE = ["ogbn_arxiv", "ogbn_products"]
HETEROPHILOUS = ["chameleon", "squirrel"]
METHODS = ["APS", "RAPS", "DAPS", "SNAPS"]
IMAGE_MODELS = ["resnext101", "resnet101", "densenet161", "vit", "clip"]

# table: (model, datasets, alphas, methods); every combination is a row.
TABLES = {
    "table1": ("gcn", SMALL + LARGE, [A05], METHODS),
    "gcn-0.1": ("gcn", SMALL + LARGE, [A10], METHODS),
    "gat": ("gat", SMALL, [A05, A10], METHODS),
    "appnp": ("appnp", SMALL, [A05, A10], METHODS),
    "mlp": ("mlp", SMALL, [A05, A10], METHODS),
    "raps": ("gcn", SMALL + LARGE, [A05, A10], ["RAPS", "SNAPS-RAPS"]),
    "thirds": ("gcn", [name for name in SMALL if name != "cora_full"], [A05], METHODS),
}
COUNTS = {
    "table1": 40,
    "gcn-0.1": 40,
    "gat": 64,
    "appnp": 64,
    "mlp": 64,
    "raps": 40,
    "thirds": 28,
}

# The paper's own mistakes: printed averages that its rows do not give, and what they do give.
WRONG_AVERAGES = {
    ("table1", A05, "RAPS", "singleton_hit"): (Decimal("0.3600"), Decimal("0.35988")),
    ("table1", A05, "SNAPS", "singleton_hit"): (Decimal("0.5231"), Decimal("0.51312")),
}


def half_unit(value: Decimal) -> Decimal:
    """How far a printed number may be from the one it was rounded from."""
    return Decimal(1).scaleb(value.as_tuple().exponent) / 2


def by_key(records: list[dict], *names: str) -> dict[tuple, dict]:
    found = {tuple(record[name] for name in names): record for record in records}
    assert len(found) == len(records), "a row is there twice"
    return found


RESULTS = by_key(PAPER["results"], "table", "dataset", "alpha", "method")


def main_table(alpha: Decimal) -> str:
    return {A05: "table1", A10: "gcn-0.1"}[alpha]


# ---- Every row is there, once ------------------------------------------------------------------


def test_row_counts():
    assert Counter(record["table"] for record in PAPER["results"]) == COUNTS
    assert {name: len(records) for name, records in PAPER.items() if name != "results"} == {
        "averages": 40,
        "ablation": 70,
        "images": 20,
        "heterophily": 12,
        "cfgnn": 12,
        "datasets": 12,
        "accuracy": 36,
    }


@pytest.mark.parametrize("table", TABLES)
def test_a_table_holds_every_combination(table):
    model, datasets, alphas, methods = TABLES[table]
    rows = [record for record in PAPER["results"] if record["table"] == table]
    assert {record["model"] for record in rows} == {model}
    assert set(by_key(rows, "dataset", "alpha", "method")) == {
        (dataset, alpha, method) for dataset in datasets for alpha in alphas for method in methods
    }


def test_the_other_tables_hold_every_combination():
    parts = {
        (own, linked, similar)
        for own in (True, False)
        for linked in (True, False)
        for similar in (True, False)
    } - {(False, False, False)}
    assert set(by_key(PAPER["ablation"], "dataset", "own", "linked", "similar")) == {
        (dataset, *part) for dataset in SMALL + LARGE for part in parts
    }
    assert set(by_key(PAPER["images"], "model", "alpha", "method")) == {
        (m, a, method) for m in IMAGE_MODELS for a in (A05, A10) for method in ("APS", "SNAPS")
    }
    assert set(by_key(PAPER["heterophily"], "dataset", "alpha", "method")) == {
        (d, a, m) for d in HETEROPHILOUS for a in (A10, A15) for m in ("APS", "DAPS", "SNAPS")
    }
    assert set(by_key(PAPER["cfgnn"], "dataset", "alpha", "method")) == {
        (d, a, method) for d in SMALL[:3] for a in (A05, A10) for method in ("CF-GNN", "SNAPS")
    }
    assert set(by_key(PAPER["datasets"], "dataset")) == {
        (name,) for name in SMALL + LARGE + HETEROPHILOUS
    }
    assert set(by_key(PAPER["accuracy"], "dataset", "model")) == (
        {(dataset, model) for dataset in SMALL for model in ("gcn", "gat", "appnp", "mlp")}
        | {(dataset, "gcn") for dataset in LARGE}
        | {(dataset, "fsgnn") for dataset in HETEROPHILOUS}
    )


def test_one_record_a_line():
    records = sum(len(records) for records in PAPER.values())
    assert sum(line.startswith("{") and len(line) > 1 for line in TEXT.splitlines()) == records


# ---- Printed averages --------------------------------------------------------------------------


def averages():
    for average in PAPER["averages"]:
        table, alpha, method = (average[name] for name in ("table", "alpha", "method"))
        rows = [
            record
            for record in (PAPER["images"] if table == "images" else PAPER["results"])
            if (record.get("table", "images"), record["alpha"], record["method"])
            == (table, alpha, method)
        ]
        for metric in ("coverage", "size", "singleton_hit", "sscv"):
            if metric in average:
                mean = sum(row[metric] for row in rows) / len(rows)
                yield (table, alpha, method, metric), average[metric], mean


def test_averages_are_the_means_of_the_rows():
    wrong = {
        key: (printed, mean)
        for key, printed, mean in averages()
        if abs(printed - mean) > half_unit(printed)
    }
    assert wrong == WRONG_AVERAGES


def test_every_table_but_thirds_prints_averages():
    expected = {
        (table, alpha, method)
        for table, (_, _, alphas, methods) in TABLES.items()
        if table != "thirds"
        for alpha in alphas
        for method in methods
    } | {("images", alpha, method) for alpha in (A05, A10) for method in ("APS", "SNAPS")}
    assert set(by_key(PAPER["averages"], "table", "alpha", "method")) == expected


# ---- Columns that the paper prints twice -------------------------------------------------------


@pytest.mark.parametrize(
    ("parts", "method"), [((True, False, False), "APS"), ((True, True, True), "SNAPS")]
)
def test_ablation_repeats_table1(parts, method):
    rows = by_key(PAPER["ablation"], "dataset", "own", "linked", "similar")
    for dataset in SMALL + LARGE:
        expected = RESULTS["table1", dataset, A05, method]["size"]
        assert rows[(dataset, *parts)]["size"] == expected, dataset


@pytest.mark.parametrize("alpha", [A05, A10])
@pytest.mark.parametrize("dataset", SMALL + LARGE)
def test_raps_columns_agree(dataset, alpha):
    here = RESULTS["raps", dataset, alpha, "RAPS"]
    there = RESULTS[main_table(alpha), dataset, alpha, "RAPS"]
    for metric in ("coverage", "size", "singleton_hit"):
        assert here[metric] == there[metric], metric


def test_cfgnn_repeats_snaps():
    for row in PAPER["cfgnn"]:
        if row["method"] == "SNAPS":
            alpha, dataset = row["alpha"], row["dataset"]
            assert row["size"] == RESULTS[main_table(alpha), dataset, alpha, "SNAPS"]["size"]


def test_what_does_not_depend_on_alpha_is_the_same_at_both():
    assert len({(row["dataset"], row["method"], row["seconds"]) for row in PAPER["cfgnn"]}) == 6
    assert len({(row["model"], row["top1"], row["top5"]) for row in PAPER["images"]}) == 5


# ---- What a prediction set can be --------------------------------------------------------------


def test_coverage_is_near_its_target():
    for row in PAPER["results"] + PAPER["images"] + PAPER["heterophily"] + PAPER["averages"]:
        few_nodes = row.get("table") == "thirds" or row in PAPER["heterophily"]
        far = Decimal("0.02") if few_nodes else Decimal("0.001")
        assert abs(row["coverage"] - (1 - row["alpha"])) <= far, row


def test_sizes_lie_between_one_and_the_number_of_classes():
    classes = {row["dataset"]: row["classes"] for row in PAPER["datasets"]}
    for name in ("results", "ablation", "heterophily", "cfgnn"):
        for row in PAPER[name]:
            assert 1 <= row["size"] <= classes[row["dataset"]], row
    assert all(1 <= row["size"] <= 1000 for row in PAPER["images"])


def test_singleton_hits_fit_coverage_and_size():
    """A hit is covered; and what is covered without being a hit needs a set of two or more."""
    classes = {row["dataset"]: row["classes"] for row in PAPER["datasets"]}
    for row in PAPER["results"]:
        hit, coverage, size = row["singleton_hit"], row["coverage"], row["size"]
        rounding = half_unit(hit) + half_unit(coverage) + half_unit(size)
        assert 0 <= hit <= coverage + rounding, row
        assert hit >= coverage - (size - 1) - rounding, row
        labels = classes[row["dataset"]]
        assert size <= hit + (1 - hit) * labels + labels * rounding, row


def test_shares_and_counts_are_in_range():
    for row in PAPER["accuracy"]:
        assert 0 < row["mean"] < 1, row
        if row["dataset"] in LARGE:
            assert row["sd"] is None, row
        else:
            assert 0 < row["sd"] < Decimal("0.05"), row
    for row in PAPER["images"]:
        assert 0 < row["top1"] < row["top5"] < 1, row
        assert abs(row["coverage"] - (1 - row["alpha"])) <= row["sscv"] < 1, row
    for row in PAPER["datasets"]:
        assert 0 < row["homophily"] < 1, row
        assert all(isinstance(row[key], int) for key in ("nodes", "features", "edges", "classes"))
        assert row["classes"] < row["nodes"] < row["edges"], row
    assert all(row["seconds"] > 0 for row in PAPER["cfgnn"])
