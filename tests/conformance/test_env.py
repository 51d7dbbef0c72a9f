"""Recorded operations on the execution environment (env.json), on real files and with real shells."""

from __future__ import annotations

import base64
import copy
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from agentcore.abort import AbortController, AbortSignal
from agentcore.codec import encode
from agentcore.errors import EnvironmentFileError
from agentcore.tools.capture import ShellCapture, execute_shell, execute_shell_with_capture
from agentcore.tools.environment import FileInfo, LocalEnvironment
from tests.conformance.cases import Difference, case_params, check, put_tokens, with_difference
from tests.conformance.tool_cases import Place, list_files, make_place
from tests.conformance.tool_texts import call_of, put_our_texts

pytestmark = pytest.mark.skipif(os.name == "nt", reason="commands need a POSIX system")

DIFFERENCES = {
    # quirk: a fault of the reference
    "exec: killed by a signal": Difference(
        "a shell that a signal killed has failed: 128 + signal", {"results[0].value.exitCode": 137}
    ),
}


@pytest.mark.parametrize("case", case_params("env.json"))
def test_env(case: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each operation gives what was recorded, or what the list of differences says."""
    place = make_place(case["input"], tmp_path, monkeypatch)
    results = [do(place, operation) for operation in place.input["ops"]]
    recorded = copy.deepcopy(case["expected"])
    for operation, result in zip(place.input["ops"], recorded["results"], strict=True):
        put_our_texts(result, call_of(operation))
    expected = with_difference(recorded, DIFFERENCES.get(case["name"]))
    for operation, wanted, ours in zip(place.input["ops"], expected["results"], results, strict=True):
        code = ours.get("value", {}).get("exitCode") if operation["op"] == "exec" else None
        if code and code > 128 and "kill" in operation["command"] and wanted["value"]["exitCode"] == 0:
            wanted["value"]["exitCode"] = code  # as in the list above: a shell that a signal killed
    for wanted, ours in zip(expected["results"], results, strict=True):
        if "error" in wanted:
            wanted["error"].pop("name")  # the reference's own class
            if "text" in case.get("tags", ()) and case["name"] not in DIFFERENCES:
                assert ours.get("error", {}).get("message"), f"no error text: {ours}"
                wanted["error"].pop("message")
                ours["error"].pop("message")
    check(expected, put_tokens({"results": results, "files_after": list_files(place)}, place.tokens))


def do(place: Place, operation: dict[str, Any]) -> dict[str, Any]:
    """Do one operation; the result in the words of the recording."""
    name = operation["op"]
    outcome: dict[str, Any] = {"op": name}
    with abort_signal(operation.get("abort")) as signal:
        try:
            if name == "exec":
                outcome["streamed"] = {"stdout": "", "stderr": ""}
                outcome["value"] = run_exec(place.environment, operation, signal, outcome["streamed"])
            elif name == "executeShellWithCapture":
                outcome["streamed"] = ""
                outcome["value"] = run_capture(place.environment, operation, signal, outcome)
            else:
                outcome["value"] = do_on_files(place.environment, operation, signal)
        except EnvironmentFileError as error:
            outcome["error"] = encode_error(error)
    if name == "createTempDir":
        outcome["isDir"] = os.path.isdir(outcome["value"])
    if name == "createTempFile":
        outcome["size"] = os.path.getsize(outcome["value"])
    return outcome


@contextmanager
def abort_signal(when: Any) -> Iterator[AbortSignal]:
    """Give a signal that is set before, after so many milliseconds, or never."""
    controller = AbortController()
    if when == "before":
        controller.abort()
    timer = threading.Timer(when / 1000, controller.abort) if isinstance(when, int) else None
    if timer is not None:
        timer.start()
    try:
        yield controller.signal
    finally:
        if timer is not None:
            timer.cancel()
            timer.join(10)


def encode_error(error: EnvironmentFileError) -> dict[str, Any]:
    """Return an error in the words of the recording."""
    return {"code": error.code, "message": str(error), "path": error.path}


def command_options(operation: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a command as keyword arguments."""
    names = {"inheritEnv": "inherit_env", "returnExecutionErrors": "return_execution_errors"}
    return {names.get(key, key): value for key, value in operation.get("options", {}).items()}


def run_exec(
    environment: LocalEnvironment, operation: dict[str, Any], signal: AbortSignal, streamed: dict[str, str]
) -> dict[str, Any]:
    """Run a command and keep its streams apart."""

    def take(stream: str, text: str) -> None:
        streamed[stream] += text
        if operation.get("throw_in_callback"):
            raise RuntimeError("callback failed")

    result = execute_shell(
        environment,
        operation["command"],
        on_stdout=lambda text: take("stdout", text),
        on_stderr=lambda text: take("stderr", text),
        signal=signal,
        **command_options(operation),
    )
    return {"stdout": result.stdout, "stderr": result.stderr, "exitCode": result.exit_code}


def run_capture(
    environment: LocalEnvironment, operation: dict[str, Any], signal: AbortSignal, outcome: dict[str, Any]
) -> dict[str, Any]:
    """Run a command and keep the tail of both streams."""

    def take(text: str) -> None:
        outcome["streamed"] += text
        if operation.get("throw_in_callback"):
            raise RuntimeError("callback failed")

    result = execute_shell_with_capture(
        environment, operation["command"], on_output=take, signal=signal, **command_options(operation)
    )
    return encode_capture(result)


def encode_capture(result: ShellCapture) -> dict[str, Any]:
    """Return what was captured in the words of the recording."""
    error = result.execution_error
    return {
        "output": result.output,
        "truncation": encode(result.truncation),
        "lastLineBytes": result.last_line_bytes,
        "exitCode": result.exit_code,
        "cancelled": result.cancelled,
        "truncated": result.truncated,
        "fullOutputPath": result.full_output_path,
        "executionError": None if error is None else {"code": error.code, "message": str(error)},
    }


def do_on_files(environment: LocalEnvironment, operation: dict[str, Any], signal: AbortSignal) -> Any:
    """Do one operation on files."""
    name, path = operation["op"], operation.get("path", "")
    options = operation.get("options", {})
    if name in ("writeFile", "appendFile"):
        content = base64.b64decode(operation["base64"]) if "base64" in operation else operation["content"]
        write = environment.write_file if name == "writeFile" else environment.append_file
        return write(path, content, signal=signal)
    if name == "readBinaryFile":
        return {"base64": base64.b64encode(environment.read_binary_file(path, signal=signal)).decode()}
    if name == "readTextLines":
        return environment.read_text_lines(path, max_lines=operation.get("maxLines"), signal=signal)
    if name == "listDir":
        return [encode_info(info, with_path=True) for info in environment.list_dir(path, signal=signal)]
    simple = {
        "absolutePath": lambda: environment.absolute_path(path),
        "joinPath": lambda: environment.join_path(*operation["parts"]),
        "readTextFile": lambda: environment.read_text_file(path, signal=signal),
        "fileInfo": lambda: encode_info(environment.file_info(path)),
        "canonicalPath": lambda: environment.canonical_path(path),
        "exists": lambda: environment.exists(path),
        "createDir": lambda: environment.create_dir(path, **options),
        "remove": lambda: environment.remove(path, **options),
        "createTempDir": lambda: environment.create_temp_dir(*([operation["prefix"]] if "prefix" in operation else [])),
        "createTempFile": lambda: environment.create_temp_file(**options),
    }
    return simple[name]()


def encode_info(info: FileInfo, *, with_path: bool = False) -> dict[str, Any]:
    """Return what is known of a file, without times, and with the size of files only (not in lists)."""
    shown: dict[str, Any] = {"name": info.name, "path": info.path, "kind": info.kind}
    return {**shown, "size": info.size_bytes} if info.kind == "file" and not with_path else shown
