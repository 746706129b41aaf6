"""Questions to an archive: who is listed in which order, and what is shown of one candidate."""

import hashlib
import itertools
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelwright.kernelbench.errors import UsageError
from kernelwright.kernelbench.problem import Problem
from kernelwright.stages.archive import CONFIRM, Archive
from kernelwright.stages.archive.reads import NAMED_MATCHES, listed, shown
from kernelwright.stages.codec import from_json, to_json
from kernelwright.stages.execute.job import JobResult
from kernelwright.stages.translate.graph import Graph, OpInfo
from kernelwright.stages.types import (
    Backend,
    Candidate,
    Check,
    Compilation,
    Environment,
    KernelResources,
    Measurement,
    Ratio,
    Status,
    Timing,
    Verdict,
)

SOFTMAX = Problem("softmax", "class Model: ...", "core/softmax")
TINY = Problem("softmax", "class Model: ...  # tiny", "core/softmax", "tiny")
RMSNORM = Problem("rmsnorm", "class Model: ...  # rms", "rmsnorm.py")
INFO = OpInfo(Graph((), (), (), "single"), "softmax[f32 r12]", "def forward(x): ...", 7, 4096, "export")
MACHINE = Environment("cpu", "a processor", "", "2.13.0", "3.8.0", "3.11.7", 2)
RESOURCES = (KernelResources("softmax_kernel", "sm_90", 32, 1024, 0),)


def candidate(name: str, backend: Backend = Backend.CPP, parents: tuple[str, ...] = ()) -> Candidate:
    return Candidate(f"# {name}", backend, "builtin", f"directive of {name}", parents, "cpp.fused", {"unroll": 2})


def correct(of: Candidate, speedup: float, screened: bool = False) -> JobResult:
    timing = Timing((2.0 / speedup,), 2.0 / speedup, 7)
    measurement = Measurement(
        timing,
        {"eager": Timing((2.0,), 2.0, 7)},
        {"eager": Ratio(speedup, speedup - 0.1, speedup + 0.1)},
        "clock",
        screened,
    )
    compilation = Compilation(True, of.backend, 0.3, resources=RESOURCES)
    checks = (Check("case 0", True, 1e-7, 1e-6),)
    return JobResult("key", of.hash, Verdict(Status.CORRECT, "", checks), MACHINE, compilation, measurement)


def failed(of: Candidate, status: Status = Status.INCORRECT) -> JobResult:
    return JobResult("key", of.hash, Verdict(status, "off by one", (Check("case 0", False, 2.0, 1e-6),)), MACHINE)


def begin(archive: Archive, run: str, problem: Problem, device: str = "cpu") -> None:
    archive.add_problem(problem, INFO)
    archive.start_run(run, problem, device, {})


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    made = Archive.open(tmp_path / "archive.db")
    begin(made, "first", SOFTMAX)
    return made


def judge(archive: Archive, run: str, *results: tuple[Candidate, JobResult], generation: int = 0) -> None:
    archive.add_proposals(run, generation, [of for of, _ in results])
    for _, result in results:
        archive.add_result(run, result)


def test_the_fastest_comes_first_and_what_has_no_times_last(archive: Archive) -> None:
    slow, wrong, fast = candidate("slow"), candidate("wrong"), candidate("fast")
    judge(archive, "first", (slow, correct(slow, 1.5)), (wrong, failed(wrong)), (fast, correct(fast, 3.0)))
    rows = listed(archive)
    assert [row.hash for row in rows] == [fast.hash, slow.hash, wrong.hash]
    best, last = rows[0], rows[-1]
    assert (best.problem, best.shape, best.device, best.backend) == ("softmax", None, "cpu", Backend.CPP)
    assert (best.template, best.directive) == ("cpp.fused", "directive of fast")
    assert (best.status, best.stage, best.screened_out) == (Status.CORRECT, "search", False)
    assert best.speedup == Ratio(3.0, 2.9, 3.1)
    assert best.median_ms == 2.0 / 3.0
    assert best.created_at.utcoffset() == timedelta(0)
    assert (last.status, last.speedup, last.median_ms) == (Status.INCORRECT, None, None)


def test_of_equals_the_newest_comes_first(archive: Archive) -> None:
    older, newer = candidate("older"), candidate("newer")
    judge(archive, "first", (older, failed(older)), (newer, failed(newer)))
    assert [row.hash for row in listed(archive)] == [newer.hash, older.hash]


def test_the_second_measurement_wins_over_the_search(archive: Archive) -> None:
    lucky, steady = candidate("lucky"), candidate("steady")
    judge(archive, "first", (lucky, correct(lucky, 9.0)), (steady, correct(steady, 2.0)))
    archive.add_result("first", correct(lucky, 1.1), CONFIRM)
    rows = listed(archive)
    assert [(row.hash, row.stage, row.speedup and row.speedup.median) for row in rows] == [
        (steady.hash, "search", 2.0),
        (lucky.hash, "confirm", 1.1),
    ]


