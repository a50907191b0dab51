"""The attacker of names: tables, columns and files in another order must give the same sets.

Every case calibrates on arrays in order, then on the same data whose rows, columns, part files or
edges are shuffled and which carries names; sets are compared node by node and label by label.
"""

from __future__ import annotations

import tempfile
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

import snaps
from snaps.folder import read_files, write_folder
from snaps.io.folders import open_folder

N, K = 40, 4
CALIB = np.arange(8, 28)
Random = np.random.Generator
Sets = dict[Any, frozenset[Any]]


@cache
def data() -> dict[str, Any]:
    random = np.random.default_rng(11)
    return {
        "edges": random.integers(0, N, (2, 90)),
        "weights": random.random(90).round(3),
        "features": random.random((N, 3)).round(3),
        "probs": random.dirichlet(np.full(K, 0.6), N),
        "labels": np.append(np.arange(K), random.integers(0, K, N - K)),
        "groups": random.integers(0, 2, N),
    }


IDS = {
    "strings": np.array([f"paper-{(17 * i) % N:03}" for i in range(N)]),
    "numbers as text": np.array([str((17 * i) % N) for i in range(N)]),
    "integers": (17 * np.arange(N)) % N + 100,
    "shuffled positions": (17 * np.arange(N)) % N,
    "positions": np.arange(N),
}
CLASSES = {
    "strings": np.array(["AI", "DB", "DM", "IR"]),
    "prefixed": np.array(["p_1", "p_2", "p_3", "p_4"]),
    "numbers as text": np.array(["0", "1", "10", "2"]),
    "integers": np.array([-1, 3, 10, 20]),
    "positions": np.arange(K),
}
METHODS = (
    lambda: snaps.SplitConformal(0.2),
    lambda: snaps.SplitConformal(0.2, score=snaps.RAPS(k_reg=1, penalty=0.1)),
    lambda: snaps.DAPS(0.2, weight=0.4),
    lambda: snaps.SNAPS(0.2, k=3, weights=(0.3, 0.2)),
    lambda: snaps.SNAPS(0.2, k=3, weights=(0.3, 0.2), class_conditional=True),
    lambda: snaps.Pooled(0.2, k=3),
)


def answer(sets: snaps.PredictionSets) -> Sets:
    """The set of each node, by names alone."""
    listed = zip(sets.ids.tolist(), sets.labels(), strict=True)
    return {node: frozenset(labels.tolist()) for node, labels in listed}


# ---- spellings -----------------------------------------------------------------------------------


def _rows(random: Random, ids: np.ndarray) -> np.ndarray:
    """An order of the rows; not the usual one, which pandas takes for a default index."""
    while True:
        order = random.permutation(N)
        if not np.array_equal(ids[order], np.arange(N)):
            return order


def spelled_probs(random: Random, ids: np.ndarray, classes: np.ndarray) -> Any:
    rows, columns = _rows(random, ids), random.permutation(K)
    table, names = data()["probs"][rows][:, columns], classes[columns]
    kind = random.integers(6)
    if kind == 0:
        return pd.DataFrame(table, index=ids[rows], columns=[f"p_{name}" for name in names])
    if kind == 1:
        return pl.DataFrame(
            {"id": ids[rows], **{str(n): c for n, c in zip(names, table.T, strict=False)}}
        )
    if kind == 2:
        return pa.table(
            {"id": ids[rows], **{f"p_{n}": c for n, c in zip(names, table.T, strict=False)}}
        )
    if kind == 3:
        frame = pd.DataFrame(table, columns=names.astype(str))
        frame.insert(int(random.integers(K)), "id", ids[rows])
        return frame
    if kind == 4:
        return pd.DataFrame(table, index=pd.Index(ids[rows], name="node"), columns=names)
    return pd.DataFrame(table, index=ids[rows].tolist(), columns=names.astype(object))


