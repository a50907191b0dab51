"""Saving calibrated estimators: arrays and a JSON header in one .npz, no pickle.

What can be computed again (aggregated scores, threshold) is computed again on loading: the same
loops give the same bits.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from fractions import Fraction
from typing import Any

import numpy as np

from snaps import scores as score_module
from snaps._checks import check_disjoint, check_known, check_labels, check_nodes, check_similarity
from snaps._errors import SnapsError
from snaps._files import atomic_path, read_npz
from snaps._randomness import node_keys
from snaps.estimator import Estimator, Inputs, pack_csr
from snaps.graph import Graph, csr_from_arrays
from snaps.images import EmbeddedSNAPS
from snaps.pooled import Pooled
from snaps.predictor import DAPS, SNAPS, SplitConformal
from snaps.scores import check_score

FORMAT, VERSION = "snaps-estimator", 1
_ESTIMATORS = {cls.__name__: cls for cls in (SNAPS, Pooled, DAPS, SplitConformal, EmbeddedSNAPS)}
_SCORES = {name: getattr(score_module, name) for name in ("APS", "RAPS", "SAPS", "THR")}


def save(estimator: Estimator, path: str | os.PathLike[str]) -> None:
    """Write a calibrated estimator."""
    for kind, known, what in (
        (type(estimator), _ESTIMATORS, "the estimator"),
        (type(estimator.score), _SCORES, "'score'"),
    ):
        if known.get(kind.__name__) is not kind:
            raise SnapsError(
                f"{what} must be one of {', '.join(known)} to be saved, got {kind.__name__}"
            )
    parameters = {
        name: value for name, value in vars(estimator).items() if name[0] != "_" and name[-1] != "_"
    }
    header = {
        "format": FORMAT,
        "version": VERSION,
        "estimator": type(estimator).__name__,
        "parameters": {
            **parameters,
            "alpha": str(estimator.alpha),
            "score": _pack_score(estimator.score),
        },
        "score": _pack_score(estimator.score_),
        "weights": estimator.weights_,
    }
    graph, similarity = estimator._graph, estimator._similarity_graph
    arrays = {
        "header": np.frombuffer(json.dumps(header, default=_plain).encode(), np.uint8),
        "calib_nodes": estimator.calib_nodes_,
        "calib_labels": estimator.calib_labels_,
        "tune_nodes": estimator.tune_nodes_,
    }
    if graph is not None:
        arrays |= {"ids": graph.ids, "directed": np.array(graph.directed)}
        arrays |= pack_csr("adjacency", graph.adjacency)
    if similarity is not None:
        arrays |= pack_csr("similarity", similarity)
    arrays |= estimator._pack()
    with atomic_path(path) as temporary, open(temporary, "wb") as file:
        np.savez(file, allow_pickle=False, **arrays)


def load(path: str | os.PathLike[str]) -> Any:
    """Read an estimator written by `save`.

    Files that are truncated, foreign, tampered with or of a newer version are refused by name;
    nothing in a file is ever executed.
    """
    arrays = read_npz(path)
    header = _read_header(arrays, path)
    try:
        return _rebuild(header, arrays)
    except SnapsError as error:
        raise SnapsError(f"cannot load '{path}': {error}") from error
    except KeyError as error:
        raise SnapsError(f"cannot load '{path}': {error} is missing or unknown") from error
    except (TypeError, ValueError, ArithmeticError, AttributeError) as error:
        raise SnapsError(f"cannot load '{path}': its contents don't fit together") from error


def _read_header(arrays: dict[str, np.ndarray], path: Any) -> dict[str, Any]:
    try:
        header = json.loads(arrays["header"].tobytes())
        found, version = header["format"], header["version"]
    except (KeyError, TypeError, ValueError):
        found = version = None
    if found != FORMAT:
        raise SnapsError(f"cannot load '{path}': not a saved snaps estimator")
    if version != VERSION:
        raise SnapsError(f"cannot load '{path}': version {version}, this snaps reads {VERSION}")
    return header


def _rebuild(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Estimator:
    parameters = dict(header["parameters"])
    parameters["score"] = _unpack_score(parameters["score"])
    alpha = parameters["alpha"]
    parameters["alpha"] = Fraction(alpha) if "/" in alpha else float(alpha)
    estimator = _ESTIMATORS[header["estimator"]](**parameters)
    estimator._check_parameters()
    table = arrays[estimator._saved]
    if table.ndim != 2 or table.dtype != np.float64 or not np.isfinite(table).all():
        raise SnapsError(
            f"'{estimator._saved}' must be finite numbers (n, K), got {table.dtype} {table.shape}"
        )
    n, num_classes = table.shape
    calib = check_nodes(arrays["calib_nodes"], "calib_nodes", num_nodes=n)
    tune = check_nodes(arrays["tune_nodes"], "tune_nodes", num_nodes=n, empty=True)
    check_disjoint(tune, "tune_nodes", calib, "'calib_nodes'")
    labels = check_labels(
        arrays["calib_labels"], "calib_labels", num_nodes=len(calib), num_classes=num_classes
    )
    check_known(labels, np.arange(len(calib)), "calib_labels")
    graph = similarity = None
    if "ids" in arrays:
        graph = Graph(
            csr_from_arrays(arrays, "adjacency", "it", (n, n)),
            ids=arrays["ids"],
            directed=bool(arrays["directed"]),
            self_loops=True,
        )
    elif len(estimator._parts) > 1:
        raise SnapsError(f"'ids' must be given for {type(estimator).__name__}, got none")
    if "similarity_data" in arrays:
        similarity = check_similarity(csr_from_arrays(arrays, "similarity", "it", (n, n)), n)
    keys = node_keys(np.arange(n) if graph is None else graph.ids)
    inputs = Inputs(graph, table, keys, similarity)
    inputs, fit = estimator._unpack(
        inputs, check_score(_unpack_score(header["score"])), header["weights"], arrays
    )
    estimator._settle(inputs, fit, calib, labels, tune)
    return estimator


def _plain(value: Any) -> Any:
    """NumPy's numbers and arrays as Python's, for JSON."""
    return value.tolist()


def _pack_score(score: Any) -> dict[str, Any]:
    return {"name": type(score).__name__, **asdict(score)}


def _unpack_score(packed: dict[str, Any]) -> Any:
    return _SCORES[packed["name"]](**{k: v for k, v in packed.items() if k != "name"})
