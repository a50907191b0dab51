"""Labels of every spelling become columns of `probs`, exactly or not at all."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st

import snaps
from snaps._checks.classes import check_classes, encode_labels


def encode(labels, k=3, n=None, **options):
    codes, classes = encode_labels(
        labels, num_nodes=len(labels) if n is None else n, num_classes=k, **options
    )
    assert codes.dtype == np.int64 and codes.ndim == 1 and classes.shape == (k,)
    assert classes.dtype == np.int64 or classes.dtype.kind == "U"
    return codes.tolist(), classes.tolist()


def error_line(call) -> str:
    with pytest.raises(snaps.SnapsError) as caught:
        call()
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value)


# ---- Integers ------------------------------------------------------------------------------------

CODES = [0, 2, -1, 1]
INTEGERS = {
    "list": CODES,
    "tuple": tuple(CODES),
    "array": np.array(CODES),
    "int8": np.array(CODES, np.int8),
    "column": np.array(CODES)[:, None],
    "lists of one": [[0], [2], [-1], [1]],
    "floats": np.array([0.0, 2.0, np.nan, 1.0]),
    "half floats": np.array([0.0, 2.0, np.nan, 1.0], np.float16),
    "single floats": np.array([0.0, 2.0, np.nan, 1.0], np.float32),
    "list with nan": [0, 2, np.nan, 1],
    "list with None": [0, 2, None, 1],
    "list with pd.NA": [0, 2, pd.NA, 1],
    "list of NumPy's": [np.int64(0), np.uint8(2), np.float32("nan"), np.float16(1)],
    "objects": np.array([0, 2.0, None, True], object),
    "series": pd.Series(CODES, index=list("wxyz")),
    "series of floats": pd.Series([0, 2, None, 1]),
    "Int64": pd.Series([0, 2, None, 1], dtype="Int64"),
    "UInt8 array": pd.array([0, 2, None, 1], dtype="UInt8"),
    "Float64": pd.Series([0, 2, None, 1], dtype="Float64"),
    "Arrow": pd.Series([0, 2, None, 1], dtype="int64[pyarrow]"),
    "Arrow floats": pd.Series([0, 2, None, 1], dtype="double[pyarrow]"),
    "Arrow's own": pa.array([0, 2, None, 1]),
    "frame": pd.DataFrame({"y": [0, 2, None, 1]}),
    "frame of Int64": pd.DataFrame({"y": pd.array([0, 2, None, 1], "Int64")}),
    "categorical": pd.Categorical([0, 2, None, 1]),
    "tensor": torch.tensor(CODES),
    "column tensor": torch.tensor(CODES)[:, None],
    "float tensor": torch.tensor([0.0, 2.0, torch.nan, 1.0], dtype=torch.bfloat16),
    "masked": np.ma.masked_array([0, 2, 99, 1], [0, 0, 1, 0]),
    "masked column": np.ma.masked_array([[0], [2], [99], [1]], [[0], [0], [1], [0]]),
    "masked floats": np.ma.masked_array([0, 2, 1.5, 1], [0, 0, 1, 0]),
    "masked objects": np.ma.masked_array([0, 2, "?", 1], [0, 0, 1, 0], dtype=object),
}


@pytest.mark.parametrize("labels", INTEGERS.values(), ids=list(INTEGERS))
def test_integers(labels):
    assert encode(labels, n=4) == (CODES, [0, 1, 2])
    assert encode(labels, n=4, classes=[0, 1, 2]) == (CODES, [0, 1, 2])
    assert encode(labels, n=4, classes=[2, 1, 0]) == ([2, 0, -1, 1], [2, 1, 0])


def test_the_labels_given_stay_as_they_were():
    labels = np.array([5, -1, 7, 9])
    encode(labels, classes=[5, 7, 9])
    assert labels.tolist() == [5, -1, 7, 9]


@pytest.mark.parametrize("labels", [[True, False], np.array([True, False])])
def test_true_and_false(labels):
    assert encode(labels, 2) == ([1, 0], [0, 1])
    assert encode(labels, 2, classes=[True, False]) == ([0, 1], [1, 0])


def test_integers_from_0_on_need_not_all_occur():
    assert encode([1, 1, -1], 3) == ([1, 1, -1], [0, 1, 2])
    assert encode([-1, -1], 3) == ([-1, -1], [0, 1, 2])


def test_other_integers_must_be_named():
    message = f"{RANGE} 3 at node 0; {HINT}"
    assert error_line(lambda: encode([3, 1, 2, -1, 1])) == message
    assert encode([3, 1, 2, -1, 1], classes=[2, 1, 3]) == ([2, 1, 0, -1, 1], [2, 1, 3])
    large = [2**62 + 1, 2**62, -(2**63)]
    assert encode(large, classes=large) == ([0, 1, 2], large)
    assert encode(pd.array([*large, None], "Int64"), classes=large) == ([0, 1, 2, -1], large)
    arrow = pd.Series([*large, None], dtype="int64[pyarrow]")
    assert encode(arrow, classes=large)[0] == [0, 1, 2, -1]


def test_minus_one_may_be_a_class():
    assert encode([1, -1, None], 2, classes=[-1, 1]) == ([1, 0, -1], [-1, 1])
    assert encode(pd.Categorical([1, -1, None]), 2) == ([1, 0, -1], [-1, 1])


# ---- Strings -------------------------------------------------------------------------------------

NAMES = {
    "list": ["dog", "cat", "", "fox"],
    "array": np.array(["dog", "cat", "", "fox"]),
    "NumPy's newer": np.array(["dog", "cat", "", "fox"], np.dtypes.StringDType()),
    "column": np.array([["dog"], ["cat"], [""], ["fox"]]),
    "None": ["dog", "cat", None, "fox"],
    "nan": ["dog", "cat", np.nan, "fox"],
    "objects": np.array(["dog", "cat", None, np.str_("fox")], object),
    "series": pd.Series(["dog", "cat", None, "fox"]),
    "series of objects": pd.Series(["dog", "cat", np.nan, "fox"], dtype=object),
    "string": pd.Series(["dog", "cat", None, "fox"], dtype="string"),
    "string array": pd.array(["dog", "cat", None, "fox"], "string"),
    "index": pd.Index(["dog", "cat", "", "fox"]),
    "Arrow": pd.Series(["dog", "cat", None, "fox"], dtype="string[pyarrow]"),
    "Arrow's own": pa.array(["dog", "cat", None, "fox"]),
    "Arrow dictionary": pa.array(["dog", "cat", None, "fox"]).dictionary_encode(),
    "categorical": pd.Categorical(["dog", "cat", None, "fox"]),
    "categorical series": pd.Series(["dog", "cat", None, "fox"], dtype="category"),
    "categorical index": pd.CategoricalIndex(["dog", "cat", None, "fox"]),
    "frame": pd.DataFrame({"y": ["dog", "cat", None, "fox"]}),
    "frame of categories": pd.DataFrame({"y": pd.Categorical(["dog", "cat", None, "fox"])}),
    "masked": np.ma.masked_array(["dog", "cat", "cow", "fox"], [0, 0, 1, 0]),
}


@pytest.mark.parametrize("labels", NAMES.values(), ids=list(NAMES))
def test_strings(labels):
    dtype = getattr(labels.iloc[:, 0] if isinstance(labels, pd.DataFrame) else labels, "dtype", 0)
    if isinstance(dtype, pd.CategoricalDtype):
        with pytest.warns(snaps.SnapsWarning, match="in alphabetical order, as pandas makes them"):
            assert encode(labels, n=4) == ([1, 0, -1, 2], ["cat", "dog", "fox"])
    else:
        message = f"{STRINGS} ['cat', 'dog', 'fox']: {HINT}"
        assert error_line(lambda: encode(labels, n=4)) == message
    found = encode(labels, n=4, k=4, classes=["fox", "owl", "cat", "dog"])
    assert found == ([3, 2, -1, 0], ["fox", "owl", "cat", "dog"])


def test_categories_are_classes_in_their_order():
    labels = pd.Categorical(["dog", "cat", None], categories=["fox", "dog", "cat"])
    assert encode(labels) == ([1, 2, -1], ["fox", "dog", "cat"])
    assert encode(labels, classes=["cat", "dog", "fox"]) == ([1, 0, -1], ["cat", "dog", "fox"])
    # Two of four are used, which the two columns stand for, in the order of the categories.
    more = labels.add_categories("owl")
    assert encode(more, 2) == ([0, 1, -1], ["dog", "cat"])
    assert encode(pd.Categorical([2, 1], categories=[7, 2, 1, 9])) == ([2, 1], [0, 1, 2])


def test_the_empty_string_may_be_a_class():
    assert encode(["a", "", None], 2, classes=["", "a"]) == ([1, 0, -1], ["", "a"])


def test_no_label_is_known():
    for labels in ([None] * 3, ["", "", ""], [np.nan] * 3, pd.Categorical([None] * 3), [-1] * 3):
        assert encode(labels, 2) == ([-1] * 3, [0, 1])
        assert encode(labels, 2, classes=["a", "b"]) == ([-1] * 3, ["a", "b"])
        assert encode(labels, 2, classes=[4, 5]) == ([-1] * 3, [4, 5])


def test_text_is_never_a_number():
    assert encode(["1", "0", "1"], 2, classes=["0", "1"]) == ([1, 0, 1], ["0", "1"])
    message = "'labels' must be among the classes [0, 1], got '1' at node 0"
    assert error_line(lambda: encode(["1", "0"], 2, classes=[0, 1])) == message
    message = "'labels' must be among the classes ['0', '1'], got 1 at node 1; if they "
    message += "number the columns, pass np.array(classes)[labels]"
    assert error_line(lambda: encode([-1, 1], 2, classes=["0", "1"])) == message


@given(
    st.lists(
        st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1),
        min_size=2,
        unique=True,
    ),
    st.data(),
)
def test_names_come_back(classes, data):
    """classes[codes] is what was given, whichever the names and their order."""
    labels = data.draw(st.lists(st.sampled_from([*classes, None]), min_size=1))
    codes, names = encode_labels(
        labels, num_nodes=len(labels), num_classes=len(classes), classes=classes
    )
    back = [None if code < 0 else names[code].item() for code in codes]
    assert back == labels


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=2, unique=True), st.data())
def test_integers_come_back(classes, data):
    labels = data.draw(st.lists(st.sampled_from(classes), min_size=1))
    codes, names = encode_labels(
        labels, num_nodes=len(labels), num_classes=len(classes), classes=classes
    )
    assert names[codes].tolist() == labels


# ---- What is refused -----------------------------------------------------------------------------

HINT = "pass classes=[...] (--classes) in the order of the columns of probs, or name the columns"
STRINGS = "'classes' must be given where 'labels' are strings, got None and"
RANGE = "'labels' must lie from 0 to 2, or be -1 where unknown, got"
REFUSED = {
    f"{RANGE} 3 at node 1; {HINT}": [0, 3],
    f"{RANGE} -2 at node 0; {HINT}": [-2, 3, 9, 1],
    "'labels' must have shape (2,), got (3,)": ([0, 1, 2], 2),
    "'labels' must have shape (2,), got (2, 3)": (np.zeros((2, 3)), 2),
    "'labels' must have shape (2,), got ()": ({0, 1}, 2),
    "'labels' must have shape (2,), got (1,)": (pd.Categorical([0]), 2),
    "'labels' must be an array, got NoneType": (None, 2),
    "'labels' must be an array, got str": ("ab", 2),
    "'labels' must be an array, got csr_array": (sp.csr_array((2, 2)), 2),
    "'labels' must be a dense array, got a sparse tensor": (torch.eye(2).to_sparse(), 2),
    "'labels' must be whole numbers, got 1.5": [0, 1.5],
    "'labels' must be whole numbers, got 0.5": np.array([0.5, 1]),
    "'labels' must be whole numbers, got inf": [0, np.inf],
    "'labels' must be whole numbers, got -inf": np.array([0, -np.inf]),
    "'labels' must be whole numbers, got 1e+16": np.array([0, 1e16]),
    "'labels' must be whole numbers, got 2e+16": [None, 2e16],
    "'labels' must fit 64-bit integers, got 18446744073709551616": [0, 2**64],
    "'labels' must fit 64-bit integers, got 9223372036854775808": np.array([2**63, 0], np.uint64),
    "'labels' must be integers or strings, got complex128": np.array([1j, 0]),
    "'labels' must be integers or strings, got 1j": [1j, 0],
    "'labels' must be integers or strings, got |S1": np.array([b"a", b"b"]),
    "'labels' must be integers or strings, got b'a'": [b"a", "b"],
    "'labels' must be integers or strings, got Decimal('1')": [Decimal(1), 0],
    "'labels' must be integers or strings, got Fraction(1, 2)": [Fraction(1, 2), 0],
    "'labels' must be integers or strings, got datetime64[D]": np.array(
        ["2020-01-01", "2021-01-01"], "datetime64[D]"
    ),
    "'labels' must be integers or strings, got [1]": [[1], [2, 3]],
    "'labels' must be integers or strings, got Timestamp('2020-01-01 00:00:00')": [
        pd.Timestamp("2020-01-01"),
        "a",
    ],
    "'labels' must be integers or strings, got Interval(0, 1, closed='right')": pd.Categorical(
        pd.IntervalIndex.from_breaks([0, 1, 2])
    ),
    "'labels' must be all integers or all strings, got 'a' and 1": [1, "a"],
    "'labels' must be all integers or all strings, got '' and -1": [-1, ""],
    "'labels' must be all integers or all strings, got 'b' and 2.0": pd.Categorical(["b", 2.0]),
    "'labels' must not end in the character NUL, got one that does": ["a\0", "a", "b"],
    f"{STRINGS} ['cat', 'dog']: {HINT}": ["dog", "cat", None],
    f"{STRINGS} ['a', 'b', 'c', 'd']: {HINT}": list("dcba"),
    f"'labels' must have a clear order, got numbers as text: ['1', '10', '2']; {HINT}": (
        pd.Categorical(["1", "2", "10"])
    ),
}


@pytest.mark.parametrize("message, given", REFUSED.items(), ids=list(REFUSED))
def test_refused(message, given):
    labels, n = given if isinstance(given, tuple) else (given, len(given))
    assert error_line(lambda: encode(labels, n=n)) == message


def test_numbers_as_text_in_a_clear_order():
    texts = ["1", "10", "2"]
    assert encode(texts, classes=["1", "2", "10"]) == ([0, 2, 1], ["1", "2", "10"])
    assert encode(pd.Categorical(texts, ["1", "2", "10"])) == ([0, 2, 1], ["1", "2", "10"])
    assert error_line(lambda: encode(pd.Categorical(texts))).endswith(HINT)  # pandas sorted them
    ordered = pd.Categorical(["x1", "x10"], ordered=True)
    assert encode(ordered, 2) == ([0, 1], ["x1", "x10"])


def test_labels_beyond_the_classes():
    message = "'labels' must be among the classes ['a', 'b'], got 'c' at node 2"
    assert error_line(lambda: encode(["a", None, "c"], 2, classes=["a", "b"])) == message
    message = "'y' must be among the classes [4, 5], got 0 at node 1"
    assert error_line(lambda: encode([4, 0], 2, classes=[4, 5], name="y")) == message
    assert error_line(lambda: encode([0, 3], classes=range(3))) == f"{RANGE} 3 at node 1"


CLASSES = {
    "'classes' must have one entry per column of probs (2), got 3": [1, 2, 3],
    "'classes' must be unique, got 'a' twice or more": ["a", "a"],
    "'classes' must be unique, got 1 twice or more": [True, 1],
    "'classes' must be a list of integers or strings, got ['a', None]": ["a", None],
    "'classes' must be a list of integers or strings, got 3": 3,
    "'classes' must be a list of integers or strings, got [[1, 2], [3, 4]]": [[1, 2], [3, 4]],
    "'classes' must be an array, got str": "ab",
    "'classes' must be whole numbers, got 0.5": [0.5, 1],
    "'classes' must be all integers or all strings, got 'a' and 1": ["a", 1],
}


@pytest.mark.parametrize("message, classes", CLASSES.items(), ids=list(CLASSES))
def test_refused_classes(message, classes):
    assert error_line(lambda: check_classes(classes, 2)) == message


@pytest.mark.parametrize(
    "classes", [("b", "a"), np.array(["b", "a"]), pd.Index(["b", "a"]), pd.Series(["b", "a"])]
)
def test_classes(classes):
    assert check_classes(classes, 2).tolist() == ["b", "a"]
    assert check_classes(torch.tensor([5, -1]), 2).tolist() == [5, -1]


def test_labels_that_may_start_at_one_are_reported():
    """1, 2 and 3 of four columns: they may be the first three or the last."""
    labels = np.tile([1, 2, 3], 20)
    with pytest.warns(snaps.SnapsWarning, match="none of 60 'labels' is 0: they are taken for"):
        assert encode(labels, 4)[1] == [0, 1, 2, 3]
    assert encode(labels, 4, classes=[1, 2, 3, 4])[0][:3] == [0, 1, 2]
    assert encode(labels[:6], 4)[1] == [0, 1, 2, 3]  # too few to wonder