def spelled(random: Random, values: np.ndarray, ids: np.ndarray, name: str) -> Any:
    """One value per node, by id."""
    rows = _rows(random, ids)
    kind = random.integers(5)
    if kind == 0:
        return dict(zip(ids[rows].tolist(), values[rows].tolist(), strict=True))
    if kind == 1:
        return pl.DataFrame({"id": ids[rows], name: values[rows]})
    if kind == 2:
        return pd.DataFrame({name: values[rows]}, index=ids[rows])
    if kind == 3:
        return pd.Series(values[rows], index=ids[rows]).astype("category")
    return pd.Series(values[rows], index=ids[rows])


def spelled_labels(random: Random, ids: np.ndarray, labels: np.ndarray) -> Any:
    """All labels, or those of the nodes that need one."""
    if random.integers(3):
        return spelled(random, labels, ids, "label")
    some = random.permutation(np.append(CALIB, np.arange(K)))
    return pd.Series(labels[some], index=ids[some])


def spelled_features(random: Random, ids: np.ndarray) -> Any:
    rows, table = _rows(random, ids), data()["features"]
    if random.integers(2):
        return pd.DataFrame(table[rows], index=ids[rows], columns=list("xyz"))
    return dict(zip(ids[rows].tolist(), table[rows], strict=True))


def spelled_edges(random: Random, ids: np.ndarray) -> Any:
    edges = data()["edges"]
    order = random.permutation(edges.shape[1])
    names = ("src", "dst") if random.integers(2) else ("source", "target")
    columns = dict(zip(names, ids[edges[:, order]], strict=True))
    columns = {"weight": data()["weights"][order], **columns}
    return (pd.DataFrame, pl.DataFrame, pa.table)[random.integers(3)](columns)


def spelled_nodes(random: Random, ids: np.ndarray, nodes: np.ndarray) -> Any:
    if ids.dtype.kind == "U" and random.integers(2):
        return pd.Series(random.permutation(ids[nodes]), index=random.permutation(len(nodes)))
    rows = _rows(random, ids)
    return pd.Series(np.isin(rows, nodes), index=ids[rows])


# ---- cases ---------------------------------------------------------------------------------------


def case(seed: int, number: int) -> tuple[str, str]:
    """A case, and what is wrong; nothing is an empty text."""
    random = np.random.default_rng([seed, number])
    ids_name, classes_name = random.choice(list(IDS)), random.choice(list(CLASSES))
    ids, classes = IDS[ids_name], CLASSES[classes_name]
    method = METHODS[min(random.integers(12), 5) if random.integers(4) else 0]
    way = random.choice(("names", "names", "names", "recalibrated", "folder", "loaded", "threads"))
    what = f"{way}, {ids_name} as ids, {classes_name} as classes, {method()!r}"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fault = WAYS[way](random, method, ids, classes)
    except Exception as error:
        fault = f"{type(error).__name__}: {error}"
    return what, fault


def _plain(method: Any, ids: np.ndarray, classes: np.ndarray, **options: Any) -> Any:
    given = data()
    graph = snaps.Graph(
        given["edges"], given["features"], ids=ids, weighted=True, edge_weights=given["weights"]
    )
    labels = classes[given["labels"]]
    return method().calibrate(graph, given["probs"], labels, CALIB, classes=classes, **options)


def _differs(expected: Any, other: Any) -> str:
    one, two = answer(expected.predict_set()), answer(other.predict_set())
    if one == two:
        return ""
    nodes = [node for node in {**one, **two} if one.get(node) != two.get(node)]
    return f"{len(nodes)} sets differ, first of {nodes[0]}"


def by_names(random: Random, method: Any, ids: np.ndarray, classes: np.ndarray) -> str:
    """All that carries names at once."""
    given = data()
    options, groups = {}, None
    if random.integers(2):
        options, groups = (
            {"groups": given["groups"]},
            spelled(random, given["groups"], ids, "group"),
        )
    expected = _plain(method, ids, classes, **options)
    graph = snaps.Graph(
        spelled_edges(random, ids), spelled_features(random, ids), ids=ids, weighted=True
    )
    other = method().calibrate(
        graph, spelled_probs(random, ids, classes),
        spelled_labels(random, ids, classes[given["labels"]]), spelled_nodes(random, ids, CALIB),
        groups=groups,
    )  # fmt: skip
    return _differs(expected, other)


