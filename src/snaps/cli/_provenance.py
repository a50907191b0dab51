"""Where a result comes from: the version that made it, and what its input files were."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from snaps._manifest import part_files


def provenance(inputs: Mapping[str, str]) -> dict[str, Any]:
    """What JSON outputs say beside their results."""
    from snaps._version import __version__

    return {"version": __version__, "inputs": dict(inputs)}


class Digests:
    """SHA-256 of files and of folders of parts, found while other work goes on.

    What `sha256sum` prints of a file; of a folder of parts, what it prints of its own output for
    all of them in the order of their names.
    """

    def __init__(self, paths: Iterable[Path]):
        # Digesting releases the interpreter's lock: it takes a core of its own where there is one.
        self._pool = ThreadPoolExecutor(1)
        self._found: dict[str, Future[str]] = {
            path.name: self._pool.submit(_sha256, path) for path in paths if os.path.exists(path)
        }

    def get(self) -> dict[str, str]:
        """The digests by the names of the files, once all are there."""
        self._pool.shutdown()
        return {name: future.result() for name, future in self._found.items()}


def _sha256(path: Path) -> str:
    if path.is_dir():
        lines = [
            f"{_sha256(part)}  {part.relative_to(path).as_posix()}\n" for part in part_files(path)
        ]
        return hashlib.sha256("".join(lines).encode()).hexdigest()
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
