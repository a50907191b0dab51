"""What should not be passed, and sometimes is: one clear line each, or it just works."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch

import snaps
from snaps.folder import write_folder
from snaps.images import EmbeddedSNAPS
from tests.fuzz import arrays as fuzz
from tests.helpers import small
from tests.helpers.small import CALIB, EDGES, FEATURES, LABELS, NAMES, NUM_NODES, PROBS, error_line

N = NUM_NODES
GRAPH = small.graph()


def split(**given):
    """Calibrate with these arguments in place of fine ones."""
    fine = {"probs": PROBS, "labels": LABELS, "nodes": CALIB}
    return snaps.SplitConformal(0.2).calibrate(None, **{**fine, **given})


def scored(compute):
    """A score of the user's own."""
    kind = type("Own", (snaps.Score,), {"compute": lambda self, probs, draws: compute(probs)})
    return snaps.SplitConformal(0.2, score=kind()).calibrate(None, PROBS, LABELS, CALIB)


def far(rows, columns):
    return sp.coo_array(([1.0], ([0], [5])), shape=(rows, columns))


# ---- arrays --------------------------------------------------------------------------------------

ARRAYS = {
    "'probs' must be an array, got Raising that gives none": lambda: split(probs=fuzz.Raising()),
    "'labels' must be an array, got list that gives none": lambda: split(
        labels=[fuzz.Raising()] * N
    ),
    "'nodes' must be an array, got Raising that gives none": lambda: split(nodes=fuzz.Raising()),
    "'ids' must be an array, got Raising that gives none": lambda: small.graph(ids=fuzz.Raising()),
    "'edges' must be an array, got Endless that gives none": lambda: snaps.Graph(fuzz.Endless()),
    "'groups' must be an array, got Raising": lambda: small.calibrated(groups=fuzz.Raising()),
    "'groups' must be hashable, got <Raising": lambda: small.calibrated(
        groups=[fuzz.Raising()] * N
    ),
    "'nodes' must hold at least one node, got none": lambda: split(nodes=np.empty(0, object)),
    "'labels' must have shape (60,), got (0,)": lambda: split(labels=np.empty(0, object)),
    "'features' must have shape (nodes, features), got (60, 0)": lambda: snaps.Graph(
        None, np.empty((N, 0), object)
    ),
    "'nodes' must have rows of equal length, got [1, 2]": lambda: split(nodes=[[1, 2], [3]]),
    "'ids' must have rows of equal length, got [1, 2]": lambda: small.graph(ids=[[1, 2], [3]]),
    "'nodes' must be an array of numbers, got True": lambda: split(
        nodes=np.array([True, 2], object)
    ),
    "'nodes' must not be masked, got 30 masked entries": lambda: snaps.SplitConformal(
        0.2
    ).calibrate(small.graph(ids=NAMES), PROBS, LABELS, np.ma.array(NAMES, mask=np.arange(N) < 30)),
    "'ids' must not be masked, got 1 masked entries": lambda: small.graph(
        ids=np.ma.array(NAMES, mask=np.arange(N) == 3)
    ),
    "'probs' must be a tensor that can be read, got torch.float32 on meta": lambda: split(
        probs=torch.ones(N, 3, device="meta")
    ),
    "'probs' must be a dense array, got a nested tensor": lambda: split(
        probs=fuzz.FOREIGN["nested tensor"]()
    ),
    "'probs' must hold numbers, got complex64": lambda: split(
        probs=torch.ones(N, 3, dtype=torch.cfloat).conj()
    ),
    "'edges' must be a valid sparse tensor: negative axis 0 index: -5": lambda: snaps.Graph(
        fuzz.broken_tensor("coo")
    ),
    "'edges' must be a valid sparse tensor: ": lambda: snaps.Graph(fuzz.broken_tensor("csr")),
    "'edges' must be a sparse tensor in COO, CSR or CSC, got bsr": lambda: snaps.Graph(
        torch.eye(60).to_sparse_bsr((2, 2))
    ),
    "'ids' must be text that can be written, got": lambda: small.graph(
        ids=[f"a\udcff{i}" for i in range(N)]
    ),
    "'classes' must be text that can be written, got": lambda: split(
        classes=["\ud800", "b", "c"], labels=["b", "c"] * 30
    ),
    "'labels' must be text that can be written, got": lambda: split(
        labels=["\ud800", "b", "c"] * 20
    ),
    "'ids' must be text that can be written, got 'a\\x00": lambda: small.graph(
        ids=np.array([f"a\0{i}" for i in range(N)])
    ),
    "'labels' must be text that can be written, got 'a\\x00b'": lambda: split(
        labels=["a", "a\0b", "c"] * 20
    ),
    "'ids' must not end in the character NUL, got one that does": lambda: small.graph(
        ids=[f"{i}\0" for i in range(N)]
    ),
    "'ids' must be unique, got 'xxx": lambda: small.graph(ids=["x" * 300] * N),
    "'ids' must name nodes of the graph, got 'a\\x1b": lambda: small.graph(ids=NAMES).index(
        "a\x1b[31m"
    ),
}

