"""The explorer's data: nodes with scores, sets and neighbours, packed for a browser.

All is one block of bytes: a header in JSON, then typed arrays, each aligned to eight bytes. It is
compressed and written in base64, so no name in it can end the script element that holds it.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp

from snaps._runtime.randomness import REPORT_STREAM, hashes
from snaps.report.facts import Subject
from snaps.scoring.mixing import FittedMixing

MOST_NODES = 20_000
MOST_BYTES = 5_600_000  # before base64, which adds a third
MOST_NEIGHBOURS = 24  # of a kind, the heaviest

ROLES = ("predicted", "calibration", "tuning", "known", "reference", "other")
_STEPS = 65_535
_TYPES = {"B": "Uint8Array", "H": "Uint16Array", "I": "Uint32Array", "d": "Float64Array"}

Array = np.ndarray


def pack_explorer(subject: Subject, show: Array) -> dict[str, Any]:
    """Pack as many nodes as fit, those in `show` first; and say how many, and how many there are.

    Their neighbours that are not packed are listed with id, most likely label and set alone.
    """
    predictor, inputs = subject.predictor, subject.predictor.inputs
    scorer, calibration, groups = predictor.scorer, predictor.calibration, predictor.roles.groups
    matrices = {name: matrix for name, matrix in subject.neighbours.items() if matrix is not None}
    parts = [name for name, weight in scorer.weights.items() if name == "own" or weight]
    parts = parts if len(scorer.weights) > 1 else []  # the only part is the score itself
    uneven = calibration.odds is not None
    packed, neighbours = _choose_nodes(subject, show, matrices, 1 + len(parts))
    listed = np.concatenate([packed, neighbours])
    scores, probs = inputs.score(scorer), inputs.probs
    mask = subject.contains(scores, np.arange(len(scores)))
    arrays: dict[str, Array] = {
        "role": _roles(subject)[packed].astype(np.uint8),
        "truth": (subject.truth[packed] + 1).astype(np.uint16),
        "sure": _rounded(probs[packed].max(axis=1), 0.0, 1.0),
        "top": probs[listed].argmax(axis=1).astype(np.uint8 if probs.shape[1] < 256 else np.uint16),
        "sets": np.packbits(mask[listed], axis=1, bitorder="little"),
        "limits": (predictor.limits_of(packed) if uneven else subject.limits()).astype(np.float64),
    }
    if subject.degrees is not None:
        arrays["degree"] = subject.degrees[packed].astype(np.uint32)
    if groups.given:
        arrays["group"] = groups.codes[packed].astype(np.uint16)
    ranges = {}
    tables = {"mixed": scores[packed]} | {name: _part(subject, name, packed) for name in parts}
    for name, table in tables.items():
        low, high = (float(table.min()), float(table.max())) if table.size else (0.0, 0.0)
        ranges[name] = [low, high]
        arrays[f"score {name}"] = _rounded(table, low, high)
    place = np.full(len(scores), -1, np.int64)
    place[listed] = np.arange(len(listed))
    for name, matrix in matrices.items():
        heaviest, shares, starts = _heaviest(matrix, packed)
        arrays[f"near {name}"] = place[heaviest].astype(np.uint32)
        arrays[f"share {name}"] = _rounded(shares, 0.0, 1.0)
        arrays[f"start {name}"] = starts.astype(np.uint32)
        arrays[f"count {name}"] = np.diff(matrix.indptr)[packed].astype(np.uint32)
    header = {
        "carried": len(packed),
        "total": len(scores),
        "classes": [str(name) for name in predictor.roles.classes],
        "groups": [str(name) for name in groups.names] or None,
        "ids": [str(name) for name in inputs.graph.ids[listed].tolist()],
        "roles": ROLES,
        "additive": isinstance(scorer, FittedMixing),
        "parts": [[name, float(scorer.weights[name])] for name in parts],
        "ranges": ranges,
        "near": list(matrices),
        "byClass": calibration.per_class,
        "byNode": uneven,
    }
    return {"data": _encode(header, arrays), "nodes": len(packed), "out_of": len(scores)}


def _part(subject: Subject, name: str, nodes: Array) -> Array:
    """A part's score of each label (m, K), or its evidence for the label."""
    scorer = subject.predictor.scorer
    table: Array = scorer.shown(name, subject.predictor.inputs.get(scorer.parts[name])[nodes])
    if isinstance(scorer, FittedMixing):
        return table
    return scorer.weights[name] * (table - table.mean(axis=1, keepdims=True))


