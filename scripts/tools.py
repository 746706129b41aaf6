"""Write the table of tools in docs/mcp.md from the server's own definitions: `python scripts/tools.py [FILE]`."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kernelwright.agent.mcp import Place, server_of
from kernelwright.agent.referee import Referee

DOCUMENT = Path(__file__).parents[1] / "docs" / "mcp.md"
BEGIN, END = "<!-- tools: written by `make docs` -->", "<!-- end of tools -->"


def render(document: str) -> str:
    """The document with the tools that the server has, between the two marks."""
    before, _, rest = document.partition(BEGIN)
    _, _, after = rest.partition(END)
    return "\n".join([before + BEGIN, "", *_tools(), END + after])


def _tools() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        # Nothing is called: no worker starts.
        server = server_of(Place(Path("archive.db"), Path("runs"), "cpu"), Referee(Path(folder)))
        tools = asyncio.run(server.list_tools())
    for tool in tools:
        reads = tool.annotations is not None and tool.annotations.read_only_hint
        yield f"### `{tool.name}`\n"
        yield f"{_line(tool.description)} *{'Read-only.' if reads else 'Stores.'}*\n"
        yield "| argument | |\n| --- | --- |"
        required = tool.input_schema.get("required", [])
        for name, schema in tool.input_schema["properties"].items():
            yield f"| `{name}` | {_argument(schema, name in required)} |"
        yield f"\nAnswers: {', '.join(f'`{name}`' for name in (tool.output_schema or {})['properties'])}.\n"


def _argument(schema: dict[str, Any], required: bool) -> str:
    options = [o for part in (schema, *schema.get("anyOf", ())) for o in part.get("enum", ())]
    words = [schema.get("description", "")]
    words += [f"One of {', '.join(options)}."] if options else []
    words += ["Required."] if required else []
    if schema.get("default") not in (None, ""):
        words.append(f"Default: {json.dumps(schema['default'])}.")
    return _line(" ".join(words)).replace("|", "\\|")


def _line(text: str | None) -> str:
    return " ".join((text or "").split())


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else DOCUMENT
    target.write_text(render(DOCUMENT.read_text()))
    print(f"wrote {target}")
