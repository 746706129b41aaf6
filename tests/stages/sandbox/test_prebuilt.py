"""What the build phase compiled is found in the run phase; what it did not is asked for by name."""

from pathlib import Path

import pytest

from kernelwright.stages.sandbox.confine import SYSTEM_CALLS, Phase
from kernelwright.stages.sandbox.pool import Zygote
from tests.stages.sandbox.trial import attempt, forward

EXTENSION = """
import torch.utils.cpp_extension as e
folder = {folder}
os.makedirs(folder, exist_ok=True)
open(folder + '/f.cpp', 'w').write('extern "C" int f(int x) {{ return x + {number}; }}')
e.load(name='plain', sources=[folder + '/f.cpp'], build_directory=folder, is_python_module=False)
library = [line.split()[-1] for line in open('/proc/self/maps') if line.strip().endswith('plain.so')][0]
f = ctypes.CDLL(library).f
"""
CALL = "raise RuntimeError(f'f gives {f(x)}')"


@pytest.fixture(autouse=True)
def _filtered(zygote: Zygote) -> None:
    if (reason := zygote.measures[SYSTEM_CALLS]) is not True:
        pytest.skip(f"compilers may start in every phase here: {reason}")


@pytest.mark.parametrize("folder", ["tempfile.mkdtemp()", "'build'", "os.path.expanduser('~/ext')"])
def test_an_extension_is_built_once_and_then_found(zygote: Zygote, tmp_path: Path, folder: str) -> None:
    source = forward(CALL, top=EXTENSION.format(folder=folder, number=4))
    early = attempt(zygote, source, Phase.RUN, [tmp_path])
    assert early.kind == "late_build"
    assert "'plain' was not built in the build phase" in early.said
    built = attempt(zygote, source, Phase.BUILD, [tmp_path])
    ran = attempt(zygote, source, Phase.RUN, [tmp_path])
    for trial in (built, ran):
        assert "f gives 7" in trial.said
        assert (trial.seen, trial.changes) == ([], [])
    other = forward(CALL, top=EXTENSION.format(folder=folder, number=5))
    assert attempt(zygote, other, Phase.RUN, [tmp_path]).kind == "late_build"


def test_what_a_library_asked_a_program_is_answered_again(zygote: Zygote, tmp_path: Path) -> None:
    body = (
        "import torch.utils.cpp_extension as e, ctypes.util\n"
        "raise RuntimeError(repr((e.get_compiler_abi_compatibility_and_version('g++'), ctypes.util.find_library('m'))))"
    )
    built = attempt(zygote, forward(body), Phase.BUILD, [tmp_path]).said.splitlines()[0]
    assert "((True, " in built
    assert "libm" in built
    assert attempt(zygote, forward(body), Phase.RUN, [tmp_path]).said.splitlines()[0] == built


def test_a_compiler_that_is_wanted_late_is_named_whatever_became_of_the_error(zygote: Zygote, tmp_path: Path) -> None:
    body = (
        "import torch.utils.cpp_extension as e\n"
        "try:\n    e._get_build_directory('n', False); subprocess.check_call\n"
        "    import triton.runtime.build as b; b._build('m', '/x.c', '/tmp', [], [], [], [])\n"
        "except Exception as error:\n    raise KeyError('something else') from None"
    )
    trial = attempt(zygote, forward(body), Phase.RUN, [tmp_path])
    assert trial.kind == "late_build"
    assert "was to be started in the run phase" in trial.said
    assert "something else" in trial.said
    assert trial.seen == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "top",
    [
        "from torch.utils.cpp_extension import load_inline\n"
        "e = load_inline(name='inl', cpp_sources=['int f(int x) { return x + 4; }'], functions=['f'])\nf = e.f",
        "g = torch.compile(lambda t: torch.relu(t) * 0 + 7)\nf = lambda x: int(g(torch.ones(64, 64)).max())",
    ],
    ids=["load_inline", "torch.compile"],
)
def test_torchs_own_compilers_work_in_both_phases(zygote: Zygote, tmp_path: Path, top: str) -> None:
    for phase in (Phase.BUILD, Phase.RUN, Phase.RUN):
        trial = attempt(zygote, forward(CALL, top=top), phase, [tmp_path])
        assert "f gives 7" in trial.said
        assert (trial.seen, trial.changes) == ([], [])
