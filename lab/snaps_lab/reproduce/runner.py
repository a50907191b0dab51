"""Make the cells that a table needs: train, score, evaluate; what is on disk is not made again."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from snaps.datasets import Dataset
from snaps.graph import Graph
from snaps_lab.reproduce.graphs import load_graph
from snaps_lab.reproduce.protocol import draw_nodes, evaluate_draw
from snaps_lab.reproduce.store import Store, fingerprint

# Parts of fingerprints: raise one when a change of code changes what these cells hold.
TRAINED = 1  # logits, and similarity graphs
VERSION = 2  # all else
K = 20
CANDIDATES = {"ogbn_products": 80_000}
# Large graphs have deeper GCNs of their own. They train one at a time: each may need all memory.
LARGE = {"ogbn_arxiv": "gcn-arxiv", "ogbn_products": "gcn-products"}
SAMPLED_EPOCHS = 20  # of a step per batch, in place of hundreds of a single step

Advance = Callable[[int], None]


@dataclass(frozen=True)
class Setting:
    """What a run is made of, apart from the table."""

    store: Store
    data_dir: Path | None = None
    draws: int = 10
    splits: int = 100
    seed: int = 0
    as_authors: bool = False
    jobs: int = os.cpu_count() or 1
    files: tuple[Path, ...] = ()  # outputs of image classifiers that the user names


@dataclass(frozen=True)
class Trained:
    """A trained model's logits and what they cost."""

    logits: np.ndarray
    accuracy: float
    cpu_seconds: float
    epochs: int


@lru_cache(maxsize=2)
def _dataset(name: str, data_dir: Path | None) -> tuple[Dataset, str]:
    """A dataset and the fingerprint of its contents."""
    data = load_graph(name, data_dir)
    features = data.graph.features
    values = (features.data, features.indices) if sp.issparse(features) else (features,)
    adjacency = data.graph.adjacency
    return data, fingerprint(adjacency.indptr, adjacency.indices, data.labels, *values)


def dataset(name: str, setting: Setting) -> Dataset:
    """The dataset of a setting; the last two are kept in memory."""
    return _dataset(name, setting.data_dir)[0]


def data_mark(name: str, setting: Setting) -> str:
    """A fingerprint of a dataset's graph, features and labels."""
    return _dataset(name, setting.data_dir)[1]


def _model_key(model: str, name: str) -> str:
    return LARGE.get(name, model) if model == "gcn" else model


@lru_cache
def _fitting_batch_size(name: str, key: str, data_dir: Path | None) -> int | None:
    from snaps_lab.models.gnn import build
    from snaps_lab.models.sampling import fitting_batch_size

    data = _dataset(name, data_dir)[0]
    features = data.graph.features.shape[1]
    return fitting_batch_size(build(key, features, data.num_classes), data.graph)


def batch_size(name: str, model: str, setting: Setting) -> int | None:
    """Nodes per batch of sampled neighbourhoods; None where the full batch fits into memory."""
    if name not in LARGE:
        return None
    return _fitting_batch_size(name, _model_key(model, name), setting.data_dir)


def _as_authors(key: str) -> Any:
    """A model whose validation loss is taken with dropout on."""
    from snaps_lab.models.gnn import PAPER

    return replace(PAPER[key], noisy_validation=True)


def _logits_name(name: str, model: str, draw: int, setting: Setting) -> str:
    data_mark = _dataset(name, setting.data_dir)[1]
    parts = [TRAINED, data_mark, _model_key(model, name), setting.seed, draw]
    size = batch_size(name, model, setting)
    sampled = [] if size is None else ["sampled", size, SAMPLED_EPOCHS]
    mark = fingerprint(*parts, *["as authors"] * setting.as_authors, *sampled)
    return f"{name}-{model}-{draw}-{mark}"


def _train_cell(name: str, model: str, draw: int, setting: Setting) -> None:
    """Train one model and keep its logits; runs in a process of its own."""
    nodes = draw_nodes(dataset(name, setting), setting.seed, draw)
    cell = _logits_name(name, model, draw, setting)
    keep_trained(cell, name, model, draw, nodes.train, setting)


