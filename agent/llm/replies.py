"""Reads a model's reply: a whole file, or edits of the file that it was shown."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from kernelwright.agent.llm.edits import Edit

LANGUAGES = ("", "python", "py", "python3", "triton", "cuda", "cu", "cpp", "c++", "c", "cc")
"""Labels of fences that may hold a kernel; a block of another language (bash, text, json) is not read."""

_THOUGHTS = re.compile(r"<(think|thinking|thought|reasoning)>.*?</\1>", re.DOTALL)
_THOUGHTS_BEGIN = re.compile(r"<(think|thinking|thought|reasoning)>")
_THOUGHTS_END = re.compile(r"</(?:think|thinking|thought|reasoning)>")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})[ \t]*([^`\s]*)[^`]*$")
_SEARCH = re.compile(r"\s*<{5,9} ?SEARCH\b")
_DIVIDER = re.compile(r"\s*={5,9}\s*$")
_REPLACE = re.compile(r"\s*>{5,9} ?REPLACE\b")
_MODULE = re.compile(r"^class ModelNew\b", re.MULTILINE)
_CODE_BEGINS = re.compile(r"^(import |from \S+ import |\"\"\"|class |def |@)", re.MULTILINE)


@dataclass(frozen=True)
class WholeFile:
    """A reply that is a file."""

    source: str
    closed: bool = True
    """False where the block's end is missing: the model forgot it, or was cut off."""


@dataclass(frozen=True)
class Edits:
    """A reply that changes the file which the model was shown."""

    edits: tuple[Edit, ...]


@dataclass(frozen=True)
class Unreadable:
    """A reply without a file and without edits."""

    reason: str
    """For the model, when it is asked again."""


@dataclass(frozen=True)
class _Block:
    language: str
    text: str
    closed: bool


def read(reply: str) -> WholeFile | Edits | Unreadable:
    """What a reply holds, in this order: a fenced block that defines `ModelNew` (the largest, if there are several),
    SEARCH/REPLACE edits, the largest fenced block in a language of kernels, and the text itself where it is Python.

    Thoughts between think tags are not read. Line ends become `\\n`.
    """
    text = _without_thoughts(reply.replace("\r\n", "\n"))
    if text is None:
        return Unreadable("the reply ended before its thoughts did: think less, and answer with the file")
    blocks = [b for b in _blocks(text) if b.language in LANGUAGES and b.text.strip() and not _has_edits(b.text)]
    modules = [b for b in blocks if _MODULE.search(b.text)]
    if modules:
        return _whole(modules)
    if _has_edits(text):
        return _edits(text)
    if blocks:
        return _whole(blocks)
    bare = _bare_python(text)
    return WholeFile(bare) if bare else Unreadable("no fenced block with the whole file, and no SEARCH/REPLACE edits")


def _whole(blocks: list[_Block]) -> WholeFile:
    # A file that is complete before one that is cut off, however much longer that is.
    best = max(blocks, key=lambda block: (block.closed, len(block.text)))
    return WholeFile(best.text, best.closed)


def _without_thoughts(text: str) -> str | None:
    """The text outside of think tags; None where they never end."""
    text = _THOUGHTS.sub("", text)
    # Some chat templates open the tag in the prompt, so that the reply has its end only.
    text = _THOUGHTS_END.split(text)[-1]
    begun = _THOUGHTS_BEGIN.search(text)
    if begun is None:
        return text
    before = text[: begun.start()]
    return before if before.strip() else None


def _blocks(text: str) -> list[_Block]:
    """Fenced blocks as CommonMark has them: a fence ends at a line of the same character, at least as long, and no
    label. https://spec.commonmark.org/0.31.2/#fenced-code-blocks"""
    blocks: list[_Block] = []
    fence, language, lines = "", "", list[str]()
    for line in text.split("\n"):
        found = _FENCE.match(line)
        if not fence:
            if found:
                fence, language, lines = found[1], found[2].lower(), []
        elif found and found[1][0] == fence[0] and len(found[1]) >= len(fence) and not found[2]:
            blocks.append(_Block(language, _joined(lines), closed=True))
            fence = ""
        else:
            lines.append(line)
    if fence:
        blocks.append(_Block(language, _joined(lines).rstrip("\n") + "\n", closed=False))
    return blocks


def _joined(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _has_edits(text: str) -> bool:
    return any(_SEARCH.match(line) for line in text.split("\n"))


def _edits(text: str) -> Edits | Unreadable:
    edits: list[Edit] = []
    part, search, replace = "outside", list[str](), list[str]()
    for line in text.split("\n"):
        if part == "outside":
            if _SEARCH.match(line):
                part, search, replace = "search", [], []
        elif _SEARCH.match(line):
            return Unreadable(f"edit {len(edits) + 1}: another SEARCH begins before its REPLACE line")
        elif part == "search":
            if _DIVIDER.match(line):
                part = "replace"
            else:
                search.append(line)
        elif _REPLACE.match(line):
            edits.append(Edit(_joined(search), _joined(replace)))
            part = "outside"
        else:
            replace.append(line)
    if part != "outside":
        missing = "=======" if part == "search" else ">>>>>>> REPLACE"
        return Unreadable(f"edit {len(edits) + 1}: its {missing} line is missing")
    return Edits(tuple(edits))


def _bare_python(text: str) -> str | None:
    """The longest stretch that begins like code, is Python and defines `ModelNew`: a reply without fences."""
    begins = _CODE_BEGINS.search(text)
    if begins is None:
        return None
    paragraphs = text[begins.start() :].split("\n\n")
    while paragraphs:
        source = "\n\n".join(paragraphs).rstrip("\n") + "\n"
        if not _MODULE.search(source):
            return None
        if _is_python(source):
            return source
        paragraphs.pop()
    return None


def _is_python(source: str) -> bool:
    try:
        ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
