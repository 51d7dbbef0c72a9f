"""The agent and the loop do what the reference was seen to do, event for event.

Where they do it otherwise on purpose, `TEXTS` and `DIFFERENCES` say so, and our own behaviour is compared in its place.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.cases import DELETE, HERE, Difference, check, with_difference
from tests.conformance.scenario_runner import RUNNERS, FormatError, hide_faults, load_scenario, play, scenario_paths, shorten

TEXTS: list[tuple[str, str | None, str, str]] = [
    # the recorded text, the class of our error, our text (a pattern), and the recorded text made from it
    (
        "Agent is already processing a prompt. Use steer() or followUp() to queue messages, or wait for completion.",
        "AgentBusyError",
        r"a run is active: use steer\(\) or follow_up\(\) to add a message, or wait_for_idle\(\) first",
        "",
    ),
    (
        "Agent is already processing. Wait for completion before continuing.",
        "AgentBusyError",
        r"a run is active: wait_for_idle\(\) before continue_\(\)",
        "",
    ),
    (
        "Cannot continue from message role: assistant",
        "ValueError",
        r"cannot continue from an assistant message.*",
        "",
    ),
    ("No messages to continue from", "ValueError", r"there are no messages to continue from: start with prompt\(\)", ""),
    (
        "Cannot continue: no messages in context",
        "ValueError",
        r"cannot continue: the context has no messages; start with a prompt",
        "",
    ),
    ("Tool … not found", None, r"Tool (\S+) not found\. (?:Available tools: .+|There are no tools)\.", r"Tool \1 not found"),
]
"""What the reference itself says, and what we say in its place."""


def _recorded(name: str) -> Any:
    """Return what was recorded in a scenario of the repository's own copy, to build our values from."""
    return json.loads((HERE / "agent" / f"{name}.json").read_text("utf-8"))["expected"]


def _at(value: Any, *places: str) -> dict[str, Any]:
    return dict.fromkeys(places, value)


def _keeps_the_result() -> dict[str, Any]:
    """The result of the call is told and kept between the event at which the listener raised and the failure."""
    recorded = _recorded("fail-listener-raises-at-tool")
    end = recorded["events"][10]
    result = {
        "role": "toolResult",
        "toolCallId": end["toolCallId"],
        "toolName": end["toolName"],
        "content": end["result"]["content"],
        "details": end["result"]["details"],
        "isError": False,
    }
    told = [{"type": "message_start", "message": result}, {"type": "message_end", "message": result}]
    messages = recorded["state"]["messages"]
    return {
        "events": [*recorded["events"][:11], *told, *recorded["events"][11:]],
        "state.messages": [*messages[:2], result, *messages[2:]],
        "ops[2].value.messageRoles": ["user", "assistant", "toolResult", "assistant"],
    }


def _refuses_the_reset() -> dict[str, Any]:
    """The transcript shown goes on as if nobody had asked, and the agent is seen to be running."""
    recorded = _recorded("reset-while-running")
    before = ["user", "assistant"]
    states = [
        {**state, "isStreaming": True, "messageRoles": before + state["messageRoles"]} if index >= 13 else state
        for index, state in enumerate(recorded["states"])
    ]
    text = "a run is active: abort() it or wait_for_idle() before reset()"
    return {
        "ops[1]": {"op": "reset", "outcome": "error", "error": {"message": text}},
        "ops[2].value.isStreaming": True,
        "ops[2].value.messageRoles": before,
        "states": states,
        "state.messages": recorded["events"][-1]["messages"],
    }


NULL = "null stands for 'not given': it never becomes 0, false or an empty text"

