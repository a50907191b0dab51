"""A graph folder that Spark reads."""

from __future__ import annotations

import pytest

from tests.spark.common import write


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return write(tmp_path_factory.mktemp("graph"))
