"""What every test file shares: where the real data lies, and a switch that forbids skipping."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import warnings
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import settings

# A shell that runs the tests in the background has them, and all they start, ignore interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The first call of a numba loop compiles it, so no deadline is fair.
settings.register_profile("snaps", deadline=None, max_examples=30, print_blob=True)
settings.load_profile("snaps")

# Nor is it said that something is compiled, by whichever test happens to be the first.
os.environ["SNAPS_QUIET"] = "1"

REPOSITORY = Path(__file__).resolve().parent

# Modules that import pyspark have no doctests to collect without it.
collect_ignore_glob = [] if find_spec("pyspark") else ["src/snaps/spark/_*.py"]


def data_dir() -> Path:
    """Folder of the real graphs (`cora_ml.npz`, ...); skips the calling test without one."""
    named = os.environ.get("SNAPS_DATA")
    places = [Path(named)] if named else []
    places.append(REPOSITORY.parent / "shared" / "data")
    for place in places:
        if (place / "cora_ml.npz").is_file():
            return place
    looked = " or ".join(str(place) for place in places)
    pytest.skip(f"no real data: cora_ml.npz is not in {looked}; set SNAPS_DATA to its folder")


@pytest.fixture(name="data_dir", scope="session")
def _data_dir() -> Path:
    return data_dir()


def _forbid_skip(report) -> None:
    """Turn a skip into a failure when SNAPS_NO_SKIP=1, so that CI cannot pass by skipping."""
    if os.environ.get("SNAPS_NO_SKIP") != "1" or not report.skipped:
        return
    if hasattr(report, "wasxfail"):
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    report.outcome = "failed"
    report.longrepr = f"SNAPS_NO_SKIP=1 forbids skipping: {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    _forbid_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    report = yield
    _forbid_skip(report)
    return report


@pytest.fixture
def one_thread():
    """Compiled loops on one thread: hundreds of small calls are then not spent on waking others."""
    import numba

    before = numba.get_num_threads()
    numba.set_num_threads(1)
    yield
    numba.set_num_threads(before)


QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@pytest.fixture
def spark():
    """The session of this process, started again if a command ended it."""
    session = _started()
    if session._jsparkSession.sparkContext().isStopped():  # noqa: SLF001, nothing else says so
        session.stop()
        _started.cache_clear()
        session = _started()
    return session


@pytest.fixture(scope="session", autouse=True)
def _spark_ends():
    yield
    if _started.cache_info().currsize:
        _started().stop()


@cache
def _started():
    """Two executors in processes of their own, one core and 1 GiB each."""
    pyspark = pytest.importorskip("pyspark", reason="pyspark is not installed")
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("there is no Java, which Spark runs on")
    from pyspark.sql import SparkSession

    os.environ.setdefault("SPARK_HOME", str(Path(pyspark.__file__).parent))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        builder = SparkSession.builder.master("local-cluster[2,1,1024]").appName("snaps tests")
        for name, value in {
            "spark.executor.memory": "1g",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.log.level": "OFF",
            # What pays off in long runs alone.
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.adaptive.enabled": "false",
            "spark.driver.extraJavaOptions": QUICK,
            "spark.executor.extraJavaOptions": QUICK,
        }.items():
            builder = builder.config(name, value)
        return builder.getOrCreate()


@pytest.fixture(autouse=True)
def _doctests(request, doctest_namespace):
    """Examples may use `np` and `snaps` without importing them; files go to a temporary folder."""
    import numpy

    import snaps

    doctest_namespace |= {"np": numpy, "snaps": snaps}
    if isinstance(request.node, pytest.DoctestItem):
        request.getfixturevalue("monkeypatch").chdir(request.getfixturevalue("tmp_path"))


# Files and folders that take longest come first: whichever ends last then ends early.
FIRST = (
    "tests/law/test_wall.py",
    "tests/spark/",
    "tests/scoring/",
    "tests/fuzz/",
    "tests/docs/test_examples.py",
    "tests/docs/test_pages.py",
)
# `make test` leaves these to `make test-all`: two thirds of the time in a fifth of the files.
LONG = (
    "tests/docs/test_examples.py",
    "tests/docs/test_pages.py",
    "tests/docs/test_site.py",
    "tests/fuzz/",
    "tests/law/test_wall.py",
    "tests/report/test_browser.py",
    "tests/scale/",
    "tests/spark/",
    "lab/tests/reproduce/test_evidence.py",
    "lab/tests/reproduce/test_reproduce.py",
    "lab/tests/reproduce/test_runner.py",
)
# A session of Spark takes longer to start than many tests: these share one.
TOGETHER = ("tests/spark/",)


def pytest_collection_modifyitems(items):
    def place(item) -> int:
        return next((i for i, path in enumerate(FIRST) if item.nodeid.startswith(path)), len(FIRST))

    items.sort(key=place)
    for item in items:
        if item.nodeid.startswith(LONG):
            item.add_marker("long")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Files side by side, as `--dist loadfile` has them; folders in TOGETHER count as one file."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class ByFile(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            folder = next((name for name in TOGETHER if nodeid.startswith(name)), None)
            return folder or super()._split_scope(nodeid)

    return ByFile(config, log)
