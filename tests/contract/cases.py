"""What is recorded: the results of every method, read through public calls alone.

A case computes a dict of entries: float or integer arrays, or text. Boolean masks are packed.
Of large arrays a sample and sums of blocks are kept, and a digest of all their bits.
"""

from __future__ import annotations

import hashlib
import json
import math
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import snaps
from snaps import metrics
from snaps.images import EmbeddedSNAPS, join, neighbours, temperature
from snaps.models import smoothed_regression

from .graphs import Setting

Entries = dict[str, Any]

ALPHA = 0.1
SAMPLE = 6  # nodes whose scores and p-values are kept
VALUES = 100  # sampled values, and as many sums of blocks, that are kept of a large array


# -- entries --------------------------------------------------------------------------------------


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def packed(mask: np.ndarray) -> np.ndarray:
    return np.packbits(mask, axis=-1)


def condensed(name: str, values: Any, count: int = VALUES) -> Entries:
    """A large array of floats: digest of its bits, sampled values, and sums of all blocks."""
    flat = np.ascontiguousarray(values, np.float64).reshape(-1)
    sample = flat[np.linspace(0, len(flat) - 1, count).astype(int)]
    sums = [math.fsum(block) for block in np.array_split(flat, count)]
    return {f"{name}.bits": digest(flat.tobytes()), name: np.concatenate([sample, sums])}


def prefixed(**cases: Entries) -> Entries:
    return {f"{case}.{name}": value for case, each in cases.items() for name, value in each.items()}


