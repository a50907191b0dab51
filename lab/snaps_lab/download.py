"""A file from the network: whole, with progress, resumed when the connection breaks."""

from __future__ import annotations

import http.client
import os
import shutil
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO

from snaps.errors import SnapsError

_ATTEMPTS = 5
_PAUSE = 1.0  # seconds before the second attempt; doubles with each
_TIMEOUT = 30.0  # seconds without a byte
_CHUNK = 1 << 18
# What a broken connection raises; anything else, such as a full disk, is final.
_NETWORK = (urllib.error.URLError, ConnectionError, TimeoutError, http.client.HTTPException)


def download(url: str, folder: str | os.PathLike[str], mirror: str | None = None) -> Path:
    """Bring a file into a folder, or raise an error of one line and leave nothing.

    A broken transfer is resumed where it stopped if the server can do that and says that its file
    is still the same, else started again. Unlike the download of torch_geometric, this one checks
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
        transfer.complete()
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


@contextmanager
def replaced(module: ModuleType, **functions: Any) -> Iterator[None]:
    """Let a loader's module download through us: it knows the addresses, we check and resume."""
    before = {name: getattr(module, name) for name in functions}
    try:
        vars(module).update(functions)
        yield
    finally:
        vars(module).update(before)


@dataclass
class _Transfer:
    """A file on its way: what has arrived, and the server's word for the version of the file."""

    address: str
    part: Path
    version: str | None = None

    @property
    def size(self) -> int:
        return self.part.stat().st_size if self.part.exists() else 0

    def complete(self) -> None:
        """Run until the file is whole, a few times if the connection breaks."""
        for attempt in range(_ATTEMPTS):
            try:
                return self.run()
            except (OSError, http.client.HTTPException, ValueError) as error:
                # If nothing ever came, the line is down or the address wrong: waiting won't help.
                last = self.size == 0 or attempt == _ATTEMPTS - 1
                refused = isinstance(error, urllib.error.HTTPError)
                if last or refused or not isinstance(error, _NETWORK):
                    raise SnapsError(f"cannot download {self.address}: {_reason(error)}") from error
            time.sleep(_PAUSE * 2**attempt)

    def run(self) -> None:
        """Ask for what is missing and write until the server stops sending."""
        request = urllib.request.Request(self.address, headers={"User-Agent": "snaps"})
        done = self.size
        # Without a version two halves of different files might be joined.
        if done and self.version:
            request.add_header("Range", f"bytes={done}-")
            request.add_header("If-Range", self.version)
        with urllib.request.urlopen(request, timeout=_TIMEOUT) as response:
            span = response.headers.get("Content-Range", "")
            if getattr(response, "status", None) != 206 or not span.startswith(f"bytes {done}-"):
                done = 0
            length = response.headers.get("Content-Length")
            total = None if length is None else done + int(length)
            tag = response.headers.get("ETag")
            # A weak tag does not promise equal bytes.
            strong = tag and not tag.startswith("W/")
            self.version = tag if strong else response.headers.get("Last-Modified")
            with _bar(response, self.part.stem) as body:
                with open(self.part, "ab" if done else "wb") as file:
                    shutil.copyfileobj(body, file, _CHUNK)
        if total is not None and self.size != total:
            raise ConnectionError(f"the connection broke after {self.size} of {total} bytes")


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"the server answered {error.code} {error.reason}"
    cause = getattr(error, "reason", error)
    return str(getattr(cause, "strerror", None) or cause) or type(cause).__name__


def _bar(response: Any, label: str) -> AbstractContextManager[BinaryIO]:
    """What a server sends, read with a bar on stderr."""
    from rich.console import Console
    from rich.progress import wrap_file

    console, total = Console(stderr=True), int(response.headers.get("Content-Length") or 0)
    # In a log file a bar that cannot move leaves nothing but empty lines.
    hidden = not console.is_terminal
    return wrap_file(
        response, total, description=label, console=console, transient=True, disable=hidden
    )
