"""Where sessions differ from the recordings on purpose, and how our error texts say what theirs do.

Kinds: settings made before the kept part still count; forks keep a whole path; damaged files are mended, or read where the
reference refuses them; files of the versions 1 and 2 open.
"""

from __future__ import annotations

from typing import Any

from tests.conformance.cases import Difference

SETTINGS = "settings made before the kept part of a compacted path still count"
WHOLE_PATH = "a fork keeps the whole path, so that its first entry has its parent and one can go back before the compaction"
MENDED = "a torn or glued tail is mended with a warning; the reference refuses the file"
LENIENT = "the file can be read, so it is"
OLD = "files of the versions 1 and 2 open, migrated in memory"

_METADATA = {"id": "S", "createdAt": "2025-06-01T10:00:00.000Z", "cwd": "/w", "path": "<CWD>/s.jsonl"}
_MODEL = {"provider": "prov", "modelId": "mod"}


def _ok(op: str, result: Any) -> dict[str, Any]:
    return {"op": op, "result": result}


def _user(entry_id: str, parent_id: str | None, text: str, timestamp: str = "<time>") -> dict[str, Any]:
    message = {"role": "user", "content": text, "timestamp": 1}
    return {"type": "message", "id": entry_id, "parentId": parent_id, "timestamp": timestamp, "message": message}


def _answer(text: str) -> dict[str, Any]:
    cost = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 0.5}
    usage = {"input": 10, "output": 5, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 15, "cost": cost}
    content = [{"type": "text", "text": text}]
    answer = {"role": "assistant", "content": content, "api": "a", "provider": "prov", "model": "mod", "usage": usage}
    return {**answer, "stopReason": "stop", "timestamp": 2}


def _fork(*entries: dict[str, Any]) -> list[dict[str, Any]]:
    parent = "<SESSIONS>/--<CWD-DASHED>--/<time>_session-1.jsonl"
    header = {"type": "session", "version": 3, "id": "session-2", "timestamp": "<time>", "cwd": "<CWD>", "parentSession": parent}
    before = [
        _user("<e1>", None, "a"),
        {**_user("<e2>", "<e1>", ""), "message": _answer("b")},
        _user("<e3>", "<e2>", "c"),
        {**_user("<e4>", "<e3>", ""), "message": _answer("d")},
    ]
    return [header, *before, *entries]


_COMPACTION = {"type": "compaction", "id": "<e5>", "parentId": "<e4>", "timestamp": "<time>", "summary": "S"}
_KEPT = {**_COMPACTION, "firstKeptEntryId": "<e3>", "tokensBefore": 5}
_TAIL = [_user("", None, "c")["message"], _answer("d")]

DIFFERENCES: dict[str, Difference] = {
    "compaction with retained tail": Difference(SETTINGS, {"results[8].result.model": _MODEL}),
    "retained tail hides earlier settings": Difference(
        SETTINGS,
        {
            "results[6].result.thinkingLevel": "high",
            "results[6].result.model": {"provider": "p", "modelId": "m"},
            "results[6].result.activeToolNames": ["x"],
        },
    ),
    "first kept entry hides settings before it": Difference(
        SETTINGS, {"results[6].result.thinkingLevel": "high", "results[6].result.activeToolNames": ["x"]}
    ),
    "fork across a compaction with first kept entry": Difference(
        WHOLE_PATH, {"files.session-2": _fork(_KEPT, _user("<e6>", "<e5>", "e"))}
    ),
    "fork across a compaction with retained tail": Difference(
        f"{WHOLE_PATH}; {SETTINGS}",
        {
            "results[10].result.model": _MODEL,
            "files.session-2": _fork(
                {**_COMPACTION, "tokensBefore": 5, "retainedTail": _TAIL},
                _user("<e6>", "<e5>", "e"),
            ),
        },
    ),
    "fork of a forked path moved before its compaction": Difference(
        WHOLE_PATH,
        {
            "results[9]": _ok("getBranch", ["<e1>", "<e2>", "<e3>", "<e4>"]),
            "results[10]": _ok(
                "buildContext",
                {
                    "thinkingLevel": "off",
                    "model": _MODEL,
                    "activeToolNames": None,
                    "messages": [
                        _user("", None, "a")["message"],
                        _answer("b"),
                        _user("", None, "c")["message"],
                        _answer("d"),
                    ],
                },
            ),
            "files.session-2": _fork(
                _KEPT,
                _user("<e6>", "<e5>", "e"),
                {"type": "leaf", "id": "<leaf1>", "parentId": "<e6>", "timestamp": "<time>", "targetId": "<e4>"},
            ),
        },
    ),
    "file: version 2": Difference(OLD, {"results[0]": _ok("load_metadata", _METADATA), "results[1]": _ok("open_file", _METADATA)}),
    "file: no version": Difference(OLD, {"results[0]": _ok("load_metadata", _METADATA), "results[1]": _ok("open_file", _METADATA)}),
    "file: blank first line": Difference(LENIENT, {"results[0]": _ok("load_metadata", _METADATA)}),
    "file: byte order mark": Difference(
        LENIENT, {"results[0]": _ok("load_metadata", _METADATA), "results[1]": _ok("open_file", _METADATA)}
    ),
    "file: no line break at the end, then append": Difference(
        "an append writes the missing line break first",
        {
            "results[2]": _ok("open_file", _METADATA),
            "files.s": [
                {"type": "session", "version": 3, "id": "S", "timestamp": "2025-06-01T10:00:00.000Z", "cwd": "/w"},
                _user("a", None, "t-a", "2025-06-01T10:00:00.000Z"),
                _user("b", "a", "t-b", "2025-06-01T10:00:00.000Z"),
                _user("<e1>", "b", "new"),
            ],
        },
    ),
    "file: torn last line": Difference(MENDED, {"results[1]": _ok("open_file", _METADATA)}),
    "file: torn last line of two bytes": Difference(MENDED, {"results[0]": _ok("open_file", _METADATA)}),
    "file: torn in the middle of a character": Difference(MENDED, {"results[0]": _ok("open_file", _METADATA)}),
    "file: two entries on one line": Difference(MENDED, {"results[0]": _ok("open_file", _METADATA)}),
    "file: line number skips blank lines": Difference(
        "the number is that of the line in an editor",
        {"results[0].error.message": "Invalid JSONL session file <CWD>/s.jsonl: line 5 is not valid JSON"},
    ),
    "file: message entry without message": Difference(
        "an entry that cannot be read is a session error",
        {"results[2].error": {"name": "SessionError", "message": "Entry a has no message", "code": "invalid_entry"}},
    ),
}

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
