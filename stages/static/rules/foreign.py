"""C++ and CUDA text: state that no Python rule can see, and threads."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kernelwright.stages.static.report import Finding
from kernelwright.stages.static.sites import Sites
from kernelwright.stages.verify.foreign import looks_foreign, without_comments

_STATIC = re.compile(
    r"\bstatic\s+(?!const\b|constexpr\b|inline\b|_*inline_*\b|__device__|__forceinline__)[\w:<>,\s*&]+?\s(\w+)\s*[;={]"
)
_DEVICE_VARIABLE = re.compile(
    r"__device__\s+(?!__forceinline__|inline|static\s+inline)[\w\s]+?\s(\w+)\s*(?:\[[^\]]*\]\s*)*[;=]"
)
_THREAD = re.compile(r"\bstd::(?:thread|async|jthread)\b|\bpthread_create\b")


def foreign_text(sites: Sites) -> Iterator[Finding]:
    """At the line where the text begins."""
    for text, place in sites.strings:
        if not looks_foreign(text):
            continue
        bare = without_comments(text)
        for name in dict.fromkeys(_STATIC.findall(bare) + _DEVICE_VARIABLE.findall(bare)):
            yield Finding(
                "state-between-calls", place.line, f"{name} in the native text keeps its value between calls."
            )
        if _THREAD.search(bare):
            yield Finding("concurrency", place.line, "The native text starts threads: they must end before it returns.")