def _choose_nodes(
    subject: Subject, show: Array, matrices: Mapping[str, sp.csr_array], tables: int
) -> tuple[Array, Array]:
    """Nodes to pack: those in `show`, then by hash until the page is full; and their neighbours."""
    inputs = subject.predictor.inputs
    words = hashes(0, inputs.keys, REPORT_STREAM)
    order = np.lexsort((words, ~np.isin(np.arange(len(words)), show)))
    order = order[: max(MOST_NODES, len(show))]
    id_bytes = np.array([len(str(name).encode()) + 3 for name in inputs.graph.ids[order].tolist()])
    listed_bytes = 2 + inputs.num_classes / 8
    node_bytes = id_bytes + listed_bytes + 12 + 2.0 * tables * inputs.num_classes
    for matrix in matrices.values():
        node_bytes += 8 + 6 * np.minimum(np.diff(matrix.indptr)[order], MOST_NEIGHBOURS)
    count = len(order)
    while True:
        packed = np.sort(order[:count])
        lists = [_heaviest(matrix, packed)[0] for matrix in matrices.values()]
        neighbours = np.setdiff1d(np.concatenate([np.empty(0, np.int64), *lists]), packed)
        total = node_bytes[:count].sum() + len(neighbours) * (listed_bytes + id_bytes.mean())
        if total <= MOST_BYTES or count <= max(len(show), 1):
            return packed, neighbours
        count = max(int(0.95 * count * MOST_BYTES / total), len(show), 1)


def _heaviest(matrix: sp.csr_array, rows: Array) -> tuple[Array, Array, Array]:
    """The heaviest neighbours of nodes, their shares of the mean, and where each node's begin.

    Among equals, the first of a row.
    """
    counts = np.diff(matrix.indptr)[rows]
    own = np.repeat(np.arange(len(rows)), counts)
    begin = np.concatenate([[0], np.cumsum(counts)])
    entries = np.arange(begin[-1]) - np.repeat(begin[:-1] - matrix.indptr[rows], counts)
    weights = np.asarray(matrix.data[entries], np.float64)
    totals = np.bincount(own, weights=weights, minlength=len(rows))
    order = np.lexsort((np.arange(len(own)), -weights, own))
    rank = np.arange(len(own)) - begin[:-1][own]
    order = order[rank < MOST_NEIGHBOURS]
    starts = np.concatenate([[0], np.cumsum(np.minimum(counts, MOST_NEIGHBOURS))])
    return matrix.indices[entries[order]], weights[order] / totals[own[order]], starts


def _roles(subject: Subject) -> Array:
    """The role of each node, as a place in ROLES."""
    roles, inputs = subject.predictor.roles, subject.predictor.inputs
    out = np.full(inputs.num_nodes, ROLES.index("other"))
    out[subject.nodes] = ROLES.index("predicted")
    if not subject.predictor.apart:
        used = (roles.calib.keys, roles.tuning.keys, roles.known.keys, roles.reference)
        for role, keys in enumerate(used, ROLES.index("calibration")):
            out[inputs.positions(keys)] = role
    return out


def _rounded(values: Array, low: float, high: float) -> Array:
    """Numbers from low to high in 65,535 steps."""
    return np.round((values - low) / ((high - low) or 1) * _STEPS).astype(np.uint16)


def _encode(header: Mapping[str, Any], arrays: Mapping[str, Array]) -> str:
    """Header and arrays as one text; `unpack` in page.js is the inverse."""
    blocks, index, offset = [], {}, 0
    for name, array in arrays.items():
        block = array.astype(array.dtype.newbyteorder("<")).tobytes()
        index[name] = (_TYPES[array.dtype.char], offset, array.size)
        blocks.append(block + bytes(-len(block) % 8))
        offset += len(blocks[-1])
    text = json.dumps({**header, "arrays": index}, separators=(",", ":"), ensure_ascii=False)
    start = text.encode("utf-8", "replace")
    start += b" " * (-len(start) % 8)
    whole = b"".join([len(start).to_bytes(8, "little"), start, *blocks])
    return base64.b64encode(gzip.compress(whole, 6, mtime=0)).decode()
