"""Tables on the terminal: whatever the width, every number can be read."""

from __future__ import annotations

import re

import pytest

from snaps._tables import print_table

HEADER = ["alpha", "dataset", "method", "coverage", "size", "size, non-empty", "paper", "SH %"]
ROWS = [
    ["0.05", "CoraML", "APS", "0.9505", "2.466 ± 0.039", "2.494 ± 0.038", "2.42", "42.60"],
    ["0.1", "imagenet_sample1000_efficientnet_lite0", "SNAPS, paper's pool",
     "0.9559 (not as expected)", "1.176 ± 0.003", "1.181 ± 0.004", "", "71.52"],
    ["0.05", "Average of 7 without CoraFull", "SNAPS on THR", "0.9501", "1.467", "1.470", "1.51",
     "65.93"],
]  # fmt: skip
WIDTHS = [40, 47, 60, 79, 80, 100, 120, 140, 200]


def printed(capsys, monkeypatch, width, *arguments, **options):
    monkeypatch.setenv("COLUMNS", str(width))
    print_table(*arguments, **options)
    return capsys.readouterr().out


@pytest.mark.parametrize("width", WIDTHS)
def test_no_number_is_cut_or_broken_at_any_width(width, capsys, monkeypatch):
    text = printed(capsys, monkeypatch, width, HEADER, ROWS, names=3, title="A title")
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    assert text.startswith("A title")
    words = set(re.split(r"[\s│┃,]+", text))
    for row in ROWS:
        for cell in [row[0], *row[3:]]:
            assert set(cell.split()) <= words, cell


def test_a_table_that_fits_is_one_table_with_a_line_per_row(capsys, monkeypatch):
    text = printed(capsys, monkeypatch, 200, HEADER, ROWS, names=3)
    assert text.count("┏") == 1
    assert all(any(cell in line for line in text.splitlines()) for row in ROWS for cell in row)
    assert len(text.splitlines()) == len(ROWS) + 4


def test_a_folded_table_names_its_rows_in_every_part(capsys, monkeypatch):
    text = printed(capsys, monkeypatch, 60, HEADER, ROWS[:1], names=3)
    parts = text.count("┏")
    assert parts > 1
    assert text.count("0.05, CoraML, APS") == text.count("alpha, dataset,") == parts


def test_a_pipe_gets_every_column_side_by_side(capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    print_table(HEADER, ROWS, names=3)
    text = capsys.readouterr().out
    assert text.count("┏") == 1
    assert "imagenet_sample1000_efficientnet_lite0" in text


def test_cells_are_not_markup(capsys, monkeypatch):
    text = printed(capsys, monkeypatch, 80, ["name", "x"], [["[bold]a[/bold]", "[1]"]])
    assert "[bold]a[/bold]" in text and "[1]" in text


@pytest.mark.parametrize("width", [40, 80])
def test_odd_tables(width, capsys, monkeypatch):
    assert "alone" in printed(capsys, monkeypatch, width, ["name"], [["alone"]])
    assert "x" in printed(capsys, monkeypatch, width, ["name", "x"], [])
    long = "word " * 30
    assert printed(capsys, monkeypatch, width, ["name"], [[long]]).count("word") == 30
