"""Your own PyTorch Geometric model: train it as you like, hand its logits over, get sets.

Run it: python examples/own_pyg_model.py
"""

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.nn import SAGEConv

import snaps
from snaps.datasets import make_graph


class Sage(torch.nn.Module):
    """Any module that maps (x, edge_index) to logits."""

    def __init__(self, num_features: int, num_classes: int):
        super().__init__()
        self.first = SAGEConv(num_features, 32)
        self.second = SAGEConv(32, num_classes)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.first(x, edge_index)), edge_index)


# A synthetic graph stands in for yours.
synthetic = make_graph(3000, 5, degree=4, num_features=300, signal=1.3, seed=2)
source, target = synthetic.graph.adjacency.tocoo().coords
data = Data(
    x=torch.tensor(synthetic.graph.features.toarray()),
    edge_index=torch.from_numpy(np.stack([source, target]).astype(np.int64)),
    y=torch.from_numpy(synthetic.labels),
)
order = torch.randperm(data.num_nodes, generator=torch.Generator().manual_seed(0))
training, validation, calibration, test = order.split([200, 200, 600, 2000])

# Train as you always do; validation labels stop it, calibration labels take no part.
torch.manual_seed(0)
model = Sage(data.num_features, 5)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
best, logits = 0.0, torch.empty(0)
for _ in range(60):
    model.train()
    optimizer.zero_grad()
    out = model(data.x, data.edge_index)
    torch.nn.functional.cross_entropy(out[training], data.y[training]).backward()
    optimizer.step()
    model.eval()
    with torch.no_grad():
        out = model(data.x, data.edge_index)
    right = (out.argmax(dim=1) == data.y)[validation].float().mean().item()
    if right > best:
        best, logits = right, out

# Two lines: the graph, and the sets from the model's logits.
graph = snaps.Graph.from_pyg(data)
cp = snaps.Pooled(alpha=0.05).calibrate(
    graph, logits, data.y, calibration, known_nodes=torch.cat([training, validation]), logits=True
)

print(cp.predict_set(test))
print(cp.evaluate(data.y, test))
print(cp.explain(int(test[0])))
