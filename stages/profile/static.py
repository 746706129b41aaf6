"""The static tier: what the compiler made of a candidate's kernels, read from the files that it left.

`objdump` for shared libraries, `cuobjdump` (of CUDA's toolkit, or the one that Triton carries, which needs no GPU) for
cubins. The tools read files that a candidate had a hand in, so that `record` runs in a confined process that has never
imported it; `read` works where the answer arrives.
"""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kernelwright.stages.codec import to_json
from kernelwright.stages.profile import sass, x86
from kernelwright.stages.profile.plain import count, number, words
from kernelwright.stages.profile.report import KernelCode

MOST_FILES = 24
MOST_KERNELS = 40
TOOL_TIMEOUT_S = 30.0
_COMPILERS_OWN = ("__triton_launcher", "cuda_utils", "inductor")
"""In the paths of libraries that torch's and Triton's compilers build for themselves."""
CLASSES = (*sass.CLASSES, *x86.CLASSES)


def record(folder: Path, device: str) -> dict[str, Any]:
    """Disassemble what lies in a candidate's build folder. The answer holds `code`, or `missing`: why there is none."""
    found: list[KernelCode] = []
    missing = "the build left no library and no cubin"
    for file in _files(folder, device):
        tool = cuobjdump() if device == "cuda" else shutil.which("objdump")
        if tool is None:
            return {"missing": f"{'cuobjdump' if device == 'cuda' else 'objdump'} is not installed"}
        if device == "cpu" and platform.machine() != "x86_64":
            return {"missing": f"no figures for code of {platform.machine()}"}
        found += _of_cubin(tool, file) if device == "cuda" else _of_library(tool, file)
        missing = "the disassembler found no kernel"
    return {"code": [to_json(code) for code in found[:MOST_KERNELS]]} if found else {"missing": missing}


def _files(folder: Path, device: str) -> list[Path]:
    kinds = ("*.cubin", "*.so") if device == "cuda" else ("*.so",)
    files = [f for kind in kinds for f in sorted(folder.rglob(kind)) if not any(m in str(f) for m in _COMPILERS_OWN)]
    # A library that a build folder and a cache both hold is read once.
    return list({f.name: f for f in files if f.is_file()}.values())[:MOST_FILES]


def cuobjdump() -> str | None:
    """The program of CUDA's toolkit, else the one in Triton's package."""
    spec = importlib.util.find_spec("triton")
    carried = [Path(p) / "backends" / "nvidia" / "bin" for p in (spec.submodule_search_locations or ())] if spec else []
    return shutil.which("cuobjdump", path=os.pathsep.join([os.environ.get("PATH", ""), *map(str, carried)]))


def _of_cubin(tool: str, file: Path) -> Iterator[KernelCode]:
    # cuobjdump starts nvdisasm, which lies beside it.
    environment = os.environ | {"PATH": os.pathsep.join([str(Path(tool).parent), os.environ.get("PATH", "")])}
    needs = sass.usage(_said(tool, "-res-usage", file, environment))
    about = _triton_metadata(file)
    for kernel, target, mix in sass.mixes(_said(tool, "-sass", file, environment)):
        own = needs.get(kernel, {})
        yield KernelCode(
            kernel,
            target,
            registers=own.get("REG"),
            shared_bytes=about.get("shared", own.get("SHARED")),
            local_bytes=max(own.get("STACK", 0), own.get("LOCAL", 0)) if own else None,
            threads=32 * about["num_warps"] if "num_warps" in about else None,
            instructions=mix.classes,
            vector_bits=mix.load_bits,
        )


def _of_library(tool: str, file: Path) -> Iterator[KernelCode]:
    for function, mix in x86.mixes(_said(tool, "-d", file, dict(os.environ), "--no-show-raw-insn")):
        yield KernelCode(function, "x86-64", instructions=mix.classes, vector_bits=mix.vector_bits)


def _triton_metadata(cubin: Path) -> dict[str, int]:
    """What Triton's compiler wrote beside a cubin of its own."""
    try:
        data = json.loads(cubin.with_suffix(".json").read_text())
        return {name: int(data[name]) for name in ("num_warps", "shared") if name in data}
    except (OSError, ValueError, TypeError):
        return {}


def _said(tool: str, option: str, file: Path, environment: Mapping[str, str], *more: str) -> str:
    try:
        done = subprocess.run(
            [tool, option, *more, str(file)],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TOOL_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace")


def read(answer: dict[str, Any]) -> tuple[KernelCode, ...]:
    """The kernels of an answer. Raises ValueError for one that is not of this form."""
    return tuple(_read_one(one) for one in answer["code"][:MOST_KERNELS])


def _read_one(one: dict[str, Any]) -> KernelCode:
    return KernelCode(
        kernel=words(one["kernel"]),
        target=words(one["target"]),
        registers=count(one["registers"]),
        shared_bytes=count(one["shared_bytes"]),
        local_bytes=count(one["local_bytes"]),
        threads=count(one["threads"]),
        instructions={name: int(number(one["instructions"][name])) for name in CLASSES if name in one["instructions"]},
        vector_bits=count(one["vector_bits"]),
    )
