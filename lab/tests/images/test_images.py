"""`snaps.images`: items with embeddings and no links."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import snaps
from lab.tests.images.common import SEED, batches, write
from snaps import _checks, conformal, images
from snaps._runtime.randomness import RESAMPLE_STREAM, hashes, uniforms
from snaps.images import EmbeddedSNAPS, Outputs
from snaps.scoring.mixing import RESAMPLES
from snaps_lab.images import extract
from snaps_lab.models.training import threads_set
from snaps_lab.reproduce.paper_variant import paper_scores
from tests.helpers import law
from tests.helpers import transcription as t

torch = pytest.importorskip("torch")


def error_line(function, *arguments, **options):
    with pytest.raises(snaps.SnapsError) as raised:
        function(*arguments, **options)
    return str(raised.value)


# ---- outputs of a network ------------------------------------------------------------------------


def test_extract_gives_logits_features_and_labels(net, digits):
    net.train()
    net.body.eval()
    out = extract(net, batches(digits))
    assert net.training and net.dropout.training and not net.body.training
    assert not net.head._forward_pre_hooks
    net.eval()
    with torch.no_grad():
        hidden = net.body(digits[0])
        np.testing.assert_allclose(out.logits, net.head(hidden).numpy(), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(out.features, hidden.numpy(), rtol=1e-5, atol=1e-6)
    assert np.array_equal(out.labels, digits[1].numpy())
    assert 0.8 < (out.logits.argmax(axis=1) == out.labels)[600:].mean() < 0.97
    assert repr(out) == "Outputs(1797 items, 10 classes, 32 features)"


@pytest.mark.parametrize("named", [True, False])
def test_extract_takes_the_layer_the_user_names(net, digits, named):
    layer = "body.0" if named else net.body[0]
    out = extract(net, batches(digits), layer=layer)
    assert np.array_equal(out.features, digits[0].numpy())


def test_extract_reads_results_with_an_attribute_logits(net, digits):
    class Result:
        def __init__(self, logits):
            self.logits = logits

    class Wrapped(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, x):
            return Result(self.net(x))

    plain, wrapped = (extract(m, batches(digits)) for m in (net, Wrapped()))
    assert np.array_equal(plain.logits, wrapped.logits)


def test_extract_refuses(net, digits):
    few = [table[:20] for table in digits]
    assert error_line(extract, len, []) == (
        "'model' must be a torch.nn.Module, got builtin_function_or_method"
    )
    assert error_line(extract, torch.nn.ReLU(), []) == (
        "'layer' must be given for a model without a linear layer, got None"
    )
    assert error_line(extract, net, [], layer="tail") == (
        "'layer' must be one of the model's ['body', 'body.0', 'body.1', 'dropout', 'head'], "
        "got 'tail'"
    )
    assert error_line(extract, net, []) == "'loader' must give at least one batch, got none"
    assert error_line(extract, net, [few[0]]) == (
        "'loader' must give pairs (inputs, labels) of tensors, got Tensor"
    )
    assert error_line(extract, net, 3) == (
        "'loader' must give pairs (inputs, labels) of tensors, got int"
    )
    assert error_line(extract, net, [few], device="abacus") == (
        "'device' must be one that torch finds, such as 'cpu', got 'abacus'"
    )
    assert error_line(extract, net, [(few[0], few[1][:19])]) == (
        "'labels' must have shape (20,), got (19,)"
    )
    twice = torch.nn.Sequential(shared := torch.nn.Linear(64, 64), shared)
    assert error_line(extract, twice, [few]) == "'layer' must run once a batch, got 2 times"
    assert not shared._forward_pre_hooks


@pytest.mark.parametrize("truth", [0.5, 1.0, 3.0])
def test_temperature_finds_the_one_that_made_the_labels(truth):
    random = np.random.default_rng(SEED)
    logits = 3 * random.normal(size=(20000, 5))
    noise = random.gumbel(size=logits.shape)
    labels = (logits / truth + noise).argmax(axis=1)
    assert abs(images.temperature(logits, labels) / truth - 1) < 0.05


def test_temperature_has_the_least_loss_and_ignores_shifts(outputs):
    best = images.temperature(outputs.logits, outputs.labels)

    def loss(value):
        scaled = outputs.logits.astype(float) / value
        scaled -= scaled.max(axis=1, keepdims=True)
        own = scaled[np.arange(len(scaled)), outputs.labels]
        return (np.log(np.exp(scaled).sum(axis=1)) - own).mean()

    assert loss(best) < min(loss(0.98 * best), loss(1.02 * best))
    shifted = outputs.logits.astype(float) + 1000
    assert images.temperature(shifted, outputs.labels) == pytest.approx(best, rel=1e-4)


def test_temperature_refuses():
    logits = np.array([[2.0, 0.0], [0.0, 1.0], [3.0, 0.0]])
    assert error_line(images.temperature, logits, [0, 1]) == (
        "'labels' must have shape (3,), got (2,)"
    )
    assert error_line(images.temperature, logits, [0, 1, -1]) == (
        "'labels' must be labelled, got 1 without a label (first: 2)"
    )
    assert error_line(images.temperature, logits, [0, 1, 0]) == (
        "'logits' must have a best temperature from 0.01 to 100, got none: "
        "on these 3 items they are too often right"
    )
    assert error_line(images.temperature, logits, [1, 0, 1]) == (
        "'logits' must have a best temperature from 0.01 to 100, got none: "
        "on these 3 items they are too often no better than chance"
    )
    assert error_line(images.temperature, logits * np.nan, [0, 1, 0]) == (
        "'logits' must be finite, got nan in row 0"
    )


# ---- files ---------------------------------------------------------------------------------------


def test_outputs_survive_a_file_in_half_precision(outputs, tmp_path):
    half = Outputs(
        outputs.logits.astype(np.float16), outputs.features.astype(np.float16), outputs.labels
    )
    half.save(tmp_path / "digits.npz")
    back = images.load(tmp_path / "digits.npz")
    for name in ("logits", "features", "labels"):
        assert np.array_equal(getattr(back, name), getattr(half, name))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"features": None}, "'{}' must hold the array 'features', got ['labels', 'logits']"),
        (
            {"features": np.eye(3)},
            "cannot read '{}': 'features' must have 4 rows like 'logits', got 3",
        ),
        (
            {"features": np.full((4, 2), np.inf)},
            "cannot read '{}': 'features' must be finite, got inf in row 0",
        ),
        (
            {"logits": np.empty((0, 4))},
            "cannot read '{}': 'logits' must have at least one row, got none",
        ),
        ({"labels": np.arange(3)}, "cannot read '{}': 'labels' must have shape (4,), got (3,)"),
        (
            {"labels": np.arange(4) + 1},
            "cannot read '{}': 'labels' must lie from 0 to 3, or be -1 where unknown, "
            "got 4 at node 3",
        ),
        (
            {"labels": np.array([0, 1, 2, None])},
            "cannot read '{}': damaged, or not an .npz archive of plain arrays",
        ),
    ],
)
def test_files_of_another_kind_are_refused(changes, message, tmp_path):
    path = tmp_path / "outputs.npz"
    write(path, **changes)
    assert error_line(images.load, path) == message.format(path)


def test_empty_and_missing_files_are_refused(tmp_path):
    path = tmp_path / "empty.npz"
    path.write_bytes(b"")
    assert error_line(images.load, path) == (
        f"cannot read '{path}': damaged, or not an .npz archive of plain arrays"
    )
    assert error_line(images.load, tmp_path / "no.npz") == (
        f"cannot read '{tmp_path / 'no.npz'}': No such file or directory"
    )


# ---- the formula ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small(outputs):
    """80 items: features, probabilities, labels, APS scores and cosines."""
    features = outputs.features[:80].astype(float)
    logits = outputs.logits[:80].astype(float)
    probs = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    own = snaps.SplitConformal(0.2, seed=SEED)
    own.calibrate(None, probs, outputs.labels[:80], np.arange(40))
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    return features, probs, outputs.labels[:80], own.scores_, unit @ unit.T


def nearest(cosines, i, allowed, k):
    """The k likeliest neighbours of i, written down plainly."""
    return sorted((j for j in allowed if j != i), key=lambda j: -cosines[i, j])[:k]


def corrected(small, eta, k, allowed, themselves=()):
    *_, own, cosines = small
    out = np.empty_like(own)
    for i in range(len(own)):
        near = nearest(cosines, i, allowed, k)
        if i in themselves:
            near = [i, *near[: k - 1]]
        out[i] = (1 - eta) * own[i] + eta * own[near].mean(axis=0)
    return out


def test_scores_are_the_formula(small):
    features, probs, labels, *_ = small
    cp = EmbeddedSNAPS(0.2, seed=SEED).calibrate(features, probs, labels, np.arange(40))
    np.testing.assert_allclose(cp.scores_, corrected(small, 0.5, 5, range(80)))
    assert cp.weights_ == (0.5, 0.0)
    assert cp.evaluate(labels)["n"] == 40
    neighbours = cp.explain(50).neighbours
    assert [n.weight for n in neighbours] == pytest.approx([0.1] * 5)


def test_cosine_weights_give_the_same_bits_as_snaps_without_links(small):
    features, probs, labels, *_ = small
    nodes = np.arange(40)
    cp = EmbeddedSNAPS(0.2, k=7, eta=0.3, weighting="cosine", seed=SEED)
    cp.calibrate(features, probs, labels, nodes)
    other = snaps.SNAPS(0.2, k=7, weights=(0.3, 0), seed=SEED)
    other.calibrate(snaps.Graph(None, features), probs, labels, nodes)
    assert np.array_equal(cp.scores_, other.scores_)
    assert cp.threshold_ == other.threshold_


def test_a_reference_set_by_positions_and_by_arrays(small):
    features, probs, labels, *_ = small
    reference = np.arange(50, 80)
    cp = EmbeddedSNAPS(0.2, seed=SEED)
    cp.calibrate(features, probs, labels, np.arange(25), reference=reference)
    np.testing.assert_allclose(cp.scores_, corrected(small, 0.5, 5, reference))
    joined = images.join(features[:50], probs[:50], labels[:50], features[50:], probs[50:])
    both, table, known, behind = joined
    assert (known[50:] == -1).all() and np.array_equal(known[:50], labels[:50])
    again = EmbeddedSNAPS(0.2, seed=SEED)
    again.calibrate(both, table, known, np.arange(25), reference=behind)
    assert np.array_equal(cp.scores_, again.scores_)
    assert again.evaluate(known)["n"] == 25


def test_tuning_takes_the_eta_with_the_smallest_sets(small):
    features, probs, labels, *_ = small
    tune, rank = np.arange(40, 70), t.rank(30, 0.1)
    tables = [corrected(small, step / 20, 5, range(80)) for step in range(21)]

    def best(nodes):
        own = [np.sort(table[nodes, labels[nodes]])[rank - 1] for table in tables]
        sizes = [(table[nodes] <= q).sum() for table, q in zip(tables, own, strict=True)]
        return np.argmin(sizes) / 20

    def tuned(eta):
        cp = EmbeddedSNAPS(0.1, eta=eta, seed=SEED)
        return cp.calibrate(features, probs, labels, np.arange(40), tune_nodes=tune).weights_

    assert tuned("minimum") == (best(tune), 0.0) and best(tune) > 0
    # "tune" is what it is in SNAPS: the mean over resamples, and of 0.5 as if by 50 nodes.
    draws = uniforms(0, hashes(SEED, tune.astype(np.uint64), RESAMPLE_STREAM), RESAMPLES)
    samples = tune[(draws.T * 30).astype(int)]
    mean = (30 * np.mean([best(nodes) for nodes in samples]) + 50 * 0.5) / 80
    assert tuned("tune") == (pytest.approx(mean, abs=1e-4), 0.0)


def test_saved_and_loaded(small, tmp_path):
    features, probs, labels, *_ = small
    cp = EmbeddedSNAPS(0.2, eta=0.4, weighting="cosine").calibrate(
        features, probs, labels, np.arange(40)
    )
    cp.save(tmp_path / "cp.npz")
    back = snaps.load(tmp_path / "cp.npz")
    assert repr(back) == repr(cp) and type(back) is EmbeddedSNAPS
    assert np.array_equal(back.predict_set().mask, cp.predict_set().mask)


@pytest.mark.parametrize("leave_one_out", [True, False])
def test_the_papers_variant_is_its_formula(small, leave_one_out):
    features, probs, *_ = small
    nodes = np.random.default_rng(SEED).permutation(80)[:40]
    items = snaps.Graph(None, features)
    scores = paper_scores(items, probs, nodes, leave_one_out=leave_one_out, seed=SEED)
    themselves = () if leave_one_out else set(nodes.tolist())
    np.testing.assert_allclose(scores, corrected(small, 0.5, 5, sorted(nodes), themselves))


def test_candidates_by_position_are_the_only_neighbours(small):
    features, *_, cosines = small
    allowed = np.random.default_rng(SEED).permutation(80)[:30]
    found = snaps.similarity_graph(features, 4, candidates=allowed)
    mask = np.isin(np.arange(80), allowed)
    again = snaps.similarity_graph(sp.csr_array(features), 4, candidates=mask)
    for i in range(80):
        row = slice(found.indptr[i], found.indptr[i + 1])
        assert found.indices[row].tolist() == nearest(cosines, i, allowed.tolist(), 4)
    assert np.array_equal(found.indices, again.indices)


# ---- bad input -----------------------------------------------------------------------------------


def test_errors_of_calibrate(small):
    features, probs, labels, *_ = small
    nodes = np.arange(40)

    def message_of(*arguments, method=None, **options):
        return error_line((method or EmbeddedSNAPS()).calibrate, *arguments, **options)

    assert message_of(features[:79], probs, labels, nodes) == (
        "'probs' must have one row a node (79), got 80 rows"
    )
    assert (
        message_of(None, probs, labels, nodes)
        == "'features' must have a row for each item, got none"
    )
    assert message_of(np.where(features > 9, features, np.nan), probs, labels, nodes) == (
        "'features' must be finite, got nan in row 0"
    )
    assert message_of(features, probs, labels, nodes, method=EmbeddedSNAPS(k=80)) == (
        "'k' must be smaller than the number of nodes 80, got 80"
    )
    assert message_of(features, probs, labels, nodes, reference=[41, 42]) == (
        "'k' must be at most the number of 'reference' items 2, got 5"
    )
    assert message_of(features, probs, labels, nodes, reference=np.arange(30, 60)) == (
        "'reference' must not share nodes with 'nodes', got 10 in both (first: 30)"
    )
    assert message_of(features, probs, labels, nodes, similarity=sp.eye(80), reference=[1]) == (
        "'reference' must not be given with 'similarity', got both"
    )
    assert message_of(features, probs, labels, nodes, method=EmbeddedSNAPS(eta=1.5)) == (
        "'eta' must be a number from 0 to 1, got 1.5"
    )
    assert message_of(features, probs, labels, nodes, method=EmbeddedSNAPS(eta="half")) == (
        "'eta' must be a number from 0 to 1, 'tune' or 'minimum', got 'half'"
    )
    assert message_of(features, probs, labels, nodes, method=EmbeddedSNAPS(weighting="flat")) == (
        "'weighting' must be 'uniform' or 'cosine', got 'flat'"
    )


def test_errors_of_join(small):
    features, probs, labels, *_ = small
    join = images.join
    assert error_line(join, features, probs, labels, features[:, :3], probs) == (
        "'reference_features' must have as many columns as 'features' (32), got 3"
    )
    assert error_line(join, features, probs, labels, features, probs[:, :3]) == (
        "'reference_probs' must have as many columns as 'probs' (10), got 3"
    )
    assert error_line(join, features, probs, labels, features[:9], probs[:8]) == (
        "'reference_probs' must have one row an item (9), got 8 rows"
    )
    assert error_line(join, features, probs[:9], labels, features, probs) == (
        "'probs' must have one row an item (80), got 9 rows"
    )
    assert error_line(join, features, probs, labels, features[0], probs) == (
        "'reference_features' must have two dimensions, got shape (32,)"
    )


# ---- coverage against its law --------------------------------------------------------------------

ITEMS = np.arange(200, 500)  # of the digits that did not train
FEW, ALPHA = 15, 0.4


@pytest.mark.parametrize("kind", ["all", "reference"])
def test_coverage_follows_its_law(outputs, kind):
    """A temperature and a reference set from items of their own change nothing."""
    scale = images.temperature(outputs.logits[:200], outputs.labels[:200])
    reference = np.arange(200) if kind == "reference" else None
    near = images.neighbours(outputs.features, reference=reference)
    result = snaps.evaluate_splits(
        EmbeddedSNAPS(ALPHA, seed=SEED),
        snaps.Graph(None, outputs.features),
        outputs.logits / scale,
        outputs.labels,
        ITEMS,
        FEW,
        law.SPLITS,
        SEED,
        near,
        logits=True,
    )
    m = len(ITEMS) - FEW
    hits = np.rint(result["coverage"] * m).astype(int)
    law.assert_law(law.fit_hits(hits, law.hit_pmf(FEW, m, ALPHA)), kind)


def exact(features, logits, labels, calib, test):
    """Sets through the verbs a user calls."""
    method = EmbeddedSNAPS(ALPHA, seed=SEED).calibrate(features, logits, labels, calib, logits=True)
    return method.predict_set(test).mask


def papers(features, logits, labels, calib, test):
    """Sets of the paper's variant."""
    probs = _checks.check_probs(logits, logits=True)
    scores = paper_scores(snaps.Graph(None, features), probs, calib, seed=SEED)
    own = scores[calib, labels[calib]]
    return conformal.Calibration(own, labels[calib], 10).contains(scores[test], ALPHA)


def hits_of(way, outputs, splits):
    """Hits of one split after another."""
    features, logits, labels = (
        table[ITEMS] for table in (outputs.features, outputs.logits, outputs.labels)
    )
    random = np.random.default_rng(SEED)
    hits = []
    for _ in range(splits):
        calib, test = np.split(random.permutation(len(ITEMS)), [FEW])
        inside = way(features, logits, labels, calib, test)[np.arange(len(test)), labels[test]]
        hits.append(int(inside.sum()))
    return law.fit_hits(hits, law.hit_pmf(FEW, len(ITEMS) - FEW, ALPHA))


def test_the_law_accepts_the_default_and_rejects_the_papers_variant(outputs):
    with threads_set(1):
        right = hits_of(exact, outputs, 200)
        broken = hits_of(papers, outputs, 200)
    assert right.accepted
    assert not broken.accepted
    assert abs(broken.standard_errors) > 5
