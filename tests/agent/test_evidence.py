"""The view of a verdict: what is grouped how, what stands for its kind, and what a terminal of 80 columns shows."""

from dataclasses import replace

import pytest

from kernelwright.agent.cli.exit_codes import ExitCode
from kernelwright.agent.evidence import (
    CONDUCT,
    FORM,
    GROUPS,
    LIGHT,
    NEXT,
    PROBES,
    RANDOM,
    STRUCTURED,
    TASK,
    TIMED,
    WORK,
    Evidence,
    as_json,
    evidence_of,
    exit_code,
    group_of,
    lines,
)
from kernelwright.agent.ui.evidence import styled
from kernelwright.agent.verification import Terms, Verified, candidate_of, job_of
from kernelwright.kernelbench.problem import Problem
from kernelwright.stages.execute.job import JobResult
from kernelwright.stages.types import (
    Backend,
    Check,
    DeviceState,
    Environment,
    KernelShare,
    Measurement,
    OwnWork,
    Ratio,
    SpeedOfLight,
    Status,
    Timing,
    Verdict,
)

MACHINE = Environment("cuda", "NVIDIA H200", "580.159.04", "2.11.0+cu130", "3.6.0", "3.12.3", 16)
CHECKS = (
    Check("case: shape and dtype", True),
    Check("case, output 0: largest error", True, 2e-6, 1.6e-5, "eager's own 2e-06; oracle in float64"),
    Check("case, output 0: largest error", True, 9e-6, 1.6e-5, "eager's own 2e-06; oracle in float64"),
    Check("constant rows, output 0: largest error", True, 1e-7, 1e-6),
    Check("case, held over the next call, output 0: rms error", True, 1e-7, 1e-6),
    Check("timed call, output 0: rms error", True, 1e-7, 1e-6),
    Check("clocks agree", True, 0.0, 0.3, refutes=Status.TAMPERED),
)
MEASUREMENT = Measurement(
    candidate=Timing((0.5, 0.52, 0.48), 0.5, 40),
    baselines={"eager": Timing((1.0, 1.1, 0.9), 1.0, 20), "compile": Timing((0.6, 0.61, 0.6), 0.6, 34)},
    speedups={"eager": Ratio(2.0, 1.9, 2.1), "compile": Ratio(1.2, 1.1, 1.3)},
    method="events on the referee's own stream; 15 interleaved rounds; inputs rotate over 4 sets (64 MiB)",
    warm=Timing((0.4,), 0.4, 50),
    graph_replay_ms=0.01,
    speed_of_light=SpeedOfLight(2**27, 10**9, 0.3, 0.02, 0.6, True, "algebraic?"),
    device_state=DeviceState((1980, 1965), ("power cap",), 1),
)
WORKED = OwnWork({"aten::mm": 1}, (KernelShare("fused_rows", 0.9, True),), {"fused_rows": True, "other": None})


def evidence(verdict: Verdict, measurement: Measurement | None = None, work: OwnWork | None = None) -> Evidence:
    candidate = candidate_of("class ModelNew: ...", Backend.TRITON)
    problem = Problem("softmax", "", "core/softmax", "tiny")
    job = job_of("given/0", candidate, problem, Terms(seed=7))
    result = JobResult("given/0", candidate.hash, verdict, MACHINE, measurement=measurement, work=work)
    return evidence_of(Verified("mine.py", problem, job, result, "kernelwright verify mine.py --seed 7"))


@pytest.mark.parametrize(
    ("check", "group"),
    [
        (Check("the answer depends on input 0", True, refutes=Status.UNGRADABLE), TASK),
        (Check("case: shape and dtype", True), FORM),
        (Check("random 3, output 1: rms error", True), RANDOM),
        (Check("offset by 1000, output 0: largest error", True), STRUCTURED),
        (Check("transposed inputs: shape and dtype", True), FORM),
        (Check("random 2, two inner elements exchanged, output 0: largest error", True), PROBES),
        (Check("parameter fc.weight alone changed, output 0: rms error", True), PROBES),
        (Check("one huge value in argument 1, output 0: rms error", True), PROBES),
        (Check("timed call, output 0: largest error", True), TIMED),
        (Check("case: inputs as the reference leaves them", True), CONDUCT),
        (Check("case, held over the next call: shape and dtype", True), CONDUCT),
        (Check("threads after the call", True, refutes=Status.TAMPERED), CONDUCT),
        (Check("kernels matter", True, refutes=Status.STATIC_REJECT), WORK),
        (Check("time over the byte bound", True, refutes=Status.IMPLAUSIBLE), LIGHT),
    ],
)
def test_every_check_has_its_group(check: Check, group: str) -> None:
    assert group_of(check) == group


def test_checks_of_one_kind_are_one_line_and_the_worst_stands_for_them() -> None:
    found = lines(CHECKS)
    assert [line.group for line in found] == sorted((line.group for line in found), key=GROUPS.index)
    (error,) = [line for line in found if line.group == RANDOM]
    assert (error.name, error.times, error.figure) == ("largest error", 2, 9e-6)


