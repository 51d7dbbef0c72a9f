"""The agent and the loop do what the reference was seen to do, event for event.

Where they do it otherwise on purpose, `TEXTS` and `agent_rules.py` say so, and our own behaviour is compared in its place.
`tool-raises-non-error` is no such place: a bare value is raised as an exception with its text, since Python raises nothing else,
and all the rest is as recorded.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.agent_rules import RULES
from tests.conformance.cases import HERE, check
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
    expected = copy.deepcopy(scenario["expected"])
    for rule in RULES:
        rule(scenario, expected)
    check(hide_faults(expected), shorten(hide_faults(seen)))


def test_every_rule_is_needed() -> None:
    """A rule that no recorded scenario calls for any more is noticed."""
    scenarios = [load_scenario(path) for path in (HERE / "agent").glob("*.json")]
    used = {rule.__name__ for rule in RULES for scenario in scenarios if rule(scenario, copy.deepcopy(scenario["expected"]))}
    assert used == {rule.__name__ for rule in RULES}


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
