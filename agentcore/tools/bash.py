"""The bash tool: a model's command, run in a shell; its output streamed, its tail returned.

What comes back is what both streams printed, in order of arrival, without carriage returns and control characters; of a long
output the tail, with a notice that names the file with the whole. A command that fails, is aborted or runs out of time raises;
the text is its output and a line that says why.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypedDict

from agentcore.abort import AbortSignal
from agentcore.callbacks import fit_callback
from agentcore.codec import OMIT_NONE, Json, nested
from agentcore.errors import EnvironmentFileError
from agentcore.messages import AgentToolResult, TextContent
from agentcore.tools.agent_tool import AgentTool, ToolUpdateFn
from agentcore.tools.capture import OutputCapture
from agentcore.tools.environment import ExecutionEnvironment, LocalEnvironment, OutputStream
from agentcore.tools.shell import check_timeout
from agentcore.tools.truncate import DEFAULT_MAX_BYTES, DEFAULT_MAX_LINES, TruncationResult, format_size

UPDATE_INTERVAL = 0.1
"""Seconds between two partial updates, at least; only the last one may come sooner."""


class _BashToolRequired(TypedDict):
    command: str


class BashToolInput(_BashToolRequired, total=False):
    """The arguments of a call: the command, and after how many seconds it is to be ended."""

    timeout: float | None


@dataclass
class BashExecution:
    """A command that is about to run. A `prepare` hook may change any of it.

    `env` are variables to set; without `inherit_env` they are all that the command gets.
    """

    command: str
    cwd: str
    env: dict[str, str] = field(default_factory=dict)
    inherit_env: bool = True


@dataclass
class BashPrepare:
    """A hook before each command, with a context and a signal of its own in place of those of the call.

    `function` is called as `(execution, context, signal)`, or with fewer of them. It changes the `BashExecution` or returns
    another one; raising refuses the command, with that text for the model.

    Threads:
        It runs on the tool worker of the call.
    """

    function: Callable[..., BashExecution | None]
    context: Any = None
    signal: AbortSignal | None = None


@dataclass
class BashToolOptions:
    """How a bash tool is made.

    `command_prefix` is put before each command, on a line of its own. `prepare` is a `BashPrepare`, or a plain function such as
    its `function`, which then gets the agent's tool context and the call's signal.
    """

    command_prefix: str | None = None
    prepare: BashPrepare | Callable[..., BashExecution | None] | None = None


@dataclass
class BashToolDetails(Json):
    """What was cut off, and the file with the whole output; both None if nothing was."""

    truncation: TruncationResult | None = field(default=None, metadata=nested(TruncationResult, omit_none=True))
    full_output_path: str | None = field(default=None, metadata=OMIT_NONE)


PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "command": {"type": "string", "description": "The bash command to run"},
        "timeout": {"type": "number", "description": "Seconds after which the command is ended (optional, no limit by default)"},
    },
    "required": ["command"],
}

DESCRIPTION = (
    "Run a bash command in the working directory. Returns its standard output and standard error together. "
    f"Only the last {DEFAULT_MAX_LINES} lines or {DEFAULT_MAX_BYTES // 1024}KB are returned, whichever is less; "
    "a longer output is saved to a file whose path is then given. Standard input is empty."
)


def create_bash_tool(
    options: BashToolOptions | None = None,
    *,
    environment: ExecutionEnvironment | None = None,
    cwd: str | os.PathLike[str] | None = None,
) -> AgentTool:
    """Make the tool that runs commands.

    Args:
        options: A prefix for each command, a hook before it.
        environment: Where commands run; by default this machine, without the keys of providers (`LocalEnvironment`).
        cwd: The directory to run in, by default the current one. Not together with `environment`, which has its own.

    Raises:
        TypeError: `prepare` needs more arguments than there are.
        ValueError: `environment` and `cwd` are both given.

    Example:
        >>> tool = create_bash_tool(cwd="project")
        >>> agent = Agent(model="openai/gpt-5-mini", tools=[tool])
    """
    options = options or BashToolOptions()
    if environment is not None and cwd is not None:
        raise ValueError("give either environment or cwd: an environment has a working directory of its own")
    place: ExecutionEnvironment = environment if environment is not None else LocalEnvironment(cwd)
    prepare = _fit_prepare(options.prepare)
    prefix = options.command_prefix

    def execute(
        tool_call_id: str, args: dict[str, Any], signal: AbortSignal | None, on_update: ToolUpdateFn | None, context: Any
    ) -> AgentToolResult:
        timeout = args.get("timeout")
        check_timeout(timeout)
        command = f"{prefix}\n{args['command']}" if prefix else args["command"]
        execution = BashExecution(command, place.cwd)
        if prepare is not None:
            execution = prepare(execution, context, signal) or execution
            if not isinstance(execution, BashExecution):
                kind = type(execution).__name__
                raise TypeError(f"prepare of the bash tool returned {kind}: change the BashExecution that it gets, or return one")
        return _run(place, execution, timeout, signal, on_update)

    return AgentTool(
        name="bash",
        label="bash",
        description=DESCRIPTION,
        parameters=PARAMETERS,
        execute=execute,
        prepare_arguments=_without_null_timeout,
    )


def _fit_prepare(
    prepare: BashPrepare | Callable[..., BashExecution | None] | None,
) -> Callable[[BashExecution, Any, AbortSignal | None], BashExecution | None] | None:
    if prepare is None:
        return None
    names = ("execution", "context", "signal")
    if not isinstance(prepare, BashPrepare):
        return fit_callback(prepare, names, what="prepare of the bash tool")
    function = fit_callback(prepare.function, names, what="function of BashPrepare")
    own_context, own_signal = prepare.context, prepare.signal
    return lambda execution, context, signal: function(
        execution, context if own_context is None else own_context, signal if own_signal is None else own_signal
    )


def _without_null_timeout(args: Any) -> Any:
    # Some models fill every optional argument; as a number null would be 0, which is no timeout.
    if isinstance(args, dict) and "timeout" in args and args["timeout"] is None:
        return {name: value for name, value in args.items() if name != "timeout"}
    return args


def _run(
    environment: ExecutionEnvironment,
    execution: BashExecution,
    timeout: float | None,
    signal: AbortSignal | None,
    on_update: ToolUpdateFn | None,
) -> AgentToolResult:
    capture = OutputCapture(environment)
    progress = _Progress(capture, on_update)
    failure: EnvironmentFileError | None = None
    exit_code = 0
    try:
        exit_code = environment.run_command(
            execution.command,
            progress.take,
            cwd=execution.cwd,
            env=execution.env,
            inherit_env=execution.inherit_env,
            timeout=timeout,
            signal=signal,
            on_tick=progress.show_if_due if on_update is not None else None,
        )
    except EnvironmentFileError as error:
        if error.code == "callback_error" and error.__cause__ is not None:  # `on_update`
            raise error.__cause__
        if error.code not in ("timeout", "aborted"):
            raise
        failure = error
    finally:
        capture.finish()
    progress.show()
    result = capture.result()
    text = result.content + _notice(result, capture) if result.truncated else result.content
    if failure is not None:
        status = "Command aborted" if failure.code == "aborted" else f"Command timed out after {timeout:.15g} seconds"
        raise EnvironmentFileError(_with_status(text, status), code=failure.code) from failure
    if exit_code != 0:
        raise EnvironmentFileError(_with_status(text, f"Command exited with code {exit_code}"))
    details = BashToolDetails(result, capture.full_output_path) if result.truncated else None
    return AgentToolResult(content=[TextContent(text or "(no output)")], details=details)


def _with_status(text: str, status: str) -> str:
    return f"{text}\n\n{status}" if text else status


def _notice(result: TruncationResult, capture: OutputCapture) -> str:
    first, last = result.total_lines - result.output_lines + 1, result.total_lines
    unsaved = f"The full output could not be saved: {capture.unsaved_because}"
    whole = f"Full output: {capture.full_output_path}" if capture.unsaved_because is None else unsaved
    if result.last_line_partial:
        kept, size = format_size(result.output_bytes), format_size(capture.size_of_last_line)
        return f"\n\n[Showing last {kept} of line {last} (line is {size}). {whole}]"
    limit = f" ({format_size(result.max_bytes)} limit)" if result.truncated_by == "bytes" else ""
    return f"\n\n[Showing lines {first}-{last} of {last}{limit}. {whole}]"


class _Progress:
    """Takes in the output and shows it in partial updates, at most ten a second. All on the thread of the command."""

    def __init__(self, capture: OutputCapture, on_update: ToolUpdateFn | None) -> None:
        self._capture = capture
        self._on_update = on_update
        self._is_new = False
        self._shown_at = float("-inf")
        if on_update is not None:
            on_update(AgentToolResult(content=[]))

    def take(self, stream: OutputStream, data: bytes) -> None:
        self._capture.add(stream, data)
        self._is_new = True
        self.show_if_due()

    def show_if_due(self) -> None:
        if self._is_new and self._on_update is not None and time.monotonic() - self._shown_at >= UPDATE_INTERVAL:
            self.show()

    def show(self) -> None:
        if self._on_update is None:
            return
        result = self._capture.result()
        details = BashToolDetails(result, self._capture.full_output_path) if result.truncated else BashToolDetails()
        self._on_update(AgentToolResult(content=[TextContent(result.content)], details=details))
        self._is_new = False
        self._shown_at = time.monotonic()
