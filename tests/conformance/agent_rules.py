"""Where the agent and the loop differ from the recorded scenarios on purpose, as rules.

Each takes a scenario and what is expected so far, changes that in place, and says whether it did.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from tests.conformance.null_rules import has_null, settle_nulls

RESULT_FIELDS = ("content", "details", "usage", "addedToolNames", "terminate", "isError")


def strings_are_blocks(scenario: dict[str, Any], expected: dict[str, Any]) -> bool:
    """A string content is taken as one text block, and shown as such."""
    found = [one for one in _objects(expected) if one.get("role") == "user" and isinstance(one.get("content"), str)]
    for message in found:
        message["content"] = [{"type": "text", "text": message["content"]}]
    return bool(found)


def results_have_fields(scenario: dict[str, Any], expected: dict[str, Any]) -> bool:
    """A tool's result is an object of a class, which has no other fields."""
    is_changed = False
    for event in expected.get("events", ()):
        for key in ("result", "partialResult"):
            result = event.get(key)
            if event["type"].startswith("tool_execution_") and isinstance(result, dict) and set(result) - set(RESULT_FIELDS):
                event[key] = {name: value for name, value in result.items() if name in RESULT_FIELDS}
                is_changed = True
    return is_changed


def null_is_not_given(scenario: dict[str, Any], expected: dict[str, Any]) -> bool:
    """Null stands for "not given": it never becomes 0, false or an empty text."""
    schemas = {tool["name"]: tool["parameters"] for tool in scenario.get("tools", ())}
    calls = [block for turn in scenario.get("turns", ()) for block in turn.get("content", ()) if block["type"] == "toolCall"]
    made: dict[str, Any] = {}
    for call in calls:
        raw = call.get("arguments", _parsed("".join(call.get("argumentChunks", ()))))
        run = expected.get("toolRuns", {}).get(call["id"])
        if has_null(raw) and run is not None and call["name"] in schemas:
            ours, is_refused = settle_nulls(schemas[call["name"]], raw, run["args"])
            if ours != run["args"] and not is_refused:
                made[call["id"]] = ours
    for id, ours in made.items():
        expected["toolRuns"][id]["args"] = ours
    for one in _objects(expected):
        id = str(one.get("toolCallId"))
        details = one.get("details", (one.get("result") or {}).get("details") if isinstance(one.get("result"), dict) else None)
        if id in made and isinstance(details, dict) and "args" in details:
            details["args"] = made[id]
        if id in made and one.get("hook") in ("beforeToolCall", "afterToolCall"):
            one["args"] = made[id]
    return bool(made)


def finished_work_is_kept(scenario: dict[str, Any], expected: dict[str, Any]) -> bool:
    """When a listener raises, the results that are in are told and kept before the failure, in the order of the calls."""
    events: list[dict[str, Any]] = expected.get("events", [])
    texts = {entry.get("message") for entry in scenario["script"] if entry["op"] == "raise" and not entry.get("in")}
    for index, event in enumerate(events):
        failure = event.get("message") or {}
        if event["type"] != "message_start" or failure.get("stopReason") != "error" or failure.get("errorMessage") not in texts:
            continue
        start = max((place for place in range(index) if events[place]["type"] == "turn_start"), default=0)
        turn = events[start:index]
        told = {(one.get("message") or {}).get("toolCallId") for one in turn if one["type"] == "message_start"}
        ended = {one["toolCallId"]: one for one in turn if one["type"] == "tool_execution_end" and one["toolCallId"] not in told}
        answers = [one["message"] for one in turn if one["type"] == "message_end" and one["message"]["role"] == "assistant"]
        calls = [block["id"] for answer in answers for block in answer["content"] if block["type"] == "toolCall"]
        results = [_result_message(ended[id]) for id in calls if id in ended]
        if not results:
            continue
        events[index:index] = [{"type": kind, "message": result} for result in results for kind in ("message_start", "message_end")]
        messages = expected.get("state", {}).get("messages", [])
        place = messages.index(failure) if failure in messages else len(messages)
        messages[place:place] = results
        for op in expected.get("ops", ()):
            roles = (op.get("value") or {}).get("messageRoles") if op["op"] == "inspect" else None
            if roles and len(roles) > place:
                roles[place:place] = ["toolResult"] * len(results)
        return True
    return False


def _result_message(end: dict[str, Any]) -> dict[str, Any]:
    result = {key: end["result"][key] for key in ("content", "details", "usage", "addedToolNames") if end["result"].get(key)}
    return {"role": "toolResult", "toolCallId": end["toolCallId"], "toolName": end["toolName"], "isError": end["isError"], **result}


def no_reset_in_a_run(scenario: dict[str, Any], expected: dict[str, Any]) -> bool:
    """reset() during a run is refused: it would wipe what the run works on. The transcript shown goes on as if nobody had asked."""
    events, is_changed = expected.get("events", []), False
    for number, entry in enumerate(scenario["script"]):
        op = expected.get("ops", [])[number]
        place = _triggered_at(entry, events)
        if entry["op"] != "reset" or op["outcome"] != "ok" or place is None or events[place]["type"] == "agent_end":
            continue
        is_changed = True
        text = "a run is active: abort() it or wait_for_idle() before reset()"
        expected["ops"][number] = {"op": "reset", "outcome": "error", "error": {"message": text}}
        end = next(index for index in range(place, len(events)) if events[index]["type"] == "agent_end")
        kept = scenario.get("agent", {}).get("messages", [])
        before = [message["role"] for message in kept]
        before += [event["message"]["role"] for event in events[:place] if event["type"] == "message_end"]
        for state in expected.get("states", [])[place + 1 : end + 1]:
            state.update(isStreaming=True, messageRoles=before + state["messageRoles"])
        for other, (later, shown) in enumerate(zip(scenario["script"], expected["ops"], strict=True)):
            at = _triggered_at(later, events)
            if later["op"] == "inspect" and at is not None and (at > place or (at == place and other > number)) and at <= end:
                shown["value"].update(isStreaming=True, messageRoles=before + shown["value"]["messageRoles"])
        expected["state"]["messages"] = [*kept, *events[end]["messages"]]
    return is_changed


def _triggered_at(entry: dict[str, Any], events: list[dict[str, Any]]) -> int | None:
    """Return the index of the event that triggers a script entry."""
    on = entry.get("on")
    if on is None:
        return None
    count = 0
    for index, event in enumerate(events):
        message = event.get("message") or {}
        facts = {
            "event": event["type"],
            "role": message.get("role"),
            "toolCallId": event.get("toolCallId", message.get("toolCallId")),
            "update": (event.get("assistantMessageEvent") or {}).get("type"),
        }
        if all(facts[key] == value for key, value in on.items() if key in facts):
            count += 1
            if count == on.get("nth", 1):
                return index
    return None


RULES: tuple[Callable[[dict[str, Any], dict[str, Any]], bool], ...] = (
    strings_are_blocks,
    results_have_fields,
    null_is_not_given,
    finished_work_is_kept,
    no_reset_in_a_run,
)


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
        value = list(value.values())
    for member in value if isinstance(value, list) else ():
        yield from _objects(member)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
