"""Alembic's migrations, shipped with the package."""

from typing import Any

HEAD = "0004"
"""The newest revision: what this version of the package reads and writes."""

TEXT_INDEX = "candidate_text"
"""SQLite's full-text index over candidates, which no class maps; its own tables are named `candidate_text_...`."""


def is_mapped(name: str | None, kind: str, parents: Any) -> bool:
    """Whether Alembic's comparison should look at this: everything but the full-text index."""
    return kind != "table" or name is None or not name.startswith(TEXT_INDEX)
