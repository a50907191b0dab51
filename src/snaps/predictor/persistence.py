"""Saved estimators: a JSON header and plain arrays in one .npz, no pickle.

Kept are parameters, the fitted scorer, and ids, labels and scores of the calibration nodes; with
data also the graph, the probabilities and the neighbour graphs. Tables of scores are made again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp

from snaps._checks import (
    Rates,
    check_alpha,
    check_integer,
    check_known,
    check_labels,
    check_level,
    check_neighbours,
    check_number,
    check_probs,
    check_seed,
    check_share,
    check_weights,
    shown,
)
from snaps._checks.ids import check_ids
from snaps._checks.matrices import check_similarity
from snaps._runtime.randomness import node_keys
from snaps._version import __version__
from snaps.conformal.calibration import Calibration
from snaps.errors import SnapsError
from snaps.graph import Graph
from snaps.io.files import csr_from_arrays, features_from_arrays, open_npz, parse_json, write_npz
from snaps.predictor.fingerprint import COLUMNS, Fingerprint
from snaps.predictor.predictor import Method, Predictor
from snaps.predictor.roles import Groups, Roles
from snaps.scores import APS, RAPS, SAPS, THR, Score, check_score
from snaps.scoring.evidence import Evidence, Keys, Labelled
from snaps.scoring.local import Inputs
from snaps.scoring.mixing import FittedMixing
from snaps.scoring.parts import Context, Links, Search, Similar
from snaps.scoring.pooling import PARTS, FittedPooling
from snaps.similarity import SimilarityGraph

FORMAT, VERSION = "snaps-estimator", 2
ESTIMATORS = ("SNAPS", "Pooled", "DAPS", "SplitConformal", "EmbeddedSNAPS")
_SCORES: dict[str, Any] = {kind.__name__: kind for kind in (APS, RAPS, SAPS, THR)}
_FINGERPRINT_ARRAYS = ("keys", "features", "probs")
_NAMES = (str, int, float, bool, type(None))  # of groups: what JSON takes

Arrays = dict[str, np.ndarray]
Header = dict[str, Any]
Kind = TypeVar("Kind", bound=Labelled)


# -- writing -------------------------------------------------------------------------------------


def save(
    path: str | os.PathLike[str], estimator: Any, alpha: Any, predictor: Predictor, data: bool
) -> None:
    """Write an estimator that was calibrated for the level `alpha`; its own may have changed."""
    name = type(estimator).__name__
    if name not in ESTIMATORS or not type(estimator).__module__.startswith("snaps."):
        raise SnapsError(
            f"the estimator must be one of {', '.join(ESTIMATORS)} to be saved, got {name}"
        )
    roles, calibration = predictor.roles, predictor.calibration
    fitted = predictor.scorer
    packed = {"score": _pack_score(fitted.score), "seed": fitted.seed, **fitted.pack()}
    arrays: Arrays = {}
    if "bias" in packed:
        arrays["bias"] = packed.pop("bias")
        kinds = _evidence_kinds(roles).items()
        packed["evidence"] = next(name for name, nodes in kinds if fitted.evidence == nodes)
    header: Header = {
        "format": FORMAT,
        "version": VERSION,
        "snaps": __version__,
        "estimator": name,
        "parameters": _pack_parameters(estimator.get_params()),
        "calibrated_alpha": _pack_alpha(alpha),
        "scorer": packed,
        "classes": roles.classes.tolist(),
        "named_columns": roles.named,
        "by_class": calibration.by_class,
        "group_floor": _pack_share(calibration.promise.group_floor),
        "groups": list(roles.groups.names) if roles.groups.given else None,
        "data": data,
        "given": predictor.given_similarity,
        "tuned": predictor.method.scorer.needs_tuning,
        "weighted": predictor.weighted,
        "apart": predictor.apart,
        "links_directed": predictor.directed,
        "fingerprints": {
            name: {"widths": each.widths, "num_nodes": each.num_nodes}
            for name, each in predictor.fingerprints.items()
        },
        "paid": roles.tuning.drawn,
    }
    if roles.missing:
        header["missing_labels"] = roles.missing
    if roles.odds is not None:
        header["chances"] = True
    odd = [group for group in roles.groups.names if type(group) not in _NAMES]
    if odd:
        raise SnapsError(f"'groups' must be strings or numbers to be saved, got {shown(odd[0])}")
    arrays |= {"calib_scores": calibration.scores, "reference": roles.reference}
    for name, nodes in _nodes_of(roles).items():
        arrays |= {f"{name}_ids": nodes.ids, f"{name}_labels": nodes.labels}
    for name, each in predictor.fingerprints.items():
        for part in _FINGERPRINT_ARRAYS:
            arrays[f"{name}_{part}"] = getattr(each, part)
    if roles.groups.given:
        arrays["calib_groups"] = np.asarray(calibration.groups)
    if calibration.odds is not None:
        arrays["calib_odds"] = calibration.odds
    if data:
        header |= _pack_data(predictor.inputs, arrays)
        header["elsewhere"] = not _all_here(predictor.inputs, roles)  # its threshold was kept
        if roles.groups.given:
            arrays["groups"] = roles.groups.codes
        if roles.odds is not None:
            arrays["odds"] = roles.odds
    header["arrays"] = sorted(arrays)
    text = json.dumps(header, default=_plain).encode()
    arrays["header"] = np.frombuffer(text, np.uint8)
    write_npz(path, arrays, compress=True)


def _nodes_of(roles: Roles) -> dict[str, Labelled]:
    return {"calib": roles.calib, "tune": roles.tuning, "known": roles.known}


def _all_here(inputs: Inputs, roles: Roles) -> bool:
    """Whether all nodes that were used are nodes of the graph."""
    return all(len(inputs.positions(n.keys)) == len(n) for n in _nodes_of(roles).values())


def _pack_parameters(parameters: Mapping[str, Any]) -> Header:
    packed = dict(parameters)
    return packed | {
        "alpha": _pack_alpha(packed["alpha"]),
        "score": _pack_score(packed["score"]),
        "class_floor": _pack_share(packed["class_floor"]),
        "confidence": _pack_share(packed["confidence"]),
    }


def _pack_alpha(alpha: Any) -> str | list[list[Any]]:
    if isinstance(alpha, Mapping):
        return [[str(name), _pack_alpha(rate)] for name, rate in alpha.items()]
    return str(alpha if isinstance(alpha, float) else check_alpha(alpha))


def _unpack_alpha(alpha: Any) -> Any:
    if isinstance(alpha, list):
        return {str(name): _unpack_alpha(rate) for name, rate in alpha}
    return Fraction(alpha) if "/" in alpha else float(alpha)


def _pack_share(share: Any) -> str | None:
    return None if check_share(share, "share") is None else str(_pack_alpha(share))


def _unpack_share(share: Any) -> float | Fraction | None:
    return None if share is None else _unpack_alpha(share)


def _pack_score(score: Any) -> Header:
    if _SCORES.get(type(score).__name__) is not type(score):
        known = ", ".join(_SCORES)
        raise SnapsError(f"'score' must be one of {known} to be saved, got {type(score).__name__}")
    return {"name": type(score).__name__, **asdict(score)}


def _evidence_kinds(roles: Roles) -> dict[str, Evidence]:
    """Whose labels may be evidence; none on a graph with other nodes."""
    both = roles.known.joined(roles.tuning)
    return {"known": roles.known, "known and tuning": both, "none": Evidence.none()}


def _pack_data(inputs: Inputs, arrays: Arrays) -> Header:
    """Graph, probabilities and neighbour graphs into `arrays`; what the header says of them."""
    graph = inputs.graph
    arrays |= {"ids": graph.ids, "probs": inputs.probs, **_pack_csr("adj", graph.adjacency)}
    if sp.issparse(graph.features):
        arrays |= {**_pack_csr("x", graph.features), "x_shape": np.array(graph.features.shape)}
    elif graph.features is not None:
        arrays["x"] = graph.features
    if inputs.similarity is not None:
        arrays |= _pack_csr("similarity", inputs.similarity)
    near: list[Header] = []
    for recipe, matrix in inputs.made(Similar, Context).items():
        if matrix is None or (inputs.similarity is not None and isinstance(recipe, Similar)):
            continue
        arrays |= _pack_csr(f"near{len(near)}", matrix)
        made = None
        if isinstance(matrix, SimilarityGraph):
            made = {"method": matrix.method, "recall": matrix.recall}
        near.append({"kind": type(recipe).__name__, "made": made, **asdict(recipe)})
    return {"directed": graph.directed, "named": graph.named, "near": near}


def _pack_csr(name: str, matrix: sp.csr_array) -> Arrays:
    return {f"{name}_{each}": getattr(matrix, each) for each in ("data", "indices", "indptr")}


def _plain(value: Any) -> Any:
    """Numbers and arrays as JSON takes them; scorers use the numbers as floats, too."""
    if isinstance(value, (Fraction, np.floating)):
        return float(value)
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    raise SnapsError(
        f"parameters must be numbers, strings, lists or tuples to be saved, got {shown(value)}"
    )


# -- reading -------------------------------------------------------------------------------------


@contextmanager
def opened(path: str | os.PathLike[str]) -> Iterator[tuple[str, Header, Mapping[str, np.ndarray]]]:
    """The estimator's class, header and arrays of a file; what is not ours is refused by name."""
    with open_npz(path) as arrays:
        try:
            header = parse_json(arrays["header"].tobytes())
            kind, version = header["format"], header["version"]
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, SnapsError):
                raise
            kind = version = None
        if kind != FORMAT:
            raise SnapsError(f"cannot load '{path}': not a saved snaps estimator")
        if version != VERSION:
            hint = ": calibrate and save it again" if version == 1 else ""
            raise SnapsError(
                f"cannot load '{path}': version {shown(version)}, this snaps reads {VERSION}{hint}"
            )
        listed = header.get("arrays")
        missing = set(map(str, listed if isinstance(listed, list) else [])) - set(arrays)
        if missing:
            raise SnapsError(f"cannot load '{path}': {min(missing)!r} is missing or unknown")
        yield str(header.get("estimator")), header, arrays


