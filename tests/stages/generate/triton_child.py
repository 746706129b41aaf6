"""Runs emitted Triton kernels in a child process: by the interpreter, or by compiling them for sm_90.

The two need separate processes (TRITON_INTERPRET is read at import), and an out-of-bounds store kills the one it is in.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

HEADER = "import torch\nimport triton\nimport triton.language as tl\n\n\n"

INTERPRET = """
import sys, torch, importlib.util
spec = importlib.util.spec_from_file_location("kernels", sys.argv[1] + "/kernels.py")
kernels = importlib.util.module_from_spec(spec)
spec.loader.exec_module(kernels)
launches = torch.load(sys.argv[1] + "/launches.pt", weights_only=True)
for name, grid, arguments, constants in launches:
    getattr(kernels, name)[tuple(grid)](*arguments, **constants)
torch.save([arguments for _, _, arguments, _ in launches], sys.argv[1] + "/results.pt")
"""

COMPILE = """
import sys, json, importlib.util, triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
spec = importlib.util.spec_from_file_location("kernels", sys.argv[1] + "/kernels.py")
kernels = importlib.util.module_from_spec(spec)
spec.loader.exec_module(kernels)
found = []
for name, types, constants, options in json.load(open(sys.argv[1] + "/compile.json")):
    fn = getattr(kernels, name)
    signature = {p: types.get(p, "constexpr") for p in fn.arg_names}
    values = {(i,): constants[p] for i, p in enumerate(fn.arg_names) if p in constants}
    aligned = {(i,): [["tt.divisibility", 16]] for i, p in enumerate(fn.arg_names) if types.get(p, "").startswith("*")}
    source = ASTSource(fn=fn, signature=signature, constexprs=values, attrs=aligned)
    binary = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    found.append({"name": name, "shared": binary.metadata.shared, "ptx": binary.asm["ptx"]})
json.dump(found, open(sys.argv[1] + "/compiled.json", "w"))
"""


@dataclass
class Launch:
    """One kernel launch: the tensors and integers of its positional arguments, then its constants by name."""

    kernel: str
    grid: tuple[int, ...]
    arguments: list[Any]
    constants: dict[str, int] = field(default_factory=dict)


def child(code: str, folder: Path, interpret: bool) -> None:
    environment = {**os.environ, "TRITON_INTERPRET": "1" if interpret else "0", "TRITON_CACHE_DIR": str(folder / "cache")}
    done = subprocess.run([sys.executable, "-c", code, str(folder)], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stderr[-4000:]}"


def interpret(folder: Path, source: str, launches: list[Launch]) -> list[list[Any]]:
    """The arguments of each launch as the interpreter left them."""
    (folder / "kernels.py").write_text(HEADER + source)
    torch.save([(la.kernel, la.grid, la.arguments, la.constants) for la in launches], folder / "launches.pt")
    child(INTERPRET, folder, interpret=True)
    results: list[list[Any]] = torch.load(folder / "results.pt", weights_only=True)
    return results
