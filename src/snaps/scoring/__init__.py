"""The left layer: from graph and probabilities to a score per node and label.

It sees no label but those of tuning and known nodes, which come as `Evidence`.
"""
