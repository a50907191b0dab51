"""The paper's models and their training loops: GCN, GAT, APPNP, MLP, FSGNN and CF-GNN."""
