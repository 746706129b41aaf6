"""Temporary folders that do not outlive their process by long, even where it was killed.

Whoever makes one holds a lock on a file in it, which the kernel lets go with the process; the next to make one removes
those that nobody holds.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

PREFIX = "kernelwright-"
LOCK = ".in-use"


@contextlib.contextmanager
def folder(name: str) -> Iterator[Path]:
    """A folder of that name and a few letters more; gone afterwards."""
    _sweep(Path(tempfile.gettempdir()))
    made = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{name}-")).resolve()
    try:
        with (made / LOCK).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _sweep(where: Path) -> None:
    for lock in where.glob(f"{PREFIX}*/{LOCK}"):
        # Another user's, or removed by another sweep just now.
        with contextlib.suppress(OSError), lock.open("r+") as held:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(held.fileno()).st_nlink:
                shutil.rmtree(lock.parent, ignore_errors=True)
