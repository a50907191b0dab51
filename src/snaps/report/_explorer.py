"""The explorer's data: many nodes with scores, sets and neighbours, packed for a browser.

Everything lies in one block of bytes: a header in JSON, then typed arrays, each aligned to eight
bytes. It is compressed and written in base64, so that no name in it can end the script it is in.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from snaps._runtime.randomness import REPORT_STREAM, hashes
from snaps.report._facts import PARTS, Subject
from snaps.scoring.mixing import FittedMixing
from snaps.scoring.parts import Mean

MOST_NODES = 20_000
MOST_BYTES = 5_600_000  # before base64, which adds a third
MOST_NEIGHBOURS = 24  # of a kind, the heaviest

ROLES = ("predicted", "calibration", "tuning", "known", "reference", "other")
_STEPS = 65_535

Array = np.ndarray


@dataclass(frozen=True)
class Explorer:
    """What the page carries: nodes with all there is to show of them, out of how many."""

    data: str
    nodes: int
    out_of: int
    most_neighbours: int = MOST_NEIGHBOURS


def pack_explorer(subject: Subject, show: Array) -> Explorer:
    """Pack as many nodes as fit, those in `show` before all others.

    Neighbours of theirs that are not carried come along with id, top label and set alone.
    """
    near, names = _neighbours(subject), _shown(subject)
    scores = subject.inputs.score(subject.state.scorer)
    mask = subject.contains(scores, np.arange(len(scores)))
    carried, beside = _carried(subject, show, near, 1 + len(names))
    listed = np.concatenate([carried, beside])
    roles, truth, groups = _roles(subject), subject.truth, subject.state.roles.groups
    probs = subject.inputs.probs
    small = np.uint8 if probs.shape[1] < 256 else np.uint16
    degrees = subject.degrees
    arrays: dict[str, Array] = {
        "role": roles[carried].astype(np.uint8),
        "truth": (truth[carried] + 1).astype(np.uint16),
        "sure": _rounded(probs[carried].max(axis=1), 0.0, 1.0),
        "top": probs[listed].argmax(axis=1).astype(small),
        "sets": np.packbits(mask[listed], axis=1, bitorder="little"),
        "limits": subject.state.calibration.limits(subject.alpha).astype(np.float64),
    }
    if degrees is not None:
        arrays["degree"] = degrees[carried].astype(np.uint32)
    if groups is not None:
        arrays["group"] = groups.codes[carried].astype(np.uint16)
    ranges = {}
    tables = {"mixed": scores[carried], **_tables(subject, names, carried)}
    for name, table in tables.items():
        low, high = (float(table.min()), float(table.max())) if table.size else (0.0, 0.0)
        ranges[name] = [low, high]
        arrays[f"score {name}"] = _rounded(table, low, high)
    place = np.full(len(scores), -1, np.int64)
    place[listed] = np.arange(len(listed))
    for name, matrix in near.items():
        heaviest, shares, starts = _heaviest(matrix, carried)
        arrays[f"near {name}"] = place[heaviest].astype(np.uint32)
        arrays[f"share {name}"] = _rounded(shares, 0.0, 1.0)
        arrays[f"start {name}"] = starts.astype(np.uint32)
        arrays[f"count {name}"] = np.diff(matrix.indptr)[carried].astype(np.uint32)
    scorer, calibration = subject.state.scorer, subject.state.calibration
    header = {
        "carried": len(carried),
        "total": len(scores),
        "classes": [str(name) for name in subject.state.roles.classes],
        "groups": None if groups is None else [str(name) for name in groups.names],
        "ids": [str(name) for name in subject.inputs.graph.ids[listed].tolist()],
        "roles": ROLES,
        "additive": isinstance(scorer, FittedMixing),
        "parts": [
            [name, float(scorer.weights[name]), PARTS.get(name, (name.replace("_", " "), ""))[0]]
            for name in names
        ],
        "ranges": ranges,
        "near": list(near),
        "byClass": calibration.by_class,
    }
    return Explorer(_encode(header, arrays), len(carried), len(scores))


def _shown(subject: Subject) -> list[str]:
    """Parts to show beside the score that they make together."""
    weights = subject.state.scorer.weights
    return [name for name in weights if name == "own" or weights[name]] if len(weights) > 1 else []


def _tables(subject: Subject, names: Sequence[str], nodes: Array) -> dict[str, Array]:
    """What each part says of some nodes' labels: its score, or its evidence for the label."""
    scorer, parts = subject.state.scorer, subject.state.scorer.parts
    tables = {}
    for name in names:
        table = scorer.shown(name, subject.inputs.get(parts[name])[nodes])
        if not isinstance(scorer, FittedMixing):
            table = scorer.weights[name] * (table - table.mean(axis=1, keepdims=True))
        tables[name] = table
    return tables


