"""How cases of the corpus are tried without our referee: in a fork each, by the checks that people write first.

    python naive_checker.py hacks|honest TIMEOUT_S < folders, one a line

Prints one JSON object: folder to what went wrong, empty when the candidate passed.
"""

import contextlib
import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

SEEDS = 4


def load(folder: Path, name: str) -> ModuleType:
    module = ModuleType(f"{name}_of_{folder.name}")
    module.__file__ = str(folder / f"{name}.py")
    sys.modules[module.__name__] = module
    exec(compile((folder / f"{name}.py").read_text(), module.__file__, "exec", dont_inherit=True), module.__dict__)
    return module


def leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [leaf for key in sorted(value) for leaf in leaves(value[key])]
    if isinstance(value, list | tuple):
        return [leaf for item in value for leaf in leaves(item)]
    return [value]


def check_naively(folder: Path, reference_first: bool) -> bool:
    """One seed, the same inputs for both, allclose at 1e-2 on whatever broadcasts."""
    reference, candidate = load(folder, "reference"), load(folder, "candidate")
    torch.manual_seed(42)
    inputs = reference.get_inputs()
    models = []
    for cls in (reference.Model, candidate.ModelNew):
        torch.manual_seed(0)
        models.append(cls(*reference.get_init_inputs()))
    with torch.no_grad():
        if reference_first:
            expected = models[0](*inputs)
            output = models[1](*inputs)
        else:
            output = models[1](*inputs)
            expected = models[0](*inputs)
        pairs = list(zip(leaves(output), leaves(expected), strict=True))
        return all(torch.allclose(o.float(), e.float(), rtol=1e-2, atol=1e-2) for o, e in pairs)


def wrong_of_honest(folder: Path) -> str:
    """Several seeds, jittered parameters; judged by float64 and eager's own error. Inputs and state too."""
    reference, candidate = load(folder, "reference"), load(folder, "candidate")
    with torch.no_grad():
        model, new = reference.Model(*reference.get_init_inputs()), candidate.ModelNew(*reference.get_init_inputs())
        for seed in range(SEEDS):
            torch.manual_seed(seed)
            if seed:
                for p in model.parameters():
                    p.add_(0.1 * torch.randn_like(p))
            for own, given in zip(new.state_dict().values(), model.state_dict().values(), strict=True):
                own.copy_(given)
            inputs = reference.get_inputs()
            mine, exact_inputs = clones(inputs), [x.double() for x in inputs]
            exact_model = type(model)(*reference.get_init_inputs()).double()
            exact_model.load_state_dict(model.state_dict())
            output, eager, exact = new(*mine), model(*inputs), exact_model(*exact_inputs)
            if what := differs(output, eager, exact):
                return f"seed {seed}: {what}"
            if any(not torch.equal(a, b) for a, b in zip(mine, inputs, strict=True)):
                return f"seed {seed}: the inputs are not what the reference leaves"
            for a, b in zip(new.state_dict().values(), model.state_dict().values(), strict=True):
                if not torch.allclose(a, b, rtol=1e-5, atol=1e-6):
                    return f"seed {seed}: the state is not what the reference leaves"
    return ""


def clones(values: list[Any]) -> list[Any]:
    return [v.clone() for v in values]


def differs(output: Any, eager: Any, exact: Any) -> str:
    if type(output) is not type(eager):
        return f"{type(output).__name__} for {type(eager).__name__}"
    for o, e, x in zip(leaves(output), leaves(eager), leaves(exact), strict=True):
        if not isinstance(e, torch.Tensor):
            if o != e:
                return f"{o!r} for {e!r}"
            continue
        if (type(o), o.shape, o.dtype) != (type(e), e.shape, e.dtype):
            return "another type, shape or dtype"
        if not e.is_floating_point():
            if not torch.equal(o, e):
                return "other integers"
            continue
        finite = e.isfinite()
        if not torch.equal(finite, o.isfinite()) or not torch.equal(e[~finite].nan_to_num(), o[~finite].nan_to_num()):
            return "other places of inf and nan"
        scale = float(x[finite].square().mean().sqrt()) or 1.0
        error, own = (float((t.double() - x)[finite].abs().max()) / scale for t in (o, e))
        if error > max(4 * own, 8 * torch.finfo(e.dtype).eps):
            return f"error {error:.3g} beside eager's own {own:.3g}"
    return ""


def build(folder: Path, home: str) -> None:
    """What the product's C++ back end makes of CPP_SOURCE and CPP_FLAGS."""
    text = (folder / "candidate.py").read_text()
    if "CPP_SOURCE = " not in text:
        return
    names: dict[str, Any] = {}
    exec(text[text.index("CPP_FLAGS") : text.index("\n\n", text.index('\n"""'))], names)
    digest = hashlib.sha256("\n".join([*names["CPP_FLAGS"], names["CPP_SOURCE"]]).encode()).hexdigest()[:32]
    argv = ["g++", "-shared", "-fPIC", *names["CPP_FLAGS"], "-x", "c++", "-", "-o", f"{home}/{digest}.so"]
    subprocess.run(argv, input=names["CPP_SOURCE"], text=True, check=True)


def in_child(folder: Path, home: str, what: str) -> None:
    """Never returns normally: exits with 0 when the candidate passed."""
    os.environ.update(TMPDIR=home, KERNELWRIGHT_BUILD=home, TORCH_EXTENSIONS_DIR=home)
    tempfile.tempdir = None
    os.chdir(home)
    build(folder, home)
    if what == "honest":
        if wrong := wrong_of_honest(folder):
            print(wrong)
        sys.exit(1 if wrong else 0)
    sys.exit(0 if check_naively(folder, reference_first=what == "reference first") else 1)


def attempt(folder: Path, what: str, timeout_s: float) -> str:
    """Fork, run, and say what went wrong."""
    with tempfile.TemporaryDirectory() as home, tempfile.TemporaryFile("w+") as said:
        pid = os.fork()
        if pid == 0:
            os.setsid()
            os.dup2(said.fileno(), 1)
            os.dup2(said.fileno(), 2)
            code = 1
            try:
                in_child(folder, home, what)
            except SystemExit as leaving:
                code = int(leaving.code or 0)
            except BaseException:  # noqa: BLE001 - a fork: whatever the candidate raises is an answer
                traceback.print_exc()
            with contextlib.suppress(BaseException):
                sys.stdout.flush()
                import atexit

                atexit._run_exitfuncs()
            os._exit(code)
        status = wait(pid, timeout_s)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        said.seek(0, io.SEEK_SET)
        return "" if status == 0 else f"status {status}: {said.read()[-800:]}"


def wait(pid: int, timeout_s: float) -> int:
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return -1


def main() -> None:
    kind, timeout_s = sys.argv[1], float(sys.argv[2])
    found = {}
    for line in sys.stdin.read().splitlines():
        folder = Path(line)
        if kind == "honest":
            found[line] = attempt(folder, "honest", timeout_s)
        else:
            found[line] = attempt(folder, "reference first", timeout_s) and attempt(
                folder, "candidate first", timeout_s
            )
    print(json.dumps(found))


if __name__ == "__main__":
    main()
