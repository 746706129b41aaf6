"""A task that cannot tell right from wrong is refused before any candidate is."""

import pytest

from kernelwright.kernelbench.problem import Precision
from kernelwright.stages.types import Check, Status
from kernelwright.stages.verify.admission import EVAL_MODE, admit, mutation_score
from kernelwright.stages.verify.faults import canaries
from tests.stages.verify.tasks import model_of, planned, task

ROWS = "torch.randn(16, 64)"
GRADABLE = {
    "softmax": ("torch.softmax(x, -1)", ROWS),
    "tiny outputs": ("torch.softmax(x, -1)", "torch.randn(4, 30000)"),
    "product": ("x @ y", ROWS, "torch.randn(64, 24)"),
    "mean": ("x.mean(1)", "torch.rand(8, 4096)"),
    "argmax": ("x.argmax(-1)", ROWS),
    "mask": ("x > y", ROWS, ROWS),
    "values and indices": ("x.topk(4)", ROWS),
    "total": ("x.square().sum()", ROWS),
    "bfloat16 inside": ("(x.bfloat16() @ y.bfloat16()).float()", ROWS, "torch.randn(64, 24)"),
    "a dtype of 16 bits": ("F.gelu(x)", "torch.randn(16, 64, dtype=torch.bfloat16)"),
    "some outputs nan": ("torch.log(x)", ROWS),
}
UNGRADABLE = {
    "sum of a softmax": ("torch.softmax(x, -1).sum(-1)", ROWS),
    "difference with itself": ("x.mean(-1, keepdim=True) - x.mean(-1, keepdim=True).mean(1, keepdim=True)", ROWS),
    "one of two outputs fixed": ("(x * 2, torch.zeros_like(x))", ROWS),
    "the input itself": ("x.clone()", ROWS),
    "a clamp that never opens": ("x.clamp(100, 200)", ROWS),
}


def checked(*of: str, init: str = "pass") -> tuple[Check, ...]:
    made = task(*of, init=init)
    return admit(made, model_of(made), planned(made).pairs, made.precision)


@pytest.mark.parametrize("name", GRADABLE)
def test_a_good_task_refuses_every_canary(name: str) -> None:
    checks = checked(*GRADABLE[name])
    assert [c for c in checks if not c.passed] == []
    assert sum(c.name.startswith("refuses") for c in checks) >= 5


@pytest.mark.parametrize("name", UNGRADABLE)
def test_a_task_that_proves_nothing_is_refused(name: str) -> None:
    failed = [c for c in checked(*UNGRADABLE[name]) if not c.passed]
    assert failed
    assert all(c.refutes is Status.UNGRADABLE for c in failed)


@pytest.mark.parametrize("result", ["F.dropout(x, 0.5)", "x + torch.rand_like(x)", "x * torch.empty(()).uniform_()"])
def test_random_references_are_refused_with_the_way_out(result: str) -> None:
    (check,) = checked(result, ROWS)
    assert not check.passed
    assert check.detail == EVAL_MODE
    assert checked("F.dropout(x, 0.5, self.training) * 2", ROWS, init="self.eval()")[0].passed


def test_a_tolerance_so_wide_that_everything_passes_makes_the_task_ungradable() -> None:
    made = task("torch.softmax(x, -1)", ROWS, constants="TOLERANCE = 100.0")
    checks = admit(made, model_of(made), planned(made).pairs, made.precision)
    assert not all(c.passed for c in checks)


def test_the_score_counts_planted_faults_and_names_those_that_pass() -> None:
    made = task("self.norm(x) + y", ROWS, "torch.zeros(16, 64)", init="self.norm = nn.LayerNorm(64)")
    model, series = model_of(made), planned(made)
    score = mutation_score(made, model, series.pairs, made.precision)
    assert score.missed == ()
    assert {"argument 2 ignored", "half of each row of argument 1 skipped", "norm.weight at its first value"} <= set(
        score.caught
    )
    assert score.planted == len(score.caught) > 15
    # Without the cases that change the second argument, nobody would notice that it is not read.
    plain = [pair for pair in series.pairs if not pair[0].stressed]
    assert mutation_score(made, model, plain, made.precision).missed == ()
    assert "argument 2 ignored" not in mutation_score(made, model, plain, made.precision).caught


def test_bfloat16_is_no_canary_where_less_precision_is_allowed() -> None:
    names = [{fault.name for fault in canaries(p, None)} for p in (Precision.STRICT, Precision.TASK)]
    assert "rounded to bfloat16" in names[0]
    assert names[1] < names[0]
