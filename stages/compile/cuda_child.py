"""Child process of the CUDA back end: compile one source with NVRTC and report what each kernel needs.

`python -m kernelwright.stages.compile.cuda_child REQUEST` leaves the cubin and `answer.json` in the working directory.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kernelwright.stages.codec import to_json
from kernelwright.stages.compile import ptxas
from kernelwright.stages.compile.process import end_with_parent

_REMEDY = "pip install 'kernelwright[cuda]'"

_OPTIONS = {
    "use_fast_math": "use_fast_math",
    "ftz": "ftz",
    "prec-div": "prec_div",
    "prec-sqrt": "prec_sqrt",
    "fmad": "fma",
    "extra-device-vectorization": "extra_device_vectorization",
    "restrict": "restrict",
    "maxrregcount": "max_register_count",
    "std": "std",
}
"""NVRTC's names of the flags, and cuda-core's of the options."""


def program_options(flags: Sequence[str]) -> dict[str, Any]:
    """Allowed NVRTC flags as keyword arguments of cuda-core's ProgramOptions."""
    options: dict[str, Any] = {}
    macros: list[str | tuple[str, str]] = []
    for flag in flags:
        name, _, value = flag.lstrip("-").partition("=")
        if flag.startswith("-D"):
            macros.append((name[1:], value) if value else name[1:])
        elif name == "maxrregcount":
            options["max_register_count"] = int(value)
        elif name == "std":
            options["std"] = value
        else:
            options[_OPTIONS[name]] = value != "false"
    return options | ({"define_macro": macros} if macros else {})


def header_options(source: str) -> dict[str, Any]:
    """Where NVRTC finds CUDA's headers (`cuda_fp16.h`): in a toolkit when there is one, else those that it carries."""
    if "#include" not in source:
        return {}
    nvcc = shutil.which("nvcc")
    roots = [os.environ.get("CUDA_HOME"), nvcc and str(Path(nvcc).resolve().parent.parent), "/usr/local/cuda"]
    for root in filter(None, roots):
        if (Path(root) / "include" / "cuda_fp16.h").exists():
            return {"include_path": str(Path(root) / "include")}
    return {"use_bundled_headers": True}


def build(source: str, flags: Sequence[str], capability: int, cubin: str) -> dict[str, Any]:
    """Compile to `cubin`; the answer has the keys that `children.run_child` reads."""
    try:
        from cuda.core import Program, ProgramOptions
    except ImportError as error:
        return {"environment_fault": f"cuda-core is not installed ({error}); {_REMEDY}."}
    # The `a` variant has the instructions of exactly this architecture (wgmma, TMA), which is where the cubin runs.
    arch = f"sm_{capability}a" if capability >= 90 else f"sm_{capability}"
    log = io.StringIO()
    try:
        options = ProgramOptions(
            name="candidate.cu", arch=arch, ptxas_options=["-v"], **program_options(flags), **header_options(source)
        )
        code = Program(source, "c++", options).compile("cubin", logs=log)
    except Exception as error:  # noqa: BLE001  told apart by name: each cuda-core version raises a class of its own
        if "NVRTC_ERROR_COMPILATION" in str(error):
            return {"ok": False, "log": str(error).replace("\0", ""), "resources": []}
        return {"environment_fault": f"NVRTC did not start ({type(error).__name__}: {error}); {_REMEDY}."}
    Path(cubin).write_bytes(code.code)
    return {
        "ok": True,
        "log": _without_ptxas(log.getvalue()),
        "resources": [to_json(r) for r in ptxas.parse(log.getvalue())],
        "artefacts": [cubin],
    }


def _without_ptxas(log: str) -> str:
    """The compiler's warnings, without the figures that `resources` holds."""
    return "\n".join(line for line in log.splitlines() if not line.startswith("ptxas ")).strip("\0\n ")


def main() -> None:
    """Answer the request named on the command line."""
    end_with_parent()
    request = json.loads(Path(sys.argv[1]).read_text())
    answer = build(request["source"], request["flags"], request["capability"], request["cubin"])
    Path("answer.json").write_text(json.dumps(answer))


if __name__ == "__main__":
    main()