def test_a_second_look_that_failed_is_what_counts(archive: Archive) -> None:
    flaky = candidate("flaky")
    judge(archive, "first", (flaky, correct(flaky, 9.0)))
    archive.add_result("first", failed(flaky), CONFIRM)
    (row,) = listed(archive)
    assert (row.status, row.speedup) == (Status.INCORRECT, None)
    assert listed(archive, confirmed_only=True) == []
    assert listed(archive, correct_only=True) == []


def test_a_candidate_of_two_runs_has_a_row_in_each(archive: Archive) -> None:
    same = candidate("same")
    begin(archive, "second", SOFTMAX)
    judge(archive, "first", (same, correct(same, 2.0)))
    judge(archive, "second", (same, correct(same, 3.0)))
    archive.add_result("second", correct(same, 2.5), CONFIRM)
    assert [(row.run, row.stage) for row in listed(archive)] == [("second", "confirm"), ("first", "search")]


def test_each_question_narrows_the_list(archive: Archive) -> None:
    begin(archive, "tiny", TINY)
    begin(archive, "rms", RMSNORM, device="cuda")
    plain, fused = candidate("plain"), candidate("fused", Backend.TRITON)
    judge(archive, "first", (plain, correct(plain, 2.0)))
    judge(archive, "tiny", (plain, failed(plain, Status.CRASH)))
    judge(archive, "rms", (fused, correct(fused, 4.0)))
    archive.add_result("rms", correct(fused, 3.9), CONFIRM)

    def runs(**narrow: object) -> list[str]:
        return [row.run for row in listed(archive, **narrow)]  # type: ignore[arg-type]

    assert runs() == ["rms", "first", "tiny"]
    assert runs(problem="softmax") == runs(problem="core/softmax") == ["first", "tiny"]
    assert runs(problem="rmsnorm.py") == ["rms"]
    assert runs(problem="soft") == []
    assert runs(device="cuda") == ["rms"]
    assert runs(backend=Backend.CPP) == ["first", "tiny"]
    assert runs(status=Status.CRASH) == ["tiny"]
    assert runs(correct_only=True) == ["rms", "first"]
    assert runs(confirmed_only=True) == ["rms"]
    assert runs(limit=2) == ["rms", "first"]
    assert runs(problem="softmax", backend=Backend.TRITON) == []


def test_times_of_a_screened_candidate_are_marked(archive: Archive) -> None:
    one = candidate("one")
    judge(archive, "first", (one, correct(one, 0.5, screened=True)))
    (row,) = listed(archive)
    assert row.screened_out


def test_a_candidate_is_shown_with_everything(archive: Archive) -> None:
    parent = candidate("parent")
    child = candidate("child", parents=(parent.hash,))
    grandchildren = [candidate(f"grandchild {n}", parents=(child.hash,)) for n in range(2)]
    judge(archive, "first", (parent, correct(parent, 2.0)))
    judge(archive, "first", (child, correct(child, 3.0)), generation=1)
    judge(archive, "first", (grandchildren[0], failed(grandchildren[0])), generation=2)
    judge(archive, "first", (grandchildren[1], correct(grandchildren[1], 4.0)), generation=3)
    archive.add_result("first", correct(child, 2.9), CONFIRM)
    archive.add_precheck(SOFTMAX, child, Compilation(True, Backend.CPP, 0.1), [Check("interpreter", True)])

    found = shown(archive, child.hash[:10].upper())
    assert found.candidate == child
    assert found.problems == {SOFTMAX.hash: SOFTMAX}
    assert [(p.run, p.generation, p.slot) for p in found.proposals] == [("first", 1, 0)]
    assert [(e.stage, e.result) for e in found.evaluations] == [
        ("search", correct(child, 3.0)),
        ("confirm", correct(child, 2.9)),
    ]
    assert [(c.passed, c.checks) for c in found.prechecks] == [(True, (Check("interpreter", True),))]
    assert [(r.hash, r.directive, r.speedup) for r in found.parents] == [
        (parent.hash, "directive of parent", Ratio(2.0, 1.9, 2.1))
    ]
    assert [(r.hash, r.speedup and r.speedup.median) for r in found.children] == [
        (grandchildren[1].hash, 4.0),
        (grandchildren[0].hash, None),
    ]
    assert from_json(type(found), to_json(found)) == found


def test_a_relative_counts_with_its_second_measurement(archive: Archive) -> None:
    parent = candidate("parent")
    child = candidate("child", parents=(parent.hash,))
    judge(archive, "first", (parent, correct(parent, 9.0)), (child, failed(child)))
    archive.add_result("first", correct(parent, 1.2), CONFIRM)
    (relative,) = shown(archive, child.hash).parents
    assert relative.speedup is not None
    assert relative.speedup.median == 1.2


