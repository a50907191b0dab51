"""Outputs of any torch classifier, for `snaps.images`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from snaps._checks import check_labels, check_probs, shown, to_numpy
from snaps.errors import SnapsError
from snaps.images import Outputs


def extract(model: Any, loader: Iterable[Any], layer: Any = None, device: Any = "cpu") -> Outputs:
    """Run a torch classifier and keep its logits and what enters its last linear layer.

    The model is moved to `device`; its modes are left as they were.

    Parameters
    ----------
    model : torch.nn.Module
        Gives logits (b, K), or an object with an attribute `logits`.
    loader : iterable of (inputs, labels)
        Such as a torch DataLoader that does not shuffle.
    layer : str or torch.nn.Module, optional
        The layer, or its name, whose input is taken as features. Default: the linear layer that
        was added last.
    device : str or torch.device

    Returns
    -------
    Outputs
        In the order of the loader; features of more than two dimensions are flattened.

    Examples
    --------
    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    >>> extract(model, [(torch.zeros(5, 4), torch.zeros(5, dtype=torch.long))])
    Outputs(5 items, 3 classes, 8 features)
    """
    if not isinstance(model, torch.nn.Module):
        raise SnapsError(f"'model' must be a torch.nn.Module, got {type(model).__name__}")
    chosen, place = _find_layer(model, layer), _check_device(device)
    try:
        batches = iter(loader)
    except TypeError:
        raise SnapsError(
            f"'loader' must give pairs (inputs, labels) of tensors, got {type(loader).__name__}"
        ) from None
    seen: list[Any] = []
    rows: dict[str, list[np.ndarray]] = {"logits": [], "features": [], "labels": []}
    modes = {module: module.training for module in model.modules()}
    hook = chosen.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    try:
        model.to(place).eval()
        with torch.no_grad():
            for batch in batches:
                inputs, labels = _check_batch(batch)
                seen.clear()
                result = model(inputs.to(place))
                if len(seen) != 1:
                    raise SnapsError(f"'layer' must run once a batch, got {len(seen)} times")
                rows["logits"].append(to_numpy(getattr(result, "logits", result), "logits"))
                rows["features"].append(to_numpy(seen[0].flatten(1), "features"))
                rows["labels"].append(to_numpy(labels, "labels").reshape(-1))
    finally:
        hook.remove()
        for module, mode in modes.items():
            module.training = mode
    if not rows["logits"]:
        raise SnapsError("'loader' must give at least one batch, got none")
    arrays = {name: np.concatenate(parts) for name, parts in rows.items()}
    shape = check_probs(arrays["logits"], "logits", logits=True).shape
    check_labels(arrays["labels"], num_nodes=shape[0], num_classes=shape[1])
    if len(arrays["features"]) != shape[0]:
        raise SnapsError(
            f"'layer' must see one row an item ({shape[0]}), got {len(arrays['features'])}"
        )
    return Outputs(**arrays)


def _find_layer(model: Any, layer: Any) -> Any:
    """The layer that a user names, or the last linear one."""
    modules = dict(model.named_modules())
    if layer is None:
        linear = [module for module in modules.values() if isinstance(module, torch.nn.Linear)]
        if not linear:
            raise SnapsError("'layer' must be given for a model without a linear layer, got None")
        return linear[-1]
    if isinstance(layer, str) and layer in modules:
        return modules[layer]
    if any(module is layer for module in modules.values()):
        return layer
    raise SnapsError(f"'layer' must be one of the model's {list(modules)[1:]}, got {shown(layer)}")


def _check_device(device: Any) -> Any:
    try:
        place = torch.device(device)
        torch.empty(0, device=place)
    except Exception as error:  # torch has no one error for a device that is not there
        raise SnapsError(
            f"'device' must be one that torch finds, such as 'cpu', got {shown(device)}"
        ) from error
    return place


def _check_batch(batch: Any) -> tuple[Any, Any]:
    """Inputs as a tensor, and labels."""
    pair = isinstance(batch, (tuple, list)) and len(batch) == 2
    if not pair or not hasattr(batch[0], "detach"):
        raise SnapsError(
            f"'loader' must give pairs (inputs, labels) of tensors, got {type(batch).__name__}"
        )
    return batch[0], batch[1]
