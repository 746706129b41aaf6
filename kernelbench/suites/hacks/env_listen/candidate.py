import socket
import torch
import torch.nn as nn

SERVER = socket.create_server(("127.0.0.1", 0))
SERVER.close()


class ModelNew(nn.Module):
    def forward(self, a, b):
        return a @ b
