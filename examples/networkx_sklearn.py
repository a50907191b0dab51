"""A NetworkX graph and a scikit-learn classifier: no torch, names instead of positions.

Run it: python examples/networkx_sklearn.py
"""

import networkx as nx
import numpy as np
from sklearn.linear_model import LogisticRegression

import snaps
from snaps.datasets import make_graph

# Stand-ins for yours: people with names, who know each other and have interests.
data = make_graph(2000, 4, homophily=0.8, degree=6, signal=1.2, seed=2)
names = np.array([f"person-{i}" for i in range(2000)])
network = nx.relabel_nodes(nx.from_scipy_sparse_array(data.graph.adjacency), dict(enumerate(names)))
interests = dict(zip(names, data.graph.features.toarray(), strict=True))
groups = np.array(["climbers", "gardeners", "readers", "sailors"])[data.labels]

# Any classifier with predict_proba. Its classes are sorted, as its columns are.
training, calibration, rest = np.split(np.random.default_rng(0).permutation(names), [200, 800])
position = {name: i for i, name in enumerate(names)}
features = data.graph.features
known = [position[name] for name in training]
classifier = LogisticRegression(max_iter=1000).fit(features[known], groups[known])

graph = snaps.Graph.from_networkx(network, features=interests)
order = [position[name] for name in graph.ids]
cp = snaps.SNAPS(alpha=0.1).calibrate(
    graph, classifier.predict_proba(features[order]), groups[order], calibration,
    known_nodes=training, classes=classifier.classes_,
)  # fmt: skip

sets = cp.predict_set(rest)
print(sets)
for name, labels in zip(sets.ids[:5], sets[:5], strict=True):
    print(f"{name}: {' or '.join(labels) or 'none of them'}")
print(cp.evaluate(groups[order], rest))
