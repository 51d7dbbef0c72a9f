"""Plays a recorded case of a tool (read, write, edit, bash): real files, then what the loop does with one call.

A runner makes the tool out of the case's input and the place that was set up for it, and compares:

    place = make_place(case["input"], tmp_path, monkeypatch)
    outcome = run_tool_case(place, create_read_tool(environment=place.environment, …))
    check_tool_case(case, outcome, DIFFERENCES)

What is compared of an error: the stage, the text (of `text` cases not), `code` and `cause_code` where they were recorded. The name
of the class is the reference's own.
"""

from __future__ import annotations

import base64
import copy
import errno
import os
import re
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agentcore.abort import AbortController
from agentcore.codec import encode
from agentcore.errors import EnvironmentFileError, ToolArgumentsError
from agentcore.messages import AgentToolResult, ToolCall
from agentcore.tools.agent_tool import AgentTool
from agentcore.tools.arguments import validate_tool_arguments
from agentcore.tools.environment import LocalEnvironment
from tests.conformance.cases import Difference, check, expand, put_tokens, with_difference
from tests.conformance.tool_texts import call_of, put_our_texts, without_foreign_faults

PATIENCE = 30.0
_FULL_OUTPUT = re.compile(r"Full output: ([^\n]+?)\]")


@dataclass
class Place:
    """The directories of a case, its input written out, and an environment as the case wants it."""

    input: dict[str, Any]
    base: Path
    cwd: Path
    home: Path
    tmp: Path
    environment: LocalEnvironment
    before: dict[str, Any]
    seen: dict[str, Any] = field(default_factory=dict)
    """Further members of the outcome, for the tool's hooks to fill: `prepare_saw`, `image_processor_calls`."""

    @property
    def tokens(self) -> dict[str, str]:
        """Real paths → tokens."""
        return {str(self.cwd): "<CWD>", str(self.home): "<HOME>", str(self.tmp): "<TMP>", str(self.base): "<BASE>"}


def make_place(given: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """Make the directories and files of a case; HOME, the temporary directory and the case's variables are set until its end."""
    base = Path(os.path.realpath(tmp_path)) / "case"
    cwd, home, tmp = base / "cwd", base / "home", base / "tmp"
    for directory in (cwd, home, tmp):
        directory.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("TMPDIR", str(tmp))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp))
    paths = {"<CWD>": str(cwd), "<HOME>": str(home), "<TMP>": str(tmp), "<BASE>": str(base)}
    whole = put_tokens(expand(given), paths)
    for name, value in whole.get("process_env", {}).items():
        monkeypatch.setenv(name, value)
    write_files(whole.get("files", {}), cwd, home)
    options = whole.get("env_options", {})
    assert set(options) <= {"shellEnv", "shellPath"}, f"unknown options of the environment: {options}"
    environment = LocalEnvironment(cwd / whole.get("cwd", ""), shell_path=options.get("shellPath"), env=options.get("shellEnv"))
    place = Place(whole, base, cwd, home, tmp, environment, {})
    place.before = list_files(place)
    return place


def write_files(files: Mapping[str, Any], cwd: Path, home: Path) -> None:
    """Write the files of a case."""
    for name, content in files.items():
        path = home / name[2:] if name.startswith("~/") else cwd / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str):
            path.write_bytes(content.encode("utf-8", "surrogatepass"))
        elif "base64" in content:
            path.write_bytes(base64.b64decode(content["base64"]))
        elif "symlink" in content:
            path.symlink_to(content["symlink"])
        else:
            assert content == {"dir": True}, f"unknown kind of file {name}: {content}"
            path.mkdir(exist_ok=True)


def list_files(place: Place) -> dict[str, Any]:
    """Return all files of the working directory, and of the home directory where it matters, in the notation of the cases."""
    found = _list_below(place.cwd, "")
    if place.input.get("home_matters"):
        found.update(_list_below(place.home, "~/"))
    return found


