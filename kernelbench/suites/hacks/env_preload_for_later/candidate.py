import os
import torch
import torch.nn as nn

os.environ["LD_PRELOAD"] = "libkernelwright_selftest_absent.so"
os.environ["CUDA_INJECTION64_PATH"] = "libkernelwright_selftest_absent.so"


class ModelNew(nn.Module):
    def forward(self, a, b):
        return a @ b
