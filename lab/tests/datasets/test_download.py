"""Downloads from a server on this machine.

No public host is asked here. A local server plays the upstream, with small files in the formats
of the real ones, at the addresses that torch_geometric and ogb have built in.
"""

from __future__ import annotations

import gzip
import importlib.util
import io
import json
import os
import threading
import zipfile
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
import scipy.sparse as sp

from lab.tests.datasets.common import Small, assert_is, command, error_line
from snaps import datasets
from snaps.io.files import sha256
from snaps_lab import download

# --- A server on this machine ------------------------------------------------------------------


class Upstream:
    """What the local server has, what it should do wrong, and what it was asked."""

    def __init__(self):
        self.files: dict[str, bytes] = {}
        self.cuts: dict[str, list[int]] = {}  # bytes to send before hanging up, request by request
        self.asked: list[tuple[str, str | None]] = []
        self.ranges = True
        self.starts_over = False  # says 206 and sends everything

    def add(self, url: str, content: bytes) -> None:
        self.files["/" + url.split("://")[1]] = content

    def cut(self, ending: str, *places: int) -> None:
        [path] = [path for path in self.files if path.endswith(ending)]
        self.cuts[path] = list(places)


@pytest.fixture
def upstream(monkeypatch):
    state = Upstream()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked = self.headers.get("Range")
            state.asked.append((self.path, asked))
            content = state.files.get(self.path)
            if content is None:
                return self.send_error(404)
            tag = f'"{hash(content)}"'
            start = 0
            partial = asked and state.ranges and self.headers.get("If-Range") == tag
            if partial and not state.starts_over:
                start = int(asked.removeprefix("bytes=").removesuffix("-"))
            self.send_response(206 if partial else 200)
            if partial:
                self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/*")
            self.send_header("ETag", tag)
            self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            cuts = state.cuts.get(self.path)
            stop = start + cuts.pop(0) if cuts else len(content)
            self.wfile.write(content[start:stop])

        def log_message(self, *arguments):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    monkeypatch.setenv("SNAPS_MIRROR", f"http://127.0.0.1:{server.server_port}/")
    yield state
    server.shutdown()
    thread.join()
    server.server_close()


# --- Small files in the upstream formats -------------------------------------------------------

GRAPH2GAUSS = "https://github.com/abojchevski/graph2gauss/raw/master/data/"
SHCHUR = "https://github.com/shchur/gnn-benchmark/raw/master/data/npz/"
GEOM_GCN = "https://raw.githubusercontent.com/graphdml-uiuc-jlu/geom-gcn/"
OGB = "http://snap.stanford.edu/ogb/data/nodeproppred/"


def npz(**arrays) -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


def gnn_benchmark(small: Small) -> bytes:
    """graph2gauss and gnn-benchmark: two CSR matrices, labels, and pickled names, not needed."""
    n = len(small.labels)
    weights = np.arange(1, small.edges.shape[1] + 1, dtype=np.float32)
    adjacency = sp.csr_array((weights, tuple(small.edges)), shape=(n, n))
    table = sp.csr_array(small.words)
    return npz(
        adj_data=adjacency.data,
        adj_indices=adjacency.indices,
        adj_indptr=adjacency.indptr,
        adj_shape=np.array(adjacency.shape),
        attr_data=table.data,
        attr_indices=table.indices,
        attr_indptr=table.indptr,
        attr_shape=np.array(table.shape),
        labels=small.labels,
        idx_to_node=np.array({0: "a paper"}, dtype=object),
    )


def geom_gcn(small: Small, upstream: Upstream, commit: str, name: str, listed: bool) -> np.ndarray:
    """Geom-GCN: two text files and ten splits; returns the splits' codes.

    Features are 0/1 columns, or for the actor graph (`listed`) the columns that are 1.
    """
    base = f"{GEOM_GCN}{commit}/"
    rows = (small.words > 0).astype(int)
    nodes = ["node_id\tfeature\tlabel"]
    for node, row in enumerate(rows):
        values = np.flatnonzero(row) if listed else row
        nodes.append(f"{node}\t{','.join(map(str, values))}\t{small.labels[node]}")
    edges = ["node_id\tnode_id"] + [f"{a}\t{b}" for a, b in small.edges.T]
    folder = f"{base}new_data/{name}/"
    upstream.add(folder + "out1_node_feature_label.txt", ("\n".join(nodes) + "\n").encode())
    upstream.add(folder + "out1_graph_edges.txt", ("\n".join(edges) + "\n").encode())
    codes = np.random.default_rng(5).integers(0, 4, size=(10, len(small.labels)))
    for i, code in enumerate(codes):
        masks = {
            f"{part}_mask": (code == place).astype(np.uint8)
            for place, part in enumerate(("train", "val", "test"), start=1)
        }
        upstream.add(f"{base}splits/{name}_split_0.6_0.2_{i}.npz", npz(**masks))
    return codes


def csv(array: np.ndarray) -> bytes:
    text = io.StringIO()
    np.savetxt(text, np.atleast_2d(array), fmt="%s", delimiter=",")
    return gzip.compress(text.getvalue().encode())


def ogb(small: Small, name: str, split: str) -> bytes:
    """OGB: a zip of gzipped CSV files."""
    n = len(small.labels)
    column = small.labels[:, None]
    files = {
        "RELEASE_v1.txt": b"",
        "processed/": b"",
        "raw/edge.csv.gz": csv(small.edges.T),
        "raw/num-node-list.csv.gz": csv(np.array([[n]])),
        "raw/num-edge-list.csv.gz": csv(np.array([[small.edges.shape[1]]])),
        "raw/node-feat.csv.gz": csv(small.dense),
        "raw/node-label.csv.gz": csv(column),
        "raw/node_year.csv.gz": csv(column + 2000),
        f"split/{split}/train.csv.gz": csv(np.arange(0, 30)[:, None]),
        f"split/{split}/valid.csv.gz": csv(np.arange(30, 40)[:, None]),
        f"split/{split}/test.csv.gz": csv(np.arange(40, n)[:, None]),
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path, content in files.items():
            archive.writestr(f"{name}/{path}", content)
    return buffer.getvalue()


# --- Downloads, end to end ---------------------------------------------------------------------

needs_pyg = pytest.mark.skipif(
    importlib.util.find_spec("torch_geometric") is None, reason="needs torch_geometric"
)
needs_ogb = pytest.mark.skipif(importlib.util.find_spec("ogb") is None, reason="needs ogb")

NPZ_FAMILIES = {
    "cora_ml": GRAPH2GAUSS + "cora_ml.npz",
    "pubmed": GRAPH2GAUSS + "pubmed.npz",
    "citeseer": GRAPH2GAUSS + "citeseer.npz",
    "coauthor_cs": SHCHUR + "ms_academic_cs.npz",
    "coauthor_physics": SHCHUR + "ms_academic_phy.npz",
    "amazon_computers": SHCHUR + "amazon_electronics_computers.npz",
    "amazon_photo": SHCHUR + "amazon_electronics_photo.npz",
}


@needs_pyg
@pytest.mark.parametrize("name", NPZ_FAMILIES)
def test_citation_coauthor_and_amazon(name, upstream, expect, cache):
    small = Small()
    expect(name, small.statistics())
    upstream.add(NPZ_FAMILIES[name], gnn_benchmark(small))
    assert_is(datasets.load(name), small, (small.words > 0).astype(float))
    assert len(upstream.asked) == 1
    # From here on the cache answers.
    assert_is(datasets.load(name, download=False), small, (small.words > 0).astype(float))
    assert len(upstream.asked) == 1
    assert sorted(path.name for path in cache.iterdir()) == [f"{name}.json", f"{name}.npz"]


@needs_pyg
def test_the_record_next_to_a_fetched_file(upstream, expect, cache, capsys):
    small = Small()
    expect("cora_ml", small.statistics())
    content = gnn_benchmark(small)
    upstream.add(NPZ_FAMILIES["cora_ml"], content)
    path = datasets.fetch("CoraML")
    record = json.loads(path.with_suffix(".json").read_text())
    assert record["sha256"] == sha256(path)
    assert record["sources"].keys() == {NPZ_FAMILIES["cora_ml"]}
    assert record["statistics"]["edges"] == len(small.links())
    assert "CitationFull(name='Cora_ML')" in record["loader"]
    assert record["date"] and record["bytes"] == path.stat().st_size
    assert all(array.dtype != object for array in np.load(path).values())
    [verdict] = datasets.verify(["cora_ml"])
    assert (verdict.state, verdict.place) == ("ok", "cache") and "checksum" in verdict.detail
    _, out, _ = command(capsys, "list", "--json")
    row = next(row for row in json.loads(out) if row["name"] == "cora_ml")
    assert row["found_in"] == "cache" and row["path"] == str(path)


@needs_pyg
def test_cora_full_drops_small_classes(upstream, expect):
    """Classes of 60, 20 and 60 nodes: the middle one goes, the last is renumbered."""
    small = Small(n=140)
    small.labels = np.repeat([0, 1, 2], [60, 20, 60])
    kept = Small(n=120)
    keep = np.flatnonzero(small.labels != 1)
    place = {int(node): i for i, node in enumerate(keep)}
    kept.labels, kept.words = np.repeat([0, 1], 60), small.words[keep]
    inside = [(place[a], place[b]) for a, b in small.edges.T.tolist() if a in place and b in place]
    kept.edges = np.array(inside).T
    expect("cora_full", kept.statistics())
    upstream.add(GRAPH2GAUSS + "cora.npz", gnn_benchmark(small))
    data = datasets.load("cora_full")
    assert_is(data, kept, (kept.words > 0).astype(float))
    assert data.notes == ()


@needs_pyg
@pytest.mark.parametrize("name", ["chameleon", "squirrel"])
def test_wikipedia_networks(name, upstream, expect):
    small = Small()
    expect(name, small.statistics(edges=small.edges.shape[1]))
    codes = geom_gcn(
        small, upstream, "f1fc0d14b3b019c562737240d06ec83b07d16a8f", name, listed=False
    )
    data = datasets.load(name)
    assert_is(data, small, (small.words > 0).astype(float))
    np.testing.assert_array_equal(data.splits["geom_gcn"], codes)
    np.testing.assert_array_equal(data.directed_edges, small.edges)
    assert len(upstream.asked) == 12


@needs_pyg
def test_actor(upstream, expect):
    small = Small()
    expect("actor", small.statistics())
    codes = geom_gcn(small, upstream, "master", "film", listed=True)
    data = datasets.load("actor")
    assert_is(data, small, (small.words > 0).astype(float))
    np.testing.assert_array_equal(data.splits["geom_gcn"], codes)


@needs_ogb
def test_ogbn_arxiv(upstream, expect, capsys):
    small = Small()
    expect("ogbn_arxiv", small.statistics(edges=small.edges.shape[1]))
    upstream.add(OGB + "arxiv.zip", ogb(small, "arxiv", "time"))
    data = datasets.load("ogbn_arxiv")
    assert_is(data, small, small.dense)
    np.testing.assert_array_equal(data.directed_edges, small.edges)
    assert [len(data.splits[part]) for part in ("train", "valid", "test")] == [30, 10, 20]
    assert capsys.readouterr().out == ""  # what ogb prints is no result


@needs_ogb
def test_ogbn_products_counts_classes_in_truth(upstream, expect):
    small = Small()
    due = small.statistics()
    listed = replace(due, edges=due.edges + 2, classes=5)
    known = {"classes": range(3, 4), "edges": range(due.edges, due.edges + 2)}
    expect("ogbn_products", listed, corrections=known)
    upstream.add(OGB + "products.zip", ogb(small, "products", "sales_ranking"))
    data = datasets.load("ogbn_products")
    assert_is(data, small, small.dense)
    assert "3 classes, where the paper's table says 5" in data.notes
    assert data.directed_edges is None


# --- Downloads that go wrong -------------------------------------------------------------------


@pytest.fixture
def ready(upstream, expect):
    """One npz dataset at the server."""
    small = Small()
    expect("cora_ml", small.statistics())
    upstream.add(NPZ_FAMILIES["cora_ml"], gnn_benchmark(small))
    return upstream


@needs_pyg
def test_a_broken_connection_is_resumed(ready):
    ready.cut("cora_ml.npz", 500, 100)
    datasets.load("cora_ml")
    assert [asked for _, asked in ready.asked] == [None, "bytes=500-", "bytes=600-"]


@needs_pyg
def test_a_server_without_ranges_is_asked_again(ready):
    ready.ranges = False
    ready.cut("cora_ml.npz", 500)
    datasets.load("cora_ml")
    assert len(ready.asked) == 2


def test_a_server_that_sends_another_range_than_asked(upstream, tmp_path):
    """A zip with rubbish before it opens all the same, so it is the bytes that are compared."""
    upstream.add("http://host/file", bytes(range(200)))
    upstream.starts_over = True
    upstream.cut("file", 50)
    path = download.download("http://host/file", tmp_path, os.environ["SNAPS_MIRROR"])
    assert path.read_bytes() == bytes(range(200))


def test_a_file_that_changed_in_between_is_not_joined(upstream, tmp_path):
    """The server's tag differs the second time, so the first half is thrown away."""
    upstream.add("http://host/file", bytes(200))
    upstream.cut("file", 50)
    address = download.mirrored("http://host/file", os.environ["SNAPS_MIRROR"])
    transfer = download._Transfer(address, tmp_path / "part")
    with pytest.raises(ConnectionError, match="50 of 200"):
        transfer.run()
    upstream.add("http://host/file", b"new" * 100)
    transfer.run()
    assert transfer.part.read_bytes() == b"new" * 100


@needs_pyg
def test_a_connection_that_keeps_breaking(ready, cache):
    ready.cut("cora_ml.npz", *[10] * 5)
    text = error_line(datasets.load, "cora_ml")
    assert "cannot fetch 'cora_ml'" in text and "broke after 50 of" in text
    assert list(cache.iterdir()) == []
    # The next try starts cleanly.
    assert datasets.load("cora_ml").graph.num_nodes == 60
    assert ready.asked[-1][1] is None


@needs_pyg
def test_not_found(ready, cache, capsys):
    ready.files.clear()
    code, out, err = command(capsys, "fetch", "cora_ml")
    assert code == 2 and out == ""
    assert "the server answered 404" in err and NPZ_FAMILIES["cora_ml"].split("//")[1] in err
    assert list(cache.iterdir()) == []


@needs_pyg
def test_a_file_cut_short_at_the_server(ready, cache):
    [path] = ready.files
    ready.files[path] = ready.files[path][:-300]
    text = error_line(datasets.load, "cora_ml")
    assert "CitationFull cannot read what github.com sent" in text
    assert list(cache.iterdir()) == []


@needs_pyg
def test_a_pickle_from_the_server_is_not_opened(ready, cache):
    [path] = ready.files
    ready.files[path] = npz(adj_data=np.array([{}], dtype=object))
    text = error_line(datasets.load, "cora_ml")
    assert "cannot read" in text and "allow_pickle" not in text
    assert list(cache.iterdir()) == []


@needs_ogb
def test_a_zip_cut_short_at_the_server(upstream, expect, cache):
    upstream.add(OGB + "arxiv.zip", ogb(Small(), "arxiv", "time")[:-100])
    text = error_line(datasets.load, "ogbn_arxiv")
    assert "cannot read what snap.stanford.edu sent" in text and "zip" in text
    assert list(cache.iterdir()) == []


@needs_pyg
def test_another_graph_than_the_papers_does_not_enter_the_cache(ready, expect, cache):
    expect("cora_ml", replace(Small().statistics(), nodes=61))
    text = error_line(datasets.load, "cora_ml")
    assert "'cora_ml from github.com' is not the graph of the paper's table" in text
    assert "60 nodes instead of 61" in text
    assert list(cache.iterdir()) == []


@needs_pyg
def test_no_network(monkeypatch, cache, capsys):
    # Port 9 refuses at once; nothing leaves this machine.
    monkeypatch.setenv("SNAPS_MIRROR", "http://127.0.0.1:9")
    code, out, err = command(capsys, "fetch", "cora_ml", "citeseer")
    assert code == 2 and out == ""
    last = err.splitlines()[-1]
    assert "Connection refused" in last and str(cache) in last and "likewise citeseer" in last
    assert list(cache.iterdir()) == []


def test_a_mirror_that_is_no_address(tmp_path):
    assert "SNAPS_MIRROR" in error_line(download.download, "http://a/b", tmp_path, "intra/files")


@needs_pyg
def test_a_mirror_in_a_folder(ready, tmp_path, monkeypatch):
    monkeypatch.delenv("SNAPS_MIRROR")
    [(path, content)] = ready.files.items()
    place = tmp_path / "mirror" / path[1:]
    place.parent.mkdir(parents=True)
    place.write_bytes(content)
    datasets.fetch("cora_ml", mirror=(tmp_path / "mirror").as_uri())
    assert ready.asked == []
    assert datasets.load("cora_ml", download=False).graph.num_nodes == 60


@needs_pyg
def test_fetch_replaces_a_damaged_copy_and_keeps_a_sound_one(ready, cache, capsys):
    code, out, _ = command(capsys, "fetch", "cora_ml")
    path = cache / "cora_ml.npz"
    assert code == 0 and out.strip() == f"cora_ml: {path}"
    command(capsys, "fetch", "CoraML")
    assert len(ready.asked) == 1
    sound = path.read_bytes()
    path.write_bytes(sound[:-10] + bytes(10))
    assert "snaps datasets fetch cora_ml" in error_line(datasets.load, "cora_ml")
    command(capsys, "fetch", "cora_ml")
    assert len(ready.asked) == 2 and path.read_bytes() == sound


@needs_pyg
def test_the_loaders_own_download_is_put_back(ready):
    from torch_geometric.data import download_url
    from torch_geometric.datasets import citation_full

    datasets.load("cora_ml")
    assert citation_full.download_url is download_url


def test_without_the_laboratory_one_line_says_so(monkeypatch):
    module = importlib.import_module("snaps.datasets.load")  # the name is the function's
    monkeypatch.setattr(module, "entry_points", lambda group: [])
    text = error_line(datasets.load, "cora_ml")
    assert text.startswith("cannot fetch 'cora_ml'") and "pip install -c lab/constraints" in text
