"""What a candidate's process sees of the file system: the system's programs and libraries, Python's packages, its own
folder, and nothing else; everything but that folder read-only.

Made anew for each process in a mount namespace of its own, out of bind mounts, on one small file system in memory that
also holds whatever the process writes. It is gone with the process.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from kernelwright.stages.sandbox import linux

SYSTEM = ("bin", "sbin", "lib", "lib32", "lib64", "libx32", "usr", "opt", "sys", "nix", "gnu")
"""Folders of the root that hold programs, libraries and the kernel's description of the hardware."""
SETTINGS = (
    "alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "passwd", "group", "nsswitch.conf", "localtime",
    "timezone", "os-release", "nvidia", "OpenCL", "vulkan",
)  # fmt: skip
"""Names in /etc that programs and compilers need. Keys, passwords and host names are not among them."""
DEVICES = ("null", "zero", "full", "random", "urandom", "nvidia*", "kfd", "dri", "dxg")
"""Names in /dev. No disk is among them: a read-only mount would not keep root from writing to one."""
KERNEL_SETTINGS = ("sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi", "mtrr")
"""Names in /proc through which root, even without capabilities, could change the machine."""
WRITABLE = ("work", "tmp", "home")
"""The parts of a process's own folder: the working directory, TMPDIR and HOME."""
OWN_FOLDER = Path("/.own")
"""Holds what a process writes; there only where `build` has made the root."""
BUILT = Path("/.built")
"""The cache folders as the build phase leaves them, by number, for a process that works on copies of them."""
_PACKAGE = Path(__file__).absolute().parents[2]
_PROC = linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC
COPY_LIMIT = 256 * 2**20
"""Bytes of a cache folder that are copied so that the process may write to its copy; a larger one is read-only."""


def needed(environment: dict[str, str]) -> list[Path]:
    """The folders that this interpreter, its packages and its libraries lie in. Call it once all is imported."""
    found = [Path("/") / name for name in SYSTEM] + [Path("/etc") / name for name in SETTINGS]
    found += [Path(p) for p in (sys.prefix, sys.base_prefix, sys.exec_prefix)]
    found += [Path(p) for p in sys.path if Path(p).name in {"site-packages", "dist-packages"}]
    found += [Path(p) for p in (*sys.path, *_own_package()) if p and _is_below(Path(p), found)]
    found += [Path(p) for p in _own_package()]
    for name in ("PATH", "LD_LIBRARY_PATH", "CUDA_HOME"):
        found += [Path(p) for p in environment.get(name, "").split(os.pathsep) if p.startswith("/")]
    found += _loaded_packages(found) + _loaded_libraries()
    # Not Path.exists, which raises where a folder above may not be searched.
    return _outermost(path for path in found if os.path.exists(path))  # noqa: PTH110


def _own_package() -> list[str]:
    """Where our own modules lie: a checkout is no package folder, and what lies beside them is not shown."""
    return [str(_PACKAGE), *(str((_PACKAGE / part).resolve()) for part in ("stages", "kernelbench"))]


def suites() -> Path:
    """The folder with problems, and with candidates whose verdict is known: never shown."""
    return (_PACKAGE / "kernelbench" / "suites").resolve()


def _loaded_packages(found: Sequence[Path]) -> list[Path]:
    """Folders of imported packages that lie elsewhere, as those that are installed for development do."""
    files = [getattr(m, "__file__", None) for name, m in list(sys.modules.items()) if "." not in name]
    folders = [Path(f).parent for f in files if f and Path(f).name == "__init__.py"]
    return [f for f in folders if f.is_absolute() and not _is_below(f, found)]


def _loaded_libraries() -> list[Path]:
    fields = [line.split(maxsplit=5) for line in Path("/proc/self/maps").read_text().splitlines()]
    return list({Path(f[5]).parent for f in fields if len(f) == 6 and ".so" in f[5] and f[5].startswith("/")})


def _is_below(path: Path, folders: Iterable[Path]) -> bool:
    return any(path == f or path.is_relative_to(f) for f in folders)


def _outermost(paths: Iterable[Path]) -> list[Path]:
    kept: list[Path] = []
    for path in sorted(set(paths), key=lambda p: len(p.parts)):
        if len(path.parts) > 1 and not _is_below(path, kept):
            kept.append(path)
    return kept


