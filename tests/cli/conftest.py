"""A folder to work in, and commands run in this process."""

from __future__ import annotations

import pytest

from snaps.cli import main
from tests.helpers import small


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder to work in, with the graph folder g."""
    monkeypatch.chdir(tmp_path)
    small.write(tmp_path / "g")
    return tmp_path


@pytest.fixture
def run(capsys, tmp_path, monkeypatch):
    """Run a command in this process and a folder of its own: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        return ended.value.code, *capsys.readouterr()

    return call
