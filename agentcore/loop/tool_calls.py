"""The tool calls of one answer: prepare, execute, finalize.

    for each call, in the order of the answer     tool_execution_start, prepare_tool_call
      not run: unknown, bad arguments, blocked    tool_execution_end
      prepared                                    execute on a tool worker, tool_execution_update …
    for each call, in the order of finishing      finalize_executed_tool_call, tool_execution_end
    for each call, in the order of the answer     message_start, message_end of its result

In sequence, a call goes through all of this before the next one starts. Finished work is never lost: when a listener raises in the
middle, the results that are in are still recorded and told before the exception goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any, Literal, Union

from agentcore.abort import AbortSignal
from agentcore.callbacks import fit_callback
from agentcore.events import (
    MessageEndEvent,
    MessageStartEvent,
    ToolExecutionEndEvent,
    ToolExecutionStartEvent,
    ToolExecutionUpdateEvent,
)
from agentcore.lazy_dataclasses import dataclass
from agentcore.loop.config import (
    AfterToolCallContext,
    AfterToolCallResult,
    AgentContext,
    AgentEventSink,
    AgentLoopConfig,
    BeforeToolCallContext,
    BeforeToolCallResult,
    check_returned,
    error_text,
    log_raised,
)
from agentcore.loop.tool_workers import GaveUp, Job, ToolWorkers
from agentcore.messages import AgentToolResult, AssistantMessage, ImageContent, TextContent, ToolCall, ToolResultMessage
from agentcore.tools.agent_tool import AgentTool, ToolExecutionMode, ToolUpdateFn

ABORTED = "Operation aborted"
"""The text of a call that an abort kept from being made or from ending."""

_log = logging.getLogger("agentcore")


@dataclass
class PreparedToolCall:
    """A call that may be run: its tool, and arguments that fit."""

    tool_call: ToolCall
    tool: AgentTool
    args: Any
    kind: Literal["prepared"] = "prepared"


@dataclass
class ImmediateToolCallOutcome:
    """A call that is not run: unknown, refused, with bad arguments, or aborted."""

    result: AgentToolResult
    is_error: bool
    kind: Literal["immediate"] = "immediate"


@dataclass
class ExecutedToolCallOutcome:
    """What came of running a call."""

    result: AgentToolResult
    is_error: bool


@dataclass
class FinalizedToolCallOutcome:
    """What came of a call in the end, after `after_tool_call`."""

    tool_call: ToolCall
    result: AgentToolResult
    is_error: bool


@dataclass
class ExecutedToolCallBatch:
    """The results of all calls of an answer, in its order. `terminate`: every one of them asks the run to stop."""

    messages: list[ToolResultMessage] = field(default_factory=list)
    terminate: bool = False


def execute_tool_calls(
    context: AgentContext,
    assistant_message: AssistantMessage,
    config: AgentLoopConfig,
    signal: AbortSignal,
    emit: AgentEventSink,
    workers: ToolWorkers | None = None,
) -> ExecutedToolCallBatch:
    """Make the calls of an answer: at the same time, or one by one if the config or one of the tools says so.

    An answer that was cut at the token limit has no call run: its arguments may be half of what the model meant.

    Args:
        workers: Those of the run; None makes some for this batch alone.
    """
    if assistant_message.stop_reason == "length":
        make = _refuse_truncated_calls
    elif config.tool_execution is ToolExecutionMode.SEQUENTIAL or _has_sequential_tool(assistant_message, context.tools):
        make = _make_one_by_one
    else:
        make = _make_at_the_same_time
    return _make_calls(make, context, assistant_message, config, signal, emit, workers)


def execute_tool_calls_sequential(
    context: AgentContext,
    assistant_message: AssistantMessage,
    config: AgentLoopConfig,
    signal: AbortSignal,
    emit: AgentEventSink,
    workers: ToolWorkers | None = None,
) -> ExecutedToolCallBatch:
    """Make calls one by one; each has its result told before the next one starts. An abort skips the rest."""
    return _make_calls(_make_one_by_one, context, assistant_message, config, signal, emit, workers)


def execute_tool_calls_parallel(
    context: AgentContext,
    assistant_message: AssistantMessage,
    config: AgentLoopConfig,
    signal: AbortSignal,
    emit: AgentEventSink,
    workers: ToolWorkers | None = None,
) -> ExecutedToolCallBatch:
    """Prepare all calls one after the other, then run them at the same time; the results are told when all are in.

    An abort skips the calls that have not been prepared; those that have are run with the signal set, as recorded.
    """
    return _make_calls(_make_at_the_same_time, context, assistant_message, config, signal, emit, workers)


def _make_calls(
    make: Callable[[_Batch, Sequence[ToolCall]], ExecutedToolCallBatch],
    context: AgentContext,
    assistant_message: AssistantMessage,
    config: AgentLoopConfig,
    signal: AbortSignal,
    emit: AgentEventSink,
    workers: ToolWorkers | None,
) -> ExecutedToolCallBatch:
    own = ToolWorkers(signal, config.max_tool_workers, config.tool_grace) if workers is None else None
    calls = assistant_message.tool_calls
    batch = _Batch(context, assistant_message, config, signal, emit, workers or own)  # type: ignore[arg-type]
    try:
        return make(batch, calls)
    except BaseException:
        batch.rescue(calls)
        raise
    finally:
        if own is not None:
            own.shut()


def _make_one_by_one(batch: _Batch, calls: Sequence[ToolCall]) -> ExecutedToolCallBatch:
    for call in calls:
        prepared = batch.prepare(call)
        if isinstance(prepared, PreparedToolCall):
            batch.start(prepared)
            batch.finish_open_calls()
        batch.deliver(call)
        if batch.signal.aborted:
            break
    return batch.result(calls)


def _make_at_the_same_time(batch: _Batch, calls: Sequence[ToolCall]) -> ExecutedToolCallBatch:
    prepared_calls: list[PreparedToolCall] = []
    for call in calls:
        prepared = batch.prepare(call)
        if isinstance(prepared, PreparedToolCall):
            prepared_calls.append(prepared)
        if batch.signal.aborted:
            break
    for prepared in prepared_calls:
        batch.start(prepared)
    batch.finish_open_calls()
    for call in calls:
        batch.deliver(call)
    return batch.result(calls)


def _refuse_truncated_calls(batch: _Batch, calls: Sequence[ToolCall]) -> ExecutedToolCallBatch:
    for call in calls:
        batch.announce(call)
        batch.end(
            FinalizedToolCallOutcome(
                call,
                error_result(
                    f'Tool call "{call.name}" was not executed: the response hit the output token limit, so its arguments may be '
                    "truncated. Re-issue the tool call with complete arguments."
                ),
                True,
            )
        )
        batch.deliver(call)
    return batch.result(calls)


def _has_sequential_tool(message: AssistantMessage, tools: Sequence[AgentTool] | None) -> bool:
    names = {tool.name for tool in tools or () if tool.execution_mode is ToolExecutionMode.SEQUENTIAL}
    return bool(names) and any(call.name in names for call in message.tool_calls)


class _Batch:
    """The calls of one answer under way: what is in, what has been told.

    Calls are told apart by identity: a model may give two calls one id.
    """

    def __init__(
        self,
        context: AgentContext,
        assistant_message: AssistantMessage,
        config: AgentLoopConfig,
        signal: AbortSignal,
        emit: AgentEventSink,
        workers: ToolWorkers,
    ) -> None:
        self.context = context
        self.assistant_message = assistant_message
        self.config = config
        self.signal = signal
        self.emit = emit
        self.workers = workers
        self._outcomes: dict[int, FinalizedToolCallOutcome] = {}
        self._messages: dict[int, ToolResultMessage] = {}
        self._recorded: set[int] = set()

    def announce(self, call: ToolCall) -> None:
        self.emit(ToolExecutionStartEvent(call.id, call.name, call.arguments))

    def prepare(self, call: ToolCall) -> PreparedToolCall | ImmediateToolCallOutcome:
        self.announce(call)
        prepared = prepare_tool_call(self.context, self.assistant_message, call, self.config, self.signal)
        if isinstance(prepared, ImmediateToolCallOutcome):
            self.end(FinalizedToolCallOutcome(call, prepared.result, prepared.is_error))
        return prepared

    def start(self, prepared: PreparedToolCall) -> None:
        call, tool, context = prepared.tool_call, prepared.tool, self.config.tool_context

        def execute(signal: AbortSignal, on_update: ToolUpdateFn) -> Any:
            return tool.run(call.id, prepared.args, signal, on_update, context)

        self.workers.start(prepared, execute, tool.timeout)

    def finish_open_calls(self) -> None:
        while self.workers.has_open_calls:
            job, is_end, value = self.workers.next_report()
            call = job.tag.tool_call
            if not is_end:
                self.emit(ToolExecutionUpdateEvent(call.id, call.name, call.arguments, value))
                continue
            executed = _outcome_of(job)
            # Before the hook, so that the result is not lost to what the hook raises.
            self._outcomes[id(call)] = FinalizedToolCallOutcome(call, executed.result, executed.is_error)
            self.end(finalize_executed_tool_call(self.context, self.assistant_message, job.tag, executed, self.config, self.signal))

    def end(self, outcome: FinalizedToolCallOutcome) -> None:
        call = outcome.tool_call
        self._outcomes[id(call)] = outcome
        self.emit(ToolExecutionEndEvent(call.id, call.name, outcome.result, outcome.is_error))

    def deliver(self, call: ToolCall) -> None:
        outcome = self._outcomes.get(id(call))
        if outcome is None:
            return
        message = self._messages[id(call)] = create_tool_result_message(outcome)
        self.emit(MessageStartEvent(message))
        self._record(call, message)
        self.emit(MessageEndEvent(message))

    def _record(self, call: ToolCall, message: ToolResultMessage) -> None:
        self._recorded.add(id(call))
        self.config.record(message)

    def result(self, calls: Sequence[ToolCall]) -> ExecutedToolCallBatch:
        messages = [self._messages[id(call)] for call in calls if id(call) in self._messages]
        outcomes = self._outcomes.values()
        return ExecutedToolCallBatch(messages, bool(outcomes) and all(outcome.result.terminate is True for outcome in outcomes))

    def rescue(self, calls: Sequence[ToolCall]) -> None:
        """Keep what is in, after a listener or the session raised: record and tell all results that have not been.

        Calls that are still going are asked to stop, and have the grace period to come in. What listeners raise here is
        logged: the first exception is the one that ends the run.
        """
        self.workers.abort("the run failed")
        while self.workers.has_open_calls:
            job, is_end, _ = self.workers.next_report()
            if not is_end:
                continue
            outcome = _outcome_of(job)
            call = job.tag.tool_call
            self._outcomes[id(call)] = FinalizedToolCallOutcome(call, outcome.result, outcome.is_error)
            self._try_to_emit(ToolExecutionEndEvent(call.id, call.name, outcome.result, outcome.is_error))
        for call in calls:
            if id(call) not in self._outcomes or id(call) in self._recorded:
                continue
            message = self._messages.get(id(call))
            if message is None:
                message = create_tool_result_message(self._outcomes[id(call)])
                self._try_to_emit(MessageStartEvent(message))
            self._record(call, message)
            self._try_to_emit(MessageEndEvent(message))

    def _try_to_emit(self, event: Any) -> None:
        try:
            self.emit(event)
        except BaseException:  # a SystemExit or KeyboardInterrupt of the listener's own, too: a result must not be lost to it
            _log.exception("a listener raised again while the results of a failed run were told")


def _outcome_of(job: Job) -> ExecutedToolCallOutcome:
    tool = job.tag.tool
    error = job.error
    if isinstance(error, GaveUp):
        _log.warning("the tool %s was given up: it did not return in time, and its thread goes on by itself", tool.name)
        text = ABORTED if error.why == "aborted" else f"the tool {tool.name} was given up: it took more than {tool.timeout:g} s"
        return ExecutedToolCallOutcome(error_result(text), True)
    if error is not None:
        return ExecutedToolCallOutcome(error_result(error_text(error)), True)
    if not isinstance(job.result, AgentToolResult):
        text = f"the tool {tool.name} returned a value of type {type(job.result).__name__}: it must return an AgentToolResult"
        return ExecutedToolCallOutcome(error_result(text), True)
    if not has_plain_content(job.result):
        text = f"the tool {tool.name} returned content that no model can read: it must be TextContent with a text, or ImageContent"
        return ExecutedToolCallOutcome(error_result(text), True)
    return ExecutedToolCallOutcome(job.result, False)


def has_plain_content(result: AgentToolResult) -> bool:
    """Return whether a result can be sent. One that cannot would stay in the transcript, and fail every request from then on."""
    for block in result.content or ():
        value = block.text if isinstance(block, TextContent) else block.data if isinstance(block, ImageContent) else None
        if not isinstance(value, str):
            return False
    return True


def prepare_tool_call(
    context: AgentContext,
    assistant_message: AssistantMessage,
    tool_call: ToolCall,
    config: AgentLoopConfig,
    signal: AbortSignal,
) -> Union[PreparedToolCall, ImmediateToolCallOutcome]:
    """Find the tool, make the arguments fit, validate them, ask `before_tool_call`.

    Returns:
        The call, ready to be run; or what the model is told instead. Nothing that goes wrong here raises.
    """
    tool = next((tool for tool in context.tools or () if tool.name == tool_call.name), None)
    if tool is None:
        return _refuse(_unknown_tool_text(tool_call.name, context.tools))
    if tool_call.raw_arguments is not None:
        return _refuse(_unreadable_text(tool_call))
    try:
        args = validate_tool_arguments(tool, prepare_tool_call_arguments(tool, tool_call))
        if config.before_tool_call is not None:
            answer = config.before_tool_call(BeforeToolCallContext(assistant_message, tool_call, args, context), signal)
            _check_answer("before_tool_call", answer, BeforeToolCallResult)
            if signal.aborted:
                return _refuse(ABORTED)
            if answer is not None and answer.block:
                return _refuse(answer.reason or "Tool execution was blocked")
    except Exception as error:  # the shim's, the validation's or the hook's: the model reads it
        return _refuse(error_text(error))
    if signal.aborted:
        return _refuse(ABORTED)
    return PreparedToolCall(tool_call, tool, args)


def prepare_tool_call_arguments(tool: AgentTool, tool_call: ToolCall) -> ToolCall:
    """Return the call with its arguments as `tool.prepare_arguments` makes them; the call itself stays as it is."""
    if tool.prepare_arguments is None:
        return tool_call
    prepare = fit_callback(tool.prepare_arguments, ("args",), what=f"prepare_arguments of the tool {tool.name!r}")
    arguments = prepare(tool_call.arguments)
    if arguments is tool_call.arguments:
        return tool_call
    return ToolCall(tool_call.id, tool_call.name, arguments)


def validate_tool_arguments(tool: AgentTool, tool_call: ToolCall) -> Any:
    """Return the arguments of a call, made to fit the tool's schema.

    Raises:
        ToolArgumentsError: They do not fit. The text is written for the model.
    """
    from agentcore.tools.arguments import validate_tool_arguments as validate

    return validate(tool, tool_call)


def execute_prepared_tool_call(
    prepared: PreparedToolCall, config: AgentLoopConfig, signal: AbortSignal, emit: AgentEventSink, workers: ToolWorkers
) -> ExecutedToolCallOutcome:
    """Run one call on a tool worker, tell its updates, and wait for it to end."""
    call, tool = prepared.tool_call, prepared.tool
    workers.start(
        prepared,
        lambda tool_signal, on_update: tool.run(call.id, prepared.args, tool_signal, on_update, config.tool_context),
        tool.timeout,
    )
    while True:
        job, is_end, value = workers.next_report()
        if is_end:
            return _outcome_of(job)
        emit(ToolExecutionUpdateEvent(call.id, call.name, call.arguments, value))


def finalize_executed_tool_call(
    context: AgentContext,
    assistant_message: AssistantMessage,
    prepared: PreparedToolCall,
    executed: ExecutedToolCallOutcome,
    config: AgentLoopConfig,
    signal: AbortSignal,
) -> FinalizedToolCallOutcome:
    """Ask `after_tool_call`, and put what it gives back in place of the fields of the result. If it raises, that is the result."""
    result, is_error = executed.result, executed.is_error
    if config.after_tool_call is not None:
        try:
            patch = config.after_tool_call(
                AfterToolCallContext(assistant_message, prepared.tool_call, prepared.args, result, is_error, context), signal
            )
            _check_answer("after_tool_call", patch, AfterToolCallResult)
            if patch is not None:
                result = AgentToolResult(
                    content=result.content if patch.content is None else patch.content,
                    details=result.details if patch.details is None else patch.details,
                    usage=result.usage if patch.usage is None else patch.usage,
                    added_tool_names=result.added_tool_names,
                    terminate=result.terminate if patch.terminate is None else patch.terminate,
                )
                is_error = is_error if patch.is_error is None else patch.is_error
            if not has_plain_content(result):
                raise TypeError(
                    "after_tool_call left content that no model can read: give TextContent with a text, or ImageContent"
                )
        except Exception as error:  # the hook's: the model reads it in place of the result
            return FinalizedToolCallOutcome(prepared.tool_call, error_result(error_text(error)), True)
    return FinalizedToolCallOutcome(prepared.tool_call, result, is_error)


def create_tool_result_message(outcome: FinalizedToolCallOutcome) -> ToolResultMessage:
    """Return the message that the model reads."""
    result = outcome.result
    return ToolResultMessage(
        tool_call_id=outcome.tool_call.id,
        tool_name=outcome.tool_call.name,
        content=result.content or [],
        details=result.details,
        usage=result.usage,
        added_tool_names=result.added_tool_names or None,
        is_error=outcome.is_error,
    )


def error_result(text: str) -> AgentToolResult:
    """Return a result that says what went wrong."""
    return AgentToolResult([TextContent(text)], {})


def _check_answer(hook: str, value: Any, expected: type) -> None:
    """Raise, and say in the log, if a hook gave back what nobody can use: else only the model would hear of it."""
    try:
        check_returned(hook, value, expected)
    except TypeError as error:
        log_raised(f"what checks {hook}", error)
        raise


def _refuse(text: str) -> ImmediateToolCallOutcome:
    return ImmediateToolCallOutcome(error_result(text), True)


def _unknown_tool_text(name: str, tools: Sequence[AgentTool] | None) -> str:
    if not tools:
        return f"Tool {name} not found. There are no tools."
    return f"Tool {name} not found. Available tools: {', '.join(tool.name for tool in tools)}."


def _unreadable_text(call: ToolCall) -> str:
    from agentcore.tools.arguments import unreadable_arguments_text

    return unreadable_arguments_text(call)
