"""Kernelwright: give it a PyTorch module, get back a faster one, with a result that can be believed."""

__version__ = "0.1.0"
