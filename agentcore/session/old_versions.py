"""Session files of the versions 1 and 2, turned into version 3 in memory.

Version 1 has no ids: its entries are one line of descent, and a compaction names its first kept entry by its place in the file, the
header being number 0. The ids made here follow from the place, so every reader of such a file makes the same. Version 2 calls the
messages of extensions `hookMessage`.
"""

from __future__ import annotations

from typing import Any

from agentcore.session.entries import SESSION_VERSION, RawEntry


def header_version(header: RawEntry) -> int | None:
    """Return the version of a file, None where the library cannot read it."""
    version = header.get("version", 1)
    return version if type(version) is int and 1 <= version <= SESSION_VERSION else None


def upgrade_header(header: RawEntry) -> RawEntry:
    """Return the header as version 3 has it; keys that only the old version knows stay."""
    made = {"type": "session", "version": SESSION_VERSION, **{k: v for k, v in header.items() if k not in ("type", "version")}}
    if "branchedFrom" in made and "parentSession" not in made:
        made["parentSession"] = made.pop("branchedFrom")
    return made


def upgrade_entries(raws: list[Any], version: int) -> None:
    """Turn the entries of a file into those of version 3, in place. What is no entry stays as it is."""
    if version == 1:
        _add_ids(raws)
    for raw in raws:
        if isinstance(raw, dict) and raw.get("type") == "message":
            message = raw.get("message")
            if isinstance(message, dict) and message.get("role") == "hookMessage":
                message["role"] = "custom"


def _add_ids(raws: list[Any]) -> None:
    parent_id: str | None = None
    for place, raw in enumerate(raws, start=1):
        if not isinstance(raw, dict) or "id" in raw:
            continue
        rest = dict(raw)
        raw.clear()
        if "type" in rest:
            raw["type"] = rest.pop("type")
        raw["id"], raw["parentId"] = f"{place:08x}", parent_id
        raw.update(rest)
        parent_id = raw["id"]
        place_kept = raw.pop("firstKeptEntryIndex", None)
        if type(place_kept) is int and 1 <= place_kept < place:
            raw["firstKeptEntryId"] = f"{place_kept:08x}"
