"""What is read from a model's reply."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.agent.llm.edits import Edit
from kernelwright.agent.llm.replies import LANGUAGES, Edits, Unreadable, WholeFile, read

MODULE = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x\n"
LINES = st.text(st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="`~<>="), max_size=30)
SOURCES = st.lists(LINES, min_size=1, max_size=20).map(lambda lines: "class ModelNew:\n" + "\n".join(lines) + "\n")


def fenced(source: str, language: str = "python", fence: str = "```") -> str:
    return f"{fence}{language}\n{source}{fence}\n"


def test_the_fenced_block_is_the_file() -> None:
    assert read(f"Here it is:\n\n{fenced(MODULE)}\nIt is fast.") == WholeFile(MODULE)


@given(source=SOURCES, language=st.sampled_from(LANGUAGES), fence=st.sampled_from(["```", "````", "~~~"]), said=LINES)
def test_whatever_is_fenced_comes_back_as_it_was(source: str, language: str, fence: str, said: str) -> None:
    assert read(f"{said}\n{fenced(source, language, fence)}{said}") == WholeFile(source)


@given(st.text())
def test_no_text_is_too_strange_to_be_read(text: str) -> None:
    assert isinstance(read(text), WholeFile | Edits | Unreadable)


def test_the_block_with_the_module_wins_over_a_longer_one() -> None:
    kernel = "__global__ void k() {}\n" * 40
    assert read(fenced(kernel, "cuda") + fenced(MODULE)) == WholeFile(MODULE)


def test_of_several_modules_the_largest_wins() -> None:
    better = MODULE + "\n# with more care\n"
    assert read(fenced(MODULE) + "Better:\n" + fenced(better) + fenced(MODULE)) == WholeFile(better)


def test_without_a_module_the_largest_kernel_is_taken_and_no_shell_command() -> None:
    kernel = "__global__ void k() {}\n"
    assert read(fenced("pip install everything\n" * 9, "bash") + fenced(kernel, "cuda")) == WholeFile(kernel)


def test_thoughts_are_not_read() -> None:
    thought = fenced(MODULE + "# a longer draft that came to nothing\n")
    assert read(f"<think>\n{thought}</think>\n{fenced(MODULE)}") == WholeFile(MODULE)
    assert read(f"{thought}</think>\n{fenced(MODULE)}") == WholeFile(MODULE)


def test_thoughts_that_never_end_are_no_answer() -> None:
    found = read(f"<think>\nLet me see. {fenced(MODULE)}")
    assert isinstance(found, Unreadable)
    assert "before its thoughts did" in found.reason


def test_a_block_that_is_cut_off_says_so_and_loses_to_a_whole_one() -> None:
    assert read("```python\n" + MODULE) == WholeFile(MODULE, closed=False)
    assert read(fenced(MODULE) + "```python\n" + MODULE * 2) == WholeFile(MODULE)


def test_a_longer_fence_may_hold_a_shorter_one() -> None:
    source = 'class ModelNew:\n    """\n```python\nx\n```\n    """\n'
    assert read(fenced(source, fence="````")) == WholeFile(source)


def test_python_without_a_fence_is_found_among_prose() -> None:
    assert read(MODULE) == WholeFile(MODULE)
    assert read(f"Sure, this is it:\n\n{MODULE}\nI hope that it isn't slow.") == WholeFile(MODULE)
    assert isinstance(read("I would fuse the two loops, and import less."), Unreadable)
    assert isinstance(read("import torch\n\nand then write class ModelNew"), Unreadable)


def test_windows_line_ends_are_read() -> None:
    assert read(fenced(MODULE).replace("\n", "\r\n")) == WholeFile(MODULE)


BLOCK = "<<<<<<< SEARCH\n{}=======\n{}>>>>>>> REPLACE\n"


@pytest.mark.parametrize("wrap", ["{}", "```python\n{}```\n", "First:\n\n{}\nThat is all."])
def test_edits_are_read_with_or_without_a_fence(wrap: str) -> None:
    text = BLOCK.format("    a = 1\n", "    a = 2\n") + "\n" + BLOCK.format("b\n", "")
    assert read(wrap.format(text)) == Edits((Edit("    a = 1\n", "    a = 2\n"), Edit("b\n", "")))


@given(st.lists(st.tuples(SOURCES, SOURCES), min_size=1, max_size=4))
def test_edits_come_back_as_they_were(pairs: list[tuple[str, str]]) -> None:
    reply = "So:\n" + "and\n".join(BLOCK.format(*pair) for pair in pairs)
    assert read(reply) == Edits(tuple(Edit(*pair) for pair in pairs))


def test_a_whole_file_beside_edits_wins() -> None:
    assert read(BLOCK.format("a\n", "b\n") + fenced(MODULE)) == WholeFile(MODULE)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("<<<<<<< SEARCH\na\n=======\nb\n", "edit 1: its >>>>>>> REPLACE line is missing"),
        ("<<<<<<< SEARCH\na\n", "edit 1: its ======= line is missing"),
        (BLOCK.format("a\n", "b\n") + "<<<<<<< SEARCH\na\n<<<<<<< SEARCH\n", "edit 2: another SEARCH begins"),
        ("I cannot do that.", "no fenced block"),
        ("", "no fenced block"),
        ("```python\n\n```", "no fenced block"),
    ],
)
def test_what_cannot_be_read_says_why(text: str, reason: str) -> None:
    found = read(text)
    assert isinstance(found, Unreadable)
    assert reason in found.reason
