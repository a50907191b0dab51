"""The training loop, which knows no model, and weights on disk."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from snaps._kernels.compiling import numba
from snaps.errors import SnapsError

Losses = Callable[[], tuple[Iterable[Tensor], Tensor]]


class Fit(NamedTuple):
    """How a training went; the module holds the weights of `best_epoch`."""

    epochs: int
    best_epoch: int
    valid_loss: float


def fit(
    module: nn.Module,
    optimizer: torch.optim.Optimizer,
    losses: Losses,
    *,
    max_epochs: int,
    patience: int,
    resets: bool = False,
) -> Fit:
    """Minimise the training loss, and keep the weights with the least validation loss.

    Parameters
    ----------
    module : Module
        Whose weights are kept.
    optimizer : Optimizer
        Over the module's parameters.
    losses : callable
        Called before each epoch: gives its training losses (with gradient), a step each and in
        turn of the weights at that step, and the validation loss of the present weights.
    max_epochs : int
        Most epochs.
    patience : int
        Stop after this many epochs that did not improve the validation loss. They are counted over
        the whole training, as the paper's authors do: an improvement does not reset the count.
    resets : bool
        An improvement does reset it.

    Returns
    -------
    Fit
    """
    best_loss, best_epoch, wasted = math.inf, -1, 0
    best: dict[str, Tensor] = {}
    for epoch in range(max_epochs + 1):
        train_losses, valid_loss = losses()
        if (loss := float(valid_loss)) < best_loss:
            best_loss, best_epoch = loss, epoch
            best = {name: value.detach().clone() for name, value in module.state_dict().items()}
            wasted = 0 if resets else wasted
        else:
            wasted += 1
        if wasted >= patience or epoch == max_epochs:
            break
        for train_loss in train_losses:
            optimizer.zero_grad()
            train_loss.backward()
            optimizer.step()
    if not best:
        raise SnapsError(f"the validation loss must be a finite number, got {loss}")
    module.load_state_dict(best)
    return Fit(epoch, best_epoch, best_loss)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draw from a seed of its own, and leave the caller's torch random state as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed % 2**63)
        yield


@contextmanager
def threads_set(count: int) -> Iterator[None]:
    """Run torch and the compiled loops on so many threads."""
    before = torch.get_num_threads(), numba.get_num_threads()
    torch.set_num_threads(count)
    # numba refuses more threads than it was started with, and its type stubs lack the number.
    numba.set_num_threads(min(count, getattr(numba.config, "NUMBA_NUM_THREADS")))  # noqa: B009
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        numba.set_num_threads(before[1])


def save_weights(path: str | os.PathLike[str], state: Mapping[str, Tensor]) -> None:
    """Write a state dict as safetensors: no pickle, and the file appears whole or not at all.

    Examples
    --------
    >>> save_weights("weights", torch.nn.Linear(2, 1).state_dict())
    >>> sorted(load_weights("weights"))
    ['bias', 'weight']
    """
    from safetensors.torch import save_file

    partial = Path(f"{os.fspath(path)}.{os.getpid()}.part")
    try:
        save_file({name: value.contiguous() for name, value in state.items()}, partial)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def load_weights(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """Read what `save_weights` wrote.

    Examples
    --------
    >>> layer = torch.nn.Linear(2, 1)
    >>> save_weights("weights", layer.state_dict())
    >>> layer.load_state_dict(load_weights("weights"))
    <All keys matched successfully>
    """
    import safetensors
    from safetensors.torch import load_file

    try:
        state: dict[str, Tensor] = load_file(path)
    except FileNotFoundError:
        raise SnapsError(f"'path' must be a file of weights, got {path}: no such file") from None
    except safetensors.SafetensorError as error:
        raise SnapsError(f"'path' must be a file of weights, got {path}: {error}") from error
    return state