def by_recalibration(random: Random, method: Any, ids: np.ndarray, classes: np.ndarray) -> str:
    """The same graph in another order of nodes and columns, as next month's is."""
    given = data()
    expected, other = _plain(method, ids, classes), _plain(method, ids, classes)
    order = random.permutation(N)
    graph = snaps.Graph(
        spelled_edges(random, ids), given["features"][order], ids=ids[order], weighted=True
    )
    if random.integers(2):
        columns = random.permutation(K)
        probs, options = given["probs"][order][:, columns], {"classes": classes[columns]}
    else:
        probs, options = spelled_probs(random, ids, classes), {}
    other.recalibrate(graph, probs, **options)
    return _differs(expected, other)


def by_folder(random: Random, method: Any, ids: np.ndarray, classes: np.ndarray) -> str:
    """Rows and columns of the files shuffled, and cut in parts."""
    given = data()
    expected = _plain(method, ids, classes)
    graph = snaps.Graph(
        given["edges"], given["features"], ids=ids, weighted=True, edge_weights=given["weights"]
    )
    with tempfile.TemporaryDirectory() as place:
        root = Path(place) / "g"
        labels = classes[given["labels"]]
        write_folder(root, graph, given["probs"], labels, classes=classes)
        for name in ("nodes", "edges"):
            _shuffle(random, root / f"{name}.parquet")
        with open_folder(root) as files:
            found = read_files(files, in_order=True, weighted=True)
        calib = found.graph.index(ids[CALIB])
        other = method().calibrate(
            found.graph, found.probs, found.labels, calib, classes=found.classes
        )
        return _differs(expected, other)


def _shuffle(random: Random, path: Path) -> None:
    """Rewrite a Parquet file with rows and columns in another order, in one file or more."""
    table = pq.read_table(path)
    table = table.select(random.permutation(table.column_names).tolist())
    table = table.take(random.permutation(table.num_rows))
    if random.integers(2):
        pq.write_table(table, path)
        return
    path.unlink()
    path.mkdir()
    cut = int(random.integers(1, table.num_rows))
    for part, rows in (("b", table.slice(0, cut)), ("a", table.slice(cut))):
        rows = rows.select(random.permutation(rows.column_names).tolist())
        pq.write_table(rows, path / f"{part}.parquet")


def by_loading(random: Random, method: Any, ids: np.ndarray, classes: np.ndarray) -> str:
    """Saved with or without data, loaded, and brought to life by a shuffled table."""
    expected = _plain(method, ids, classes)
    whole = bool(random.integers(2))
    with tempfile.TemporaryDirectory() as place:
        expected.save(Path(place) / "x.snaps", data=whole)
        other = snaps.load(Path(place) / "x.snaps")
    if not whole:
        graph = snaps.Graph(
            spelled_edges(random, ids), spelled_features(random, ids), ids=ids, weighted=True
        )
        other.recalibrate(graph, spelled_probs(random, ids, classes))
    return _differs(expected, other)


def by_threads(random: Random, method: Any, ids: np.ndarray, classes: np.ndarray) -> str:
    """Sets are asked for while another thread recalibrates: those before or after, none between."""
    cp, other = _plain(method, ids, classes), _plain(method, ids, classes)
    graph = cp._predictor().inputs.graph
    tables = data()["probs"], random.dirichlet(np.full(K, 0.6), N)
    allowed = []
    for table in tables:
        found = other.recalibrate(graph, table, threshold="keep")
        allowed.append(answer(found.predict_set(np.arange(30, N))))
    cp.recalibrate(graph, tables[0], threshold="keep")

    def write() -> None:
        for table in tables * 3:
            cp.recalibrate(graph, table, threshold="keep")

    with ThreadPoolExecutor(3) as threads:
        writing = threads.submit(write)
        reading = [threads.submit(lambda: cp.predict_set(np.arange(30, N))) for _ in range(12)]
        writing.result()
        wrong = sum(answer(each.result()) not in allowed for each in reading)
    return f"{wrong} answers of neither state" if wrong else ""


WAYS = {
    "names": by_names,
    "recalibrated": by_recalibration,
    "folder": by_folder,
    "loaded": by_loading,
    "threads": by_threads,
}
