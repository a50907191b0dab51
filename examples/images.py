"""Images without a graph: a small network on scikit-learn's digits, and sets from its outputs.

Run it: python examples/images.py
"""

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

import snaps
from snaps_lab.images import extract

pixels, labels = load_digits(return_X_y=True)
images = torch.tensor(pixels / 16, dtype=torch.float32).reshape(-1, 1, 8, 8)
order = np.random.default_rng(0).permutation(len(labels))
training, held_out, calibration, test = np.split(order, [200, 350, 900])

torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Conv2d(1, 16, 3), torch.nn.ReLU(), torch.nn.MaxPool2d(2), torch.nn.Flatten(),
    torch.nn.Linear(144, 48), torch.nn.ReLU(), torch.nn.Linear(48, 10),
)  # fmt: skip
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for _ in range(25):
    optimizer.zero_grad()
    truth = torch.from_numpy(labels[training])
    torch.nn.functional.cross_entropy(model(images[training]), truth).backward()
    optimizer.step()

# Logits, and what enters the last layer, of every image; then a temperature from held-out ones.
loader = DataLoader(TensorDataset(images, torch.from_numpy(labels)), batch_size=256)
out = extract(model, loader)
logits = out.logits / snaps.images.temperature(out.logits[held_out], out.labels[held_out])

for name, method, first in (
    ("APS alone", snaps.SplitConformal(alpha=0.05), None),
    ("with similar images", snaps.images.EmbeddedSNAPS(alpha=0.05), out.features),
):
    method.calibrate(first, logits, out.labels, calibration, logits=True)
    found = method.evaluate(out.labels, test)
    print(f"{name}: {found['size']:.2f} labels per set, {found['coverage']:.3f} covered")

sets = method.predict_set(test)
print(sets)
for image, digits in list(zip(sets.nodes, sets, strict=True))[:5]:
    print(f"image {image}: {' or '.join(map(str, digits)) or 'none'}, in truth {labels[image]}")
