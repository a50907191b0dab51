"""Folders of part files, and what the names of partitions say."""

from __future__ import annotations

import shutil
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from snaps import Graph
from snaps.folder import read_folder
from tests.helpers import small
from tests.helpers.folders import CLASSES, into_parts, refusal, same_folder
from tests.helpers.small import LABELS, NAMES, NUM_NODES, PROBS, ROLES


def test_folders_of_part_files(tmp_path):
    small.write(tmp_path)
    into_parts(tmp_path / "nodes.parquet")
    into_parts(tmp_path / "edges.parquet")
    same_folder(read_folder(tmp_path), small.graph(ids=NAMES))


def test_part_files_may_differ_in_number_types(tmp_path):
    small.write(tmp_path)
    types = [{"label": pa.int16()}, {"label": pa.int64()}, {"label": pa.int8()}]
    into_parts(tmp_path / "nodes.parquet", types)
    same_folder(read_folder(tmp_path), small.graph(ids=NAMES))


@pytest.mark.parametrize("bare", [0, 2])
def test_part_files_may_lack_labels(tmp_path, bare):
    """A part whose nodes have no labels may have no such column, or one of nulls; any part."""
    labels = LABELS.copy()
    labels[20 * bare : 20 * bare + 20] = -1
    small.write(tmp_path, labels=labels)
    for missing in (None, pa.null()):
        changes = [{}, {}, {}]
        changes[bare] = {"label": missing}
        path = tmp_path / "nodes.parquet"
        whole = path.read_bytes()
        into_parts(path, changes)
        same_folder(read_folder(tmp_path), small.graph(ids=NAMES), labels)
        for part in path.iterdir():
            part.unlink()
        path.rmdir()
        path.write_bytes(whole)


def test_part_files_may_differ_in_dictionaries(tmp_path):
    small.write(tmp_path)
    kinds = [pa.dictionary(pa.int8(), pa.string()), pa.string(), pa.large_string()]
    into_parts(tmp_path / "nodes.parquet", [{"role": kind} for kind in kinds])
    same_folder(read_folder(tmp_path), small.graph(ids=NAMES))


@pytest.mark.parametrize("parts", [False, True], ids=["a file", "part files"])
@pytest.mark.parametrize(
    "parent", ["role=calib", "label=2", "id=x", "src=a", "features=1", "p_a=1"]
)
@pytest.mark.parametrize("relative", [False, True])
def test_folders_above_tell_nothing(tmp_path, monkeypatch, parent, parts, relative):
    """pyarrow takes the folders above a file for columns, which then replace its own."""
    roles = np.repeat(["train", "valid", "tune", "calib", "test", ""], 10)
    folder = tmp_path / parent / "g"
    small.write(folder, roles=roles)
    if parts:
        into_parts(folder / "nodes.parquet")
        into_parts(folder / "edges.parquet")
    if relative:
        (tmp_path / "away").mkdir()
        monkeypatch.chdir(tmp_path / "away")
        folder = f"../{parent}/g"
    found = read_folder(folder)
    same_folder(found, small.graph(ids=NAMES), roles=roles)
    assert found.classes is None


def test_folders_partitioned_by_label(tmp_path):
    small.write(tmp_path)
    path = tmp_path / "nodes.parquet"
    table = pq.read_table(path)
    path.unlink()
    names = CLASSES[LABELS]
    for name in np.unique(names):
        (path / f"label={quote(name)}").mkdir(parents=True)
        part = table.filter(pa.array(names == name)).drop_columns("label")
        pq.write_table(part, path / f"label={quote(name)}" / "part-0.parquet")
    found = read_folder(tmp_path)
    place = found.graph.index(NAMES)
    assert found.labels[place].tolist() == names.tolist()
    np.testing.assert_array_equal(found.probs[place], PROBS)


def test_folders_partitioned_by_role(tmp_path):
    small.write(tmp_path)
    path = tmp_path / "nodes.parquet"
    table = pq.read_table(path)
    path.unlink()
    for role in ("calib", "test"):
        (path / f"role={role}").mkdir(parents=True)
        part = table.filter(pa.compute.equal(table["role"], role)).drop_columns("role")
        pq.write_table(part, path / f"role={role}" / "part-0.parquet")
    same_folder(read_folder(tmp_path), small.graph(ids=NAMES))


def partitioned(path, column, values, *, keep=None):
    """Turn a Parquet file into a folder partitioned by a column; `keep` stays in the files."""
    table = pq.read_table(path)
    path.unlink()
    names = [name for name in table.column_names if name != column]
    for value in dict.fromkeys(values):
        (path / f"{column}={value}").mkdir(parents=True)
        rows = pa.array([each == value for each in values])
        part = table.select(names).filter(rows)
        if keep is not None:
            part = part.append_column(column, pa.array(keep).filter(rows))
        pq.write_table(part, path / f"{column}={value}" / "part-0.parquet")


