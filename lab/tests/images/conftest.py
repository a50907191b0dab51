"""A network trained on digits, and what it gives."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def digits():
    torch = pytest.importorskip("torch")
    pixels, labels = pytest.importorskip("sklearn.datasets").load_digits(return_X_y=True)
    return torch.tensor(pixels / 16, dtype=torch.float32), torch.tensor(labels)


@pytest.fixture(scope="session")
def net(digits):
    """Trained on the first 600 digits, for a short time: it is right nine times in ten."""
    from lab.tests.images.common import SEED, Net, torch
    from snaps_lab.models.training import threads_set

    pixels, labels = digits[0][:600], digits[1][:600]
    with threads_set(1), torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        model = Net()
        optimizer = torch.optim.Adam(model.parameters(), 0.01)
        for _ in range(60):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(pixels), labels).backward()
            optimizer.step()
    return model


@pytest.fixture(scope="session")
def outputs(net, digits):
    """Of the digits that did not train."""
    from lab.tests.images.common import batches
    from snaps_lab.images import extract

    return extract(net, batches([table[600:] for table in digits]))
