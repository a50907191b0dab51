"""Prediction sets, what is measured of them, and why a label is in or out."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch

import snaps
from snaps import metrics
from snaps.io import writers
from snaps.io.files import check_output
from tests.helpers import small
from tests.helpers.small import CALIB, LABELS, PROBS, TEST
from tests.scale.test_scale import MEASURED, memory_of

# Five sets over three labels: {0}, {1, 2}, {}, {0, 1, 2}, {2}.
MASK = np.array([[1, 0, 0], [0, 1, 1], [0, 0, 0], [1, 1, 1], [0, 0, 1]], bool)
TRUTH = np.array([0, 0, 1, 2, 2])  # hits: yes, no, no, yes, yes


@pytest.fixture
def sets():
    return snaps.PredictionSets(MASK)


# ---- Sets ----------------------------------------------------------------------------------------


def test_sets(sets):
    assert len(sets) == 5
    assert sets.sizes.tolist() == [1, 2, 0, 3, 1]
    assert [labels.tolist() for labels in sets.labels()] == [[0], [1, 2], [], [0, 1, 2], [2]]
    assert [labels.tolist() for labels in sets] == [labels.tolist() for labels in sets.labels()]
    assert sets[1].tolist() == [1, 2] and sets[-1].tolist() == [2]
    assert sets.nodes.tolist() == sets.ids.tolist() == [0, 1, 2, 3, 4]
    assert sets.num_nodes == 5
    assert repr(sets) == "PredictionSets(5 nodes, 3 classes, mean size 1.40)"


def test_sets_of_some_nodes():
    sets = snaps.PredictionSets(torch.tensor(MASK), [7, 3, 9, 0, 1], ids=list("vwxyz"))
    assert sets.nodes.tolist() == [7, 3, 9, 0, 1] and sets.num_nodes == 10
    assert sets.ids.tolist() == list("vwxyz")
    mask = np.zeros(9, bool)
    mask[[1, 2, 4, 6, 8]] = True
    assert snaps.PredictionSets(MASK, mask).nodes.tolist() == [1, 2, 4, 6, 8]
    assert snaps.PredictionSets(MASK, mask).num_nodes == 9


def test_no_sets():
    sets = snaps.PredictionSets(MASK[:0])
    assert len(sets) == 0 and sets.labels() == [] and sets.sizes.tolist() == []
    assert repr(sets) == "PredictionSets(0 nodes, 3 classes, mean size nan)"


def test_to_pandas():
    frame = snaps.PredictionSets(MASK, ids=list("vwxyz")).to_pandas()
    assert list(frame.columns) == ["id", "labels", "size"]
    assert frame["id"].tolist() == list("vwxyz")
    assert [labels.tolist() for labels in frame["labels"]] == [[0], [1, 2], [], [0, 1, 2], [2]]
    assert frame["size"].tolist() == [1, 2, 0, 3, 1]


# ---- Some of the sets ----------------------------------------------------------------------------

CLASSES = ["cat", 'dog; "big"', "fox\nred"]
NAMED = [["cat"], CLASSES[1:], [], CLASSES, CLASSES[2:]]


def some_sets():
    return snaps.PredictionSets(MASK, [7, 3, 9, 0, 1], list("vwxyz"), 12, CLASSES)


def as_lists(sets):
    return [labels.tolist() for labels in sets]


@pytest.mark.parametrize(
    "key",
    [
        slice(0, 3),
        slice(None, None, -2),
        slice(4, 99),
        slice(3, 3),
        [0, 1],
        (4, 0),
        [-1, 2],
        [],
        np.array([3, 1]),
        np.array([True, False, True, False, True]),
        [False, False, True, True, False],
        torch.tensor([2]),
        torch.tensor([False, True, False, False, False]),
        pd.Series([4, 3]),
        range(2),
    ],
    ids=str,
)
def test_some_of_the_sets(key):
    """Once `sets[0:3]` was an array of labels of no set."""
    whole = some_sets()
    index = np.asarray(key, None if len(key) else int) if not isinstance(key, slice) else key
    expected = np.arange(5)[index]
    some = whole[key]
    assert isinstance(some, snaps.PredictionSets) and len(some) == len(expected)
    assert as_lists(some) == [NAMED[i] for i in expected]
    assert some.nodes.tolist() == whole.nodes[expected].tolist()
    assert some.ids.tolist() == whole.ids[expected].tolist()
    assert some.num_nodes == 12 and some.classes.tolist() == CLASSES


@pytest.mark.parametrize("i", range(-5, 5))
def test_one_of_the_sets(i):
    for key in (i, np.int8(i), np.array(i), torch.tensor(i)):
        assert some_sets()[key].tolist() == NAMED[i]


def test_iterating_ends():
    sets = some_sets()
    assert as_lists(sets) == NAMED and as_lists(iter(sets)) == NAMED
    assert [labels.tolist() for labels in reversed(sets)] == NAMED[::-1]
    assert as_lists(sets[:0]) == []


@pytest.mark.parametrize("key", [5, -6, 2**70, [0, 5], [-6]])
def test_beyond_the_sets(key):
    with pytest.raises(IndexError) as caught:
        some_sets()[key]
    assert isinstance(caught.value, snaps.SnapsError)
    first = key if isinstance(key, int) else key[-1]
    assert str(caught.value) == f"'sets[...]' must lie from -5 to 4, got {first}"


@pytest.mark.parametrize(
    "key",
    [
        *(None, True, 1.0, ..., (slice(2), 0), [[0, 1], [1]], [[0], [1]], [0.5], ["v", 1], {0}),
        *([True, False], np.ones((5, 3), bool), MASK[0], torch.ones(5)),
    ],
    ids=str,
)
def test_what_names_no_sets(key):
    with pytest.raises(
        snaps.SnapsError, match=r"'sets\[...\]' must be a position, a slice, a list"
    ):
        some_sets()[key]


def test_sets_by_id():
    sets = some_sets()
    for i, name in enumerate(sets.ids.tolist()):
        assert sets[name].tolist() == sets[np.str_(name)].tolist() == NAMED[i]
    order = [3, 0, 4]
    for key in (sets.ids[order], sets.ids[order].tolist(), pd.Series(sets.ids[order])):
        assert as_lists(sets[key]) == [NAMED[i] for i in order]
        assert sets[key].ids.tolist() == sets.ids[order].tolist()
    for key in ("nobody", ["v", "nobody"]):
        with pytest.raises(KeyError) as caught:
            sets[key]
        assert isinstance(caught.value, snaps.SnapsError)
        told = "'sets[...]' must be ids of nodes with a set, got 'nobody'"
        assert str(caught.value) == told


def test_integers_are_positions_whatever_the_ids():
    sets = snaps.PredictionSets(MASK, ids=[4, 3, 2, 1, 0])
    assert sets[4].tolist() == np.flatnonzero(MASK[4]).tolist()
    assert "must be a position" in small.complaint(sets.__getitem__, "4")


def test_an_id_of_two_sets():
    sets = snaps.PredictionSets(MASK, ids=["a", "b", "a", "c", "d"])
    assert sets["b"].tolist() == np.flatnonzero(MASK[1]).tolist()
    told = "'sets[...]' must be ids that a single set has, got a"
    assert small.complaint(sets.__getitem__, "a").startswith(told)


# ---- Names ---------------------------------------------------------------------------------------


def test_named_classes():
    sets = snaps.PredictionSets(MASK, classes=np.array(["a", "b", "c"]))
    assert as_lists(sets) == [["a"], ["b", "c"], [], ["a", "b", "c"], ["c"]]
    assert [labels.tolist() for labels in sets.labels()] == as_lists(sets)
    assert sets.classes.tolist() == ["a", "b", "c"]
    assert repr(sets) == "PredictionSets(5 nodes, 3 classes ['a', 'b', 'c'], mean size 1.40)"
    frame = sets.to_pandas()
    assert [labels.tolist() for labels in frame["labels"]] == as_lists(sets)
    numbered = snaps.PredictionSets(MASK, classes=[10, 5, -1])
    assert as_lists(numbered) == [[10], [5, -1], [], [10, 5, -1], [-1]]
    assert snaps.PredictionSets(MASK).classes.tolist() == [0, 1, 2]
    assert "classes, mean" in repr(
        snaps.PredictionSets(np.eye(9, dtype=bool), classes="a b".split() + list("cdefghi"))
    )


def test_names_must_fit_the_mask():
    for classes, told in (
        (["a", "b"], "'classes' must have one entry per column of probs (3), got 2"),
        (["a", "b", "a"], "'classes' must be unique, got 'a' twice or more"),
    ):
        with pytest.raises(snaps.SnapsError) as caught:
            snaps.PredictionSets(MASK, classes=classes)
        assert str(caught.value) == told


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
            told = small.complaint(awkward().write, tmp_path / f"x.{suffix}", metadata=metadata)
            assert told == f"'metadata' must be text that can be written, got {text!r}"
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


# ---- Metrics, by hand ----------------------------------------------------------------------------


def test_metrics(sets):
    assert metrics.coverage(sets, TRUTH) == 3 / 5
    assert metrics.size(sets) == 7 / 5
    assert metrics.size_nonempty(sets) == 7 / 4
    assert metrics.empty(sets) == 1 / 5
    assert metrics.singleton_hit(sets, TRUTH) == 2 / 5
    np.testing.assert_array_equal(metrics.class_coverage(sets, TRUTH), [1 / 2, 0, 1])
    gaps = [abs(1 / 2 - 0.9), 0.9, 0.1]
    assert metrics.class_gap(sets, TRUTH, 0.1) == pytest.approx(np.mean(gaps))


def test_sscv(sets):
    # Sizes 0 and 1: two hits of three; sizes 2 and 3: one of two.
    assert metrics.sscv(sets, TRUTH, 0.1) == pytest.approx(0.9 - 1 / 2)
    assert metrics.sscv(sets, TRUTH, 0.5) == pytest.approx(2 / 3 - 1 / 2)
    assert metrics.sscv(sets, TRUTH, 0.1, strata=[(1, 1), (3, 3)]) == pytest.approx(0.1)
    assert metrics.sscv(sets, TRUTH, 0.1, strata=((0, 0), (1, 3))) == pytest.approx(0.9)


def test_metrics_look_up_labels_by_node():
    sets = snaps.PredictionSets(MASK[:2], [3, 1], num_nodes=5)
    assert metrics.coverage(sets, [-1, 2, -1, 0, -1]) == 1.0
    assert metrics.coverage(sets, pd.Series([-1, 0, -1, 0, -1])) == 0.5
    assert metrics.coverage(sets, torch.tensor([[-1], [0], [-1], [1], [-1]])) == 0.0


def test_metrics_of_sets_that_are_all_empty():
    sets = snaps.PredictionSets(np.zeros((3, 2), bool))
    assert np.isnan(metrics.size_nonempty(sets))
    assert metrics.size(sets) == 0.0 and metrics.empty(sets) == 1.0


def test_a_class_without_nodes_has_no_coverage(sets):
    found = metrics.class_coverage(sets, np.array([0, 0, 0, 2, 2]))
    np.testing.assert_array_equal(found, [1 / 3, np.nan, 1])
    gap = metrics.class_gap(sets, np.array([0, 0, 0, 2, 2]), 0.1)
    assert gap == pytest.approx(((0.9 - 1 / 3) + 0.1) / 2)


def test_metrics_of_named_classes():
    sets = snaps.PredictionSets(MASK, classes=["b", "c", "a"])
    truth = np.array(["b", "c", "a"])[TRUTH]
    for labels in (truth, pd.Series(truth), pd.Categorical(truth), truth.tolist()):
        assert metrics.coverage(sets, labels) == 3 / 5
        assert metrics.singleton_hit(sets, labels) == 2 / 5
        np.testing.assert_array_equal(metrics.class_coverage(sets, labels), [1 / 2, 0, 1])
    numbered = snaps.PredictionSets(MASK, classes=[30, 10, 20])
    assert metrics.coverage(numbered, np.array([30, 10, 20])[TRUTH]) == 3 / 5
    # The names of the sets count, not those that occur.
    few = snaps.PredictionSets(MASK[:2], classes=["b", "c", "a"])
    assert metrics.coverage(few, ["b", "a"]) == 1.0
    with pytest.raises(snaps.SnapsError, match=r"'labels' must be among .* got 0 at"):
        metrics.coverage(sets, TRUTH)
    with pytest.raises(snaps.SnapsError, match="'labels' must be labelled, got 1 without a label"):
        metrics.coverage(sets, ["b", "c", None, "a", "a"])


GROUPS = {
    "strings": (["n", "s", "n", "s", "n"], {"n": 2 / 3, "s": 1 / 2}),
    "array": (np.array(["n", "s", "n", "s", "n"]), {"n": 2 / 3, "s": 1 / 2}),
    "numbers": (np.array([1, 2, 1, 2, 1]), {1: 2 / 3, 2: 1 / 2}),
    "tensor": (torch.tensor([1, 2, 1, 2, 1]), {1: 2 / 3, 2: 1 / 2}),
    "booleans": ([True, False, True, False, True], {True: 2 / 3, False: 1 / 2}),
    "tuples": ([(0, 1), (0, 2)] * 2 + [(0, 1)], {(0, 1): 2 / 3, (0, 2): 1 / 2}),
    "series": (pd.Series(["n", "s", "n", "s", "n"]), {"n": 2 / 3, "s": 1 / 2}),
    "by id": (pd.Series(list("nnssn"), index=[4, 0, 3, 1, 2]), {"n": 2 / 3, "s": 1 / 2}),
    "categories": (pd.Categorical(["n", "s", "n", "s", "n"]), {"n": 2 / 3, "s": 1 / 2}),
    "missing": ([None, "s", np.nan, "s", pd.NA], {None: 2 / 3, "s": 1 / 2}),
    "Int64": (pd.array([None, 2, None, 2, None], "Int64"), {None: 2 / 3, 2: 1 / 2}),
    "nan": (np.array([np.nan, 2, np.nan, 2, np.nan]), {None: 2 / 3, 2: 1 / 2}),
    "masked": (np.ma.masked_array([1, 2, 3, 2, 4], [1, 0, 1, 0, 1]), {None: 2 / 3, 2: 1 / 2}),
    "mixed": (["n", 1, "n", 1, "n"], {"n": 2 / 3, 1: 1 / 2}),
}


@pytest.mark.parametrize("groups, expected", GROUPS.values(), ids=list(GROUPS))
def test_group_coverage(sets, groups, expected):
    found = metrics.group_coverage(sets, TRUTH, groups)
    assert found == expected and list(found) == list(expected)


def test_group_coverage_of_some_nodes():
    sets = snaps.PredictionSets(MASK[:2], [3, 1], num_nodes=5)
    found = metrics.group_coverage(sets, [-1, 0, -1, 0, -1], ["never", "b", "never", "a", "never"])
    assert found == {"a": 1.0, "b": 0.0} and list(found) == ["a", "b"]


@pytest.mark.parametrize(
    "groups, message",
    [
        (["n"] * 4, "'groups' must have shape (5,), got (4,)"),
        (np.ones((5, 2)), "'groups' must have shape (5,), got (5, 2)"),
        ("north", "'groups' must be an array, got str"),
        (None, "'groups' must be an array, got NoneType"),
        ([[1]] * 5, "'groups' must be hashable, got [1] at node 0"),
    ],
)
def test_groups_that_are_wrong(sets, groups, message):
    with pytest.raises(snaps.SnapsError) as caught:
        metrics.group_coverage(sets, TRUTH, groups)
    assert str(caught.value) == message


# ---- Which nodes are predicted -------------------------------------------------------------------


def test_the_nodes_asked_for():
    cp = small.calibrated(tune_nodes=np.arange(30, 35))
    with pytest.warns(snaps.SnapsWarning, match="35 of the nodes were used to calibrate or tune"):
        every = cp.predict_set(np.arange(small.NUM_NODES)).mask
    assert cp.predict_set().nodes.tolist() == list(range(35, 60))
    assert cp.tune_nodes_.tolist() == [30, 31, 32, 33, 34]
    mask = np.zeros(small.NUM_NODES, bool)
    mask[[40, 50]] = True
    for nodes in (
        [40, 50],
        (40, 50),
        mask,
        mask.tolist(),
        torch.tensor([40, 50]),
        pd.Index([40, 50]),
    ):
        sets = cp.predict_set(nodes)
        assert sets.nodes.tolist() == [40, 50]
        np.testing.assert_array_equal(sets.mask, every[[40, 50]])
        assert cp.predict_p(nodes).shape == (2, 3)
    assert cp.predict_set([50, 40]).nodes.tolist() == [50, 40]
    np.testing.assert_array_equal(cp.predict_set([50, 40]).mask, every[[50, 40]])


@pytest.mark.parametrize("nodes", [[], np.array([], int), np.zeros(small.NUM_NODES, bool)])
def test_no_nodes_asked_for(nodes):
    cp = small.calibrated()
    assert cp.predict_set(nodes).mask.shape == (0, 3)
    assert cp.predict_p(nodes, smoothed=True).shape == (0, 3)


@pytest.mark.parametrize(
    "probs, labels, nodes",
    [
        (PROBS.tolist(), LABELS.tolist(), CALIB.tolist()),
        (torch.tensor(PROBS, requires_grad=True), torch.tensor(LABELS), torch.tensor(CALIB)),
        (pd.DataFrame(PROBS), pd.Series(LABELS), pd.Series(CALIB)),
        (PROBS, LABELS[:, None].astype(np.uint8), np.arange(small.NUM_NODES) < 30),
        (np.log(PROBS) + 3, LABELS, CALIB),
    ],
    ids=["lists", "tensors", "pandas", "column and mask", "logits"],
)
def test_every_kind_of_array_gives_the_same_sets(probs, labels, nodes):
    logits = isinstance(probs, np.ndarray) and probs.min() < 0
    cp = snaps.SplitConformal(0.2).calibrate(None, probs, labels, nodes, logits=logits)
    expected = snaps.SplitConformal(0.2).calibrate(None, PROBS, LABELS, CALIB)
    np.testing.assert_allclose(cp.scores_, expected.scores_, rtol=1e-12)
    np.testing.assert_array_equal(cp.predict_set().mask, expected.predict_set().mask)


def test_probabilities_may_be_whole_numbers_or_of_half_precision():
    sure = np.eye(3, dtype=int)[LABELS]
    cp = snaps.SplitConformal(0.2, score=snaps.THR()).calibrate(None, sure, LABELS, CALIB)
    assert cp.evaluate(LABELS)["singleton_hit"] == 1.0
    half = snaps.SplitConformal(0.2).calibrate(None, PROBS.astype(np.float16), LABELS, CALIB)
    assert half.scores_.max() <= 1.0


# ---- Explanations --------------------------------------------------------------------------------

METHODS = {
    "snaps": snaps.SNAPS(0.2, k=5, weights=(0.3, 0.2)),
    "snaps on thr": snaps.SNAPS(0.2, k=5, weights=(0.6, 0.4), score=snaps.THR()),
    "daps": snaps.DAPS(0.2, weight=0.7),
    "split": snaps.SplitConformal(0.2),
    "class thresholds": snaps.SNAPS(0.4, k=5, weights=(0.25, 0.25), class_conditional=True),
}


@pytest.mark.parametrize("named", [False, True], ids=["positions", "names"])
@pytest.mark.parametrize("method", METHODS)
def test_explain(method, named):
    cp = small.calibrated(METHODS[method], named=named)
    ids = small.NAMES if named else np.arange(small.NUM_NODES)
    sets = cp.predict_set(TEST)
    for row, node in enumerate(TEST):
        why = cp.explain(int(node))
        assert (why.node, why.id) == (node, ids[node])
        np.testing.assert_array_equal(why.inside, sets.mask[row])
        np.testing.assert_array_equal(why.inside, why.mixed <= why.threshold)
        np.testing.assert_array_equal(why.threshold, np.broadcast_to(cp.threshold_, 3))
        np.testing.assert_allclose(why.mixed, cp.scores_[node], rtol=1e-12)
        parts = sum(why.weights[name] * part for name, part in why.parts.items())
        np.testing.assert_allclose(why.mixed, parts, rtol=1e-12)
        shifts = sum((neighbour.shift for neighbour in why.neighbours), np.zeros(3))
        np.testing.assert_allclose(shifts, why.mixed - why.parts["own"], atol=1e-12)
        largest = [np.abs(neighbour.shift).max() for neighbour in why.neighbours]
        assert largest == sorted(largest, reverse=True)
        assert all(neighbour.id == ids[neighbour.node] for neighbour in why.neighbours)


def test_the_neighbours_of_an_explanation():
    graph = snaps.Graph([[0, 0], [1, 2]], num_nodes=4, ids=["hub", "left", "right", "alone"])
    probs = np.array([[0.6, 0.4], [0.9, 0.1], [0.2, 0.8], [0.5, 0.5]])
    cp = snaps.DAPS(0.5, weight=0.5, score=snaps.THR())
    cp.calibrate(graph, probs, [0, 0, 1, 1], [1, 2, 3])
    why = cp.explain(0)
    assert why.parts["own"] == pytest.approx([0.4, 0.6])
    assert why.parts["linked"] == pytest.approx([0.45, 0.55])
    assert why.mixed == pytest.approx([0.425, 0.575])
    by_id = {neighbour.id: neighbour for neighbour in why.neighbours}
    assert [neighbour.id for neighbour in why.neighbours] == ["right", "left"]
    assert by_id["left"].weight == by_id["right"].weight == 0.25
    assert by_id["left"].part == "linked"
    assert by_id["left"].shift == pytest.approx([-0.075, 0.075])
    assert by_id["right"].shift == pytest.approx([0.1, -0.1])
    assert cp.explain(3).neighbours == []


def test_an_explanation_can_be_read():
    why = small.calibrated(named=True).explain(40)
    lines = str(why).splitlines()
    assert lines[0] == f"node {small.NAMES[40]}"
    assert lines[1].split() == ["label", "own", "similar", "linked", "mixed", "threshold", "in"]
    assert lines[2].split() == ["weight", "0.500", "0.300", "0.200"]
    assert [line.split()[0] for line in lines[3:6]] == ["0", "1", "2"]
    assert [line.split()[-1] == "yes" for line in lines[3:6]] == why.inside.tolist()
    frame = why.to_pandas()
    assert list(frame.columns) == ["own", "similar", "linked", "mixed", "threshold", "in"]
    assert frame["in"].tolist() == why.inside.tolist() and frame.index.name == "label"


def test_splits_name_classes_with_too_few_calibration_nodes():
    """The class thresholds of `evaluate_splits` warn as those of `calibrate` do."""
    labels = np.r_[np.zeros(150, int), np.full(4, 1)]
    probs = np.full((len(labels), 2), 0.5)
    method = snaps.SplitConformal(0.1, class_conditional=True)
    told = "1 of 2 classes .* in some splits .* class 1$"
    with pytest.warns(snaps.errors.SnapsWarning, match=told):
        out = snaps.evaluate_splits(method, None, probs, labels, np.arange(len(labels)), 80, 5)
    assert np.isinf(out["threshold"][:, 1]).all() and np.isfinite(out["threshold"][:, 0]).all()


def test_sets_of_more_than_a_thousand_labels_count_too():
    mask = np.zeros((4, 1500), bool)
    mask[0, 0] = mask[1, 1] = mask[2, :1200] = mask[3, :1400] = True
    sets = snaps.PredictionSets(mask)
    assert snaps.metrics.sscv(sets, [0, 1, 1300, 1450], alpha=0.1) == pytest.approx(0.9)