def _neighbours(subject: Subject) -> dict[str, sp.csr_array]:
    """Who a node's neighbours are, for each part that is a mean over some."""
    scorer, inputs = subject.state.scorer, subject.inputs
    found = {}
    for name, part in scorer.parts.items():
        plain = isinstance(part, Mean) and not isinstance(part.of, Mean)
        if plain and scorer.weights[name]:
            matrix = inputs.get(part.over)
            if matrix is not None:
                found[name] = matrix
    return found


def _carried(
    subject: Subject, show: Array, near: Mapping[str, sp.csr_array], tables: int
) -> tuple[Array, Array]:
    """Nodes to carry: those asked for, then by hash while there is room; and those beside them."""
    inputs = subject.inputs
    words = hashes(0, inputs.keys, REPORT_STREAM)
    order = np.lexsort((words, ~np.isin(np.arange(len(words)), show)))
    order = order[: max(MOST_NODES, len(show))]
    names = np.array([len(str(name).encode()) + 3 for name in inputs.graph.ids[order].tolist()])
    brief = 2 + inputs.num_classes / 8
    bytes_each = names + brief + 12 + 2.0 * tables * inputs.num_classes
    for matrix in near.values():
        bytes_each += 8 + 6 * np.minimum(np.diff(matrix.indptr)[order], MOST_NEIGHBOURS)
    count = len(order)
    while True:
        carried = np.sort(order[:count])
        beside = _beside(carried, near)
        total = bytes_each[:count].sum() + len(beside) * (brief + names.mean())
        if total <= MOST_BYTES or count <= max(len(show), 1):
            return carried, beside
        count = max(int(0.95 * count * MOST_BYTES / total), len(show), 1)


def _heaviest(matrix: sp.csr_array, rows: Array) -> tuple[Array, Array, Array]:
    """The heaviest neighbours of some nodes, their shares of the mean, and where each node's begin.

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


def _beside(carried: Array, near: Mapping[str, sp.csr_array]) -> Array:
    """Neighbours of the carried nodes that are not carried themselves."""
    lists = [_heaviest(matrix, carried)[0] for matrix in near.values()]
    return np.setdiff1d(np.concatenate([np.empty(0, np.int64), *lists]), carried)


def _roles(subject: Subject) -> Array:
    """Each node's role, as a place in ROLES."""
    roles, inputs = subject.state.roles, subject.inputs
    out = np.full(inputs.num_nodes, ROLES.index("other"))
    out[subject.nodes] = ROLES.index("predicted")
    if not subject.state.apart:
        for name, keys in (
            ("calibration", roles.calib.keys),
            ("tuning", roles.tuning.keys),
            ("known", roles.known.keys),
            ("reference", roles.reference),
        ):
            out[inputs.positions(keys)] = ROLES.index(name)
    return out


def _rounded(values: Array, low: float, high: float) -> Array:
    """Numbers from low to high in 65,535 steps."""
    width = high - low
    scaled = (values - low) / width if width > 0 else np.zeros(np.shape(values))
    return np.round(scaled * _STEPS).astype(np.uint16)


def _encode(header: Mapping[str, Any], arrays: Mapping[str, Array]) -> str:
    """Header and arrays as one text; the page's script takes it apart again."""
    kinds = {"B": "Uint8Array", "H": "Uint16Array", "I": "Uint32Array", "d": "Float64Array"}
    blocks: list[bytes] = []
    index: dict[str, Sequence[Any]] = {}
    offset = 0
    for name, array in arrays.items():
        flat = np.ascontiguousarray(array).reshape(-1)
        block = flat.astype(flat.dtype.newbyteorder("<")).tobytes()
        index[name] = (kinds[flat.dtype.char], offset, len(flat))
        blocks.append(block + bytes(-len(block) % 8))
        offset += len(blocks[-1])
    told = json.dumps({**header, "arrays": index}, separators=(",", ":"), ensure_ascii=False)
    text = told.encode("utf-8", "replace")
    text += b" " * (-len(text) % 8)
    whole = b"".join([len(text).to_bytes(8, "little"), text, *blocks])
    return base64.b64encode(gzip.compress(whole, 6, mtime=0)).decode()
