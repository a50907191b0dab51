"""`snaps predict --spark`: the same sets, quiet ends, and what it refuses."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.spark.common import QUICK, by_id


def test_the_command_writes_the_same_sets(spark, folder, tmp_path, monkeypatch, capsys):
    from snaps.cli import main

    common = [sys.executable, "-m", "snaps", "predict", str(folder), "--alpha", "0.1"]
    common += ["--candidates", "90", "--out"]
    one, other = tmp_path / "local.parquet", tmp_path / "a [1] of 100%" / "spark.parquet"
    other.parent.mkdir()
    other.write_text("an older file goes")
    subprocess.run([*common, str(one)], check=True, capture_output=True)
    spark_only = ["--engine", "spark", "--master", "local[1]"]
    quick = {"spark.driver.extraJavaOptions": QUICK, "spark.sql.codegen.wholeStage": "false"}
    quick["spark.hadoop.fs.defaultFS"] = "hdfs://127.0.0.1:1"  # paths are of this machine still
    settings = "".join(f"{name} {value}\n" for name, value in quick.items())
    (tmp_path / "spark-defaults.conf").write_text(f"{settings}spark.sql.shuffle.partitions 2\n")
    done = subprocess.run(
        [*common, str(other), *spark_only], capture_output=True, text=True,
        env={**os.environ, "SPARK_CONF_DIR": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert by_id(pq.read_table(other)) == by_id(pq.read_table(one))
    assert re.search(rf"\ntook [0-9.]+ s\nwrote {re.escape(str(other))}\n$", done.stdout)
    assert os.listdir(other.parent) == [other.name]
    assert os.stat(other).st_mode == os.stat(other.parent).st_mode
    # Again, over what the first run wrote, by a link that leads there.
    link, before = tmp_path / "link.parquet", os.stat(other).st_ino
    link.symlink_to(other)
    monkeypatch.setattr("snaps.cli._spark.session", lambda master: nullcontext(spark))
    with pytest.raises(SystemExit) as left:
        main([*common[3:], str(link), "--engine", "spark", "--json"])
    assert left.value.code == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["engine"] == "spark" and printed["sets"] == len(pq.read_table(one))
    assert link.is_symlink() and os.stat(other).st_ino != before
    assert by_id(pq.read_table(other)) == by_id(pq.read_table(one))


def in_session(leader):
    """What the processes of a session are run by, as far as they have not ended."""
    commands = []
    for place in Path("/proc").iterdir():
        try:
            if place.name.isdigit() and os.getsid(int(place.name)) == leader:
                commands.append((place / "cmdline").read_bytes())
        except OSError:
            continue
    return [command for command in commands if command]


@pytest.mark.skipif(not os.path.exists("/proc/self/cmdline"), reason="processes are not listed")
@pytest.mark.parametrize(
    ("while_there_is", "number", "code"),
    [
        (b"java", signal.SIGINT, 130),
        (b"pyspark.daemon", signal.SIGINT, 130),
        (b"pyspark.daemon", signal.SIGTERM, 143),
    ],
)
def test_a_command_that_is_interrupted_ends_quietly(folder, tmp_path, while_there_is, number, code):
    """It left a trace of py4j; and, while Java started, a Java that ran on."""
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    command = [sys.executable, "-m", "snaps", "predict", str(folder), "--alpha", "0.1"]
    command += ["--engine", "spark", "--master", "local[1]", "--out", str(tmp_path / "s.parquet")]
    (tmp_path / "s.parquet").write_text("an older file stays")
    with open(tmp_path / "printed", "w") as printed:
        run = subprocess.Popen(command, stdout=printed, stderr=printed, start_new_session=True)
    try:
        while not any(while_there_is in each for each in in_session(run.pid)):
            assert run.poll() is None
            time.sleep(0.05)
        time.sleep(0.5)
        os.killpg(run.pid, number) if number == signal.SIGINT else os.kill(run.pid, number)
        assert run.wait(60) == code
        ended = time.monotonic()
        while in_session(run.pid) and time.monotonic() < ended + 30:
            time.sleep(0.1)
        assert in_session(run.pid) == []
    finally:
        if in_session(run.pid):
            os.killpg(run.pid, signal.SIGKILL)
    text = (tmp_path / "printed").read_text()
    assert "Traceback" not in text and "rror" not in text, text
    assert (tmp_path / "s.parquet").read_text() == "an older file stays"
    assert sorted(os.listdir(tmp_path)) == ["printed", "s.parquet"]


def test_the_command_refuses_what_only_one_machine_does(folder, tmp_path, capsys):
    from snaps.cli import main

    theirs = tmp_path / "theirs.parquet"
    theirs.mkdir()
    (theirs / "_SUCCESS").touch()
    pq.write_table(pa.table({"id": [1], "money": [2]}), theirs / "part-0.parquet")
    for options, message in (
        (["--engine", "spark", "--weighted"], "'--weighted' must be left out with --engine spark"),
        (["--engine", "spark", "--recall", "0.9"], "'--recall' must be left out with --engine"),
        (["--engine", "spark", "--neighbours", "approximate"],
         "'--neighbours' must be auto or exact with --engine spark, got approximate"),
        (["--engine", "spark", "--out", "x.csv"], "'--out' must end in .parquet"),
        (["--engine", "spark", "--out", str(theirs)], "it is a folder"),
        (["--engine", "spark", "--out", "s3://b/s.parquet"], "call snaps.spark.predict_sets"),
        (["--master", "local[1]"], "--master"),
    ):  # fmt: skip
        with pytest.raises(SystemExit) as left:
            main(["predict", str(folder), "--out", str(tmp_path / "s.parquet"), *options])
        assert left.value.code == 2
        assert message in capsys.readouterr().err
    for place, message in (
        ("s3://bucket/g", "'FOLDER' must be a path"),
        ("none", "no such folder"),
    ):
        with pytest.raises(SystemExit):
            main(["predict", place, "--out", str(tmp_path / "s.parquet"), "--engine", "spark"])
        assert message in capsys.readouterr().err


def test_partitions_and_classes_that_contradict_the_files(folder, tmp_path, capsys):
    """Before Spark starts, as the local engine would."""
    from snaps.cli import main

    place = tmp_path / "g"
    shutil.copytree(folder, place)
    table = pq.read_table(place / "nodes.parquet")
    (place / "nodes.parquet").unlink()
    (place / "nodes.parquet" / "role=train").mkdir(parents=True)
    pq.write_table(table, place / "nodes.parquet" / "role=train" / "part-0.parquet")
    with pytest.raises(SystemExit) as left:
        main(["predict", str(place), "--out", str(tmp_path / "s.parquet"), "--engine", "spark"])
    assert left.value.code == 2
    message = "nodes.parquet column 'role' must be as the folder of a part file says, train, got "
    assert message in capsys.readouterr().err
