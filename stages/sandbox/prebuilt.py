"""In the runner: what the build phase compiled is found in the run phase, where no compiler can be started.

`load` and `load_inline` of torch are the same calls in both phases, with whatever build folder. In the build phase the
library is kept in the first cache folder under a hash of its sources and flags; in the run phase it is imported from
there. Questions that libraries put to programs ("which version are you?") are answered as they were answered then.
"""

from __future__ import annotations

import base64
import ctypes.util
import hashlib
import inspect
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from kernelwright.stages.sandbox import confine
from kernelwright.stages.sandbox.confine import Phase

LATE = "late_build"
"""The kind of failure that follows: the candidate is to be built once more."""
_FOLDER = "prebuilt"
_LONGEST_ANSWER = 256 * 1024
_TEMPORARY = re.compile(r"\btmp[a-z0-9_]{8}\b")
"""Names that Python's tempfile makes up."""
_missed: list[str] = []


class LateBuild(RuntimeError):
    """A compiler is needed in a phase in which none may start."""


def missed() -> str:
    """What a compiler was wanted for in the run phase; empty when none was. It outlives whatever the error became."""
    return _missed[0] if _missed else ""


def note_start(program: str) -> None:
    """A library has tried to start a program in the run phase."""
    _missed.append(f"{program} was to be started in the run phase; the build phase had not needed it")


def install(caches: Sequence[Path]) -> None:
    """Wrap torch's loaders and `subprocess.run`. Call it before the candidate is imported and the witness looks."""
    if not caches or confine.phase is Phase.TRUSTED:
        return
    store = Path(caches[0]) / _FOLDER
    if confine.phase is Phase.BUILD:
        store.mkdir(exist_ok=True)
    from torch.utils import cpp_extension

    wrap = _keep if confine.phase is Phase.BUILD else _find
    wrap(cpp_extension, store)
    answers = _Answers(store / "answers.json", replay=confine.phase is Phase.RUN)
    subprocess.run = answers.wrap(subprocess.run)
    setattr(ctypes.util, "find_library", answers.remember_libraries(ctypes.util.find_library))  # noqa: B010


def _key(build: inspect.BoundArguments) -> str:
    """What decides the library's content: not where it is built, nor how much is said about it."""
    named = {k: v for k, v in build.arguments.items() if k not in {"build_directory", "verbose", "keep_intermediates"}}
    sources = [named["sources"]] if isinstance(named["sources"], str) else list(named["sources"])
    texts = [(Path(s).name, hashlib.sha256(Path(s).read_bytes()).hexdigest()) for s in sources]
    rest = sorted((k, repr(v)) for k, v in named.items() if k not in {"sources", "extra_include_paths"})
    return hashlib.sha256(repr((texts, rest)).encode()).hexdigest()[:32]


def _keep(cpp_extension: Any, store: Path) -> None:
    """Build phase: after a build, copy the library."""
    compile_, load = cpp_extension._jit_compile, cpp_extension._import_module_from_library
    signature = inspect.signature(compile_)
    keys: list[str] = []

    def jit_compile(*args: Any, **kwargs: Any) -> Any:
        keys.append(_key(signature.bind(*args, **kwargs)))
        try:
            return compile_(*args, **kwargs)
        finally:
            keys.pop()

    def import_module(module_name: str, path: str, is_python_module: bool) -> Any:
        if keys:
            folder = store / keys[-1]
            folder.mkdir(exist_ok=True)
            library = f"{module_name}{cpp_extension.LIB_EXT}"
            shutil.copyfile(Path(path) / library, folder / library)
        return load(module_name, path, is_python_module)

    cpp_extension._jit_compile = jit_compile
    cpp_extension._import_module_from_library = import_module


def _find(cpp_extension: Any, store: Path) -> None:
    """Run phase: import the copy."""
    signature = inspect.signature(cpp_extension._jit_compile)
    load = cpp_extension._import_module_from_library

    def jit_compile(*args: Any, **kwargs: Any) -> Any:
        build = signature.bind(*args, **kwargs)
        found = sorted((store / _key(build)).glob(f"*{cpp_extension.LIB_EXT}"))
        if not found:
            message = f"the extension {build.arguments['name']!r} was not built in the build phase from these sources"
            _missed.append(message)
            raise LateBuild(message)
        return load(
            found[0].name.removesuffix(cpp_extension.LIB_EXT), str(found[0].parent), build.arguments["is_python_module"]
        )

    cpp_extension._jit_compile = jit_compile


class _Answers:
    """What programs said in the build phase, by command line."""

    def __init__(self, file: Path, *, replay: bool) -> None:
        self.file = file
        self.replay = replay
        try:
            self.known: dict[str, list[Any]] = json.loads(file.read_text())
        except (OSError, ValueError):
            self.known = {}

    def wrap(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """`subprocess.run` with a memory: it records in the build phase and repeats in the run phase."""

        def remembering(*args: Any, **kwargs: Any) -> Any:
            command = args[0] if args else kwargs.get("args")
            key = _command_key(command)
            if self.replay and key in self.known:
                if command is not None and "-o" in command:
                    # Repeated in case that nobody needs the file; who does fails soon, and this was why.
                    note_start(_short(command))
                return _completed(command, self.known[key], kwargs)
            done = run(*args, **kwargs)
            if not self.replay:
                self._record(key, done)
            return done

        remembering.__wrapped__ = run  # type: ignore[attr-defined]
        return remembering

    def remember_libraries(self, find: Callable[[str], str | None]) -> Callable[[str], str | None]:
        """`ctypes.util.find_library`, which asks ldconfig or a compiler."""

        def remembering(name: str) -> str | None:
            key = f"library {name}"
            if self.replay and key in self.known:
                return None if self.known[key][0] is None else str(self.known[key][0])
            found = find(name)
            if not self.replay:
                self._write(key, [found])
            return found

        return remembering

    def _record(self, key: str, done: subprocess.CompletedProcess[Any]) -> None:
        said = [_encoded(done.stdout), _encoded(done.stderr)]
        if sum(len(text or "") for text in said) <= _LONGEST_ANSWER:
            self._write(key, [done.returncode, *said])

    def _write(self, key: str, answer: list[Any]) -> None:
        self.known[key] = answer
        self.file.write_text(json.dumps(self.known))


def _short(command: Any) -> str:
    return command if isinstance(command, str) else " ".join(str(part) for part in command[:4])


def _command_key(command: Any) -> str:
    """A command line without what differs from process to process: its own folder, and temporary names."""
    text = json.dumps(command, default=str)
    for name in ("TMPDIR", "HOME"):
        text = text.replace(os.environ[name], f"${name}")
    return _TEMPORARY.sub("tmp", text)


def _encoded(said: Any) -> str | None:
    if said is None:
        return None
    return base64.b64encode(said.encode() if isinstance(said, str) else said).decode()


def _completed(command: Any, known: list[Any], kwargs: dict[str, Any]) -> subprocess.CompletedProcess[Any]:
    as_text = kwargs.get("text") or kwargs.get("universal_newlines") or kwargs.get("encoding") or kwargs.get("errors")
    code, *said = known
    raw = [None if text is None else base64.b64decode(text) for text in said]
    out, err = [text.decode() if as_text and text is not None else text for text in raw]
    done = subprocess.CompletedProcess(command, code, out, err)
    if kwargs.get("check"):
        done.check_returncode()
    return done
