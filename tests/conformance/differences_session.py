"""Where sessions differ from the recordings on purpose, as rules, and how our error texts say what theirs do.

- Settings made before the kept part of a compacted path still count.
- A fork keeps the whole path: its first entry has its parent, and one can go back before the compaction.
- A file that was torn or glued at its end is mended, with a warning; one that can be read is read; files of the versions 1 and 2
  open, migrated in memory.
- The number of a line is that of an editor; an append to a file without a last line break writes it first.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_REFUSED = re.compile(
    r"Invalid JSONL session file .*: (?:unsupported session version|missing session header"
    r"|first line is not a valid session header|line \d+ is not valid JSON)"
)


@dataclass
class Moment:
    """What the player saw when it did an operation: the file's text before it, and the whole path to where the session stood."""

    file: str | None = None
    name: str = ""
    path: list[dict[str, Any]] = field(default_factory=list)


def our_results(recorded: Sequence[dict[str, Any]], moments: Sequence[Moment]) -> list[dict[str, Any]]:
    """Return the recorded results with ours where a rule has others."""
    return [_our_result(result, moment) for result, moment in zip(recorded, moments, strict=True)]


def _our_result(result: dict[str, Any], moment: Moment) -> dict[str, Any]:
    op, error = result["op"], result.get("error")
    if error is not None and moment.file is not None and _REFUSED.fullmatch(error["message"]):
        return _our_refusal(result, moment)
    has_compaction = any(raw["type"] == "compaction" for raw in moment.path)
    if error is None and op in ("buildContext", "buildContextWithProjector") and has_compaction:
        return {"op": op, "result": {**result["result"], **settings_of(moment.path)}}
    if error is not None and op in ("getBranch", "buildContext") and moment.path and not error.get("code"):
        # An entry that cannot be read is a session error, not whatever the language says of it.
        unreadable = next((raw["id"] for raw in moment.path if raw["type"] == "message" and not raw.get("message")), "")
        return {"op": op, "error": {"code": "invalid_entry", "message": f"Entry {unreadable} has no message"}}
    is_only_messages = bool(moment.path) and all(raw["type"] == "message" for raw in moment.path)
    if error is not None and error.get("code") == "invalid_session" and is_only_messages:
        # In a fork that has its whole path, the parent that the reference misses is there.
        messages = [raw["message"] for raw in moment.path]
        if op == "getBranch":
            return {"op": op, "result": [raw["id"] for raw in moment.path]}
        if op == "buildContext":
            return {"op": op, "result": {**settings_of(moment.path), "messages": messages}}
    return result


