"""Compile candidates. Importing the package registers its back ends."""

from kernelwright.stages.compile import cpp, cuda, library, triton
from kernelwright.stages.compile.base import BUILDERS, build_folder, compile_candidate, triton_cache

__all__ = ["BUILDERS", "build_folder", "compile_candidate", "cpp", "cuda", "library", "triton", "triton_cache"]