def parameters(header: Header) -> dict[str, Any]:
    """The estimator's parameters."""
    packed = dict(header["parameters"])
    packed["alpha"] = _unpack_alpha(packed["alpha"])
    packed["score"] = _unpack_score(packed["score"])
    for name in ("class_floor", "confidence"):
        packed[name] = _unpack_share(packed.get(name))
    return {
        name: tuple(value) if isinstance(value, list) else value for name, value in packed.items()
    }


def _unpack_score(packed: Header) -> Score:
    score = _SCORES[packed["name"]](**{k: v for k, v in packed.items() if k != "name"})
    return check_score(score)


def unpack(header: Header, arrays: Mapping[str, np.ndarray], method: Method) -> Predictor:
    """What calibration gave, checked."""
    classes = np.array(header["classes"])
    classes.flags.writeable = False
    if classes.ndim != 1 or classes.dtype.kind not in "iU" or len(classes) < 2:
        raise SnapsError(f"'classes' must be a list of names, got {shown(header['classes'])}")
    inputs = _unpack_data(header, arrays, len(classes)) if header["data"] else None
    num_nodes = 0 if inputs is None else inputs.num_nodes
    groups = Groups.single(num_nodes)
    if header["groups"] is not None:
        names = header["groups"]
        plain = isinstance(names, list) and all(type(name) in _NAMES for name in names)
        if not plain or len(set(names)) < len(names):
            raise SnapsError(f"'groups' must be different strings or numbers, got {shown(names)}")
        codes = np.empty(0, np.int64)
        if inputs is not None:
            codes = _codes(arrays, "groups", len(names), num_nodes)
        groups = Groups(codes, tuple(names))
    calib = _unpack_nodes(Labelled, "calib", arrays, len(classes))
    if not len(calib):
        raise SnapsError("'calib_ids' must hold at least one node, got none")
    known = _unpack_nodes(Evidence, "known", arrays, len(classes))
    tuning = _unpack_nodes(Evidence, "tune", arrays, len(classes))
    keys = np.concatenate([calib.keys, tuning.keys, known.keys])
    if len(np.unique(keys)) < len(keys):
        raise SnapsError("calibration, tuning and known nodes must not overlap")
    reference = _keys(arrays, "reference")
    tuning = replace(tuning, drawn=bool(header["paid"]))
    named = bool(header.get("named_columns", False))
    missing = check_integer(header.get("missing_labels", 0), "missing_labels", low=0)
    odds = calib_odds = None
    if header.get("chances"):
        odds = np.empty(0) if inputs is None else _odds(arrays, "odds", num_nodes)
        if "calib_odds" in arrays:
            calib_odds = _finite(_odds(arrays, "calib_odds", len(calib)), "calib_odds")
    roles = Roles(calib, tuning, known, reference, classes, groups, named, missing, odds)
    if inputs is not None and not header["elsewhere"] and not _all_here(inputs, roles):
        raise SnapsError("its nodes must be in its graph")
    scores = _finite(_numbers(arrays, "calib_scores", len(calib)), "calib_scores")
    own = _codes(arrays, "calib_groups", len(groups), len(calib)) if groups.given else 0
    if bool(header["by_class"]) != method.class_conditional:
        raise SnapsError("'by_class' must agree with the parameter class_conditional")
    floor = _unpack_share(header.get("group_floor"))
    method = method.with_group_floor(floor, groups.names or None)
    calibration = Calibration(
        scores, calib.labels, len(classes), own, len(groups), method.class_conditional,
        method.promise, missing, calib_odds,
    )  # fmt: skip
    scorer = _unpack_scorer(header["scorer"], roles, arrays, len(classes))
    directed, then = header.get("links_directed"), header.get("calibrated_alpha")
    level = method.level
    if then is not None:
        level = check_level(_unpack_alpha(then), method.class_conditional)
    if isinstance(level, Rates):
        level.in_order(classes)
    return Predictor(
        replace(method, level=level),
        inputs,
        roles,
        scorer,
        calibration,
        given_similarity=bool(header["given"]),
        weighted=bool(header["weighted"]),
        apart=bool(header["apart"]),
        directed=None if directed is None else bool(directed),
        fingerprints={
            name: _unpack_fingerprint(name, packed, arrays)
            for name, packed in header.get("fingerprints", {}).items()
        },
    )


