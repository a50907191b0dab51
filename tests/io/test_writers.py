"""Sets as files: Parquet, CSV and JSON lines, in blocks of any size."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import snaps
from snaps.io import writers
from snaps.io.files import check_output
from tests.helpers import small
from tests.scale.common import MEASURED, memory_of

# Five sets over three labels: {0}, {1, 2}, {}, {0, 1, 2}, {2}.
MASK = np.array([[1, 0, 0], [0, 1, 1], [0, 0, 0], [1, 1, 1], [0, 0, 1]], bool)


@pytest.fixture
def sets():
    return snaps.PredictionSets(MASK)


# ---- Some of the sets ----------------------------------------------------------------------------

CLASSES = ["cat", 'dog; "big"', "fox\nred"]


def as_lists(sets):
    return [labels.tolist() for labels in sets]


# ---- Files ---------------------------------------------------------------------------------------

AWKWARD = ["a,b", 'say "x"', "two\nlines", "", "é;|"]


def awkward(classes=CLASSES, ids=AWKWARD):
    return snaps.PredictionSets(MASK, ids=ids, classes=classes)


@pytest.mark.parametrize(
    "classes, kind",
    [
        (None, "int32"),
        ([7, -2, 2**31 - 1], "int32"),
        ([7, -2, 2**31], "int64"),
        (CLASSES, "string"),
    ],
    ids=str,
)
def test_parquet(tmp_path, classes, kind):
    sets = awkward(classes)
    for write in (sets.to_parquet, sets.write):
        write(tmp_path / "x.parquet", metadata={"alpha": "0.1", "é": "ü"})
        table = pq.read_table(tmp_path / "x.parquet")
        assert table.column_names == ["id", "labels", "size"]
        assert str(table.schema.field("labels").type.value_type) == kind
        assert table["id"].to_pylist() == AWKWARD
        assert table["labels"].to_pylist() == as_lists(sets)
        assert table["size"].to_pylist() == [1, 2, 0, 3, 1]
        assert table.schema.metadata == {b"alpha": b"0.1", "é".encode(): "ü".encode()}
    sets.to_parquet(tmp_path / "x.parquet")
    assert pq.read_schema(tmp_path / "x.parquet").metadata is None


def read_csv(text):
    rows = list(csv.reader(io.StringIO(text, newline="")))
    assert rows[0] == ["id", "labels", "size"]
    inside = [next(csv.reader([row[1]], delimiter=";"), []) for row in rows[1:]]
    return [row[0] for row in rows[1:]], inside, [int(row[2]) for row in rows[1:]]


@pytest.mark.parametrize(
    "classes", [CLASSES, ["", ";", '"'], ["a,b", " a", "'"], ["\r", "\r\n", "é"]], ids=ascii
)
@pytest.mark.parametrize("rows", [2, 2**17])
def test_csv(tmp_path, monkeypatch, capsysbinary, classes, rows):
    monkeypatch.setattr("snaps.io.writers._TEXT", (rows, 2**24))
    sets = awkward(classes)
    sets.write(tmp_path / "x.csv")
    text = (tmp_path / "x.csv").read_bytes()
    assert read_csv(text.decode()) == (AWKWARD, as_lists(sets), [1, 2, 0, 3, 1])
    print("before")
    sets.write("-")
    print("after")
    assert capsysbinary.readouterr().out == b"before\n" + text + b"after\n"
    assert [path.name for path in tmp_path.iterdir()] == ["x.csv"]


def test_csv_of_plain_labels(tmp_path):
    snaps.PredictionSets(MASK).write(tmp_path / "x.CSV")
    lines = ['"id","labels","size"', '0,"0",1', '1,"1;2",2', '2,"",0', '3,"0;1;2",3', '4,"2",1']
    assert (tmp_path / "x.CSV").read_text().splitlines() == lines
    frame = pd.read_csv(tmp_path / "x.CSV")
    assert frame["size"].tolist() == [1, 2, 0, 3, 1]


@pytest.mark.parametrize("rows", [2, 2**17])
@pytest.mark.parametrize("classes", [None, CLASSES, [2**40, 0, -1]], ids=str)
def test_jsonl(tmp_path, monkeypatch, classes, rows):
    monkeypatch.setattr("snaps.io.writers._TEXT", (rows, 2**24))
    for ids in (AWKWARD, [5, 2**62, -1, 0, 7]):
        sets = awkward(classes, ids)
        sets.write(str(tmp_path / "x.jsonl"))
        rows = [json.loads(line) for line in (tmp_path / "x.jsonl").read_bytes().splitlines()]
        assert rows == [
            {"id": id, "labels": labels, "size": len(labels)}
            for id, labels in zip(ids, as_lists(sets), strict=True)
        ]


@pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl"])
def test_writing_no_sets(tmp_path, suffix):
    path = tmp_path / f"x.{suffix}"
    awkward()[:0].write(path)
    if suffix == "parquet":
        assert pq.read_table(path).to_pylist() == []
    else:
        assert path.read_text() == ('"id","labels","size"\n' if suffix == "csv" else "")


# Sets of 0 to 3 labels, one of them longer than all others, in an order that is no order.
LONG = ["a", "b" * 40, "é;\n" * 300]


@pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl"])
@pytest.mark.parametrize("ids", [None, "text"])
@pytest.mark.parametrize("classes", [None, LONG], ids=["numbers", "names"])
@pytest.mark.parametrize("size", [1, 100, 1000])
def test_blocks_change_nothing(tmp_path, monkeypatch, suffix, ids, classes, size):
    mask = np.random.default_rng(0).random((500, 3)) < [0.5, 0.4, 0.1]
    ids = None if ids is None else [AWKWARD[i % 5] + str(i) for i in range(500)]
    sets = snaps.PredictionSets(mask, ids=ids, classes=classes)
    whole, parts = tmp_path / f"whole.{suffix}", tmp_path / f"parts.{suffix}"
    sets.write(whole, metadata={"a": "b"})
    monkeypatch.setattr("snaps.io.writers._TEXT", (99, size))
    monkeypatch.setattr("snaps.io.writers._GROUP", (99, size))
    sets.write(parts, metadata={"a": "b"})
    if suffix != "parquet":
        assert parts.read_bytes() == whole.read_bytes()
        return
    one, many = pq.ParquetFile(whole), pq.ParquetFile(parts)
    assert many.read().equals(one.read(), check_metadata=True)
    assert many.schema.equals(one.schema) and many.metadata.metadata == one.metadata.metadata
    rows = [many.metadata.row_group(i).num_rows for i in range(many.num_row_groups)]
    assert max(rows) <= (1 if size == 1 else 99)
    assert one.num_row_groups == 1 and many.num_row_groups > 5


@pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl"])
def test_blocks_hold_so_many_bytes(tmp_path, monkeypatch, suffix):
    """Of ids and labels, however they are spread."""
    mask = np.random.default_rng(0).random((500, 3)) < [0.5, 0.4, 0.1]
    ids = ["x" * (i % 50) for i in range(500)]
    size, longest = 10**4, 1500 + 50 + 100
    made = []
    for of in ("_TEXT", "_GROUP"):
        monkeypatch.setattr(f"snaps.io.writers.{of}", (2**17, size))
    real = writers._columns
    monkeypatch.setattr(writers, "_columns", lambda *asked: made.append(real(*asked)) or made[-1])
    snaps.PredictionSets(mask, ids=ids, classes=LONG).write(tmp_path / f"x.{suffix}")
    bytes_of = [columns["labels"].nbytes + columns["id"].nbytes for columns in made]
    assert max(bytes_of) < size + longest and 10 < len(made) < 50
    assert sum(len(columns["id"]) for columns in made) == 500


@MEASURED
@pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl"])
def test_the_memory_of_writing(tmp_path, monkeypatch, suffix):
    """Is that of some blocks, and not of all labels by name: those are 320 MB here."""
    monkeypatch.chdir(tmp_path)
    taken = memory_of(
        "import numpy as np\n"
        "classes = [str(i).zfill(400) for i in range(40)]\n"
        "sets = snaps.PredictionSets(np.ones((20_000, 40), bool), classes=classes)\n"
        f"sets.write('x.{suffix}')"
    )
    assert taken < 200e6  # and was 360 MB for Parquet, and more than 1.2 GB for text


def test_labels_of_more_than_two_gigabytes(tmp_path):
    """Arrow has no array of so many characters."""
    names = [str(i).zfill(8000) for i in range(100)]
    sets = snaps.PredictionSets(np.ones((2800, 100), bool), classes=names)
    sets.to_parquet(tmp_path / "x.parquet")
    with pq.ParquetFile(tmp_path / "x.parquet") as file:
        assert file.schema_arrow.field("labels").type.value_type == "string"
        assert file.read(["size"])["size"].to_pylist() == [100] * 2800
        last = file.read_row_group(file.num_row_groups - 1)
    assert last["id"].to_pylist()[-1] == 2799 and last["labels"][-1].as_py() == names


@pytest.mark.parametrize("name", ["x.txt", "x", "x.csv.gz", "x.parquet.tmp", ".csv"])
def test_formats_that_are_unknown(tmp_path, name):
    for call in (check_output, awkward().write):
        with pytest.raises(snaps.SnapsError) as caught:
            call(tmp_path / name)
        assert str(caught.value).startswith(
            "'path' must end in .parquet, .csv, .jsonl, or be - for standard output, got '"
        )
    assert list(tmp_path.iterdir()) == []


def test_what_can_be_written_is_known_before(tmp_path):
    assert [check_output(tmp_path / f"x{suffix}") for suffix in (".parquet", ".csv", ".jsonl")] == [
        ".parquet",
        ".csv",
        ".jsonl",
    ]
    assert check_output("-") == "-"
    with pytest.raises(snaps.SnapsError, match="there is no folder"):
        check_output(tmp_path / "nowhere" / "x.csv")
    with pytest.raises(snaps.SnapsError, match="'path' must be a path, got 7"):
        check_output(7)


@pytest.mark.parametrize("metadata", [3, {"a": 1}, {1: "a"}, ["a"], "a"])
@pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl"])
def test_metadata_that_is_wrong(tmp_path, metadata, suffix):
    with pytest.raises(snaps.SnapsError, match="'metadata' must map strings to strings, got"):
        awkward().write(tmp_path / f"x.{suffix}", metadata=metadata)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["\udc80", "a\ud800b"])
def test_metadata_that_cannot_be_written(tmp_path, text):
    for metadata in ({text: "a"}, {"a": text}):
        for suffix in ("parquet", "csv"):
            message = small.error_line(awkward().write, tmp_path / f"x.{suffix}", metadata=metadata)
            assert message == f"'metadata' must be text that can be written, got {text!r}"
    assert list(tmp_path.iterdir()) == []


def test_sets_say_how_they_were_made(tmp_path):
    """As `snaps predict` writes it, also of some of the sets; what the user adds goes over it."""
    cp = small.calibrated(snaps.SNAPS(0.2, seed=3))
    made = {
        "snaps.version": snaps.__version__,
        "snaps.method": "SNAPS",
        "snaps.score": "APS(randomized=True)",
        "snaps.alpha": "0.2",
        "snaps.seed": "3",
        "snaps.calibration_nodes": "19",
        "snaps.tuning_nodes": "11",
    }

    def written(sets, *metadata):
        sets.to_parquet(tmp_path / "one.parquet", *metadata)
        sets.write(tmp_path / "two.parquet", *metadata)
        one, two = (pq.read_schema(tmp_path / f"{n}.parquet").metadata for n in ("one", "two"))
        assert one == two
        return {name.decode(): text.decode() for name, text in one.items()}

    sets = cp.predict_set()
    assert sets.metadata == written(sets) == written(sets[3:7]) == made
    assert written(sets[[0, 2]], {"by": "me"}) == {**made, "by": "me"}
    assert written(sets, {"snaps.method": "mine"}) == {**made, "snaps.method": "mine"}
    assert written(cp.predict_set(alpha=0.3)) == {**made, "snaps.alpha": "0.3"}
    assert snaps.PredictionSets(MASK).metadata == {}
