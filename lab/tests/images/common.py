"""A small network, and files of what networks give."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

SEED = 7


class Net(torch.nn.Module):
    """Two layers for digits, and dropout that must be off when outputs are taken."""

    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU())
        self.dropout = torch.nn.Dropout(0.5)
        self.head = torch.nn.Linear(32, 10)

    def forward(self, x):
        return self.head(self.dropout(self.body(x)))


def batches(digits, size=500):
    data = torch.utils.data.TensorDataset(*digits)
    return torch.utils.data.DataLoader(data, size)


def write(path, **changes):
    arrays = {"logits": np.eye(4), "features": np.eye(4), "labels": np.arange(4), **changes}
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})