# ---- sizes ---------------------------------------------------------------------------------------

SIZES = {
    "'edges' must be positions from 0 to 9999999, got 2000000000: pass num_nodes=": lambda: (
        snaps.Graph([[0], [2_000_000_000]])
    ),
    "'edges' must be positions from 0 to 9999999, got 10000000: pass": lambda: snaps.Graph(
        [[0] * 1000, [10**7] * 1000]
    ),
    "the number of nodes must lie from 1 to 2147483647, got 'num_nodes' 1000000": lambda: (
        snaps.Graph(None, num_nodes=10**12)
    ),
    "the number of nodes must lie from 1 to 2147483647, got 'num_nodes' a int": lambda: snaps.Graph(
        None, num_nodes=10**5000
    ),
    "'edges' must fit into memory, got (1000000000000, 1000000000000)": lambda: snaps.Graph(
        far(10**12, 10**12)
    ),
    "'similarity' must have shape (60, 60)": lambda: small.calibrated(
        similarity=far(10**12, 10**12)
    ),
    "'features' must fit into memory, got (60, 1000000000000)": lambda: snaps.Graph(
        None, far(60, 10**12)
    ),
    "'n_splits' must fit into memory, got 10000000000000, which takes": lambda: (
        snaps.evaluate_splits(
            snaps.SplitConformal(0.2), None, PROBS, LABELS, np.arange(N), 30, 10**13
        )
    ),
    "'hops' must fit into memory, got 10000000000000": lambda: snaps.structural_features(
        GRAPH, 10**13
    ),
    "'labels' must be classes from 0 on, got 1099511627776: pass num_classes=": lambda: (
        snaps.models.smoothed_regression(GRAPH, np.append(LABELS[1:], 2**40), np.arange(30))
    ),
}

# ---- parameters ----------------------------------------------------------------------------------


def advised(**options):
    given = {"alpha": 0.2, "methods": {"split": snaps.SplitConformal(0.2)}, **options}
    return snaps.advise(GRAPH, PROBS, LABELS, np.arange(N), **given)


def split_at(alpha):
    return snaps.SplitConformal(alpha).calibrate(None, PROBS, LABELS, CALIB)


PARAMETERS = {
    "'alpha' must be at least 1e-15 away from 0 and 1, and a fraction of at most 300 bits, "
    "got <Fraction": lambda: split_at(Fraction(1, 10**5000)),
    "'alpha' must be at least 1e-15 away from 0 and 1": lambda: split_at(
        Fraction(10**5000 + 1, 2 * 10**5000)
    ),
    "'alpha' must be at least 1e-15 away from 0 and 1, and a fraction of at most 300 bits, "
    "got 5e-324": lambda: split_at(5e-324),
    "'alpha' must lie strictly between 0 and 1, got a int": lambda: split_at(10**5000),
    "'seed' must fit 64 bits, got 18446744073709551616": lambda: snaps.SplitConformal(
        0.2, seed=2**64
    ).calibrate(None, PROBS, LABELS, CALIB),
    "'k' must be smaller than the number of nodes 60, got a int": lambda: snaps.SNAPS(
        0.2, k=10**5000
    ).calibrate(GRAPH, PROBS, LABELS, CALIB),
    "'weight' must be a number of at least 0, got": lambda: snaps.SplitConformal(
        0.2, score=snaps.SAPS(Fraction(10**400))
    ).calibrate(None, PROBS, LABELS, CALIB),
    "'weights' must be (lam, mu), 'tune' or 'minimum', got <Raising": lambda: snaps.SNAPS(
        0.2, k=5, weights=fuzz.Raising()
    ).calibrate(GRAPH, PROBS, LABELS, CALIB),
    "'parts' must be 'auto' or some of own, linked": lambda: snaps.Pooled(
        0.2, parts=[["own"]]
    ).calibrate(GRAPH, PROBS, LABELS, CALIB),
    "'methods' must map names to estimators, got [": lambda: advised(methods=[snaps.SNAPS(0.2)]),
    "'methods' must map names to estimators, got {1: ": lambda: advised(
        methods={1: snaps.SNAPS(0.2)}
    ),
    "'seed' must be an integer of at least 0, got None": lambda: advised(seed=None),
    "'alphas' must be a list of at least one level, got <Raising": lambda: snaps.evaluate_splits(
        snaps.SplitConformal(0.2), None, PROBS, LABELS, np.arange(N), 30, alphas=fuzz.Raising()
    ),
    "'strata' must be pairs of sizes, got <Raising": lambda: snaps.metrics.sscv(
        fuzz.SETS, fuzz.PLAIN["labels"], 0.1, fuzz.Raising()
    ),
    "'missing' must be 'error' or 'drop', got array": lambda: small.calibrated().recalibrate(
        GRAPH, PROBS, missing=np.array(["drop", "drop"])
    ),
    "'k' must not be changed after calibration, got tensor": lambda: (
        small.calibrated().set_params(k=torch.ones(3)).predict_set()
    ),
    "'weights' must not be changed after calibration, got [[1, 2], [3]]": lambda: (
        small.calibrated().set_params(weights=[[1, 2], [3]]).predict_set()
    ),
    "'sets[...]' must lie from -30 to 29, got a int": lambda: small.calibrated().predict_set()[
        10**5000
    ],
}


