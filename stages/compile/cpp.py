"""The C++ back end: g++ builds the candidate's CPP_SOURCE into a shared library that it calls through ctypes."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence

from kernelwright.kernelbench.errors import EnvironmentFault
from kernelwright.stages.compile.base import Built, Task, builds, unfinished
from kernelwright.stages.compile.deferred import NOTE, calls_extension_loader
from kernelwright.stages.compile.literals import NotALiteral, digest, read_flags, read_source
from kernelwright.stages.compile.process import child_environment, run_limited
from kernelwright.stages.types import Backend

_ALLOWED = re.compile(
    r"""
      -O(0|1|2|3|g|s|fast)?
    | -std=(c|gnu)\+\+[0-9a-z]+
    | -D\w+(=.*)?
    | -W(?![alp],)[\w+-]+(=\d+)?
    | -m[\w.+-]+(=[\w.+-]+)?
    | -f[a-z0-9-]+(=(\d+|on|off|fast|auto|hidden|default|dynamic|unlimited|cheap|very-cheap))?
    | -pthread
    | -l(mvec|m|gomp|pthread)
    """,
    re.VERBOSE,
)
"""Flags that choose how code is generated. What is left out reads or writes files or starts programs: -o, -include, -I,
-B, -specs, -wrapper, -Wl, and @file; a value after `=` cannot name a file."""

_FORBIDDEN = re.compile(
    r"-f(no-)?(plugin|dump|profile|auto-profile|test-coverage|modules?|deps|opt-info|save-optimization-record|stack-usage"
    r"|callgraph-info|compare-debug|use-ld|lto)"
)
"""Of the -f family, those that read or write files of their own, load a plugin, or choose another linker."""


def refused_flag(flags: Sequence[str]) -> str | None:
    """The first flag that a candidate may not use, or None."""
    for flag in flags:
        if not _ALLOWED.fullmatch(flag) or _FORBIDDEN.match(flag):
            return flag
    return None


@builds(Backend.CPP)
def build_cpp(task: Task) -> Built:
    """Build `<digest>.so`, where the digest is of CPP_FLAGS and CPP_SOURCE (`literals.digest`)."""
    if calls_extension_loader(task.candidate.source):
        return Built(ok=True, log=NOTE)
    try:
        source = read_source(task.candidate.source, "CPP_SOURCE")
        flags = read_flags(task.candidate.source, "CPP_FLAGS", optional=False)
    except NotALiteral as error:
        return Built(ok=False, log=str(error))
    if flag := refused_flag(flags):
        return Built(ok=False, log=f"CPP_FLAGS: {flag!r} is not allowed: only flags that choose how code is generated")
    compiler = shutil.which("g++")
    if compiler is None:
        raise EnvironmentFault("g++ was not found on PATH; install it (on Debian: apt-get install g++).")

    text = task.scratch / "candidate.cpp"
    text.write_text(source)
    library = task.scratch / f"{digest(flags, source)}.so"
    libraries = [flag for flag in flags if flag.startswith("-l")]
    options = [flag for flag in flags if flag not in libraries]
    # Libraries follow the source: a linker that drops unneeded ones would drop all that come before it.
    argv = [compiler, "-shared", "-fPIC", *options, "-x", "c++", text.name, *libraries, "-o", library.name]
    finished = run_limited(argv, cwd=task.scratch, deadline_s=task.deadline_s, env=child_environment(task.scratch))
    if ended := unfinished(finished, task.deadline_s):
        return ended
    ok = finished.returncode == 0
    return Built(ok=ok, log=finished.output, artefacts=(library,) if ok else ())