def test_a_parent_from_elsewhere_is_known_by_its_hash_alone(archive: Archive) -> None:
    orphan = candidate("orphan", parents=("c" * 64,))
    judge(archive, "first", (orphan, failed(orphan)))
    assert [(r.hash, r.directive, r.speedup) for r in shown(archive, orphan.hash).parents] == [("c" * 64, "", None)]


def test_a_candidate_that_was_held_back_is_shown_with_its_precheck(archive: Archive) -> None:
    spilling = candidate("spilling")
    archive.add_precheck(SOFTMAX, spilling, Compilation(False, Backend.CPP, 0.1, log="no"), [])
    found = shown(archive, spilling.hash)
    assert (found.proposals, found.evaluations) == ((), ())
    assert [(c.passed, c.compilation.log) for c in found.prechecks] == [(False, "no")]


def test_the_same_file_for_two_shapes_is_one_candidate_of_both(archive: Archive) -> None:
    same = candidate("same")
    begin(archive, "tiny", TINY)
    judge(archive, "first", (same, correct(same, 2.0)))
    judge(archive, "tiny", (same, failed(same)))
    found = shown(archive, same.hash)
    assert found.problems == {SOFTMAX.hash: SOFTMAX, TINY.hash: TINY}
    assert [(e.problem_hash, e.run) for e in found.evaluations] == [(SOFTMAX.hash, "first"), (TINY.hash, "tiny")]


@pytest.mark.parametrize("prefix", ["", "abc", "not-hexadecimal", "12 4", "%%%%", "____"])
def test_what_is_no_prefix_is_refused_in_one_line(archive: Archive, prefix: str) -> None:
    with pytest.raises(UsageError, match=r"names no candidate: give the first 4 or more hexadecimal digits"):
        shown(archive, prefix)


def test_an_unknown_prefix_points_to_the_list(archive: Archive) -> None:
    with pytest.raises(UsageError, match="begins with abcdef; `kernelwright archive list`"):
        shown(archive, "abcdef")


def colliding(count: int) -> tuple[str, list[Candidate]]:
    """A prefix of four digits and so many candidates whose hashes begin with it, in order."""
    groups: dict[str, list[str]] = {}
    for name in map(str, itertools.count()):
        digits = hashlib.sha256(f"# {name}".encode()).hexdigest()[:4]
        group = groups.setdefault(digits, [])
        group.append(name)
        if len(group) == count:
            return digits, sorted(map(candidate, group), key=lambda c: c.hash)
    raise AssertionError


@pytest.mark.parametrize("count", [2, NAMED_MATCHES + 1])
def test_an_ambiguous_prefix_names_the_matches(archive: Archive, count: int) -> None:
    prefix, some = colliding(count)
    archive.add_proposals("first", 0, some)
    with pytest.raises(UsageError, match=rf"^{prefix} is ambiguous: ") as raised:
        shown(archive, prefix)
    message = str(raised.value)
    assert [c.hash[:12] in message for c in some] == [True] * min(count, NAMED_MATCHES) + [False] * (count > 8)
    assert message.endswith("and more") == (count > NAMED_MATCHES)
    assert some[0].directive in message
    assert shown(archive, some[0].hash).candidate == some[0]


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    made = Archive.open(tmp_path_factory.mktemp("crowded") / "archive.db")
    begin(made, "first", SOFTMAX)
    made.add_proposals("first", 0, [candidate(str(number)) for number in range(300)])
    return made


@settings(deadline=None, max_examples=40)
@given(number=st.integers(0, 299), length=st.integers(4, 64))
def test_a_prefix_finds_its_candidate_or_is_ambiguous(crowded: Archive, number: int, length: int) -> None:
    prefix = candidate(str(number)).hash[:length]
    matches = [c for c in map(candidate, map(str, range(300))) if c.hash.startswith(prefix)]
    if len(matches) == 1:
        assert shown(crowded, prefix).candidate == matches[0]
    else:
        with pytest.raises(UsageError, match="is ambiguous"):
            shown(crowded, prefix)


def test_text_is_sought_in_names_directives_templates_and_sources(tmp_path: Path) -> None:
    with Archive.open(tmp_path / "archive.db") as archive:
        archive.add_problem(SOFTMAX, INFO)
        archive.start_run("run", SOFTMAX, "cpu", {})
        found = [candidate("online"), candidate("two_pass"), candidate("100% unrolled")]
        archive.add_proposals("run", 0, found)
        for one in found:
            archive.add_result("run", failed(one))

        def hits(text: str) -> set[str]:
            return {row.hash for row in listed(archive, text=text)}

        online, two_pass, percent = (one.hash for one in found)
        assert hits("") == hits("softmax cpp.fused") == {online, two_pass, percent}
        assert hits("ONLINE") == hits("online core/") == {online}
        assert hits("two_") == {two_pass}, "an underscore stands for itself"
        assert hits("100%") == {percent}
        assert hits("online two_pass") == set()