@pytest.mark.parametrize("column", ["role", "label", "region", "src"])
def test_a_partition_that_contradicts_a_column_is_refused(tmp_path, column):
    file = "edges" if column == "src" else "nodes"
    path = small.write(tmp_path) / f"{file}.parquet"
    inside = {
        "role": ROLES.tolist(),
        "label": LABELS.tolist(),
        "region": ["north", "south"] * (NUM_NODES // 2),
    }.get(column) or pq.read_table(path)["src"].to_pylist()
    outside = inside.copy()
    outside[7] = next(value for value in inside if value != inside[7])
    whole = path.read_bytes()
    partitioned(path, column, inside, keep=inside)
    assert read_folder(tmp_path, columns=[column] if column == "region" else [])
    shutil.rmtree(path)
    path.write_bytes(whole)
    partitioned(path, column, outside, keep=inside)
    row = [i for i, value in enumerate(outside) if value == outside[7]].index(7)
    assert refusal(tmp_path) == (
        f"{file}.parquet column '{column}' must be as the folder of a part file says, "
        f"{outside[7]}, got {inside[7]} in row {row} of '{column}={outside[7]}/part-0.parquet'"
    )


@pytest.mark.parametrize(
    "values, expected",
    [
        (["01", "1"], ["01", "1"]),
        (["1", "-0"], ["1", "-0"]),
        (["1", "-20"], [1, -20]),
        (["1", "__HIVE_DEFAULT_PARTITION__"], [1, None]),
        (["a%2Fb", "07"], ["a/b", "07"]),
    ],
)
def test_partitions_are_integers_only_if_written_so(tmp_path, values, expected):
    path = small.write(tmp_path) / "nodes.parquet"
    places = np.arange(NUM_NODES) % 2
    partitioned(path, "g", [values[place] for place in places])
    found = read_folder(tmp_path, columns=["g"])
    order = found.graph.index(NAMES)
    assert found.columns["g"][order].tolist() == [expected[place] for place in places]


@pytest.mark.parametrize("column", ["role", "label", "region", "id"])
def test_characters_that_numpy_would_drop(tmp_path, column):
    values = {
        "role": ROLES.tolist(),
        "label": np.array(["a", "b", "c"])[LABELS].tolist(),
        "region": ["a"] * NUM_NODES,
        "id": NAMES.tolist(),
    }[column]
    values[5] += "\0"
    for gap in (False, True):
        if gap:
            values[9] = None
        small.change(small.write(tmp_path), "nodes", **{column: values})
        if not (gap and column == "id"):
            assert refusal(tmp_path, columns=["region"] if column == "region" else []) == (
                f"nodes.parquet column '{column}' must not hold the character NUL, "
                f"got {values[5]!r} in row 5"
            )


def test_links_that_lead_nowhere(tmp_path):
    small.write(tmp_path)
    into_parts(tmp_path / "edges.parquet")
    whole = read_folder(tmp_path).graph
    link = tmp_path / "edges.parquet" / "part-2.snappy.parquet"
    target = link.rename(tmp_path / "elsewhere")
    link.symlink_to(target)
    hidden = tmp_path / "edges.parquet" / ".part-2.snappy.parquet.crc"
    hidden.symlink_to(tmp_path / "nothing")
    assert (read_folder(tmp_path).graph.adjacency != whole.adjacency).nnz == 0
    target.unlink()
    message = "cannot read 'g/edges.parquet/part-2.snappy.parquet': the link leads to no file"
    assert refusal(tmp_path) == message
    assert "the link leads to no file" in small.error_line(Graph.from_parquet, tmp_path)
    link.unlink()
    link.symlink_to(tmp_path / "edges.parquet", target_is_directory=True)
    assert "part-2.snappy.parquet': the link leads to a folder that it is in" in refusal(tmp_path)
    link.unlink()
    (tmp_path / "features.npy").symlink_to(tmp_path / "nothing")
    assert refusal(tmp_path) == "cannot read 'g/features.npy': the link leads to no file"


@pytest.mark.parametrize("names", [("source", "target"), ("src", "dst")])
def test_names_of_the_ends_of_edges(tmp_path, names):
    path = small.write(tmp_path) / "edges.parquet"
    table = pq.read_table(path).select(["src", "dst"])
    if names[0] == "src":  # then a column 'source' is any other
        table = table.append_column("source", pa.array(["crawl"] * len(table)))
        table = table.append_column("target", pa.array(["x"] * len(table)))
    else:
        table = table.rename_columns(list(names))
    pq.write_table(table, path)
    same_folder(read_folder(tmp_path), small.graph(ids=NAMES))
