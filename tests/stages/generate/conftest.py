"""Runs emitted Triton kernels in a child process: by the interpreter, or by compiling them for sm_90.

The two need separate processes (TRITON_INTERPRET is read at import), and an out-of-bounds store kills the one it is in.
A launch is (kernel name, grid, tensors and integers of its positional arguments, constants by name). With None for the
grid it is a call of a plain Python function, whose result is put behind its arguments.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

HEADER = "import torch\nimport triton\nimport triton.language as tl\n\n\n"

LOAD = """
import importlib.util, json, sys, torch, triton
spec = importlib.util.spec_from_file_location("kernels", sys.argv[1] + "/kernels.py")
kernels = importlib.util.module_from_spec(spec)
spec.loader.exec_module(kernels)
launches = torch.load(sys.argv[1] + "/launches.pt", weights_only=True)
"""

INTERPRET = (
    LOAD
    + """
for name, grid, arguments, constants in launches:
    if grid is None:
        arguments.append(getattr(kernels, name)(*arguments))
    else:
        getattr(kernels, name)[tuple(grid)](*arguments, **constants)
torch.save([arguments for _, _, arguments, _ in launches], sys.argv[1] + "/results.pt")
"""
)

COMPILE = (
    LOAD
    + """
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
types = {"float32": "*fp32", "float16": "*fp16", "bfloat16": "*bf16", "int32": "*i32", "int64": "*i64", "bool": "*i1"}
found = {}
for name, _, arguments, constants in launches:
    fn = getattr(kernels, name)
    options = {k: v for k, v in constants.items() if k not in fn.arg_names}
    given = [types[str(a.dtype).removeprefix("torch.")] if isinstance(a, torch.Tensor) else "i32" for a in arguments]
    signature = {p: given[i] if i < len(given) else "constexpr" for i, p in enumerate(fn.arg_names)}
    values = {(i,): constants[p] for i, p in enumerate(fn.arg_names) if p in constants}
    aligned = {(i,): [["tt.divisibility", 16]] for i, kind in enumerate(given) if kind.startswith("*")}
    source = ASTSource(fn=fn, signature=signature, constexprs=values, attrs=aligned)
    binary = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    found[name] = {"shared": binary.metadata.shared, "ptx": binary.asm["ptx"]}
json.dump(found, open(sys.argv[1] + "/compiled.json", "w"))
"""
)


def run_child(code: str, folder: Path, source: str, launches: list[Any], interpreted: bool) -> None:
    (folder / "kernels.py").write_text(HEADER + source)
    torch.save(launches, folder / "launches.pt")
    environment = {
        **os.environ,
        "TRITON_INTERPRET": "1" if interpreted else "0",
        "TRITON_CACHE_DIR": str(folder / "cache"),
    }
    done = subprocess.run([sys.executable, "-c", code, str(folder)], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stderr[-4000:]}"


@pytest.fixture(scope="module")
def interpret(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, list[Any]], list[list[Any]]]:
    """`interpret(source, launches)`: the arguments of each launch as Triton's interpreter left them."""

    def run(source: str, launches: list[Any]) -> list[list[Any]]:
        folder = tmp_path_factory.mktemp("interpret")
        run_child(INTERPRET, folder, source, launches, interpreted=True)
        results: list[list[Any]] = torch.load(folder / "results.pt", weights_only=True)
        return results

    return run


@pytest.fixture(scope="module")
def compile_for_sm90(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, list[Any]], dict[str, Any]]:
    """`compile_for_sm90(source, launches)`: shared memory and PTX of each kernel, by its name; needs no GPU."""

    def run(source: str, launches: list[Any]) -> dict[str, Any]:
        folder = tmp_path_factory.mktemp("compile")
        run_child(COMPILE, folder, source, launches, interpreted=False)
        found: dict[str, Any] = json.loads((folder / "compiled.json").read_text())
        return found

    return run
