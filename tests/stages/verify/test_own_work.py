"""What a report of an inspection means for the verdict."""

from typing import Any

import pytest

from kernelwright.stages.types import Backend, Check, KernelShare, Status
from kernelwright.stages.verify.own_work import judge
from kernelwright.stages.verify.source_form import SourceForm

CPP, CUDA, TRITON = Backend.CPP, Backend.CUDA, Backend.TRITON


def report(**known: Any) -> dict[str, Any]:
    empty: dict[str, Any] = {
        "operators": {},
        "elements": {},
        "largest": 1000,
        "kernels": [],
        "launched": {},
        "loaded": [],
    }
    empty |= {"backends": {}, "ablated": {}, "library_only": [], "fallbacks": [], "copied": [], "compiled": 0}
    return empty | known


def ran(name: str, backend: str, broken: bool | None, **more: Any) -> dict[str, Any]:
    fields = {"launched": {name: 1}, "loaded": [name], "backends": {name: backend}, "ablated": {name: broken}}
    return report(**fields, **more)


def form(**kernels: Backend) -> SourceForm:
    return SourceForm(kernels, frozenset(kernels.values()), defines_model=True)


def failed(
    found: dict[str, Any], source: SourceForm, claimed: Backend | None = None, no_library: bool = False
) -> list[Check]:
    return [c for c in judge(found, source, claimed=claimed, no_library=no_library)[1] if not c.passed]


def kernel(name: str, share: float, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "identifier": name,
        "share": share,
        "launches": 1,
        "own": False,
        "library": True,
        "moves": False,
    } | more


MM = {"operators": {"aten.mm.default": 1}, "elements": {"aten.mm.default": 1000}}


def test_a_kernel_that_matters_passes_with_or_without_a_claim():
    for claimed in (None, CPP):
        assert failed(ran("relu", "cpp", True), form(relu=CPP), claimed) == []


def test_library_product_and_own_epilogue_are_honest_by_default_and_listed():
    found = ran("epilogue", "cpp", True, **MM)
    work, checks = judge(found, form(epilogue=CPP), claimed=CPP, no_library=False)
    assert all(c.passed for c in checks)
    assert "aten.mm.default" in checks[-1].detail
    assert work.operators == {"aten.mm.default": 1}
    assert work.ablated == {"epilogue": True}
    (refused,) = failed(found, form(epilogue=CPP), CPP, no_library=True)
    assert (refused.name, refused.refutes) == ("library calls", Status.STATIC_REJECT)


@pytest.mark.parametrize("claimed", [None, CPP])
def test_a_decoy_is_refused_always(claimed):
    (check,) = failed(ran("show", "cpp", False, **MM), form(show=CPP), claimed)
    assert check.refutes is Status.STATIC_REJECT
    assert check.detail == "decoy: show: made a no-op, the output stays the same"


def test_one_kernel_that_matters_is_enough():
    found = report(
        launched={"a": 1, "b": 1}, loaded=["a", "b"], backends={"a": "cpp", "b": "cpp"}, ablated={"a": True, "b": False}
    )
    assert failed(found, form(a=CPP, b=CPP)) == []


def test_what_cannot_be_ablated_passes_with_a_word():
    (check,) = [
        c for c in judge(ran("k", "triton", None), form(k=TRITON), claimed=TRITON, no_library=False)[1] if c.detail
    ]
    assert check.passed
    assert "could not be made a no-op" in check.detail


def test_a_decoy_of_the_claimed_back_end_is_not_saved_by_a_kernel_of_another():
    found = report(
        launched={"t": 1, "c": 1}, loaded=["c"], backends={"t": "triton", "c": "cpp"}, ablated={"t": False, "c": True}
    )
    source = form(t=TRITON, c=CPP)
    assert failed(found, source) == []
    assert [c.name for c in failed(found, source, TRITON)] == ["own kernels matter"]


def test_kernels_that_are_defined_and_never_launched_are_refused():
    (check,) = failed(report(**MM), form(relu=CPP))
    assert (check.name, check.refutes) == ("own kernels run", Status.STATIC_REJECT)
    # Found at run time only: text that was executed.
    assert [c.name for c in failed(report(loaded=["k"]), form())] == ["own kernels run"]


def test_a_claim_without_a_definition_is_refused():
    assert [c.name for c in failed(report(**MM), form(), TRITON)] == ["back end as claimed", "own kernels run"]


def test_a_function_that_wraps_the_library_is_no_kernel_of_a_claimed_back_end():
    found = ran("product", "cpp", True, library_only=["product"])
    assert failed(found, form(product=CPP)) == []
    (check,) = failed(found, form(product=CPP), CPP)
    assert "computes nothing but through the library" in check.detail


def test_an_answer_from_a_handler_is_refused_with_its_line():
    fallbacks = [{"line": 18, "operators": ["aten.mm.default"]}]
    (check,) = failed(report(**MM, fallbacks=fallbacks), form())
    assert check.refutes is Status.STATIC_REJECT
    assert "line 18: aten.mm.default" in check.detail


def test_a_small_thing_computed_in_a_handler_is_no_fallback():
    fallbacks = [{"line": 18, "operators": ["aten.exp.default"]}]
    small = {"operators": {"aten.exp.default": 1}, "elements": {"aten.exp.default": 3}}
    assert failed(report(**small, fallbacks=fallbacks), form()) == []


def test_plain_torch_is_allowed_unless_the_task_says_no_library():
    assert failed(report(**MM), form()) == []
    assert [c.name for c in failed(report(**MM), form(), no_library=True)] == ["library calls"]


def test_small_library_work_is_allowed_without_the_library():
    found = ran("k", "triton", True, operators={"aten.exp.default": 1}, elements={"aten.exp.default": 99})
    assert failed(found, form(k=TRITON), TRITON, no_library=True) == []


def test_with_a_profile_the_share_of_device_time_decides():
    own, fill = kernel("k", 0.85, own=True, library=False), kernel("Memset", 0.1, moves=True)
    little = ran("k", "triton", True, **MM, kernels=[own, fill, kernel("nvjet_tst", 0.05)])
    assert failed(little, form(k=TRITON), TRITON, no_library=True) == []
    much = ran("k", "triton", True, **MM, kernels=[kernel("k", 0.2, own=True, library=False), kernel("nvjet_tst", 0.8)])
    work, _ = judge(much, form(k=TRITON), claimed=TRITON, no_library=False)
    assert work.kernels == (KernelShare("k", 0.2, True), KernelShare("nvjet_tst", 0.8, False))
    (check,) = failed(much, form(k=TRITON), TRITON, no_library=True)
    assert check.detail == "nvjet_tst 80%"
    assert (check.figure, check.bound) == (0.8, 0.1)


def test_what_no_dispatcher_sees_is_read_from_the_source():
    source = SourceForm({"f": CPP}, frozenset({CPP}), library_calls=("cblas_sgemm", "relu"))
    (check,) = failed(ran("f", "cpp", True), source, CPP, no_library=True)
    assert check.detail == "cblas_sgemm"


@pytest.mark.parametrize(
    "forged",
    [{}, {"verdict": "correct"}, report(kernels=3), report(operators=[]), report(launched={"k": 1}, ablated=7)],
)
def test_a_report_of_another_form_is_tampering(forged):
    (check,) = failed(forged, form())
    assert check.refutes is Status.TAMPERED