def settings_of(path: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the settings that a whole path ends with."""
    settings: dict[str, Any] = {"thinkingLevel": "off", "model": None, "activeToolNames": None}
    for raw in path:
        if raw["type"] == "thinking_level_change":
            settings["thinkingLevel"] = raw["thinkingLevel"]
        elif raw["type"] == "active_tools_change":
            settings["activeToolNames"] = raw["activeToolNames"]
        elif raw["type"] == "model_change":
            settings["model"] = {"provider": raw["provider"], "modelId": raw["modelId"]}
        elif raw["type"] == "message" and raw["message"].get("role") == "assistant":
            settings["model"] = {"provider": raw["message"]["provider"], "modelId": raw["message"]["model"]}
    return settings


# --- files -----------------------------------------------------------------------------------------------------------


def _our_refusal(result: dict[str, Any], moment: Moment) -> dict[str, Any]:
    """Return the metadata of a file that can be read, and else the recorded refusal with the number that an editor shows."""
    lines = (moment.file or "").removeprefix("\ufeff").split("\n")
    numbers = [number for number, line in enumerate(lines, 1) if line.strip()]
    header = _json_of(lines[numbers[0] - 1]) if numbers else None
    error = result["error"]
    is_whole = isinstance(header, dict) and header.get("type") == "session" and header.get("version") in (None, 1, 2, 3)
    if not is_whole or result["op"] != "load_metadata":
        bad = [number for number in numbers[1:] if _json_of(lines[number - 1]) is None]
        lost = [number for number in bad if not (number == len(lines) or _holds_an_entry(lines[number - 1]))]
        if not is_whole or lost:
            number = re.search(r"line (\d+) is", error["message"])
            if number is None:
                return result
            place = numbers[int(number[1]) - 1] if int(number[1]) <= len(numbers) else int(number[1])
            return {"op": result["op"], "error": {**error, "message": error["message"].replace(number[0], f"line {place} is")}}
    assert isinstance(header, dict)
    told = {"id": header.get("id"), "createdAt": header.get("timestamp"), "cwd": header.get("cwd"), "path": moment.name}
    told.update({key: header[key] for key in ("metadata",) if key in header})
    if header.get("parentSession"):
        told["parentSessionPath"] = header["parentSession"]
    return {"op": result["op"], "result": told if result["op"] != "reopen" else "ok"}


def _json_of(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None


def _holds_an_entry(line: str) -> bool:
    return any(_decoded(line, match.start()) is not None for match in re.finditer(r'\{"type":', line))


def _decoded(line: str, start: int) -> tuple[Any, int] | None:
    try:
        return json.JSONDecoder().raw_decode(line, start)
    except ValueError:
        return None


def our_files(recorded: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    """Return the recorded lines of the files with ours where a rule has others."""
    files = {name: [each for line in lines for each in _unglued(line)] for name, lines in recorded.items()}
    for lines in files.values():
        header = lines[0] if lines and isinstance(lines[0], dict) else {}
        parent = re.sub(r".*_|\.jsonl$", "", header.get("parentSession") or "")
        if parent in files and len(lines) > 1 and all(isinstance(line, dict) for line in (*lines, *files[parent])):
            lines[1:1] = _ancestors(lines[1], [line.get("id") for line in lines[1:]], files[parent][1:])
    return files


def _unglued(line: Any) -> list[Any]:
    """Return the entries of a line onto which another was glued: each has a line of its own."""
    found: list[Any] = []
    position = 0
    while isinstance(line, str) and position < len(line):
        decoded = _decoded(line, position)
        if decoded is None:
            return [line]
        found.append(decoded[0])
        position = decoded[1]
    return found or [line]


def _ancestors(first: dict[str, Any], ids: Sequence[Any], source: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the entries that a fork's first one comes from, and that the reference left behind."""
    by_id = {line["id"]: line for line in source}
    missing: list[dict[str, Any]] = []
    parent = first.get("parentId")
    while parent in by_id and parent not in ids:
        missing.insert(0, by_id[parent])
        parent = by_id[parent].get("parentId")
    return missing


_FILE = r"Invalid JSONL session file (.*): "
_IS_NONE = r"\1 is no session file: "
_LINE = r"\1: line \2 "
_MEND = "; mend or remove that line"

# Code, recorded text, ours. Both are patterns; `\1` in ours is what the group of the recorded one held.
OUR_WORDS: list[tuple[str, str, str]] = [
    ("not_found", r"Entry (.*) not found", r"the session has no entry '\1'; get_entries\(\) has those that there are"),
    (
        "invalid_session",
        r"Entry (.*) not found",
        r"the session stands at entry '\1', which it does not have; use move_to\(\) first"
        r"|entry '.*' \(.*\) comes after entry '\1', which the session does not have",
    ),
    ("invalid_fork_target", r"Entry (.*) not found", r"cannot fork at entry '\1': the session does not have it"),
    (
        "invalid_fork_target",
        r"Entry (.*) is not a user message",
        r"cannot fork before entry '\1' \(.*\): it is no user message; position='at' forks with any entry",
    ),
    ("invalid_session", _FILE + "missing session header", _IS_NONE + "it has no session header"),
    ("invalid_session", _FILE + "first line is not a valid session header", _IS_NONE + "its first line is no session header"),
    (
        "invalid_session",
        _FILE + "unsupported session version",
        r"\1 is a session of version .*; this library reads the versions 1 to 3, use a newer one for it",
    ),
    ("invalid_session", _FILE + r"session header is missing (\w+)", _IS_NONE + r"its session header has no \2"),
    (
        "invalid_session",
        _FILE + "session header parentSession must be a string",
        _IS_NONE + "its session header has a parentSession that is no string",
    ),
    (
        "invalid_session",
        _FILE + "session header metadata must be an object",
        _IS_NONE + "its session header has metadata that is no object",
    ),
    ("invalid_entry", _FILE + r"line (\d+) is not valid JSON", _LINE + "is not JSON" + _MEND),
    ("invalid_entry", _FILE + r"line (\d+) is missing entry (\w+)", _LINE + r"has no entry \3" + _MEND),
    ("invalid_entry", _FILE + r"line (\d+) is missing timestamp", _LINE + "has no timestamp" + _MEND),
    ("invalid_entry", _FILE + r"line (\d+) is not a valid session entry", _LINE + "is no session entry" + _MEND),
    ("invalid_entry", _FILE + r"line (\d+) has invalid (\w+)", _LINE + r"has no valid \3" + _MEND),
    ("invalid_entry", r"Entry (.*) has no message", r"entry '\1' \(message\) cannot be read: .*message.*"),
    ("not_found", r"Session not found: (.*)", r"there is no session file \1; JsonlSessionStorage.create\(\) makes one"),
    (
        "not_found",
        r"Failed to read session (?:header )?(.*): ENOENT.*",
        r"there is no session file \1; JsonlSessionStorage.create\(\) makes one",
    ),
]
