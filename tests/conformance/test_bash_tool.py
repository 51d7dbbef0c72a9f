"""Recorded cases of the bash tool (bash_tool.json), each with a real shell."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from agentcore.tools.bash import BashExecution, BashToolOptions, create_bash_tool
from agentcore.tools.truncate import format_size
from tests.conformance.cases import Difference, case_params, first_difference
from tests.conformance.tool_cases import Place, check_tool_case, make_place, run_tool_case

pytestmark = pytest.mark.skipif(os.name == "nt", reason="commands need a POSIX system")

SIGNAL = "a shell that a signal killed is a failed command, with exit code 128 + signal"

SIZE = "the notice gives the size of the line, not that of the nothing after it"


def _killed(message: str) -> Difference:
    return Difference(SIGNAL, {"": {"error": {"stage": "execute", "message": message, "files_after": "unchanged"}}})


DIFFERENCES = {
    # quirk: faults of the reference
    "killed by a signal": _killed("Command exited with code 143"),
    "killed by SIGKILL with output before": _killed("before\n\n\nCommand exited with code 137"),
    "51201 bytes, one line with newline": Difference(
        SIZE,
        {
            "expected.content[0].text": "x" * 51200
            + "\n\n[Showing last 50.0KB of line 1 (line is 50.0KB). Full output: <FULL_OUTPUT>]"
        },
    ),
    "timeout null is coerced to 0": Difference(
        "null for an optional number is a number that was not given",
        {
            "": {
                "expected": {
                    "content": [{"type": "text", "text": "x\n"}],
                    "prepared_args": {"command": "echo x"},
                    "files_after": "unchanged",
                }
            }
        },
    ),
}

_HURRIED = re.compile(r"(?<![&>])&(?![&>\d])")
"""A command that leaves another process behind, which must be on time to the twentieth of a second: a busy machine gets three
attempts."""

_KILLED = re.compile(r"(?:(.*)\n\n)?Command exited with code 1(?:29|[3-5]\d|6\d)", re.DOTALL)


def rule(given: dict[str, Any], recorded: dict[str, Any], ours: dict[str, Any]) -> Difference | None:
    """A shell killed by a signal, a success for the reference, has failed here, with the same output; null is no limit; sizes."""
    sized = _with_size(recorded, ours)
    if sized is not None:
        return sized
    if given["args"].get("timeout", 0) is None:
        assert "error" not in ours and ours["prepared_args"] == {"command": given["args"]["command"]}
        return Difference("null for an optional number is a number that was not given", {"": {"expected": ours}})
    if "error" not in ours or "expected" not in recorded or "kill" not in given["args"]["command"]:
        return None
    match = _KILLED.fullmatch(ours["error"]["message"])
    if match is None or recorded["expected"]["content"] != [{"type": "text", "text": match[1] or "(no output)"}]:
        return None
    return _killed(ours["error"]["message"])


def _with_size(recorded: dict[str, Any], ours: dict[str, Any]) -> Difference | None:
    """Put the size of a cut line in the place of the 0 that the reference gives where a line break follows."""
    content = recorded.get("expected", {}).get("content") or [{}]
    text = content[0].get("text")
    shown = text["$long"]["tail"] if isinstance(text, dict) else str(text)
    if "(line is 0B)" not in shown or "full_output" not in ours:
        return None
    size = format_size(len(ours["full_output"].removesuffix("\n").rpartition("\n")[2].encode()))
    said = ours["content"][0]["text"]
    is_same = first_difference(text, said.replace(f"(line is {size})", "(line is 0B)")) is None
    return Difference(SIZE, {"expected.content[0].text": said}) if is_same else None


def _options(place: Place) -> BashToolOptions:
    given = place.input.get("options", {})
    assert set(given) <= {"commandPrefix", "prepare"}, f"unknown options of the bash tool: {given}"
    assigned = given.get("prepare")
    if assigned is None:
        return BashToolOptions(command_prefix=given.get("commandPrefix"))

    def prepare(execution: BashExecution) -> None:
        place.seen.setdefault("prepare_saw", []).append(
            {
                "command": execution.command,
                "cwd": execution.cwd,
                "env": dict(execution.env),
                "inheritEnv": execution.inherit_env,
            }
        )
        if "throw" in assigned:
            raise RuntimeError(assigned["throw"])
        execution.command = assigned.get("command", execution.command)
        execution.cwd = assigned.get("cwd", execution.cwd)
        execution.env = assigned.get("env", execution.env)
        execution.inherit_env = assigned.get("inheritEnv", execution.inherit_env)

    return BashToolOptions(command_prefix=given.get("commandPrefix"), prepare=prepare)


@pytest.mark.parametrize("case", case_params("bash_tool.json"))
def test_bash_tool(case: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tool gives what was recorded, or what the list of differences says; of bash's own texts the status line counts."""
    for attempt in range(3 if _HURRIED.search(str(case["input"]["args"].get("command"))) else 1, 0, -1):
        place = make_place(case["input"], tmp_path / str(attempt), monkeypatch)
        outcome = run_tool_case(place, create_bash_tool(_options(place), environment=place.environment))
        try:
            return check_tool_case(case, outcome, DIFFERENCES, rule=rule, shorten=lambda text: text.rpartition("\n")[2])
        except pytest.fail.Exception:
            if attempt == 1:
                raise