def test_structured_cases_and_probes_keep_their_names() -> None:
    names = ("offset by 1000, output 0: largest error", "random 2, two inner elements exchanged, output 1: rms error")
    assert [line.name for line in lines(Check(name, True) for name in names)] == [
        "offset by 1000",
        "two inner elements exchanged",
    ]


def test_what_failed_stands_for_its_kind_with_its_own_name() -> None:
    failed = Check("case 4, output 0: largest error", False, 1e-6, 1.6e-5, "wrong for all that")
    (error,) = [line for line in lines([*CHECKS, failed]) if line.group == RANDOM]
    assert (error.name, error.passed, error.times) == (failed.name, False, 3)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_terminal_shows_nothing_wider_than_itself_but_the_command(width: int) -> None:
    verdict = Verdict(Status.INCORRECT, "a check failed " * 20, (*CHECKS, Check("a: " + "long name " * 20, False)))
    for found in (evidence(verdict), evidence(Verdict(Status.CORRECT, "", CHECKS), MEASUREMENT, WORKED)):
        wide = [text for text, _ in styled(found, width) if len(text) > width]
        assert [text for text in wide if not text.startswith("again")] == []


def test_everything_that_was_measured_is_shown() -> None:
    shown = styled(evidence(Verdict(Status.CORRECT, "", CHECKS), MEASUREMENT, WORKED), 80)
    text = " ".join(" ".join(line for line, _ in shown).split())
    for words in (
        "2.00x [1.90, 2.10]",
        "1.20x [1.10, 1.30]",
        "warm cache",
        "graph replay",
        "60 % of it: at least 128 MiB in 0.3 ms",
        "algebraic?",
        "1965 to 1980 MHz, throttled: power cap, 1 other process on the device",
        "aten::mm x1",
        "90 % own fused_rows",
        "fused_rows: the output breaks without it",
        "other: not ablated",
        "NVIDIA H200 (cuda), driver 580.159.04, torch 2.11.0+cu130, triton 3.6.0",
        "correct and faster than eager: 2.00x",
        "again kernelwright verify mine.py --seed 7",
    ):
        assert words in text


def test_the_line_that_failed_is_the_one_that_the_verdict_names() -> None:
    checks = (
        Check("random 2, output 0: largest error", False, 3.0, 1e-6),
        Check("random 3, output 0: largest error", False, 9.0, 1e-6),
    )
    (line,) = lines(checks)
    assert (line.name, line.figure, line.times) == (checks[0].name, 3.0, 2)


@pytest.mark.parametrize("width", [80, 60])
def test_a_name_that_is_too_long_goes_on_below(width: int) -> None:
    name = "1e+12 times as large, output 0: rms error of the worst row"
    verdict = Verdict(Status.INCORRECT, "wrong", (Check(name, False, 3.0, 1e-6),))
    shown = [text for text, _ in styled(evidence(verdict), width)]
    assert max(map(len, shown[:-1])) <= width
    at = next(n for n, text in enumerate(shown) if text.strip().startswith("1e+12"))
    words = shown[at][: width - 37].split() + shown[at + 1].split() + shown[at + 2].split()
    assert " ".join(words).startswith(name)


def test_whoever_has_torch_compile_is_told_when_it_is_the_faster_one() -> None:
    slower = replace(MEASUREMENT, speedups={"eager": Ratio(0.98, 0.9, 1.0), "compile": Ratio(0.21, 0.2, 0.22)})
    assert (
        "torch.compile of the reference takes 0.21 of its time" in evidence(Verdict(Status.CORRECT), slower).next_step
    )
    assert evidence(Verdict(Status.CORRECT), MEASUREMENT).next_step == NEXT[Status.CORRECT]


def test_a_speedup_within_noise_is_not_called_one() -> None:
    measurement = replace(MEASUREMENT, speedups={"eager": Ratio(1.05, 0.99, 1.2)})
    text = "\n".join(line for line, _ in styled(evidence(Verdict(Status.CORRECT), measurement), 80))
    assert "not faster than eager beyond doubt: 1.05x [0.99, 1.20]" in text


@pytest.mark.parametrize("status", Status)
def test_every_verdict_says_what_to_do_next(status: Status) -> None:
    found = evidence(Verdict(status, "a reason"))
    assert found.next_step == NEXT[status]
    assert as_json(found)["verdict"] == status.value


@pytest.mark.parametrize(
    ("statuses", "code"),
    [
        ([Status.CORRECT, Status.CORRECT], ExitCode.GOAL_MET),
        ([Status.CORRECT, Status.INCORRECT], ExitCode.GOAL_NOT_MET),
        ([Status.UNGRADABLE], ExitCode.GOAL_NOT_MET),
        ([Status.UNKNOWN], ExitCode.GOAL_NOT_MET),
        ([Status.INCORRECT, Status.TAMPERED, Status.ENV_ERROR], ExitCode.TAMPERING),
        ([Status.ENV_ERROR, Status.INCORRECT], ExitCode.ENVIRONMENT),
    ],
)
def test_exit_codes(statuses: list[Status], code: ExitCode) -> None:
    assert exit_code(Verdict(status) for status in statuses) is code
