"""What compilers made is read from the disassembly: by hand-written pieces, and of kernels that are compiled here."""

import json
import platform
import shutil
from pathlib import Path

import pytest

from kernelwright.kernelbench.problem import Problem
from kernelwright.stages.compile import build_folder, compile_candidate
from kernelwright.stages.profile import occupancy, sass, static, x86
from kernelwright.stages.profile.report import KernelCode
from kernelwright.stages.types import Backend, Candidate

SASS = """
	code for sm_90a
		Function : scale
	.headerflags	@"EF_CUDA_SM90"
        /*0000*/                   LDC R1, c[0x0][0x28] ;                /* 0x00000a00ff017b82 */
                                                                         /* 0x000e220000000800 */
        /*0010*/                   LDG.E.128 R4, [R2.64] ;               /* 0x0000000402047981 */
        /*0020*/              @!P0 LDG.E R5, [R2.64] ;                   /* 0x0000000402047981 */
        /*0030*/                   FFMA R4, R4, R5, R6 ;                 /* 0x0000000504047223 */
        /*0040*/                   HGMMA.64x64x16.F32 R24, gdesc[UR4] ;  /* 0x0000000504047223 */
        /*0050*/                   MUFU.EX2 R7, R4 ;                     /* 0x0000000400077308 */
        /*0060*/                   STL [R1], R7 ;                        /* 0x0000000701007387 */
        /*0070*/                   STG.E.128 [R2.64], R4 ;               /* 0x0000000402007986 */
        /*0080*/                   BRA 0x80 ;                            /* 0xfffffffc00fc7947 */
        /*0090*/                   NOP ;                                 /* 0x0000000000007918 */
		Function : other
        /*0000*/                   EXIT ;                                /* 0x000000000000794d */
"""
USAGE = """
Resource usage:
 Common:
  GLOBAL:0
 Function scale:
  REG:168 STACK:16 SHARED:1024 LOCAL:0 CONSTANT[0]:568 TEXTURE:0 SURFACE:0 SAMPLER:0
"""
OBJDUMP = """
0000000000001130 <axpy>:
    1130:	vmovups (%rdi,%rax,4),%ymm1
    1135:	vfmadd213ps (%rsi,%rax,4),%ymm0,%ymm1
    113b:	vaddss %xmm0,%xmm1,%xmm1
    113f:	call   1040 <expf@plt>
    1144:	call   1050 <_ZGVdN8v_expf@plt>
    1149:	jne    1130 <axpy>
    114b:	ret

0000000000001160 <frame_dummy>:
    1160:	vaddps %zmm0,%zmm0,%zmm0
"""


def test_sass_is_counted_by_class() -> None:
    scale, other = sass.mixes(SASS)
    kernel, target, mix = scale
    assert (kernel, target) == ("scale", "sm_90a")
    assert mix.classes == {
        "other": 1,
        "global load": 2,
        "fp32": 1,
        "tensor core": 1,
        "special function": 1,
        "local (spill)": 1,
        "global store": 1,
        "branch": 1,
    }
    assert mix.load_bits == 128
    assert other[2].load_bits is None
    assert set(mix.classes) <= set(static.CLASSES)


def test_usage_has_each_kernel_s_figures() -> None:
    assert sass.usage(USAGE) == {"scale": {"REG": 168, "STACK": 16, "SHARED": 1024, "LOCAL": 0}}


def test_x86_tells_vectors_from_scalars_and_leaves_the_runtime_out() -> None:
    ((name, mix),) = x86.mixes(OBJDUMP)
    assert name == "axpy"
    assert mix.vector_bits == 256
    assert mix.classes == {
        "load or store": 1,
        "packed": 1,
        "scalar": 1,
        "scalar math call": 1,
        "vector math call": 1,
        "branch": 2,
    }


@pytest.mark.parametrize("text", ["", "no such file\n", "\tFunction : \n"])
def test_what_is_no_disassembly_has_no_kernels(text: str) -> None:
    assert list(sass.mixes(text)) == list(x86.mixes(text)) == []


@pytest.mark.parametrize(
    ("registers", "threads", "shared_bytes", "percent"),
    [
        (32, 256, 0, 100.0),
        (168, 128, 0, 100.0 * 12 / 64),
        (255, None, None, 100.0 * 8 / 64),
        (32, 128, 100 * 1024, 100.0 * 8 / 64),
    ],
)
def test_resident_warps_on_hopper(
    registers: int, threads: int | None, shared_bytes: int | None, percent: float
) -> None:
    code = KernelCode("k", "sm_90a", registers, shared_bytes, 0, threads)
    assert occupancy.percent(code) == percent


def test_nothing_is_said_of_an_unknown_target() -> None:
    assert occupancy.percent(KernelCode("k", "x86-64", 32)) is None
    assert occupancy.percent(KernelCode("k", "sm_999", 32)) is None


CPP = """
CPP_FLAGS = [{flags}]
CPP_SOURCE = r\"\"\"
extern "C" void scale(const float* x, float* y, long n) {{
  for (long i = 0; i < n; i++) y[i] = x[i] * 2.0f + 1.0f;
}}
\"\"\"
"""


@pytest.mark.skipif(
    platform.machine() != "x86_64" or shutil.which("objdump") is None, reason="needs objdump and an x86-64 processor"
)
@pytest.mark.parametrize(("flags", "bits"), [('"-O3", "-mavx2"', 256), ('"-O1"', None)])
def test_a_library_that_is_compiled_here_is_vectorised_or_not(tmp_path: Path, flags: str, bits: int | None) -> None:
    candidate = Candidate(CPP.format(flags=flags), Backend.CPP, "test")
    problem = Problem("none", "", "none")
    assert compile_candidate(candidate, problem, tmp_path, device="cpu", deadline_s=60).ok
    answer = json.loads(json.dumps(static.record(build_folder(candidate, tmp_path), "cpu")))
    (code,) = static.read(answer)
    assert (code.kernel, code.target, code.vector_bits) == ("scale", "x86-64", bits)
    assert ("packed" in code.instructions) is (bits is not None)


def test_a_folder_without_code_says_so(tmp_path: Path) -> None:
    assert static.record(tmp_path, "cpu") == {"missing": "the build left no library and no cubin"}


@pytest.mark.skipif(shutil.which("objdump") is None, reason="needs objdump")
@pytest.mark.skipif(platform.machine() != "x86_64", reason="needs an x86-64 processor")
def test_a_file_that_is_no_library_has_no_kernels(tmp_path: Path) -> None:
    (tmp_path / "broken.so").write_bytes(b"\x7fELF" + bytes(range(256)))
    assert static.record(tmp_path, "cpu") == {"missing": "the disassembler found no kernel"}


@pytest.mark.parametrize("change", [{"registers": -1}, {"registers": "many"}, {"instructions": {"fp32": float("nan")}}])
def test_an_answer_with_a_wrong_figure_is_refused(change: dict[str, object]) -> None:
    one = {"kernel": "k", "target": "sm_90", "registers": 1, "shared_bytes": 0, "local_bytes": 0, "threads": None}
    with pytest.raises(ValueError, match="is no figure"):
        static.read({"code": [one | {"instructions": {}, "vector_bits": None} | change]})
