"""A finished compilation on disk: `compilation.json` in the candidate's folder, valid only with the files it lists."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from kernelwright.stages.codec import from_json, to_json
from kernelwright.stages.types import Compilation

_ENTRY = "compilation.json"


def lookup(home: Path, stamp: Mapping[str, str]) -> Compilation | None:
    """The compilation stored in `home` for this stamp, or None.

    An entry that cannot be read, that was made for something else, or whose files are missing or changed is a miss: the
    caller builds again and writes a good one over it.
    """
    try:
        entry = json.loads((home / _ENTRY).read_text())
        if entry["stamp"] != dict(stamp):
            return None
        if any(file_digest(home / name) != digest for name, digest in entry["artefacts"].items()):
            return None
        return from_json(Compilation, entry["compilation"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def store(
    home: Path, stamp: Mapping[str, str], compilation: Compilation, artefacts: Mapping[str, str], scratch: Path
) -> None:
    """Write the entry whole: `artefacts` maps the names of files that already lie in `home` to their digests."""
    entry = {"stamp": dict(stamp), "artefacts": dict(artefacts), "compilation": to_json(compilation)}
    draft = scratch / _ENTRY
    draft.write_text(json.dumps(entry, indent=1))
    draft.replace(home / _ENTRY)


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
