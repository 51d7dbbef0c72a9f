"""Our texts in the place of those that the reference itself makes: one table for the runners of tools and of the environment.

Each runner puts our text into the recording before it compares, so that further cases of the same kind need no entry of their own.
The faults of a validation are the validator's words: of this repository's cases they are compared all the same, of those of
another folder (`AGENTCORE_CONFORMANCE`) only that there are some.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.conformance.cases import HERE, data_folder
from tests.conformance.scenario_runner import hide_faults

BMP = "[Image omitted: BMP images are converted by Pillow (agentcore-sync[images]) or an image_processor.]"
RANGE = "give a number of seconds above 0 and at most 2147483.647, or none for no limit"


@dataclass(frozen=True)
class Call:
    """What of a call our texts name: its time limit, whether it was aborted before it began, the tools that there are."""

    timeout: Any = None
    is_aborted_at_once: bool = False
    tool_names: tuple[str, ...] = ()


def _invalid_timeout(match: re.Match[str], call: Call) -> str:
    return f"invalid timeout {float(call.timeout or 0):.15g}: {RANGE}"


_Table = tuple[tuple[str, Callable[[re.Match[str], Call], str]], ...]

_ERRORS: _Table = (
    ("Invalid timeout: must be a finite number of seconds", _invalid_timeout),
    (r"Invalid timeout: maximum is 2147483\.647 seconds", _invalid_timeout),
    ("timeout:(.+)", lambda match, call: f"the command timed out after {match[1]} seconds"),
    ("aborted", lambda match, call: f"the command was aborted{' before it started' if call.is_aborted_at_once else ''}"),
    (
        "Working directory does not exist: (.+)\nCannot execute bash commands\\.",
        lambda match, call: f"working directory does not exist: {match[1]}; make it, or run the command elsewhere",
    ),
    (
        "Custom shell path not found: (.+)",
        lambda match, call: f"shell not found: {match[1]}; give the path of an existing one as shell_path",
    ),
    ('(Tool ".*" not found)', lambda match, call: f"{match[1]}. Use one of: {', '.join(call.tool_names)}"),
)

_CONTENTS: _Table = (
    (
        r"(Read image file \[image/bmp\]\n)\[Image omitted: configure an imageProcessor to convert BMP images\.\]",
        lambda match, call: match[1] + BMP,
    ),
    # The command in the hint can be run as it stands.
    (
        r"(\[Line \d+ is .+, exceeds .+ limit\. Use bash: sed -n '\d+p' )(~/)?(.+)( \| head -c \d+\])",
        lambda match, call: f"{match[1]}{match[2] or ''}{shlex.quote(match[3])}{match[4]}",
    ),
)


def put_our_texts(recorded: Any, call: Call) -> None:
    """Replace the texts of errors and of contents in a recorded outcome by ours."""
    if isinstance(recorded, list):
        for member in recorded:
            put_our_texts(member, call)
    elif isinstance(recorded, dict):
        for key, member in recorded.items():
            if isinstance(member, str):
                recorded[key] = _our_text(member, {"message": _ERRORS, "text": _CONTENTS}.get(key, ()), call)
            else:
                put_our_texts(member, call)


def _our_text(recorded: str, table: _Table, call: Call) -> str:
    for pattern, make in table:
        match = re.fullmatch(pattern, recorded)
        if match is not None:
            return make(match, call)
    return recorded


def without_foreign_faults(value: Any) -> Any:
    """Hide the faults of a validation error in cases that come from another folder."""
    return value if data_folder() == HERE else hide_faults(value)


def call_of(given: Mapping[str, Any]) -> Call:
    """Return what a case's input, or an operation of it, says of the call."""
    arguments = given.get("args", given.get("options", {}))
    abort = given.get("abort")
    at_once = abort == "before" or (isinstance(abort, dict) and bool(abort.get("before")))
    names = tuple(tool["name"] for tool in given.get("tools", ()))
    return Call(arguments.get("timeout") if isinstance(arguments, dict) else None, at_once, names)
