"""What the commands write, recorded as content: columns, digests of text, headers."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from snaps.cli import main
from snaps.folder import write_folder

from .cases import Entries, digest, header, plain, prefixed
from .graphs import Setting, setting


def run(*arguments: object) -> str:
    """What a command prints; it must succeed."""
    out, notes = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(notes):
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as ended:
            assert ended.code == 0, notes.getvalue()
    return out.getvalue()


def write_graph(folder: Path, given: Setting, count: int | None = None) -> Path:
    """A graph folder of a setting, or of its first nodes."""
    count = len(given.labels) if count is None else count
    roles = np.full(count, "test", "U5")
    roles[given.train], roles[given.calib] = "train", "calib"
    given = given.first(count)
    write_folder(folder, given.graph, given.probs, given.labels, roles, classes=given.classes)
    return folder


def columns(path: Path) -> Entries:
    """The columns of a file of sets, and how it says that it was made."""
    table = pq.read_table(path)
    known = {key.decode(): value.decode() for key, value in table.schema.metadata.items()}
    # Digests of input files depend on how Parquet was written.
    del known["snaps.version"], known["snaps.inputs"]
    types = ", ".join(f"{field.name}: {field.type}" for field in table.schema)
    return {
        "types": types.replace("element", "item"),  # as older versions of Arrow call it
        "metadata": json.dumps(known, sort_keys=True),
        "id": digest(json.dumps(table["id"].to_pylist()).encode()),
        "labels": digest(json.dumps(table["labels"].to_pylist()).encode()),
        "size": table["size"].to_numpy().astype(np.uint8),
    }


OPTIONS = {
    "snaps": (),
    "snaps_given": ("--weights", "0.3,0.4", "--k", 5, "--seed", 3),
    "pooled": ("--method", "pooled"),
    "daps": ("--method", "daps", "--score", "raps"),
    "split": ("--method", "split", "--score", "saps", "--class-conditional"),
}


def predicted(name: str) -> Entries:
    """Sets of every method in every format, by a saved model too; and `evaluate`."""
    given, out = setting(name), dict[str, Entries]()
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        folder = write_graph(root / "graph", given)
        for method, options in OPTIONS.items():
            alpha = 0.3 if "--class-conditional" in options else 0.1
            sets = root / "sets.parquet"
            run("predict", folder, "--alpha", alpha, "--out", sets, *options)
            out[method] = columns(sets)
        for kind in ("csv", "jsonl"):
            sets = root / f"sets.{kind}"
            run("predict", folder, "--alpha", 0.1, "--out", sets)
            out[kind] = {"text": digest(sets.read_bytes())}
        early = write_graph(root / "early", given, len(given.labels) - 50)
        model, sets = root / "model.snaps", root / "later.parquet"
        run("calibrate", early, "--alpha", 0.1, "--method", "pooled", "--out", model)
        out["calibrated"] = header(model)
        run("predict", folder, "--with", model, "--out", sets)
        out["predicted_with"] = columns(sets)
        text = run("evaluate", folder, "--splits", 5, "--alpha", 0.1, "--alpha", 0.2, "--json")
        said = json.loads(text)
        kept = {key: value for key, value in said.items() if key not in ("version", "inputs")}
        out["evaluated"] = plain(kept)
    return prefixed(**out)


FILES: dict[str, Callable[[], Entries]] = {
    "words": lambda: predicted("words"),
    "dense": lambda: predicted("dense"),
}
