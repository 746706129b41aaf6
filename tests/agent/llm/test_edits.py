"""Edits find their lines, or say what is nearest."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.agent.llm.edits import ALIKE, Applied, Edit, Mismatch, apply

FILE = """import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        for i in range(4):
            y = x * 2.0 + i

            z = y.sum(dim=-1)
        return z
"""

WORDS = st.text("abcdefgh", min_size=1, max_size=6)
LINES = st.tuples(st.integers(0, 3), st.lists(WORDS, min_size=1, max_size=4)).map(
    lambda parts: "    " * parts[0] + " ".join(parts[1])
)
FILES = st.lists(LINES, min_size=1, max_size=25, unique_by=lambda line: "".join(line.split()))


def joined(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def test_lines_that_stand_there_are_replaced() -> None:
    done = apply(FILE, [Edit("        return z\n", "        return z * 2\n")])
    assert done == Applied(FILE.replace("return z", "return z * 2"), ("exact",))


def test_edits_are_made_one_after_another() -> None:
    done = apply(FILE, [Edit("import torch\n", "import torch as t\n"), Edit("import torch as t\n", "")])
    assert done == Applied(FILE.replace("import torch\n", "", 1), ("exact", "exact"))


def test_white_space_does_not_matter_and_the_new_lines_move_along() -> None:
    edit = Edit("y = x*2.0+i\nz = y.sum( dim=-1 )\n", "y = x + i\nif y:\n    z = y\n")
    done = apply(FILE, [edit])
    assert isinstance(done, Applied)
    assert done.rungs == ("whitespace",)
    assert "            y = x + i\n            if y:\n                z = y\n        return z\n" in done.source


def test_too_much_indentation_is_taken_away_again() -> None:
    done = apply("a\nb\n", [Edit("    b\n", "    c\n        d\n")])
    assert done == Applied("a\nc\n    d\n", ("whitespace",))


def test_nearly_the_same_lines_are_taken() -> None:
    edit = Edit("        for i in range(4):\n            y = x * 2.0 + 1\n", "        y = x\n")
    done = apply(FILE, [edit])
    assert isinstance(done, Applied)
    assert done.rungs == ("fuzzy",)
    assert "range(4)" not in done.source
    assert "        y = x\n\n            z = y.sum(dim=-1)\n" in done.source


def test_what_is_not_there_is_a_mismatch_that_shows_the_nearest_lines() -> None:
    found = apply(FILE, [Edit("import torch\n", "import t\n"), Edit("    z = x.mean(axis=0)\n", "")])
    assert isinstance(found, Mismatch)
    assert (found.number, found.reason) == (2, "no lines of the file are like its SEARCH part")
    assert found.nearest == "    9              z = y.sum(dim=-1)\n"
    assert 0.0 < found.ratio < ALIKE
    assert found.nearest in found.message
    assert "z = x.mean(axis=0)" in found.message


def test_what_fits_twice_is_a_mismatch_that_says_where() -> None:
    found = apply("a = 1\nb\na = 1\n", [Edit("a = 1\n", "a = 2\n")])
    assert isinstance(found, Mismatch)
    assert "fits 2 places, at lines 1, 3" in found.reason


def test_two_places_that_are_as_much_alike_are_not_guessed_between() -> None:
    twice = "total = total + weight[0]\nother\ntotal = total + weight[1]\n"
    found = apply(twice, [Edit("total = total + weight[2]\n", "x\n")])
    assert isinstance(found, Mismatch)
    assert "fits 2 places" in found.reason


@pytest.mark.parametrize("search", ["", "\n", "   \n\n"])
def test_an_empty_search_is_refused(search: str) -> None:
    found = apply(FILE, [Edit(search, "x\n")])
    assert isinstance(found, Mismatch)
    assert found.reason == "its SEARCH part is empty"


def test_an_empty_file_has_no_nearest_lines() -> None:
    found = apply("", [Edit("x\n", "y\n")])
    assert isinstance(found, Mismatch)
    assert found.nearest == ""


@given(lines=FILES, new=st.lists(LINES, max_size=4), data=st.data())
def test_lines_of_the_file_are_replaced_and_nothing_else_changes(
    lines: list[str], new: list[str], data: st.DataObject
) -> None:
    first = data.draw(st.integers(0, len(lines) - 1))
    end = data.draw(st.integers(first + 1, len(lines)))
    done = apply(joined(lines), [Edit(joined(lines[first:end]), joined(new))])
    assert done == Applied(joined([*lines[:first], *new, *lines[end:]]), ("exact",))


@given(lines=FILES, data=st.data())
def test_an_edit_that_changes_nothing_but_white_space_of_what_it_searches_finds_the_same_lines(
    lines: list[str], data: st.DataObject
) -> None:
    first = data.draw(st.integers(0, len(lines) - 1))
    end = data.draw(st.integers(first + 1, len(lines)))
    spaces = st.sampled_from(["", " ", "\t", "  "])
    searched = [
        data.draw(spaces) + line.replace(" ", data.draw(st.sampled_from([" ", "  "]))) for line in lines[first:end]
    ]
    text = "\r\n".join(line + data.draw(spaces) for line in searched) + "\r\n"
    done = apply(joined(lines), [Edit(text, "new\n")])
    assert isinstance(done, Applied)
    assert len(done.source.splitlines()) == len(lines) - (end - first) + 1
    assert done.source.splitlines()[first].strip() == "new"
    assert done.rungs[0] in ("exact", "whitespace")


@given(lines=FILES, searched=FILES)
def test_an_edit_is_made_at_one_place_or_not_at_all(lines: list[str], searched: list[str]) -> None:
    done = apply(joined(lines), [Edit(joined(searched), "NEW\n")])
    if isinstance(done, Mismatch):
        assert (done.number, 0.0 <= done.ratio <= 1.0) == (1, True)
        return
    after = done.source.splitlines()
    assert [line.strip() for line in after].count("NEW") == 1
    first = next(i for i, line in enumerate(after) if line.strip() == "NEW")
    rest = after[first + 1 :]
    assert after[:first] == lines[:first]
    assert lines[len(lines) - len(rest) :] == rest
    assert abs(len(lines) - first - len(rest) - len(searched)) <= 2


@given(lines=FILES, data=st.data())
def test_a_slip_in_a_long_line_still_finds_the_line(lines: list[str], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(lines)))
    long = "    output = accumulate(input, weights, bias) + residual"
    searched = data.draw(st.sampled_from([long.replace("weights", "weight"), long.replace("+", "-"), long + ";"]))
    done = apply(joined([*lines[:at], long, *lines[at:]]), [Edit(joined([searched]), "    new\n")])
    assert isinstance(done, Applied)
    assert done.rungs == ("fuzzy",)
    assert "    new" in done.source.splitlines()
    assert long not in done.source
