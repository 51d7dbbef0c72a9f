"""A session drawn as text: one line an entry, branches indented, labels in brackets, the leaf marked.

3f2a9c01 user: read the notes  [start]
77b0e4d2 assistant: I will read them. → read
├─ 0c9d1f6e toolResult read: three lines
│  5a6b7c8d assistant: There are three lines.
└─ e1f2a3b4 user: read the other file  ◄ leaf
"""

from __future__ import annotations

from typing import Any

from agentcore.session.entries import RawEntry
from agentcore.session.tree import EntryIndex


def draw_tree(index: EntryIndex, width: int = 100) -> str:
    """Return the drawing. Lines are cut at `width` characters; the label and the mark of the leaf stay.

    Of branches within branches the last ones are drawn, as many as fit in half the width; `…` stands for those before.
    """
    roots, children = _family(index)
    lines = [] if index.leaf_id is not None else ["(before the first entry)  ◄ leaf"]
    # Not recursive: a session is far deeper than Python's stack.
    waiting: list[tuple[RawEntry, str, str]] = []  # entry, what its line begins with, what those below begin with
    _wait(waiting, roots, "")
    room = max(width // 2, 12)
    while waiting:
        raw, start, below = waiting.pop()
        start, below = _cut(start, room), _cut(below, room)
        lines.append(_line(raw, start, index, width))
        _wait(waiting, children.get(raw["id"], []), below)
    return "\n".join(lines)


def _family(index: EntryIndex) -> tuple[list[RawEntry], dict[str, list[RawEntry]]]:
    """Return the roots, and the children by their parent's id. A leaf entry is drawn only if something hangs on it."""
    parents = {raw["parentId"] for raw in index.raws}
    roots: list[RawEntry] = []
    children: dict[str, list[RawEntry]] = {}
    for raw in list(index.by_id.values()):  # another thread may append meanwhile
        if raw["type"] == "leaf" and raw["id"] not in parents:
            continue
        parent_id = raw["parentId"]
        if parent_id and parent_id in index.by_id:
            children.setdefault(parent_id, []).append(raw)
        else:
            roots.append(raw)
    return roots, children


def _wait(waiting: list[tuple[RawEntry, str, str]], siblings: list[RawEntry], prefix: str) -> None:
    """Put siblings onto the stack, the first on top."""
    if len(siblings) == 1:
        waiting.append((siblings[0], prefix, prefix))
        return
    for place, raw in reversed(list(enumerate(siblings))):
        is_last = place == len(siblings) - 1
        waiting.append((raw, prefix + ("└─ " if is_last else "├─ "), prefix + ("   " if is_last else "│  ")))


def _cut(prefix: str, room: int) -> str:
    return prefix if len(prefix) <= room else "…" + prefix[-(room - 1) :]


def _line(raw: RawEntry, start: str, index: EntryIndex, width: int) -> str:
    label = index.labels.get(raw["id"])
    end = (f"  [{label}]" if label else "") + ("  ◄ leaf" if raw["id"] == index.leaf_id else "")
    text = f"{start}{raw['id']} {_describe(raw)}".rstrip()
    room = max(width - len(end), len(start) + 12)
    return (text if len(text) <= room else text[: room - 1] + "…") + end


def _describe(raw: RawEntry) -> str:
    kind = raw["type"]
    if kind == "message":
        return _describe_message(raw.get("message"))
    if kind == "thinking_level_change":
        return f"thinking level: {raw.get('thinkingLevel')}"
    if kind == "model_change":
        return f"model: {raw.get('provider')}/{raw.get('modelId')}"
    if kind == "active_tools_change":
        names = raw.get("activeToolNames")
        return f"tools: {', '.join(map(str, names)) if isinstance(names, list) and names else 'none'}"
    if kind in ("compaction", "branch_summary"):
        return f"{kind.replace('_', ' ')}: {_short(raw.get('summary'))}"
    if kind == "custom":
        return f"custom {raw.get('customType')}"
    if kind == "custom_message":
        return f"custom message {raw.get('customType')}: {_short(_text(raw.get('content')))}"
    if kind == "label":
        return f"label {_short(raw.get('label')) or 'removed'} on {raw.get('targetId')}"
    if kind == "session_info":
        return f"name: {_short(raw.get('name')) or 'removed'}"
    if kind == "leaf":
        return f"moved to {raw.get('targetId') or 'the start'}"
    return str(kind)


def _describe_message(message: Any) -> str:
    if not isinstance(message, dict):
        return "message (cannot be read)"
    role = message.get("role")
    text = _short(_text(message.get("content")) or message.get("command") or message.get("summary") or message.get("errorMessage"))
    if role == "toolResult":
        return f"toolResult {message.get('toolName')}{' (error)' if message.get('isError') else ''}: {text}"
    content = message.get("content")
    calls = [
        str(block.get("name")) for block in (content if isinstance(content, list) else []) if _kind(block) in ("toolCall", "tool")
    ]
    stop = message.get("stopReason")
    end = f" ({stop})" if stop in ("error", "aborted", "length") else ""
    said = f": {text}" if text or not calls else ""
    wants = f" → {', '.join(calls)}" if calls else ""
    return f"{role}{said}{wants}{end}"


def _kind(block: Any) -> Any:
    return block.get("type") if isinstance(block, dict) else None


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts = [block.get("text") if _kind(block) == "text" else "[image]" for block in content if _kind(block) in ("text", "image")]
    return " ".join(part for part in parts if isinstance(part, str))


def _short(text: Any) -> str:
    # 400 characters are more than any line shows; the blanks of a megabyte need not be looked at.
    return " ".join(text[:400].split()) if isinstance(text, str) else ""