# ---- scores --------------------------------------------------------------------------------------

SCORES = {
    "strings": lambda probs: probs.astype(str),
    "objects": lambda probs: probs.astype(object),
    "rows of unequal length": lambda probs: [[1.0], [2.0, 3.0]] * (len(probs) // 2),
    "nothing": lambda probs: None,
    "a meta tensor": lambda probs: torch.ones(probs.shape, device="meta"),
    "a nested tensor": lambda probs: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
    "what raises": lambda probs: fuzz.Raising(),
    "dates": lambda probs: probs.astype("M8[s]"),
    "no number": lambda probs: np.where(probs > 0.5, np.nan, probs),
    "a matrix": lambda probs: sp.csr_array(probs),
    "masks": lambda probs: np.ma.masked_array(probs, probs > 0.5),
}

# ---- paths ---------------------------------------------------------------------------------------

PATHS = {
    "'path' must be a path, got '": lambda: small.calibrated().save("\ud800"),
    "'path' must be a path, got <Raising": lambda: snaps.load(fuzz.Raising()),
    "'path' must be a path, got ": lambda: small.calibrated().predict_set().write(fuzz.Raising()),
    "'folder' must be a path, got 'a": lambda: write_folder("a\0b", GRAPH, PROBS),
}

TABLES = {"array": ARRAYS, "size": SIZES, "parameter": PARAMETERS, "path": PATHS}


@pytest.mark.parametrize(
    "start, call",
    [
        pytest.param(start, call, id=f"{name}: {start[:60]}")
        for name, table in TABLES.items()
        for start, call in table.items()
    ],
)
def test_one_clear_line(start, call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    message = error_line(call)
    assert start in message and message.isprintable() and len(message) < 300, message
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("name", SCORES)
def test_scores_that_give_no_numbers(name):
    message = error_line(scored, SCORES[name])
    assert message.startswith("'score' must give a finite score for each row and label (60, 3)")


# ---- what just works -----------------------------------------------------------------------------


def test_scores_that_give_tensors_or_hold_arrays():
    plain = scored(lambda probs: 1 - probs).scores_
    graded = scored(lambda probs: (1 - torch.tensor(probs)).requires_grad_()).scores_
    np.testing.assert_array_equal(graded, plain)

    class Holding(snaps.Score):
        """Unhashable, and equal to nothing without an error."""

        __hash__ = None

        def __init__(self):
            self.heat = np.ones(3)

        def __eq__(self, other):
            return self.heat == other.heat

        def compute(self, probs, draws):
            return 1 - probs * self.heat

    for method in (snaps.SNAPS, snaps.Pooled, snaps.DAPS, snaps.SplitConformal):
        cp = method(0.2, score=Holding())
        cp.calibrate(GRAPH, PROBS, LABELS, CALIB)
        assert np.isfinite(cp.scores_).all() and len(cp.predict_set()) == 30


@pytest.mark.parametrize("name", ["bfloat16", "float16", "float8_e5m2", "float8_e4m3fn"])
def test_small_floats_of_torch(name):
    half = torch.tensor(np.eye(3)[LABELS] * 0.25 + 0.25).to(getattr(torch, name))
    whole = half.double().numpy()
    np.testing.assert_array_equal(split(probs=half).scores_, split(probs=whole).scores_)


def test_quantised_and_graded_tensors():
    table = torch.full((N, 4), 0.25)
    table[::2] = torch.tensor([0.5, 0.25, 0.25, 0.0])
    quantised = torch.quantize_per_tensor(table, 2**-6, 0, torch.quint8)
    plain = split(probs=table.numpy()).scores_
    for given in (quantised, table.requires_grad_(), torch.nn.Parameter(table.detach())):
        np.testing.assert_array_equal(split(probs=given).scores_, plain)


def test_a_frame_whose_columns_have_the_names_of_torchs_attributes():
    frame = pd.DataFrame(PROBS, columns=["detach", "dtype", "tolist"])
    names = np.array(frame.columns)[LABELS]
    np.testing.assert_array_equal(split(probs=frame, labels=names).scores_, split().scores_)


def test_a_mask_of_objects_is_a_mask():
    mask = np.isin(np.arange(N), CALIB)
    np.testing.assert_array_equal(split(nodes=mask.astype(object)).calib_nodes_, CALIB)
    pair = snaps.Graph([[0], [1]])
    assert snaps.predictor.roles.read_nodes(
        pair, np.array([False, True], object), "nodes"
    ).tolist() == [1]


def test_the_error_state_of_numpy_changes_nothing():
    logits = np.random.default_rng(0).normal(size=(N, 3)) * 400
    features = FEATURES * np.where(np.arange(N) % 3, 1e-200, 1e200)[:, None]
    graph = snaps.Graph(EDGES, features, N)

    def results():
        for method in (snaps.SNAPS(0.2, k=5), snaps.Pooled(0.2, k=5, score=snaps.APS())):
            cp = method.calibrate(graph, logits, LABELS, CALIB, logits=True)
            yield cp.scores_
            yield cp.predict_p(smoothed=True)
            yield cp.recalibrate(graph, logits, logits=True).scores_
        yield snaps.structural_features(graph).data
        cp = EmbeddedSNAPS(0.2, k=5)
        yield cp.calibrate(features, logits, LABELS, CALIB, logits=True).scores_
        found = snaps.evaluate_splits(
            snaps.Pooled(0.2, k=5), graph, logits, LABELS, np.arange(N), 30, 5, logits=True
        )
        yield np.array(list(found["size"]))

    plain = list(results())
    with np.errstate(all="raise"):
        for one, other in zip(results(), plain, strict=True):
            np.testing.assert_array_equal(one, other)


def test_extreme_features_count_like_others():
    """Scaled by a power of two, no cosine of structural features changes."""
    usual = snaps.structural_features(snaps.Graph(EDGES, FEATURES, N))
    for power in (-900, -600, 600, 1010):
        graph = snaps.Graph(EDGES, np.ldexp(FEATURES, power), N)
        np.testing.assert_allclose(
            snaps.structural_features(graph).toarray(), usual.toarray(), rtol=1e-12
        )


def test_means_of_the_largest_numbers_stay_numbers():
    hub = [[0] * 3, [1, 2, 3]]  # a third rounds up in single precision
    ones, most = np.ones((4, 2)), np.full((4, 2), np.finfo(float).max)
    usual, extreme = (
        snaps.structural_features(snaps.Graph(hub, x)).toarray() for x in (ones, most)
    )
    np.testing.assert_allclose(extreme, usual)


def test_far_positions_of_few_sets_take_no_memory():
    sets = snaps.PredictionSets(np.ones((2, 3), bool), nodes=[5, 2_000_000_000])
    assert sets.num_nodes == 2_000_000_001


def test_swapped_bytes_are_put_right(tmp_path):
    ids = np.arange(N).astype(">i4")
    assert small.graph(ids=ids).ids.dtype.isnative
    snaps.PredictionSets(PROBS > 0.2, ids=ids).write(tmp_path / "sets.parquet")


def test_many_nodes_if_they_are_given_or_linked():
    assert snaps.Graph([[0], [10_000_001]], num_nodes=10_000_002).num_nodes == 10_000_002


def test_a_saved_predictor_misses_what_is_gone(tmp_path):
    """Features are not needed to load a predictor, only to predict as before."""
    small.calibrated(snaps.Pooled(0.2, k=5)).save(tmp_path / "whole.snaps")
    arrays = dict(np.load(tmp_path / "whole.snaps"))
    arrays["z"] = arrays.pop("x")
    np.savez(tmp_path / "x.npz", **arrays)
    assert "'x' is missing or unknown" in error_line(snaps.load, tmp_path / "x.npz")


def test_memory_that_ends_in_an_array_is_no_fault_of_the_array():
    class Greedy:
        def __array__(self, *_, **__):
            raise MemoryError("Unable to allocate")

    with pytest.raises(MemoryError):
        split(probs=Greedy())
