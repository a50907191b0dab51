"""One file from the network: whole, with progress, resumed when the line breaks."""

from __future__ import annotations

import http.client
import os
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from snaps.errors import SnapsError

_ATTEMPTS = 5
_PAUSE = 1.0  # seconds before the first new attempt; doubles with each
_TIMEOUT = 30.0  # seconds without a byte
_CHUNK = 1 << 18


def download(url: str, folder: str | os.PathLike[str], mirror: str | None = None) -> Path:
    """Bring a file into a folder, or raise an error of one line and leave nothing.

    A broken transfer is resumed where it stopped if the server can do that and says that its file
    is still the same, else started anew. Unlike the download of torch_geometric, this one checks
    the server's certificate and that the file came in full length.

    Parameters
    ----------
    url : str
    folder : path
        Created if it is missing.
    mirror : str, optional
        An address to ask instead; see `mirrored`.
    """
    address = mirrored(url, mirror)
    os.makedirs(folder, exist_ok=True)
    target = Path(folder) / urllib.parse.urlsplit(url).path.split("/")[-1]
    transfer = _Transfer(address, target.with_name(target.name + ".part"))
    try:
        with _bar(target.name) as show:
            _complete(transfer, show)
        os.replace(transfer.part, target)
    finally:
        transfer.part.unlink(missing_ok=True)
    return target


def mirrored(url: str, mirror: str | None) -> str:
    """Where a mirror keeps the file of an address: below its own, by host and path.

    That is the tree that `wget --force-directories` (`wget -x`) makes.

    Examples
    --------
    >>> mirrored("https://github.com/shchur/data/cs.npz", "http://files.intra/graphs/")
    'http://files.intra/graphs/github.com/shchur/data/cs.npz'
    """
    if mirror is None:
        return url
    if urllib.parse.urlsplit(mirror).scheme not in ("http", "https", "file"):
        raise SnapsError(
            "'SNAPS_MIRROR' (--mirror) must start with http://, https:// or file://, "
            f"got '{mirror}'"
        )
    parts = urllib.parse.urlsplit(url)
    return f"{mirror.rstrip('/')}/{parts.netloc}{parts.path}"


class _Transfer:
    """A file on its way: what has arrived, and what the server said of it."""

    def __init__(self, address: str, part: Path):
        self.address = address
        self.part = part
        self.total: int | None = None
        self.version: str | None = None

    @property
    def size(self) -> int:
        return self.part.stat().st_size if self.part.exists() else 0

    def run(self, show: Callable[[int, int | None], None]) -> None:
        """Ask for what is missing and write until the server stops sending."""
        request = urllib.request.Request(self.address, headers={"User-Agent": "snaps"})
        start = self.size
        # Without a version two halves of different files might be joined.
        if start and self.version:
            request.add_header("Range", f"bytes={start}-")
            request.add_header("If-Range", self.version)
        with urllib.request.urlopen(request, timeout=_TIMEOUT) as response:
            span = response.headers.get("Content-Range", "")
            if getattr(response, "status", None) != 206 or not span.startswith(f"bytes {start}-"):
                start = 0
            length = response.headers.get("Content-Length")
            self.total = None if length is None else start + int(length)
            self.version = _version(response.headers)
            with open(self.part, "ab" if start else "wb") as file:
                done = start
                while chunk := response.read(_CHUNK):
                    file.write(chunk)
                    done += len(chunk)
                    show(done, self.total)
        if self.total is not None and done != self.total:
            raise ConnectionError(f"the connection broke after {done} of {self.total} bytes")


def _version(headers: Any) -> str | None:
    """What tells one version of a file from the next; a weak tag does not promise equal bytes."""
    tag = headers.get("ETag")
    return tag if tag and not tag.startswith("W/") else headers.get("Last-Modified")


def _complete(transfer: _Transfer, show: Callable[[int, int | None], None]) -> None:
    for attempt in range(_ATTEMPTS):
        try:
            return transfer.run(show)
        except urllib.error.HTTPError as error:
            reason = f"the server answered {error.code} {error.reason}"
            raise SnapsError(f"cannot download {transfer.address}: {reason}") from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            # If nothing ever came, the line is down or the address wrong: waiting won't help.
            if transfer.size == 0 or attempt == _ATTEMPTS - 1 or not _is_network(error):
                raise SnapsError(f"cannot download {transfer.address}: {_reason(error)}") from error
        time.sleep(_PAUSE * 2**attempt)


def _is_network(error: Exception) -> bool:
    """Tell a broken line from a full disk."""
    network = (urllib.error.URLError, ConnectionError, TimeoutError, http.client.HTTPException)
    return isinstance(error, network)


def _reason(error: Exception) -> str:
    cause = getattr(error, "reason", error)
    return str(getattr(cause, "strerror", None) or cause) or type(cause).__name__


@contextmanager
def _bar(label: str) -> Iterator[Callable[[int, int | None], None]]:
    """A bar in bytes on stderr; yields a function to be told what is done and the total."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    # In a log file a bar that cannot move leaves nothing but empty lines.
    hidden = not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=hidden) as progress:
        task = progress.add_task(label, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
