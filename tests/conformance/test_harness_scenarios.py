"""The harness does what the reference was seen to do, event for event.

Where it does otherwise on purpose, `harness_rules`, `TEXTS` and `DIFFERENCES` say so, and what we do is compared in its place.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.cases import HERE, check, with_difference
from tests.conformance.differences_harness import DIFFERENCES, EXTRA_COMPLETIONS, TEXTS
from tests.conformance.harness_rules import with_rules
from tests.conformance.harness_runner import HarnessRunner
from tests.conformance.scenario_runner import RUNNERS, FormatError, hide_faults, load_scenario, play, scenario_paths


def _say_as_recorded(value: Any) -> Any:
    """Put the reference's words in place of ours; an error must be of the class that the table names."""
    if isinstance(value, list):
        return [_say_as_recorded(member) for member in value]
    if isinstance(value, dict):
        if "class" in value and "error" in value:
            return _error_as_recorded(value)
        if "constructError" in value:
            value = {**value, "constructError": _error_as_recorded(value["constructError"])["error"]}
        return {key: _say_as_recorded(member) for key, member in value.items()}
    if isinstance(value, str):
        for recorded, error_class, ours in TEXTS:
            if error_class is None and re.fullmatch(ours, value):
                return re.sub(ours, recorded, value)
    return value


def _error_as_recorded(outcome: Mapping[str, Any]) -> dict[str, Any]:
    rest = {key: value for key, value in outcome.items() if key not in ("class", "error")}
    error = outcome["error"]
    for recorded, error_class, ours in TEXTS:
        if error_class == outcome["class"] and re.fullmatch(ours, error["message"]):
            return {**rest, "error": {**error, "message": re.sub(ours, recorded, error["message"])}}
    return {**rest, "error": error}


def _texts_as_blocks(value: Any) -> Any:
    """Write a content that is a text as one block, on both sides: in memory it always is."""
    if isinstance(value, list):
        return [_texts_as_blocks(member) for member in value]
    if not isinstance(value, dict):
        return value
    made = {key: _texts_as_blocks(member) for key, member in value.items()}
    if ("role" in made or made.get("type") == "custom_message") and isinstance(made.get("content"), str):
        made["content"] = [{"type": "text", "text": made["content"]}]
    return made


@pytest.mark.pythons
@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in scenario_paths("harness")])
def test_scenario(path: Path) -> None:
    """Events, requests, hook calls, tool runs, outcomes, the session and the final state are those of the recording."""
    scenario = load_scenario(path)
    scenario["completions"] = [*scenario.get("completions", ()), *EXTRA_COMPLETIONS.get(scenario["name"], ())]
    seen = _texts_as_blocks(_say_as_recorded(play(scenario)))
    expected = _texts_as_blocks(with_difference(with_rules(scenario), DIFFERENCES.get(scenario["name"])))
    check(hide_faults(expected), hide_faults(seen))


def test_a_scenario_by_another_name_is_held_to_the_rules(tmp_path: Path) -> None:
    """What a rule covers does not hang on the name of the recording."""
    for name in (
        "hook-tool-call",
        "hook-context",
        "hook-notifications-not-delivered",
        "tree-hooks",
        "compact-hooks",
        "compact-retry",
    ):
        raw = json.loads((HERE / "harness" / f"{name}.json").read_text("utf-8"))
        path = tmp_path / f"another-{name}.json"
        path.write_text(json.dumps({**raw, "name": path.stem}), "utf-8")
        scenario = load_scenario(path)
        assert with_rules(scenario) != scenario["expected"]
        expected = _texts_as_blocks(with_rules(scenario))
        check(hide_faults(expected), hide_faults(_texts_as_blocks(_say_as_recorded(play(scenario)))))


def test_every_listed_difference_belongs_to_a_scenario() -> None:
    """A difference whose scenario was renamed or dropped is noticed."""
    names = {path.stem for path in (HERE / "harness").glob("*.json")}
    assert sorted({*DIFFERENCES, *EXTRA_COMPLETIONS} - names) == []


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"script": [{"op": "dance"}]}, "unknown op 'dance'"),
        ({"harness": {"mood": "good"}}, "unknown keys: mood"),
        ({"harness": {"streamOptions": {"haste": 1}}}, "unknown keys: haste"),
        ({"harness": {"session": [{"append": "poem"}]}}, "unknown step 'poem'"),
        ({"completions": [{"texts": []}]}, "unknown keys: texts"),
        ({"hooks": [{"on": "context", "does": 1}]}, "unknown keys: does"),
        ({"script": [{"op": "prompt", "text": "x", "loudly": True}]}, "unknown keys: loudly"),
    ],
)
def test_a_format_error_fails(tmp_path: Path, change: dict[str, Any], text: str) -> None:
    """A scenario that is not as described fails the run; nothing is skipped."""
    raw = json.loads((HERE / "harness" / "prompt-basic.json").read_text("utf-8"))
    path = tmp_path / "prompt-basic.json"
    path.write_text(json.dumps({**raw, **change}), "utf-8")
    with pytest.raises(FormatError, match=re.escape(text)):
        play(load_scenario(path))


def test_the_target_of_the_recordings_has_its_runner() -> None:
    """The folder holds scenarios of the harness alone."""
    assert RUNNERS["harness"] is HarnessRunner