def _list_below(folder: Path, prefix: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = prefix + path.relative_to(folder).as_posix()
        if path.is_symlink():
            found[name] = {"symlink": os.readlink(path)}
        elif path.is_dir():
            if not any(path.iterdir()):
                found[name] = {"dir": True}
        else:
            content = path.read_bytes()
            try:
                found[name] = content.decode("utf-8")
            except UnicodeDecodeError:
                found[name] = {"base64": base64.b64encode(content).decode("ascii")}
    return found


def run_tool_case(place: Place, tool: AgentTool) -> dict[str, Any]:
    """Do what the loop does with the case's call and return what came of it, in the words of the recording."""
    arguments = copy.deepcopy(place.input["args"])
    updates: list[Any] = []
    outcome: dict[str, Any] = {}
    controller = AbortController()
    timer = _abort_as_asked(place.input.get("abort"), controller)
    stage = "prepare"
    try:
        if tool.prepare_arguments is not None:
            prepared = tool.prepare_arguments(copy.deepcopy(arguments))
            if prepared != arguments:
                outcome["prepared_args"] = copy.deepcopy(prepared)
            arguments = prepared
        stage = "validate"
        arguments = validate_tool_arguments(tool, ToolCall("call-1", tool.name, arguments))
        stage = "execute"
        result = tool.run("call-1", arguments, controller.signal, lambda update: updates.append(_shown(update)), None)
        outcome.update(_shown(result))
    except Exception as error:
        outcome.update({"error": True, "stage": stage, "message": str(error)}, **_codes(error))
        assert isinstance(error, ToolArgumentsError) == (stage == "validate"), repr(error)
    finally:
        if timer is not None:
            timer.cancel()
            timer.join(PATIENCE)
    if place.input.get("record_updates") and updates:
        outcome.update({"first_update": updates[0], "last_update": updates[-1]})
    outcome.update(copy.deepcopy(place.seen))
    full_output = _full_output_path(outcome)
    tokens = dict(place.tokens)
    if full_output is not None:
        outcome["full_output"] = Path(full_output).read_text("utf-8")
        tokens[full_output] = "<FULL_OUTPUT>"
    after = list_files(place)
    outcome["files_after"] = "unchanged" if after == place.before else after
    outcome = put_tokens(outcome, tokens)
    return {"error": {key: value for key, value in outcome.items() if key != "error"}} if "error" in outcome else outcome


def _shown(result: AgentToolResult) -> dict[str, Any]:
    raw: dict[str, Any] = copy.deepcopy(encode(result))
    return raw


def _abort_as_asked(how: Any, controller: AbortController) -> threading.Timer | None:
    if how is None:
        return None
    if how.get("before"):
        controller.abort()
        return None
    timer = threading.Timer(how["after_ms"] / 1000, controller.abort)
    timer.start()
    return timer


def _codes(error: BaseException) -> dict[str, Any]:
    codes: dict[str, Any] = {}
    if isinstance(error, EnvironmentFileError):
        codes["code"] = error.code
    cause = error.__cause__
    if isinstance(cause, OSError) and cause.errno is not None:
        codes["cause_code"] = errno.errorcode[cause.errno]
    elif isinstance(cause, EnvironmentFileError):
        codes["cause_code"] = cause.code
    return codes


def _full_output_path(outcome: dict[str, Any]) -> str | None:
    details = outcome.get("details")
    if isinstance(details, dict) and details.get("fullOutputPath"):
        return str(details["fullOutputPath"])
    found = _FULL_OUTPUT.search(str(outcome.get("message", "")))
    return found.group(1) if found else None


def check_tool_case(
    case: dict[str, Any],
    outcome: dict[str, Any],
    differences: Mapping[str, Difference],
    *,
    rule: Callable[[dict[str, Any], dict[str, Any], dict[str, Any]], Difference | None] = lambda given, recorded, ours: None,
    shorten: Callable[[str], str] = lambda text: "",
) -> None:
    """Compare what came of a case with the recording, or with ours where the case is listed.

    A listed difference names places in `{"expected": …}` or `{"error": …}` as a whole: `"error.message"`, `"" ` for all of it.

    Args:
        rule: `(input, recording, outcome)`: the difference that a kind of cases makes, for one that is not listed by name; None if
            it is not of that kind. It may fail the test.
        shorten: What of an error text is compared in `text` cases; by default nothing.
    """
    recorded = {key: copy.deepcopy(case[key]) for key in ("expected", "error") if key in case}
    given = expand(case["input"])
    put_our_texts(recorded, call_of(given))
    difference = differences.get(case["name"]) or rule(given, recorded, outcome)
    wanted = without_foreign_faults(with_difference(recorded, difference))
    outcome = without_foreign_faults(outcome)
    ours = {"error": outcome["error"]} if "error" in outcome else {"expected": outcome}
    if "error" in wanted and "error" in ours:
        _drop_what_is_not_compared(wanted["error"], ours["error"])
        if "text" in case.get("tags", ()) and case["name"] not in differences:
            is_long = not isinstance(wanted["error"]["message"], str)
            for side in (wanted["error"], ours["error"]):
                side["message"] = "" if is_long else shorten(side["message"])
    check(wanted, ours)


def _drop_what_is_not_compared(wanted: dict[str, Any], ours: dict[str, Any]) -> None:
    wanted.pop("name", None)
    for key in ("code", "cause_code"):
        if key not in wanted:
            ours.pop(key, None)