def build(home: Path, shown: Sequence[Path], caches: Sequence[Path], *, keep_writes: bool, limit: int) -> None:
    """Enter a root that shows `shown`, `home` and `caches`. The caller has called `own_proc`.

    `keep_writes`: what is written to `caches` stays; else they are empty until `take_caches` copies what was built
    meanwhile, and end with the process. `limit`: bytes that all writing may take. Raises OSError where the kernel does
    not allow a step.
    """
    hidden = suites()
    root = home / WRITABLE[0]
    linux.mount("tmpfs", root, "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, f"size={limit},mode=755")
    devices = [node for pattern in DEVICES for node in Path("/dev").glob(pattern)]
    # First its own /tmp: what is shown may lie there, as where the project was cloned into it.
    writable = [_own_part(root, "tmp", root / "tmp")]
    _show([*shown, *devices], root)
    if _inside(root, hidden).is_dir():
        linux.bind(_made(root / "run"), _inside(root, hidden), recursive=False)
    for link, target in {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}.items():
        (root / "dev" / link).symlink_to(target)
    linux.mount("proc", _made(root / "proc"), "proc", _PROC)
    writable.append(_shared_memory(root, devices))
    linux.bind(home, _made(_inside(root, home)), recursive=False)
    for number, cache in enumerate(caches):
        if keep_writes:
            linux.bind(cache, _made(_inside(root, cache)), recursive=False)
            writable.append(_inside(root, cache))
        else:
            linux.bind(cache, _made(_inside(root, BUILT) / str(number)), recursive=False)
            writable.append(_own_part(root, f"cache-{number}", _inside(root, cache)))
    writable += [_own_part(root, f"own-{part}", _inside(root, home / part)) for part in WRITABLE]
    linux.set_read_only(root)
    for folder in writable:
        linux.set_writable(folder)
    _guard_proc(root / "proc")
    linux.enter_root(root)


def _shared_memory(root: Path, devices: Sequence[Path]) -> Path:
    """/dev/shm: the process's own, but the machine's where there is an NVIDIA GPU.

    CUDA shares events between processes through files there, which the other side must find under the same name.
    """
    if not any(node.name.startswith("nvidia") for node in devices):
        return _own_part(root, "shm", root / "dev" / "shm")
    target = _made(root / "dev" / "shm")
    linux.bind(Path("/dev/shm"), target, recursive=False)
    return target


def take_caches(caches: Sequence[Path]) -> None:
    """Fill this process's own cache folders with what the build phase has left; large ones with links to it."""
    for number, cache in enumerate(caches):
        built = BUILT / str(number)
        if built.is_dir() and not copy_tree(built, cache, COPY_LIMIT):
            for entry in built.iterdir():
                (cache / entry.name).symlink_to(entry)


def private_folders() -> list[str]:
    """Folders of the system's, beside its own, that are this process's alone; none where its view is the machine's."""
    parts = {"tmp": "/tmp", "shm": "/dev/shm"}
    return [folder for part, folder in parts.items() if (OWN_FOLDER / part).is_dir()]


def own_proc() -> None:
    """Show the caller's PID namespace in /proc, in a mount namespace of its own."""
    linux.unshare(linux.CLONE_NEWNS)
    linux.mount(None, Path("/"), None, linux.MS_REC | linux.MS_PRIVATE)
    linux.mount("proc", Path("/proc"), "proc", _PROC)
    _guard_proc(Path("/proc"))


def _guard_proc(proc: Path) -> None:
    # Not read-only as a whole: threads are named by writing there.
    linux.set_writable(proc)
    for name in KERNEL_SETTINGS:
        if (path := proc / name).exists():
            linux.bind(path, path, recursive=False)
            linux.set_read_only(path)


def _show(paths: Sequence[Path], root: Path) -> None:
    """Bind each path into `root` where it lies in truth, and make the links by which it is named."""
    for real in _outermost(path.resolve() for path in paths):
        target = _inside(root, real)
        if real.is_dir():
            linux.bind(real, _made(target), recursive=True)
        else:
            _made(target.parent)
            target.touch()
            linux.bind(real, target, recursive=False)
    for path in paths:
        if not os.path.lexists(_inside(root, path)):
            _made(_inside(root, path).parent)
            _inside(root, path).symlink_to(path.resolve())


def _own_part(root: Path, name: str, target: Path) -> Path:
    source = _made(_inside(root, OWN_FOLDER) / name)
    # As wide open as /tmp is: the process may be any user's.
    source.chmod(0o1777)
    linux.bind(source, _made(target), recursive=False)
    return target


def _inside(root: Path, path: Path) -> Path:
    return root / path.relative_to("/")


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def copy_tree(source: Path, target: Path, limit: int) -> bool:
    """Copy folders, plain files and links; False, and no copy, when the files hold more than `limit` bytes in all."""
    files, total = [], 0
    for folder, _, names in os.walk(source):
        for name in names:
            path = Path(folder) / name
            # A candidate may have left a pipe there, which a copy would wait at.
            if path.is_symlink() or path.is_file():
                files.append(path)
                total += path.lstat().st_size
                if total > limit:
                    return False
    for folder, _, _ in os.walk(source):
        _made(target / Path(folder).relative_to(source))
    for path in files:
        with contextlib.suppress(FileNotFoundError):
            shutil.copy2(path, target / path.relative_to(source), follow_symlinks=False)
    return True
