"""Applies SEARCH/REPLACE edits to a file: as they stand, else by a ladder of looser readings, else a mismatch.

exact        the searched lines are in the file, once
whitespace   they are there but for white space and empty lines; what replaces them moves with the indentation
fuzzy        lines there are nearly the same (at least 0.9 by difflib's ratio), and no other place is
mismatch     nothing of that: a value that shows the nearest lines, so that the model can be asked again
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

ALIKE = 0.9
"""Ratio (twice the matching characters over all characters) from which lines count as those that were meant."""
AHEAD = 0.03
"""By how much the best place must beat every other one that does not overlap it."""
MORE_OR_FEWER = 2
"""Lines that a place may have more or fewer than the edit."""


@dataclass(frozen=True)
class Edit:
    """Whole lines, each with its line end."""

    search: str
    replace: str


@dataclass(frozen=True)
class Applied:
    """A file with all its edits."""

    source: str
    rungs: tuple[str, ...]
    """How each edit was found: `exact`, `whitespace` or `fuzzy`."""


@dataclass(frozen=True)
class Mismatch:
    """An edit that could not be placed. None of the others was made either."""

    number: int
    """Which edit, from 1."""
    search: str
    reason: str
    nearest: str
    """The lines of the file that are most like it, with their numbers; empty for an empty file."""
    ratio: float
    """How much alike they are, 0 to 1."""

    @property
    def message(self) -> str:
        """For the model."""
        shown = f"\nThe nearest lines are ({self.ratio:.0%} alike):\n{self.nearest}" if self.nearest else ""
        return f"Edit {self.number} was not made: {self.reason}. It searches for:\n{self.search}{shown}"


@dataclass(frozen=True)
class _Place:
    """Lines `first` to `end` (excluded) of the file."""

    first: int
    end: int
    ratio: float = 1.0


def apply(source: str, edits: Sequence[Edit]) -> Applied | Mismatch:
    """The file with the edits made one after another, all of them or none. Line ends become `\\n`."""
    lines = _lines(source)
    rungs: list[str] = []
    for number, edit in enumerate(edits, 1):
        search, replace = _lines(edit.search), _lines(edit.replace)
        if not any(line.strip() for line in search):
            return Mismatch(number, edit.search, "its SEARCH part is empty", "", 0.0)
        rung, places = _find(lines, search)
        if len(places) != 1:
            return _mismatch(number, edit, lines, search, places)
        (place,) = places
        if rung != "exact":
            replace = _shifted(replace, search, lines[place.first : place.end])
        lines[place.first : place.end] = replace
        rungs.append(rung)
    return Applied("".join(f"{line}\n" for line in lines), tuple(rungs))


def _lines(text: str) -> list[str]:
    """Lines without their ends; only line feeds end a line, for a form feed may stand in a string."""
    lines = text.replace("\r\n", "\n").split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def _find(lines: list[str], search: list[str]) -> tuple[str, list[_Place]]:
    """The first rung on which there is any place, and the places there."""
    exact = [_Place(i, i + len(search)) for i in _windows(lines, search)]
    if exact:
        return "exact", exact
    loose = list(_but_for_whitespace(lines, search))
    if loose:
        return "whitespace", loose
    ranked = _ranked(lines, search)
    best = ranked[0] if ranked else None
    if best is None or best.ratio < ALIKE:
        return "fuzzy", []
    return "fuzzy", [p for p in ranked if p is best or (_apart(p, best) and p.ratio > best.ratio - AHEAD)]


def _windows(lines: Sequence[str], search: Sequence[str]) -> Iterator[int]:
    for i in range(len(lines) - len(search) + 1):
        if lines[i] == search[0] and list(lines[i : i + len(search)]) == list(search):
            yield i


def _but_for_whitespace(lines: list[str], search: list[str]) -> Iterator[_Place]:
    numbers = [i for i, line in enumerate(lines) if line.strip()]
    bare = [_bare(lines[i]) for i in numbers]
    wanted = [_bare(line) for line in search if line.strip()]
    for i in _windows(bare, wanted):
        yield _Place(numbers[i], numbers[i + len(wanted) - 1] + 1)


def _bare(line: str) -> str:
    return "".join(line.split())


def _ranked(lines: list[str], search: list[str]) -> list[_Place]:
    """Places of about as many lines, the most alike first; of equal ones that with the nearest number of lines."""
    wanted = "\n".join(line.strip() for line in search)
    matcher = SequenceMatcher(None, "", wanted, autojunk=False)
    stripped = [line.strip() for line in lines]
    places: list[_Place] = []
    least = 0.0
    for first in range(len(lines)):
        for count in range(max(len(search) - MORE_OR_FEWER, 1), len(search) + MORE_OR_FEWER + 1):
            if first + count > len(lines):
                break
            matcher.set_seq1("\n".join(stripped[first : first + count]))
            # The bounds are cheap and the ratio is not; what cannot come near the best need not be known.
            if matcher.real_quick_ratio() < least or matcher.quick_ratio() < least:
                continue
            ratio = matcher.ratio()
            least = max(least, ratio - AHEAD)
            places.append(_Place(first, first + count, ratio))
    return sorted(places, key=lambda p: (-p.ratio, abs(p.end - p.first - len(search)), p.first))


def _apart(one: _Place, other: _Place) -> bool:
    return one.end <= other.first or other.end <= one.first


def _shifted(replace: list[str], search: list[str], found: list[str]) -> list[str]:
    """The new lines, moved as far as the searched ones stand from those that were found."""
    meant = _indent(next(line for line in search if line.strip()))
    real = _indent(next((line for line in found if line.strip()), ""))
    if meant == real:
        return replace
    if real.startswith(meant):
        return [real[len(meant) :] + line if line.strip() else line for line in replace]
    surplus = meant[len(real) :] if meant.startswith(real) else ""
    if surplus and all(line.startswith(surplus) for line in replace if line.strip()):
        return [line.removeprefix(surplus) for line in replace]
    return replace


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _mismatch(number: int, edit: Edit, lines: list[str], search: list[str], places: list[_Place]) -> Mismatch:
    if places:
        where = ", ".join(str(p.first + 1) for p in places)
        reason = f"its SEARCH part fits {len(places)} places, at lines {where}: search for more lines around"
        nearest = places[0]
    else:
        reason = "no lines of the file are like its SEARCH part"
        ranked = _ranked(lines, search)
        if not ranked:
            return Mismatch(number, edit.search, reason, "", 0.0)
        nearest = ranked[0]
    shown = "".join(f"{i + 1:5}  {lines[i]}\n" for i in range(nearest.first, nearest.end))
    return Mismatch(number, edit.search, reason, shown, nearest.ratio)
