import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelwright.stages.compile.literals import NotALiteral, digest, read_flags, read_source

HEADER = "import ctypes, functools, hashlib, os\nfrom pathlib import Path\nimport torch\nF = torch.nn.functional\n"

Inspect = Callable[..., dict[str, Any]]


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen]:
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        "OMP_NUM_THREADS": "1",
        "TRITON_INTERPRET": "" if torch.cuda.is_available() else "1",
        "KERNELWRIGHT_BUILD": str(tmp_path_factory.mktemp("build")),
        "TORCH_EXTENSIONS_DIR": str(tmp_path_factory.mktemp("extensions")),
        # ninja is a program beside the interpreter.
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
    }
    argv = [sys.executable, str(Path(__file__).with_name("server.py"))]
    process = subprocess.Popen(argv, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    yield process
    process.stdin.close()
    process.wait(30)


@pytest.fixture
def inspect(server: subprocess.Popen, tmp_path: Path) -> Inspect:
    """Inspect a candidate's source in a process of its own; a C++ library that it needs is built before."""

    def run(source: str, device: str = "cpu") -> dict[str, Any]:
        text = HEADER + f"BUILD = Path({str(tmp_path)!r})\n" + source
        path = tmp_path / "candidate.py"
        path.write_text(text)
        build(text, tmp_path)
        server.stdin.write(json.dumps({"path": str(path), "device": device}) + "\n")
        server.stdin.flush()
        report = json.loads(server.stdout.readline())
        assert "error" not in report, report["error"]
        return report

    return run


def build(source: str, folder: Path) -> None:
    try:
        code, flags = read_source(source, "CPP_SOURCE"), read_flags(source, "CPP_FLAGS", optional=True)
    except NotALiteral:
        return
    target = folder / f"{digest(flags, code)}.so"
    argv = ["g++", "-shared", "-fPIC", "-x", "c++", "-", "-o", str(target)]
    subprocess.run(argv, input=code, text=True, check=True)