def flattened(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of what JSON holds, by their paths."""
    if isinstance(value, (dict, list, tuple)):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            yield from flattened(item, f"{name}/{key}")
    else:
        yield name, value


def plain(value: Any) -> Entries:
    """A dict of numbers and text, as JSON has it: floats as an array, all else as text."""
    leaves = dict(flattened(value))
    floats = {name: item for name, item in leaves.items() if isinstance(item, float)}
    others = {name: item for name, item in leaves.items() if name not in floats}
    text = json.dumps({"floats": list(floats), **others}, sort_keys=True)
    return {"text": text, "floats": np.array(list(floats.values()), np.float64)}


@contextmanager
def expected_warning() -> Iterator[None]:
    """Expect at least one SnapsWarning."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        yield
    assert any(issubclass(each.category, snaps.SnapsWarning) for each in heard)


def chosen(cp: Any) -> Entries:
    """Parameters, threshold and roles of a calibrated estimator."""
    weights = cp.weights_
    return {
        "score": repr(cp.score_),
        "parts": " ".join(cp.part_weights_),
        "part_weights": np.array(list(cp.part_weights_.values()), np.float64),
        "weights": np.array(list(weights.values() if isinstance(weights, dict) else weights)),
        "threshold": np.asarray(cp.threshold_, np.float64),
        "calib_nodes": cp.calib_nodes_,
        "calib_labels": digest(np.asarray(cp.calib_labels_, np.int64).tobytes()),
        "tune_nodes": cp.tune_nodes_,
        "known_nodes": digest(np.asarray(cp.known_nodes_, np.int64).tobytes()),
    }


def results(cp: Any) -> Entries:
    """What a calibrated estimator answers, in full for a small graph."""
    sets = cp.predict_set()
    sample = sets.nodes[np.linspace(0, len(sets) - 1, SAMPLE).astype(int)]
    return chosen(cp) | {
        "calib_scores": cp.calib_scores_,
        "scores": cp.scores_[sample],
        "nodes": digest(sets.nodes.astype(np.int64).tobytes()),
        "sets": packed(sets.mask),
        "sets_other_alpha": packed(cp.predict_set(alpha=0.3).mask),
        "sets_smoothed": packed(cp.predict_set(smoothed=True).mask),
        "p": cp.predict_p(sample),
        "p_smoothed": cp.predict_p(sample, smoothed=True),
    }


def large_results(cp: Any) -> Entries:
    """The same of a large graph: digests, samples and sums."""
    sets = cp.predict_set()
    out = chosen(cp)
    for name in ("calib_nodes", "tune_nodes"):
        out[name] = digest(out[name].astype(np.int64).tobytes())
    return out | {
        "sets": digest(packed(sets.mask).tobytes()),
        "mean_size": sets.sizes.mean(keepdims=True),
        **condensed("scores", cp.scores_),
        **condensed("calib_scores", cp.calib_scores_),
        **condensed("p", cp.predict_p()),
        **condensed("p_smoothed", cp.predict_p(smoothed=True)),
    }


# -- methods --------------------------------------------------------------------------------------


def split(given: Setting) -> Entries:
    scores = {
        "aps": snaps.APS(),
        "aps_fixed": snaps.APS(randomized=False),
        "raps": snaps.RAPS(),
        "raps_given": snaps.RAPS(k_reg=1, penalty=0.1),
        "saps": snaps.SAPS(),
        "saps_given": snaps.SAPS(weight=0.3, randomized=False),
        "thr": snaps.THR(),
    }
    methods = {name: snaps.SplitConformal(ALPHA, score=score) for name, score in scores.items()}
    methods["aps_seed"] = snaps.SplitConformal(ALPHA, seed=7)
    return prefixed(**{name: results(given.calibrate(cp)) for name, cp in methods.items()})


def mixing(given: Setting) -> Entries:
    methods = {
        "daps": snaps.DAPS(ALPHA),
        "daps_minimum": snaps.DAPS(ALPHA, weight="minimum"),
        "daps_given": snaps.DAPS(ALPHA, weight=0.4),
        "snaps": snaps.SNAPS(ALPHA),
        "snaps_minimum": snaps.SNAPS(ALPHA, weights="minimum", seed=7),
        "snaps_given": snaps.SNAPS(ALPHA, weights=(0.3, 0.45), k=7),
        "snaps_thr": snaps.SNAPS(ALPHA, score=snaps.THR()),
        "snaps_raps": snaps.SNAPS(ALPHA, score=snaps.RAPS()),
        "snaps_candidates": snaps.SNAPS(ALPHA, weights=(0.5, 0.2), k=5, candidates=90),
        "snaps_approximate": snaps.SNAPS(ALPHA, weights=(0.5, 0.2), neighbours="approximate"),
    }
    out = {name: results(given.calibrate(cp)) for name, cp in methods.items()}
    roles = {"tune_nodes": given.train[:40], "known_nodes": given.train[40:]}
    out["snaps_tune_nodes"] = results(given.calibrate(snaps.SNAPS(ALPHA), **roles))
    similarity = snaps.similarity_graph(given.graph.features, k=4, ids=given.graph.keys)
    cp = snaps.SNAPS(ALPHA, weights=(0.4, 0.4))
    out["snaps_similarity"] = results(given.calibrate(cp, similarity=similarity))
    return prefixed(**out)


def pooled(given: Setting) -> Entries:
    parts = ("own", "linked", "propagated")
    methods = {
        "pooled": snaps.Pooled(ALPHA),
        "pooled_aps": snaps.Pooled(ALPHA, score=snaps.APS(), k=9, seed=7),
        "pooled_parts": snaps.Pooled(ALPHA, parts=parts),
        "pooled_no_evidence": snaps.Pooled(ALPHA, tuning_evidence=False),
    }
    out = Entries()
    for name, cp in methods.items():
        given.calibrate(cp)
        sample = cp.calib_nodes_[:SAMPLE]
        out |= prefixed(**{name: {**results(cp), "bias": cp.bias_, "probs": cp.probs_[sample]}})
    return out


def conditional(given: Setting) -> Entries:
    """A threshold per class, group, or both; classes with too few nodes join every set."""
    by_class = {
        "aps": snaps.SplitConformal(0.3, class_conditional=True),
        "snaps": snaps.SNAPS(0.3, class_conditional=True),
        "pooled": snaps.Pooled(0.3, class_conditional=True),
    }
    out = {f"{name}_class": results(given.calibrate(cp)) for name, cp in by_class.items()}
    methods = {
        "aps_group": snaps.SplitConformal(ALPHA),
        "snaps_group": snaps.SNAPS(ALPHA),
        "pooled_group": snaps.Pooled(ALPHA),
    }
    for name, cp in methods.items():
        given.calibrate(cp, groups=given.bands)
        sets = packed(cp.predict_set().mask)  # more of them in `saved`
        out[name] = {**chosen(cp), "groups": " ".join(cp.groups_), "sets": sets}
    with expected_warning():
        both = snaps.SplitConformal(0.05, class_conditional=True)
        out["aps_group_class"] = results(given.calibrate(both, groups=given.bands))
    return prefixed(**out)


def embedded(given: Setting) -> Entries:
    """Items without links."""
    features = given.graph.features
    features = features if isinstance(features, np.ndarray) else features.toarray()
    codes, logits = given.codes, np.log(given.probs)

    def calibrated(cp: EmbeddedSNAPS, **options: Any) -> Entries:
        return results(cp.calibrate(features, logits, codes, given.calib, logits=True, **options))

    items, probs, labels, reference = join(
        features[60:], given.probs[60:], codes[60:], features[:60], given.probs[:60]
    )
    joined = EmbeddedSNAPS(ALPHA).calibrate(
        items, probs, labels, np.arange(100), reference=reference
    )
    matrix = neighbours(features, 6, weighting="cosine")
    return {
        "temperature": np.array([temperature(logits, codes)]),
        "neighbours": matrix[:SAMPLE].toarray()[:, :100],
        **prefixed(
            embedded=calibrated(EmbeddedSNAPS(ALPHA)),
            embedded_tuned=calibrated(EmbeddedSNAPS(ALPHA, k=8, eta="minimum", weighting="cosine")),
            embedded_reference=results(joined),
            embedded_class=calibrated(EmbeddedSNAPS(0.3, eta=0.3, class_conditional=True)),
        ),
    }


def recalibrated(given: Setting) -> Entries:
    """A graph that has grown, with and without another fit, and other ways to go on."""
    count = len(given.labels)
    early = given.first(count - 70)
    more = np.arange(count - 130, count - 100)
    methods = {
        "daps": snaps.DAPS(ALPHA),
        "snaps": snaps.SNAPS(ALPHA),
        "pooled": snaps.Pooled(ALPHA),
    }
    out: dict[str, Entries] = {}
    for name, cp in methods.items():
        early.calibrate(cp).recalibrate(given.graph, given.probs)
        out[f"{name}_refit"] = results(cp)
        early.calibrate(cp)
        with expected_warning():
            cp.recalibrate(given.graph, given.probs, refit=False)
        out[f"{name}_kept_parameters"] = results(cp)
        early.calibrate(cp).recalibrate(given.graph, given.probs, given.labels, more)
        out[f"{name}_more_nodes"] = chosen(cp)
        early.calibrate(cp)
        with expected_warning():
            cp.recalibrate(given.graph, given.probs, threshold="keep")
        sets = packed(cp.predict_set().mask)
        out[f"{name}_kept_threshold"] = {"threshold": np.asarray(cp.threshold_), "sets": sets}
    fewer = given.first(int(given.calib[-1]) - 5)
    cp = given.calibrate(snaps.SNAPS(ALPHA, weights=(0.3, 0.3)))
    cp.recalibrate(fewer.graph, fewer.probs, missing="drop")
    out["snaps_dropped"] = {**chosen(cp), "calib_scores": cp.calib_scores_}
    return prefixed(**out)


# -- files, many splits, advice, explanations -----------------------------------------------------


def header(path: Path) -> Entries:
    """What a saved estimator says of itself, and the kinds of its arrays."""
    with np.load(path) as arrays:
        kept = {name: arrays[name] for name in arrays.files if name != "header"}
        said = json.loads(arrays["header"].tobytes())
    del said["snaps"]  # the version
    kinds = {name: f"{array.dtype.str} {array.shape}" for name, array in kept.items()}
    return plain(said) | {"arrays": json.dumps(kinds, sort_keys=True)}


def saved(given: Setting) -> Entries:
    out: dict[str, Entries] = {}
    methods = {
        "aps": snaps.SplitConformal(ALPHA),
        "daps": snaps.DAPS(ALPHA),
        "snaps": snaps.SNAPS(ALPHA),
        "pooled": snaps.Pooled(ALPHA),
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.snaps"
        for name, cp in methods.items():
            given.calibrate(cp, groups=given.bands).save(path)
            out[name] = header(path) | results(snaps.load(path))
            cp.save(path, data=False)
            out[f"{name}_without_data"] = header(path)
            loaded = snaps.load(path)
            loaded.recalibrate(given.graph, given.probs, groups=given.bands)
            out[f"{name}_without_data"] |= chosen(loaded)
    return prefixed(**out)


def splits(given: Setting) -> Entries:
    pool = np.setdiff1d(np.arange(len(given.labels)), given.train)
    methods = {
        "aps": snaps.SplitConformal(ALPHA),
        "raps": snaps.SplitConformal(ALPHA, score=snaps.RAPS()),
        "daps": snaps.DAPS(ALPHA),
        "snaps": snaps.SNAPS(ALPHA),
        "pooled": snaps.Pooled(ALPHA),
        "aps_class": snaps.SplitConformal(0.4, class_conditional=True),
    }
    about = given.graph, given.probs, given.labels, pool
    options = {"known_nodes": given.train, "classes": given.classes}
    out = snaps.evaluate_splits(methods, *about, 120, 8, seed=2, **options)
    out["levels"] = snaps.evaluate_splits(
        methods["snaps"], *about, 140, 5, n_tune=50, alphas=[0.1, 0.25], **options
    )
    options["known_nodes"] = None
    out["tune_nodes"] = snaps.evaluate_splits(
        methods["snaps"], *about, 100, 5, tune_nodes=given.train, **options
    )
    return prefixed(**out)


def advice(given: Setting) -> Entries:
    about = given.graph, given.probs, given.labels, given.calib
    options = {"known_nodes": given.train, "classes": given.classes}
    first = snaps.advise(*about, alpha=0.2, n_calib=90, **options)
    methods = {"APS": snaps.SplitConformal(0.2), "SNAPS": snaps.SNAPS(0.2)}
    own = snaps.advise(*about, "singletons", alpha=0.2, methods=methods, seed=5, **options)
    goals = {goal: first.for_goal(goal) for goal in ("smallest", "singletons", "classes", "sizes")}
    goals["own"] = own
    return prefixed(**{
        goal: plain({"name": each.name, "runner_up": each.runner_up, "rows": each.rows})
        for goal, each in goals.items()
    })  # fmt: skip


def explained(cp: Any, node: int) -> Entries:
    why = cp.explain(node)
    first = why.neighbours[:5]
    return {
        "parts": np.array(list(why.parts.values()), np.float64),
        "names": " ".join(why.parts),
        "weights": np.array([why.weights[part] for part in why.parts]),
        "mixed": why.mixed,
        "threshold": why.threshold,
        "inside": packed(why.inside),
        "count": np.array([len(why.neighbours)]),
        "neighbours": json.dumps([[each.node, str(each.id), each.part] for each in first]),
        "shifts": np.array([[each.weight, *each.shift] for each in first]),
    }


def evaluated(cp: Any, labels: Any) -> dict[str, Any]:
    """What `evaluate` gives, but for its searches, which have tests of their own."""
    searched = ("weakest_slice", "worst_slab")
    return {key: value for key, value in cp.evaluate(labels).items() if key not in searched}


def answers(given: Setting) -> Entries:
    """Evaluation, explanation, exchangeability and metrics."""
    out: dict[str, Entries] = {}
    labels, node = given.labels, int(given.calib[-1]) + 9
    for name, cp in {
        "aps": snaps.SplitConformal(ALPHA),
        "snaps": snaps.SNAPS(ALPHA),
        "pooled": snaps.Pooled(ALPHA),
    }.items():
        given.calibrate(cp, groups=given.bands)
        out[f"{name}_evaluated_groups"] = plain(evaluated(cp, labels))
        given.calibrate(cp)
        out[f"{name}_evaluated"] = plain(evaluated(cp, labels))
        out[f"{name}_explained"] = explained(cp, node)
        look = cp.exchangeability()
        rows = [(row.what, row.calib, row.nodes, row.distance, row.p) for row in look.rows]
        out[f"{name}_exchangeability"] = plain([look.alike, look.num_calib, look.num_nodes, rows])
    sets = cp.predict_set()
    numbers = {
        **{name: getattr(metrics, name)(sets, labels)
           for name in ("coverage", "size", "size_nonempty", "singleton_hit", "empty")},
        "sscv": metrics.sscv(sets, labels, ALPHA),
        "class_gap": metrics.class_gap(sets, labels, ALPHA),
        "class_coverage": metrics.class_coverage(sets, labels).tolist(),
        "group_coverage": metrics.group_coverage(sets, labels, given.bands),
    }  # fmt: skip
    return prefixed(**out, metrics=plain(numbers))


def inputs(given: Setting) -> Entries:
    """The synthetic graph itself, similarity graphs and structural features."""
    graph, links, k = given.graph, given.graph.adjacency.sorted_indices(), 6
    features = graph.features
    table = features if isinstance(features, np.ndarray) else features.toarray()
    searches: dict[str, Entries] = {
        "exact": {"method": "exact"},
        "approximate": {"method": "approximate", "recall": 0.9},
        "candidates": {"candidates": 80, "seed": 3},
        "rows": {"rows": np.arange(20, 40)},
    }
    out: dict[str, Entries] = {
        "graph": {
            "links": digest(links.indices.astype(np.int64).tobytes()),
            "weights": digest(links.data.astype(np.float64).tobytes()),
            "labels": digest(given.codes.astype(np.int64).tobytes()),
            "keys": digest(graph.keys.tobytes()),
            "probs": digest(given.probs.tobytes()),
            **condensed("features", table, 20),
        }
    }
    for name, options in searches.items():
        matrix = snaps.similarity_graph(features, k, ids=graph.keys, **options)
        out[name] = {
            "shape": np.array(matrix.shape),
            "indptr": digest(matrix.indptr.astype(np.int64).tobytes()),
            "indices": digest(matrix.indices.astype(np.int64).tobytes()),
            **condensed("cosines", matrix.data, 20),
        }
    structure = snaps.structural_features(given.first(len(given.codes)).graph).sorted_indices()
    out["structure"] = {
        "shape": np.array(structure.shape),
        **condensed("values", structure.data, 20),
    }
    regression = smoothed_regression(graph, given.codes, given.train, weight_decay=0.01)
    out["solver"] = {"probs": regression[: 4 * SAMPLE]}
    return prefixed(**out)


def large(given: Setting) -> Entries:
    """The methods on a real graph."""
    methods = {
        "aps": snaps.SplitConformal(ALPHA),
        "raps": snaps.SplitConformal(ALPHA, score=snaps.RAPS()),
        "saps": snaps.SplitConformal(ALPHA, score=snaps.SAPS()),
        "thr": snaps.SplitConformal(ALPHA, score=snaps.THR()),
        "daps": snaps.DAPS(ALPHA),
        "snaps": snaps.SNAPS(ALPHA),
        "snaps_given": snaps.SNAPS(ALPHA, weights=(0.25, 0.5), k=10),
        "pooled": snaps.Pooled(ALPHA),
    }
    out = prefixed(**{name: large_results(given.calibrate(cp)) for name, cp in methods.items()})
    pool = np.setdiff1d(np.arange(len(given.labels)), given.train)
    method = snaps.SNAPS(ALPHA)
    out |= prefixed(
        splits=snaps.evaluate_splits(method, given.graph, given.probs, given.labels, pool, 400, 10)
    )
    matrix = snaps.similarity_graph(given.graph.features)
    out["similarity.indices"] = digest(matrix.indices.astype(np.int64).tobytes())
    return out | condensed("similarity.cosines", matrix.data)


SMALL: dict[str, Callable[[Setting], Entries]] = {
    each.__name__: each
    for each in (
        inputs, split, mixing, pooled, conditional, embedded, recalibrated, saved, splits, advice,
        answers,
    )
}  # fmt: skip
REAL = ("cora_ml", "citeseer")
CASES: dict[str, dict[str, Callable[[Setting], Entries]]] = {
    "words": SMALL,
    "dense": SMALL,
    "weighted": {name: SMALL[name] for name in ("inputs", "mixing", "pooled", "recalibrated")},
    **{name: {"large": large} for name in REAL},
}
"""For each file of recorded entries, the cases in it."""