DIFFERENCES: dict[str, Difference] = {
    # finished work is never lost (DESIGN; the case of a tool that runs twice)
    "fail-listener-raises-at-tool": Difference(
        "a tool's result is kept when a listener raises, so that nothing is done twice", _keeps_the_result()
    ),
    # quirk: a reset during a run
    "reset-while-running": Difference("reset() during a run is refused: it would wipe what the run works on", _refuses_the_reset()),
    # memory: content is always a list of blocks
    "prompt-message-forms": Difference(
        "a string content is taken as one text block, and shown as such",
        {
            **_at(
                [{"type": "text", "text": "plain string"}],
                "events[2].message.content",
                "events[3].message.content",
                "events[10].messages[0].content",
                "requests[0].messages[0].content",
                "requests[1].messages[0].content",
                "state.messages[0].content",
            ),
            **_at(
                [{"type": "text", "text": "second"}],
                "events[15].message.content",
                "events[16].message.content",
                "events[23].messages[1].content",
                "requests[1].messages[3].content",
                "state.messages[3].content",
            ),
        },
    ),
    # memory: a result has the fields of its class
    "tool-result-fields": Difference(
        "a result is an AgentToolResult, which has no other fields", {"events[31].result.extra": DELETE}
    ),
    # validation: nulls
    "validate-coercion": Difference(
        NULL,
        _at(
            DELETE,
            *(f"events[{index}].result.details.args.v" for index in (98, 118, 138, 154)),
            *(f"events[{index}].message.details.args.v" for index in (99, 100, 119, 120, 139, 140, 155, 156)),
            *(f"events[181].toolResults[{index}].details.args.v" for index in (4, 9, 14, 18)),
            *(f"events[189].messages[{index}].details.args.v" for index in (6, 11, 16, 20)),
            *(f"requests[1].messages[{index}].details.args.v" for index in (6, 11, 16, 20)),
            *(f"state.messages[{index}].details.args.v" for index in (6, 11, 16, 20)),
            *(f"toolRuns.{call}.args.v" for call in ("c05", "c10", "c15", "c19")),
        ),
    ),
    "validate-unions": Difference(
        NULL,
        _at(
            None,
            "events[93].result.details.args.v",
            "events[94].message.details.args.v",
            "events[95].message.details.args.v",
            "events[132].toolResults[8].details.args.v",
            "events[140].messages[10].details.args.v",
            "requests[1].messages[10].details.args.v",
            "state.messages[10].details.args.v",
            "toolRuns.c09.args.v",
        ),
    ),
}
"""Where we do not follow the reference, and why. `tool-raises-non-error` is not among them: a bare value is raised as an exception
with its text, since Python raises nothing else, and all the rest is as recorded."""


def _say_as_recorded(value: Any) -> Any:
    """Put the reference's words in place of ours; an error must be of the class that the table names."""
    if isinstance(value, list):
        return [_say_as_recorded(member) for member in value]
    if isinstance(value, dict):
        if "class" in value and "error" in value:
            return _error_as_recorded(value)
        return {key: _say_as_recorded(member) for key, member in value.items()}
    if isinstance(value, str):
        for recorded, error_class, ours, made in TEXTS:
            if error_class is None and re.fullmatch(ours, value):
                return re.sub(ours, made, value) if made else recorded
    return value


def _error_as_recorded(outcome: Mapping[str, Any]) -> dict[str, Any]:
    rest = {key: value for key, value in outcome.items() if key not in ("class", "error")}
    error = outcome["error"]
    for recorded, error_class, ours, _ in TEXTS:
        if error_class == outcome["class"] and re.fullmatch(ours, error["message"]):
            return {**rest, "error": {"message": recorded}}
    return {**rest, "error": error}


@pytest.mark.pythons
@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in scenario_paths("agent")])
def test_scenario(path: Path) -> None:
    """Events, requests, hook calls, tool runs, outcomes and the final state are those of the recording."""
    scenario = load_scenario(path)
    seen = _say_as_recorded(play(scenario))
    expected = with_difference(scenario["expected"], DIFFERENCES.get(scenario["name"]))
    check(hide_faults(expected), shorten(hide_faults(seen)))


def test_every_listed_difference_belongs_to_a_scenario() -> None:
    """A difference whose scenario was renamed or dropped is noticed."""
    names = {path.stem for path in (HERE / "agent").glob("*.json")}
    assert sorted(set(DIFFERENCES) - names) == []


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"format": 2}, "format 2"),
        ({"surprise": 1}, "unknown keys: surprise"),
        ({"script": [{"op": "dance"}]}, "unknown op 'dance'"),
        ({"script": [{"op": "prompt", "text": "x", "loudly": True}]}, "unknown keys: loudly"),
        ({"hooks": {"beforeLunch": []}}, "unknown keys: beforeLunch"),
        ({"turns": [{"contents": []}]}, "unknown keys: contents"),
        ({"tools": [{"name": "t", "parameters": {}, "does": []}]}, "unknown keys: does"),
        ({"target": "robot"}, "unknown target 'robot'"),
        ({"agent": {"mood": "good"}}, "unknown keys: mood"),
    ],
)
def test_a_format_error_fails(tmp_path: Path, change: dict[str, Any], text: str) -> None:
    """A scenario that is not as described fails the run; nothing is skipped."""
    raw = json.loads((HERE / "agent" / "text-plain.json").read_text("utf-8"))
    path = tmp_path / "text-plain.json"
    path.write_text(json.dumps({**raw, **change}), "utf-8")
    with pytest.raises(FormatError, match=re.escape(text)):
        play(load_scenario(path))


def test_every_target_of_the_recordings_has_a_runner() -> None:
    """The agent's folder holds scenarios of the agent and of the loop."""
    assert {"agent", "loop"} <= set(RUNNERS)
