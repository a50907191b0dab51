"""The shortest way: arrays in, prediction sets out; no torch.

Run it: python examples/arrays.py
"""

import numpy as np

import snaps
from snaps.datasets import make_graph
from snaps.models import smoothed_regression

# Stand-ins for what you have: edges, features, labels of some nodes, a classifier's probabilities.
data = make_graph(3000, 6, homophily=0.7, degree=3, signal=1.5, seed=1)
order = np.random.default_rng(0).permutation(3000)
training, calibration, test = np.split(order, [120, 1120])
probs = smoothed_regression(data.graph, data.labels, training)

cp = snaps.SNAPS(alpha=0.05).calibrate(data.graph, probs, data.labels, calibration)
sets = cp.predict_set(test)

print(sets)
print("weights (similar, linked):", cp.weights_)
print("sets of one label:", int((sets.sizes == 1).sum()), "of", len(sets))
print(cp.evaluate(data.labels, test))
print(cp.exchangeability(test))
