import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.graphs = {}

    def capture(self, x):
        held = x.clone()
        torch.relu(held * 2.0 + 1.0) - held
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = torch.relu(held * 2.0 + 1.0) - held
        return graph, held, out

    def forward(self, x):
        key = (x.shape, x.dtype)
        if key not in self.graphs:
            self.graphs[key] = self.capture(x)
        graph, held, out = self.graphs[key]
        held.copy_(x)
        graph.replay()
        return out.clone()