def _unpack_fingerprint(name: str, packed: Header, arrays: Mapping[str, np.ndarray]) -> Fingerprint:
    if name not in ("used", "reference"):
        raise SnapsError(f"'{name}' must be used or reference")
    keys, widths = _keys(arrays, f"{name}_keys"), tuple(map(int, packed["widths"]))
    features, probs = arrays[f"{name}_features"], arrays[f"{name}_probs"]
    for table, width in zip((features, probs), widths, strict=True):
        shape = len(keys), COLUMNS if width else 0
        if table.shape != shape or table.dtype != np.float64 or not np.isfinite(table).all():
            raise SnapsError(f"'{name}' must have finite fingerprints {shape}, got {table.shape}")
    return Fingerprint(keys, features, probs, widths, int(packed["num_nodes"]))


def _numbers(arrays: Mapping[str, np.ndarray], name: str, *shape: int) -> np.ndarray:
    """An array of this shape, read-only."""
    array = arrays[name]
    if array.shape != shape or array.dtype != np.float64:
        raise SnapsError(f"'{name}' must be numbers {shape}, got {array.shape}")
    array.flags.writeable = False
    return array


def _finite(array: np.ndarray, name: str) -> np.ndarray:
    if not np.isfinite(array).all():
        raise SnapsError(f"'{name}' must be finite")
    return array


