"""Your own PyTorch Geometric model: train it as you like, hand its logits over, get sets.

Run it: python examples/own_pyg_model.py
"""

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.nn import SAGEConv

import snaps
from snaps.datasets import make_graph
from snaps_lab.models.gnn import train


class Sage(torch.nn.Module):
    """Any module that maps (x, edge_index) to logits."""

    def __init__(self, num_features: int, num_classes: int):
        super().__init__()
        self.first = SAGEConv(num_features, 32)
        self.second = SAGEConv(32, num_classes)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.first(x, edge_index)), edge_index)


# A synthetic graph stands in for yours.
made = make_graph(3000, 5, degree=4, num_features=300, signal=1.3, seed=2)
source, target = made.graph.adjacency.tocoo().coords
data = Data(
    x=torch.tensor(made.graph.features.toarray()),
    edge_index=torch.from_numpy(np.stack([source, target]).astype(np.int64)),
    y=torch.from_numpy(made.labels),
)
order = torch.randperm(data.num_nodes, generator=torch.Generator().manual_seed(0))
training, validation, calibration, test = order.split([200, 200, 600, 2000])

# Three lines: the graph, the model's logits, the sets.
graph = snaps.Graph.from_pyg(data)
model = Sage(data.num_features, 5)
logits = train(model, graph, data.y, training, validation, max_epochs=100).logits
cp = snaps.Pooled(alpha=0.05).calibrate(
    graph, logits, data.y, calibration, known_nodes=torch.cat([training, validation]), logits=True
)

print(cp.predict_set(test))
print(cp.evaluate(data.y, test))
print(cp.explain(int(test[0])))
