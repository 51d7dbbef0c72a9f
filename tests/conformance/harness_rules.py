"""Where the harness differs from the reference by a rule: what a recording of any scenario says is turned into what we say.

- C112, C113: each handler sees what the one before it left; the reference asks them all the same.
- Handlers of notifications are called for every event of their type, right after the listener `main`; in the reference never.
- Settings made before the kept part of a compaction still count, in the context that is built from a session.
- C037: in such a context a call without a result is answered.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from agentcore.harness.events import NOTIFICATIONS
from tests.conformance.scenario_runner import write_out


def with_rules(scenario: Mapping[str, Any]) -> dict[str, Any]:
    """Return what we expect of a scenario, but for differences that no rule covers."""
    expected: dict[str, Any] = copy.deepcopy(scenario["expected"])
    hooks = write_out(list(scenario.get("hooks", ()))) if isinstance(scenario.get("hooks", ()), (list, tuple)) else []
    if "hookCalls" in expected:
        _see_what_was_left(hooks, expected["hookCalls"])
    _call_notified(hooks, expected)
    if "session" in expected:
        _count_earlier_settings(expected["session"])
    return expected


# --- handlers --------------------------------------------------------------------------------------------------------


def _see_what_was_left(hooks: list[dict[str, Any]], calls: Iterable[dict[str, Any]]) -> None:
    counts: dict[int, int] = {}
    before: dict[str, Any] = {}  # the call before this one
    left: list[tuple[str, Any]] = []  # what handlers of the same question have answered so far
    for call in calls:
        number = call.get("handler")
        leave = _LEAVE.get(call["hook"])
        if number is None or leave is None:
            continue
        if before.get("hook") != call["hook"] or before["handler"] >= number:
            left = []
        before = call
        for key, value in left:
            leave(call["event"], key, value)
        counts[number] = counts.get(number, 0) + 1
        hook = hooks[number]
        is_meant = hook.get("nth", counts[number]) == counts[number]
        is_meant = is_meant and hook.get("toolCallId", call["event"].get("toolCallId")) == call["event"].get("toolCallId")
        answer = hook.get("return") if is_meant else None
        if isinstance(answer, dict):
            if call["hook"] == "tool_call" and "block" in answer:
                answer = {"reason": None, **answer}  # who decides anew says why, or nothing
            left += answer.items()


def _leave_field(event: dict[str, Any], key: str, value: Any) -> None:
    if value is None:
        event.pop(key, None)
    else:
        event[key] = value


def _leave_roles(event: dict[str, Any], key: str, value: Any) -> None:
    if key == "keepLast":
        event["roles"] = event["roles"][-value:]
    elif key == "append":
        event["roles"] = [*event["roles"], *(message["role"] for message in value)]
    else:
        event["roles"] = [message["role"] for message in value]


def _leave_move(event: dict[str, Any], key: str, value: Any) -> None:
    _leave_field(event if key in ("cancel", "summary") else event["preparation"], key, value)


_LEAVE: dict[str, Callable[[dict[str, Any], str, Any], None]] = {
    "tool_call": _leave_field,
    "tool_result": _leave_field,
    "context": _leave_roles,
    "session_before_compact": _leave_field,
    "session_before_tree": _leave_move,
}


def _call_notified(hooks: list[dict[str, Any]], expected: dict[str, Any]) -> None:
    calls = expected.get("hookCalls", [])
    known = {call["hook"] for call in calls}
    handlers = [(number, hook["on"]) for number, hook in enumerate(hooks) if hook["on"] in NOTIFICATIONS]
    added = [
        {"hook": kind, "handler": number, "at": index + 1, "event": {key: event[key] for key in event if key != "type"}}
        for index, event in enumerate(expected.get("events", ()))
        for number, kind in handlers
        if kind == event["type"] and kind not in known
    ]
    if added:
        expected["hookCalls"] = sorted([*added, *calls], key=lambda call: int(call["at"]))


# --- contexts --------------------------------------------------------------------------------------------------------


def _count_earlier_settings(session: dict[str, Any]) -> None:
    path = _path(session)
    if not any(entry["type"] == "compaction" for entry in path):
        return
    context = session["context"]
    for entry in path:
        message = entry.get("message", {})
        if entry["type"] == "model_change":
            context["model"] = {"provider": entry["provider"], "modelId": entry["modelId"]}
        elif message.get("role") == "assistant":
            context["model"] = {"provider": message["provider"], "modelId": message["model"]}
        elif entry["type"] == "thinking_level_change":
            context["thinkingLevel"] = entry["thinkingLevel"]
        elif entry["type"] == "active_tools_change":
            context["activeToolNames"] = entry["activeToolNames"]
    messages = _context_messages(path)
    if [message["role"] for message in messages] == context["roles"]:
        context["roles"] = _answered_roles(messages)


def _path(session: Mapping[str, Any]) -> list[dict[str, Any]]:
    by_id = {entry["id"]: entry for entry in session["entries"]}
    path: list[dict[str, Any]] = []
    place = session["leaf"]
    while place is not None:
        path.append(by_id[place])
        place = by_id[place]["parentId"]
    return path[::-1]


def _context_messages(path: list[dict[str, Any]]) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    for entry in path:
        if entry["type"] == "compaction":
            messages = [{"role": "compactionSummary"}, *entry.get("retainedTail", ())]
        elif entry["type"] == "message":
            messages.append(entry["message"])
        elif entry["type"] == "custom_message":
            messages.append({"role": "custom"})
        elif entry["type"] == "branch_summary":
            messages.append({"role": "branchSummary"})
    return messages


def _answered_roles(messages: list[dict[str, Any]]) -> list[str]:
    answered = {message["toolCallId"] for message in messages if message["role"] == "toolResult"}
    made: list[str] = []
    for message in messages:
        made.append(message["role"])
        if message["role"] == "assistant":
            calls = [block["id"] for block in message["content"] if isinstance(block, dict) and block.get("type") == "toolCall"]
            made += ["toolResult" for call in calls if call not in answered]
    return made