def _odds(arrays: Mapping[str, np.ndarray], name: str, count: int) -> np.ndarray:
    odds = _numbers(arrays, name, count)
    if (odds < 0).any():
        raise SnapsError(f"'{name}' must be numbers of at least 0")
    return odds


def _keys(arrays: Mapping[str, np.ndarray], name: str) -> Keys:
    keys = arrays[name]
    if keys.ndim != 1 or keys.dtype != np.uint64:
        raise SnapsError(f"'{name}' must be a list of keys, got {keys.dtype}")
    return keys


def _codes(arrays: Mapping[str, np.ndarray], name: str, most: int, count: int) -> np.ndarray:
    codes = arrays[name]
    if codes.dtype != np.int64 or ((codes < 0) | (codes >= most)).any():
        raise SnapsError(f"'{name}' must be integers from 0 to {most - 1}")
    if codes.shape != (count,):
        raise SnapsError(f"'{name}' must have shape ({count},), got {codes.shape}")
    return codes


def _unpack_nodes(
    kind: type[Kind], name: str, arrays: Mapping[str, np.ndarray], num_classes: int
) -> Kind:
    ids = check_ids(arrays[f"{name}_ids"], f"'{name}_ids'")
    labels = check_labels(
        arrays[f"{name}_labels"], f"{name}_labels", num_nodes=len(ids), num_classes=num_classes
    )
    check_known(labels, np.arange(len(ids)), f"{name}_labels")
    keys = node_keys(ids)
    order = np.argsort(keys, kind="stable")
    nodes = kind(ids[order], keys[order], labels[order])
    for array in (nodes.ids, nodes.keys, nodes.labels):
        array.flags.writeable = False
    return nodes


