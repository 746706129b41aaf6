"""What this machine offers: one finding a question, each found out by trying."""

from __future__ import annotations

import http.client
import importlib.metadata
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelwright.stages.compile.process import python_environment
from kernelwright.stages.sandbox.confine import FILES, MEASURES, NETWORK, PRIVILEGES, PROCESSES, SYSTEM_CALLS

_PYTHON = (3, 11)
_TORCH = (2, 9)
_FREE_GIB = 5.0
"""Disk space below which a run may not fit: built kernels, caches, the archive."""

_TRY_S = 120.0
"""Longest that one probe may take: importing torch from a cold disk."""

_ENDPOINT_S = 2.0

_ALLOW_NAMESPACES = (
    "Allow unprivileged user namespaces (sysctl kernel.unprivileged_userns_clone=1, and on Ubuntu "
    "kernel.apparmor_restrict_unprivileged_userns=0), or give the container CAP_SYS_ADMIN."
)
_SANDBOX_REMEDIES = {
    NETWORK: _ALLOW_NAMESPACES,
    PROCESSES: _ALLOW_NAMESPACES,
    FILES: _ALLOW_NAMESPACES,
    PRIVILEGES: "Run on x86-64 or 64-bit Arm.",
    SYSTEM_CALLS: "Use a kernel with seccomp filters, on x86-64 or 64-bit Arm.",
}


@dataclass(frozen=True)
class Finding:
    """One line of the doctor's report."""

    name: str
    ok: bool | None
    """True: there and works. False: missing or broken. None: absent, and only some uses need it."""
    detail: str
    remedy: str = ""
    """One sentence; empty when `ok` is True."""


def probe() -> list[Finding]:
    """Ask everything, several at once, and give the findings in a fixed order. Takes a few seconds."""
    with ThreadPoolExecutor(len(_PROBES)) as pool:
        answers = pool.map(lambda ask: ask(), _PROBES)
        return [finding for answer in answers for finding in (answer if isinstance(answer, list) else [answer])]


def usable(findings: Iterable[Finding]) -> bool:
    """Whether candidates can be made here at all: Python, torch, and a compiler for one back end that can run."""
    good = {finding.name for finding in findings if finding.ok}
    return {"python", "torch"} <= good and ("g++" in good or {"gpu", "triton"} <= good)


@dataclass(frozen=True)
class _Tried:
    """How a command ended."""

    ok: bool
    output: str

    @property
    def last_line(self) -> str:
        """What a failing command says last, as a rule its reason."""
        return (self.output.strip().splitlines() or ["no output"])[-1]


def _try(argv: Sequence[str], *, text: str = "", env: dict[str, str] | None = None) -> _Tried:
    """Run a command to its end. One that cannot start or takes too long has not worked."""
    try:
        done = subprocess.run(argv, input=text, capture_output=True, text=True, timeout=_TRY_S, check=False, env=env)
    except (OSError, subprocess.TimeoutExpired) as error:
        return _Tried(False, str(error))
    return _Tried(done.returncode == 0, done.stdout if done.returncode == 0 else done.stdout + done.stderr)


def _try_python(code: str) -> _Tried:
    """Run code in a fresh interpreter that imports what this one can, and sees the GPUs that this one sees."""
    gpus = {name: os.environ[name] for name in ("CUDA_VISIBLE_DEVICES",) if name in os.environ}
    with tempfile.TemporaryDirectory() as scratch:
        return _try([sys.executable, "-c", code], env=python_environment(Path(scratch), **gpus))


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    wanted = ".".join(map(str, _PYTHON))
    ok = sys.version_info[:2] >= _PYTHON
    return Finding("python", ok, version, "" if ok else f"Install Python {wanted} or newer.")


def _torch() -> Finding:
    wanted = ".".join(map(str, _TORCH))
    install = f"Install it: pip install 'torch>={wanted}'."
    if importlib.util.find_spec("torch") is None:
        return Finding("torch", False, "not installed", install)
    tried = _try_python("import torch; print(torch.__version__, torch.get_num_threads(), torch.ones(2).numpy().sum())")
    if not tried.ok:
        return Finding("torch", False, f"does not import: {tried.last_line}", "Install it anew, with numpy beside it.")
    version, threads = tried.output.split()[-3:-1]
    if tuple(int(part) for part in version.split(".")[:2]) < _TORCH:
        return Finding("torch", False, f"{version}, older than {wanted}", install)
    return Finding("torch", True, f"{version}, {threads} CPU threads")


def _triton() -> Finding:
    if importlib.util.find_spec("triton") is None:
        return Finding("triton", None, "not installed", "For GPU kernels: pip install triton.")
    tried = _try_python("import triton; print(triton.__version__)")
    if not tried.ok:
        return Finding("triton", False, f"does not import: {tried.last_line}", "Install it anew: pip install triton.")
    return Finding("triton", True, f"{tried.output.split()[-1]}, compiles for GPUs that are not here too")


def _gpp() -> Finding:
    remedy = "Install a C++ compiler with OpenMP; on Debian: apt-get install g++."
    if shutil.which("g++") is None:
        return Finding("g++", False, "not on PATH", remedy)
    with tempfile.TemporaryDirectory() as scratch:
        library = str(Path(scratch) / "probe.so")
        program = '#include <omp.h>\nextern "C" int f() { return omp_get_max_threads(); }\n'
        tried = _try(["g++", "-shared", "-fPIC", "-fopenmp", "-O2", "-x", "c++", "-", "-o", library], text=program)
    if not tried.ok:
        return Finding("g++", False, f"cannot build: {tried.last_line}", remedy)
    return Finding("g++", True, f"{_try(['g++', '-dumpfullversion']).output.strip()}, with OpenMP")