def keep_trained(
    cell: str,
    name: str,
    model: str,
    draw: int,
    training: np.ndarray,
    setting: Setting,
    validation: np.ndarray | None = None,
) -> None:
    """Train a model on some nodes, unless this cell of logits is there.

    Training stops by the validation nodes given, by default those of the draw.
    """
    from snaps_lab.models.gnn import train

    if setting.store.has_arrays("logits", cell):
        return
    data = dataset(name, setting)
    nodes = draw_nodes(data, setting.seed, draw)
    began = time.process_time()
    key = _model_key(model, name)
    large: dict[str, Any] = {}
    if name in LARGE:
        size = batch_size(name, model, setting)
        epochs = None if size is None else SAMPLED_EPOCHS
        large = {"batch_size": size, "max_epochs": epochs, "threads": setting.jobs}
    result = train(
        _as_authors(key) if setting.as_authors else key,
        data.graph,
        data.labels,
        training,
        nodes.valid if validation is None else validation,
        num_classes=data.num_classes,
        seed=1000 * setting.seed + draw,
        **large,
    )
    setting.store.write_arrays(
        "logits",
        cell,
        {
            "logits": result.logits,
            "cpu_seconds": time.process_time() - began,
            "epochs": result.epochs,
        },
    )


def train_missing(
    names: Iterable[str], model: str, setting: Setting, advance: Advance | None = None
) -> None:
    """Train the models of a table that are not on disk, a process a core; large graphs here."""
    wanted = [(name, draw) for name in names for draw in range(setting.draws)]
    missing = [
        (name, draw)
        for name, draw in wanted
        if not setting.store.has_arrays("logits", _logits_name(name, model, draw, setting))
    ]
    advance = advance or (lambda count: None)
    advance(len(wanted) - len(missing))
    small = [(name, model, draw) for name, draw in missing if name not in LARGE]
    in_processes(_train_cell, small, setting, advance)
    for name, draw in missing:
        if name in LARGE:
            _train_cell(name, model, draw, setting)
            advance(1)


def _end_with_parent(parent: int) -> None:
    """Let a worker end when its parent does, however that was: killed, too."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def in_processes(
    work: Callable[..., Any],
    pieces: Sequence[tuple[Any, ...]],
    setting: Setting,
    advance: Advance,
) -> None:
    """Call `work(*piece, setting)` for each piece, a process a core; a single one here.

    An error or an interrupt ends the others at once.
    """
    if len(pieces) <= 1:
        for piece in pieces:
            work(*piece, setting)
            advance(1)
        return
    workers = min(setting.jobs, len(pieces))
    context, parent, others = get_context("spawn"), (os.getpid(),), active_children()
    pool = ProcessPoolExecutor(workers, context, _end_with_parent, parent)
    try:
        with _uninterrupted():  # as workers then are for good: only their parent ends them
            pending = [pool.submit(work, *piece, setting) for piece in pieces]
        for done in as_completed(pending):
            done.result()
            advance(1)
        pool.shutdown()
    except BaseException:
        # Nothing is lost but what was under way: finished pieces are on disk.
        with _uninterrupted():
            for process in active_children():
                if process not in others:
                    process.kill()
            pool.shutdown()
        raise


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Within the block Ctrl-C waits; processes that are begun in it never receive it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def trained(name: str, model: str, draw: int, setting: Setting) -> Trained:
    """A trained model, trained now if it is not on disk."""
    cell = _logits_name(name, model, draw, setting)
    arrays = setting.store.read_arrays("logits", cell)
    if arrays is None:
        _train_cell(name, model, draw, setting)
        arrays = setting.store.read_arrays("logits", cell)
        assert arrays is not None
    data = dataset(name, setting)
    pool = draw_nodes(data, setting.seed, draw).pool
    hit = arrays["logits"].argmax(axis=1)[pool] == data.labels[pool]
    return Trained(
        arrays["logits"],
        float(hit.mean()),
        float(arrays["cpu_seconds"]),
        int(arrays["epochs"]),
    )


def similarity(name: str, setting: Setting) -> tuple[sp.csr_array, float]:
    """A dataset's similarity graph, and the processor time it took to make."""
    return _near(name, setting, "similarity", lambda graph: graph.features)


def context(name: str, setting: Setting) -> tuple[sp.csr_array, float]:
    """The context graph of pooled evidence, and the processor time it took to make."""
    from snaps.scoring.context import context_features

    def features(graph: Graph) -> np.ndarray:
        return context_features(graph.adjacency, summary(name, setting))

    return _near(name, setting, "context", features)