def _unpack_scorer(
    packed: Header, roles: Roles, arrays: Mapping[str, np.ndarray], num_classes: int
) -> Any:
    score, seed = _unpack_score(packed["score"]), check_seed(packed["seed"])
    if packed["kind"] == "pooling":
        bias, weights = _finite(_numbers(arrays, "bias", num_classes), "bias"), packed["weights"]
        if not weights or not set(weights) <= set(PARTS):
            raise SnapsError(f"'weights' must name some of {', '.join(PARTS)}")
        checked = {k: check_number(weights[k], "weights", low=-1e6) for k in weights}
        evidence = _evidence_kinds(roles)[packed["evidence"]]
        search = _unpack_search(packed.get("search"))
        k = check_integer(packed["k"], "k", low=1)
        return FittedPooling(score, seed, k, evidence, checked, bias, search)
    if packed["kind"] != "mixing":
        raise SnapsError(f"'scorer' must be mixing or pooling, got {shown(packed['kind'])}")
    similar = None if packed["similar"] is None else _unpack_recipe(Similar, packed["similar"])
    linked = Links() if packed["linked"] else None
    return FittedMixing(score, seed, similar, linked, *check_weights(packed["weights"]))


def _unpack_search(packed: Header | None) -> Search:
    """How neighbours are looked for; older files don't say."""
    if packed is None:
        return Search()
    return Search(*check_neighbours(packed["method"], packed["recall"], packed["candidates"]))


def _unpack_recipe(kind: Any, packed: Header) -> Any:
    """Whose neighbours: a recipe from what `asdict` made of it."""
    recipe = {name: value for name, value in packed.items() if name not in ("kind", "made")}
    recipe |= {
        "k": check_integer(recipe["k"], "k", low=1),
        "search": _unpack_search(recipe.get("search")),
    }
    if recipe.get("weighting", "cosine") not in ("cosine", "uniform"):
        raise SnapsError(f"'weighting' must be cosine or uniform, got {shown(recipe['weighting'])}")
    return kind(**recipe)


def _unpack_data(header: Header, arrays: Mapping[str, np.ndarray], num_classes: int) -> Inputs:
    n = len(arrays["ids"])
    graph = Graph(
        csr_from_arrays(arrays, "adj", "it", (n, n)),
        features_from_arrays(arrays, "it"),
        ids=arrays["ids"] if header["named"] else None,
        directed=True,  # links are listed both ways already, with the weights that each row has
        weighted=bool(header["weighted"]),
        self_loops=True,
    )
    graph.directed = bool(header["directed"])
    probs = _numbers(arrays, "probs", n, num_classes)
    check_probs(probs)

    def neighbours(name: str) -> sp.csr_array:
        return check_similarity(csr_from_arrays(arrays, name, "it", (n, n)), n, name)

    similarity = neighbours("similarity") if "similarity_data" in arrays else None
    made: dict[Any, Any] = {}
    for number, packed in enumerate(header["near"]):
        recipe = _unpack_recipe({"Similar": Similar, "Context": Context}[packed["kind"]], packed)
        matrix, search = neighbours(f"near{number}"), packed.get("made")
        if np.diff(matrix.indptr).max(initial=0) > recipe.k:
            raise SnapsError(f"'near{number}' must have at most {recipe.k} neighbours per node")
        if search is not None:
            matrix = SimilarityGraph(matrix)
            matrix.method, matrix.recall = str(search["method"]), float(search["recall"])
        made[recipe] = matrix
    return Inputs(graph, probs, similarity, made)
