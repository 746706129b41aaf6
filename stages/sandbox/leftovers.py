"""Files that a candidate has left where a later process of its kind would look for them.

They lead nowhere: the folder is new for each process and ends with it. But who leaves a result there means to be timed
on fetching it. Sources, compiled code, and what runtimes keep are no such files.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator

from kernelwright.stages.sandbox import confine, view

MAX_LOOKED_AT = 2000
_RUNTIME = (
    "torchinductor_", ".triton", "triton", ".nv", "torch_extensions", ".cache", "inductor", "tmpdir", "pymp-", "cuda",
    "__pycache__", ".ninja", ".cupy", ".keras", ".config", "nvidia-mps", "torch_", "__KMP", "sem.", "nccl-", "numba",
)  # fmt: skip
"""Beginnings of the names that compilers and runtimes use."""
_SOURCES = (".py", ".c", ".cc", ".cpp", ".cxx", ".cu", ".cuh", ".h", ".hpp", ".hip", ".ptx", ".ninja", ".ll", ".ttir")
_ELF, _SAVED = b"\x7fELF", (b"PK\x03\x04", b"\x93NUMPY", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
_listdir, _open, _lstat, _join = os.listdir, os.open, os.lstat, os.path.join
_read, _close, _isdir, _islink = os.read, os.close, os.path.isdir, os.path.islink


def left(made: Collection[str]) -> list[str]:
    """A sentence a file. `made` holds the paths that Python's tempfile gave out: no other process would find those."""
    sentences = []
    for root in _roots():
        for path in _files(root, made):
            if not _is_source(path):
                sentences.append(
                    f"left {path.removeprefix(root).lstrip('/')} in {root}, where another process finds it"
                )
    working = os.getcwd()  # noqa: PTH109
    for path in _files(working, made):
        if _head(path).startswith(_SAVED):
            sentences.append(f"left data in its working directory ({path.removeprefix(working).lstrip('/')})")
    return sentences[:10]


def _roots() -> list[str]:
    roots = [os.environ["TMPDIR"], os.environ["HOME"]]
    return [*roots, *view.private_folders()]


def _files(root: str, made: Collection[str]) -> Iterator[str]:
    """Plain files at or below `root`, but for what runtimes and tempfile have made there.

    What lies on another device is shown to the process, not made by it: a project that was cloned into /tmp, say.
    """
    waiting, looked_at = [root], 0
    device = _device(root)
    skipped = {*made, *map(str, confine.caches)}
    while waiting and looked_at < MAX_LOOKED_AT:
        folder = waiting.pop()
        try:
            names = _listdir(folder)
        except OSError:
            continue
        for name in names:
            looked_at += 1
            path = _join(folder, name)
            if path in skipped or name.startswith(_RUNTIME) or _islink(path) or _device(path) != device:
                continue
            # Our own folders lie below /tmp, under a name that starts so.
            if _isdir(path):
                if not name.startswith("kernelwright-"):
                    waiting.append(path)
            elif stat.S_ISREG(_lstat(path).st_mode):
                yield path


def _device(path: str) -> int | None:
    try:
        return _lstat(path).st_dev
    except OSError:
        return None


def _is_source(path: str) -> bool:
    head = _head(path)
    return head.startswith(_ELF) or (path.endswith(_SOURCES) and b"\0" not in head)


def _head(path: str) -> bytes:
    try:
        descriptor = _open(path, os.O_RDONLY)
    except OSError:
        return b""
    try:
        return _read(descriptor, 4096)
    finally:
        _close(descriptor)