@lru_cache(maxsize=2)
def _summary(name: str, data_dir: Path | None) -> np.ndarray:
    from snaps.scoring.context import summary

    return summary(_dataset(name, data_dir)[0].graph)


def summary(name: str, setting: Setting) -> np.ndarray:
    """The features of a dataset, summed up; the last two are kept in memory."""
    return _summary(name, setting.data_dir)


def _near(
    name: str, setting: Setting, kind: str, features: Callable[[Any], Any]
) -> tuple[sp.csr_array, float]:
    from snaps.similarity import similarity_graph

    data, data_mark = _dataset(name, setting.data_dir)
    version = TRAINED if kind == "similarity" else VERSION
    cell = f"{name}-{fingerprint(version, data_mark, K, CANDIDATES.get(name))}"
    arrays = setting.store.read_arrays(kind, cell)
    n = data.graph.num_nodes
    if arrays is None:
        _warm_up()
        began = time.process_time()
        graph = similarity_graph(
            features(data.graph), K, ids=data.graph.keys, candidates=CANDIDATES.get(name)
        )
        seconds = time.process_time() - began
        arrays = {
            "data": graph.data,
            "indices": graph.indices,
            "indptr": graph.indptr,
            "cpu_seconds": np.array(seconds),
        }
        setting.store.write_arrays(kind, cell, arrays)
    matrix = sp.csr_array((arrays["data"], arrays["indices"], arrays["indptr"]), shape=(n, n))
    return matrix, float(arrays["cpu_seconds"])


@lru_cache(maxsize=1)
def _warm_up() -> None:
    """Compile or load the loops, so that this does not count as time of the first cell."""
    from snaps.datasets import make_graph
    from snaps.similarity import similarity_graph
    from snaps_lab.reproduce.protocol import Draw

    data = make_graph(400, 2, seed=0)
    similar = similarity_graph(data.graph.features, 5, ids=data.graph.keys)
    similarity_graph(data.graph.features.toarray(), 5, ids=data.graph.keys)
    nodes = np.arange(400)
    draw = Draw(nodes[:40], nodes[40:80], nodes[80:])
    logits = np.random.default_rng(0).normal(size=(400, 2)).astype(np.float32)
    evaluate_draw(
        data, logits, draw, similar, suite="main", alpha=0.1, splits=2, seed=0, as_authors=False
    )


def evaluated(
    name: str, model: str, draw: int, suite: str, alpha: float, setting: Setting
) -> dict[str, Any]:
    """What each method of a suite gave in one draw, and the processor time that took."""
    depends = (mark(name, setting, model, draw), suite, alpha, *settled(setting))

    def make() -> dict[str, Any]:
        model_run = trained(name, model, draw, setting)
        similar, _ = similarity(name, setting)
        data = dataset(name, setting)
        _warm_up()
        began = time.process_time()
        methods = evaluate_draw(
            data,
            model_run.logits,
            draw_nodes(data, setting.seed, draw),
            similar,
            suite=suite,
            alpha=alpha,
            splits=setting.splits,
            seed=draw_seed(setting, draw),
            as_authors=setting.as_authors,
        )
        return {"methods": methods, "cpu_seconds": time.process_time() - began}

    return kept(f"{name}-{model}-{suite}-{alpha:g}-{draw}", depends, setting, make)


def mark(name: str, setting: Setting, model: str | None = None, draw: int = 0) -> str:
    """The fingerprint of a dataset, or of a model trained on it."""
    if model is None:
        return _dataset(name, setting.data_dir)[1]
    return _logits_name(name, model, draw, setting)


def settled(setting: Setting) -> tuple[int, int, bool]:
    """What the evaluation of one draw depends on, apart from the draw."""
    return setting.splits, setting.seed, setting.as_authors


def draw_seed(setting: Setting, draw: int) -> int:
    """The seed of everything random after training."""
    return 1000 * setting.seed + draw


def kept(name: str, depends: Iterable[Any], setting: Setting, make: Callable[[], Any]) -> Any:
    """A JSON cell: what `make` gives, made once for all that it depends on."""
    cell = f"{name}-{fingerprint(VERSION, *depends)}"
    known = setting.store.read_json("cells", cell)
    if known is None:
        known = make()
        setting.store.write_json("cells", cell, known)
    return known


def with_draws(setting: Setting, draws: int) -> Setting:
    """The same setting with another number of draws."""
    return replace(setting, draws=draws)
