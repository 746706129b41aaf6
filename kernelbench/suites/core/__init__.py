"""The suite `core`: small problems of our own, in KernelBench's contract.

Each reference uses torch's fused operator where one exists, so that no gain comes from a weak reference. Default sizes
take milliseconds on two CPU cores; `SHAPES` holds `tiny` for interpreters and `gpu` for a data-centre GPU. Parameters
are random throughout (no scale of 1, no bias of 0), so that a candidate that forgets one is wrong, and every parameter
and input influences the output.
"""