def _cuda_compiler() -> Finding:
    remedy = "For CUDA C++ candidates: pip install 'kernelwright[cuda]'."
    code = """
from cuda.core import Program, ProgramOptions
Program('extern "C" __global__ void f() {}', "c++", ProgramOptions(arch="sm_90")).compile("cubin")
"""
    nvcc = _try(["nvcc", "--version"]) if shutil.which("nvcc") else None
    release = next((word for word in (nvcc.output if nvcc else "").split() if word.startswith("V")), "")
    beside = f"; nvcc {release[1:]}" if release else ""
    if importlib.util.find_spec("cuda") is None:
        return Finding("nvrtc", None, f"cuda-core is not installed{beside}", remedy)
    tried = _try_python(code)
    if not tried.ok:
        return Finding("nvrtc", None, f"does not compile: {tried.last_line}{beside}", remedy)
    return Finding("nvrtc", True, f"cuda-core {importlib.metadata.version('cuda-core')}{beside}")


def _gpu() -> Finding:
    query = ["nvidia-smi", "--query-gpu=name,driver_version,compute_cap,memory.total", "--format=csv,noheader"]
    if shutil.which("nvidia-smi") is None:
        return Finding("gpu", None, "no NVIDIA driver", "Without one, C++ candidates run on the CPU.")
    tried = _try(query)
    if not tried.ok or not tried.output.strip():
        return Finding("gpu", None, f"nvidia-smi: {tried.last_line}", "Check the NVIDIA driver; the CPU works without.")
    name, driver, capability, memory = (part.strip() for part in tried.output.splitlines()[0].split(","))
    detail = f"{name}, {memory}, sm_{capability.replace('.', '')}, driver {driver}"
    seen = _try_python("import torch; torch.zeros(1, device='cuda'); print(torch.cuda.device_count())")
    if not seen.ok:
        remedy = "Install a torch build with CUDA support that this driver can run."
        return Finding("gpu", False, f"{detail}; torch cannot use it: {seen.last_line}", remedy)
    return Finding("gpu", True, f"{detail}, {seen.output.split()[-1]} in all")


def _ninja() -> Finding:
    if shutil.which("ninja") is None:
        return Finding("ninja", None, "not on PATH", "Only torch's load_inline needs it: pip install ninja.")
    return Finding("ninja", True, _try(["ninja", "--version"]).output.strip())


def _sandbox() -> list[Finding]:
    """Each measure by which candidates are confined, tried in a process of its own."""
    code = "import json; from kernelwright.stages.sandbox import confine; print(json.dumps(confine.available()))"
    tried = _try_python(code)
    works = json.loads(tried.output) if tried.ok else dict.fromkeys(MEASURES, tried.last_line)
    return [
        Finding(f"sandbox: {name}", True, meaning)
        if works[name] is True
        else Finding(f"sandbox: {name}", None, f"{works[name]}; candidates run without it", _SANDBOX_REMEDIES[name])
        for name, meaning in MEASURES.items()
    ]


def _endpoint() -> Finding:
    """The model endpoint that the environment names; nothing is sent when it names none."""
    base, key = os.environ.get("OPENAI_BASE_URL", ""), os.environ.get("OPENAI_API_KEY", "")
    if not base and not key:
        remedy = "The built-in generator needs none; for a model set OPENAI_BASE_URL and OPENAI_API_KEY."
        return Finding("model endpoint", None, "none set", remedy)
    base = base or "https://api.openai.com/v1"
    where = urllib.parse.urlsplit(base).netloc.rpartition("@")[2] or base
    remedy = "Check OPENAI_BASE_URL and the network; the built-in generator works without."
    try:
        request = urllib.request.Request(f"{base.rstrip('/')}/models", headers={"Authorization": f"Bearer {key}"})
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=_ENDPOINT_S):
            return Finding("model endpoint", True, f"{where} answers{'' if key else ', no key set'}")
    except urllib.error.HTTPError as error:
        if error.code in (401, 403):
            detail = f"{where} refuses the key (HTTP {error.code})" if key else f"{where} wants a key, none is set"
            return Finding("model endpoint", False, detail, "Set OPENAI_API_KEY to a key of this endpoint.")
        # Not every server lists its models; an answer shows that one is there.
        return Finding("model endpoint", True, f"{where} answers (HTTP {error.code} for /models)")
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or type(error).__name__
        return Finding("model endpoint", False, f"{where} does not answer: {reason}", remedy)
    except ValueError:
        # The exception's text may hold the key.
        detail = "OPENAI_BASE_URL or OPENAI_API_KEY is malformed"
        return Finding("model endpoint", False, detail, "Write the URL as https://host/v1, the key without spaces.")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect is an answer; following it would hand the key to another host."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        """Follow none."""


def _disk() -> Finding:
    free_gib = shutil.disk_usage(Path.cwd()).free / 2**30
    ok = free_gib >= _FREE_GIB
    return Finding("disk", ok, f"{free_gib:.0f} GiB free here", "" if ok else f"Free up {_FREE_GIB:.0f} GiB.")


_PROBES: tuple[Callable[[], Finding | list[Finding]], ...] = (
    _python,
    _torch,
    _triton,
    _gpp,
    _cuda_compiler,
    _gpu,
    _ninja,
    _sandbox,
    _endpoint,
    _disk,
)
