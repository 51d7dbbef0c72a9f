"""The names and parameters that the design promises, exactly: what users wrote against them must go on running."""

from __future__ import annotations

import inspect
import queue
from typing import Any

import pytest

import agentcore
from agentcore import Agent, AgentTool, PendingMessageQueue, Run, RunStream

pytestmark = pytest.mark.pythons

AGENT = (
    "*, model=None, system_prompt='', tools=(), messages=(), thinking_level='off', stream_fn=None, "
    "convert_to_llm=None, transform_context=None, get_api_key=None, "
    "before_tool_call=None, after_tool_call=None, prepare_next_turn=None, prepare_next_turn_with_context=None, "
    "should_stop_after_turn=None, "
    "tool_execution=ToolExecutionMode.PARALLEL, steering_mode='one-at-a-time', follow_up_mode='one-at-a-time', "
    "max_tool_workers=32, tool_grace=2.0, tool_context=None, retry=RetryPolicy(max_retries=3, base_delay=1.0), session=None, "
    "session_id=None, thinking_budgets=None, transport=None, max_retry_delay_ms=None, stream_options=None"
)

METHODS: list[tuple[type, str, str]] = [
    (Agent, "prompt", "prompt, images=(), *, detached=False"),
    (Agent, "continue_", "*, detached=False"),
    (Agent, "run", "prompt, images=(), timeout=None"),
    (Agent, "stream", "prompt, images=(), *, detached=False"),
    (Agent, "steer", "message, images=()"),
    (Agent, "follow_up", "message, images=()"),
    (Agent, "subscribe", "listener"),
    (Agent, "wait_for_idle", "timeout=None"),
    (Agent, "reset", ""),
    (Agent, "abort", "reason=None"),
    (Agent, "get_state", ""),
    (Agent, "clear_all_queues", ""),
    (Agent, "clear_steering_queue", ""),
    (Agent, "clear_follow_up_queue", ""),
    (Agent, "has_queued_messages", ""),
    (Agent, "run_prompt_messages", "messages, *, skip_initial_steering=False"),
    (Run, "done", ""),
    (Run, "wait", "timeout=None"),
    (Run, "result", "timeout=None"),
    (Run, "exception", "timeout=None"),
    (Run, "add_done_callback", "callback"),
    (Run, "future", ""),
    (Run, "abort", "reason=None"),
    (RunStream, "close", ""),
    (RunStream, "__iter__", ""),
    (RunStream, "__next__", ""),
    (RunStream, "__enter__", ""),
    (agentcore.AbortSignal, "wait", "timeout=None"),
    (agentcore.AbortSignal, "on_abort", "callback"),
    (agentcore.AbortSignal, "raise_if_aborted", ""),
    (agentcore.AbortController, "abort", "reason=None"),
    (agentcore.Session, "append_message", "message"),
    (agentcore.Session, "append_thinking_level_change", "thinking_level"),
    (agentcore.Session, "append_model_change", "provider, model_id"),
    (agentcore.Session, "append_active_tools_change", "active_tool_names"),
    (agentcore.Session, "get_session_stats", ""),
]

FUNCTIONS = {
    "agent_loop": "prompts, context, config, signal=None, stream_fn=None",
    "agent_loop_continue": "context, config, signal=None, stream_fn=None",
    "run_agent_loop": "prompts, context, config, emit, signal=None, stream_fn=None",
    "run_agent_loop_continue": "context, config, emit, signal=None, stream_fn=None",
    "stream_assistant_response": "context, config, signal, emit, stream_fn=None",
    "execute_tool_calls": "context, assistant_message, config, signal, emit, workers=None",
    "execute_tool_calls_sequential": "context, assistant_message, config, signal, emit, workers=None",
    "execute_tool_calls_parallel": "context, assistant_message, config, signal, emit, workers=None",
    "prepare_tool_call": "context, assistant_message, tool_call, config, signal",
    "prepare_tool_call_arguments": "tool, tool_call",
    "validate_tool_arguments": "tool, tool_call",
    "execute_prepared_tool_call": "prepared, config, signal, emit, workers",
    "finalize_executed_tool_call": "context, assistant_message, prepared, executed, config, signal",
    "create_tool_result_message": "outcome",
    "normalize_prompt_input": "value, images=()",
    "convert_to_llm": "messages",
    "bash_execution_to_text": "message",
    "pair_tool_results": "messages",
    "print_events": "file=None, *, thinking=False",
    "openai_compatible": "base_url, model_id, *, api_key=None, **fields",
    "close_connections": "",
}

FIELDS = {
    "AgentTool": "name label description parameters execute prepare_arguments execution_mode",
    "AgentToolResult": "content details usage added_tool_names terminate",
    "BeforeToolCallContext": "assistant_message tool_call args context",
    "BeforeToolCallResult": "block reason",
    "AfterToolCallContext": "assistant_message tool_call args result is_error context",
    "AfterToolCallResult": "content details is_error usage terminate",
    "PrepareNextTurnContext": "message tool_results context new_messages",
    "AgentLoopTurnUpdate": "context model thinking_level",
    "AgentContext": "system_prompt messages tools",
    "PreparedToolCall": "tool_call tool args",
    "ImmediateToolCallOutcome": "result is_error",
    "ExecutedToolCallOutcome": "result is_error",
    "FinalizedToolCallOutcome": "tool_call result is_error",
    "ExecutedToolCallBatch": "messages terminate",
    "RetryPolicy": "max_retries base_delay",
}


def parameters(function: Any, *, of_class: bool = False) -> str:
    """Return the parameters without annotations, as in `prompt, images=(), *, detached=False`."""
    signature = inspect.signature(function)
    found = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in signature.parameters.values()]
    shown = str(signature.replace(parameters=found[of_class:], return_annotation=inspect.Signature.empty))[1:-1]
    for value in ("<ToolExecutionMode.PARALLEL: 'parallel'>", "ToolExecutionMode.PARALLEL"):
        shown = shown.replace(value, "ToolExecutionMode.PARALLEL")
    return shown


def test_an_agent_is_made_with_these_parameters() -> None:
    """All by name, with these defaults, in this order."""
    assert parameters(Agent) == AGENT


@pytest.mark.parametrize(("owner", "name", "expected"), METHODS, ids=[f"{owner.__name__}.{name}" for owner, name, _ in METHODS])
def test_methods(owner: type, name: str, expected: str) -> None:
    """The method is there and takes exactly this."""
    assert parameters(getattr(owner, name), of_class=True) == expected


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str) -> None:
    """The function is public and takes exactly this."""
    assert parameters(getattr(agentcore, name)) == FUNCTIONS[name]


@pytest.mark.parametrize("name", FIELDS)
def test_fields(name: str) -> None:
    """The fields of the seeds in their order; further ones come behind."""
    found = [parameter.name for parameter in inspect.signature(getattr(agentcore, name)).parameters.values()]
    expected = FIELDS[name].split()
    assert found[: len(expected)] == expected


def test_properties() -> None:
    """What an agent, a run and a signal tell without a call."""
    agent = Agent()
    assert agent.active_run is None and agent.signal is None
    assert agent.state is agent.get_state() and agent.messages is agent.state.messages
    assert isinstance(agent.usage, agentcore.Usage) and agent.context_tokens == 0
    for owner, names in (
        (Run, "message text messages usage signal"),
        (agentcore.AbortSignal, "aborted reason"),
        (agentcore.ToolResultMessage, "error"),
        (agentcore.MessageEntry, "agent_message"),
        (agentcore.CustomMessage, "message"),
    ):
        for name in names.split():
            assert isinstance(inspect.getattr_static(owner, name), property), f"{owner.__name__}.{name}"


def test_aliases_and_constants() -> None:
    """One thing under two names."""
    assert agentcore.AgentToolResultMutable is agentcore.AgentToolResult
    assert agentcore.EXECUTION_SEQUENTIAL is agentcore.ToolExecutionMode.SEQUENTIAL
    assert agentcore.EXECUTION_PARALLEL is agentcore.ToolExecutionMode.PARALLEL
    assert isinstance(Agent().steering_queue._queue, queue.Queue) and isinstance(Agent().follow_up_queue, PendingMessageQueue)


def test_a_print_without_a_readable_signature_is_a_listener_of_one_argument() -> None:
    """`agent.subscribe(print)`: on 3.10 `print` has no signature; everywhere it gets the event alone."""
    from agentcore.testing import says, scripted_stream

    class Opaque:
        """A callable that inspect cannot read."""

        __signature__ = "none"

        def __init__(self) -> None:
            self.got: list[tuple[Any, ...]] = []

        def __call__(self, *arguments: Any) -> None:
            self.got.append(arguments)

    opaque = Opaque()
    agent = Agent(stream_fn=scripted_stream(says("hi")))
    agent.subscribe(opaque)
    agent.subscribe(print)
    agent.run("go", timeout=5)
    assert {len(arguments) for arguments in opaque.got} == {1}


def test_the_arguments_of_execute_and_the_hooks_have_these_names() -> None:
    """An optional parameter is filled by its name, so the names count."""
    from agentcore.messages import AgentToolResult
    from agentcore.testing import calls, says, scripted_stream

    got: dict[str, list[str]] = {}

    def execute(*, tool_call_id: Any, args: Any, signal: Any, on_update: Any, context: Any) -> AgentToolResult:
        got["execute"] = [type(value).__name__ for value in (tool_call_id, args, signal, context)]
        on_update(AgentToolResult())
        return AgentToolResult()

    def before(*, context: Any, signal: Any) -> None:
        got["before"] = [type(context).__name__, type(signal).__name__]

    def after(*, context: Any, signal: Any) -> None:
        got["after"] = [type(context).__name__, type(signal).__name__]

    def prepare(*, context: Any, signal: Any) -> None:
        got["prepare"] = [type(context).__name__, type(signal).__name__]

    def prepare_plain(*, signal: Any) -> None:
        got["plain"] = [type(signal).__name__]

    def transform(*, messages: Any, signal: Any) -> Any:
        got["transform"] = [type(signal).__name__]
        return messages

    def convert(*, messages: Any) -> Any:
        got["convert"] = [type(messages).__name__]
        return messages

    def stop(*, context: Any) -> bool:
        got["stop"] = [type(context).__name__]
        return False

    def key(*, provider: Any) -> None:
        got["key"] = [provider]

    agent = Agent(
        tools=[AgentTool("t", "t", "", {"type": "object"}, execute)],
        stream_fn=scripted_stream(calls("t"), says("ok")),
        before_tool_call=before,
        after_tool_call=after,
        prepare_next_turn=prepare_plain,
        prepare_next_turn_with_context=prepare,
        transform_context=transform,
        convert_to_llm=convert,
        should_stop_after_turn=stop,
        get_api_key=key,
        tool_context="mine",
    )
    agent.run("go", timeout=5)
    assert got == {
        "execute": ["str", "dict", "AbortSignal", "str"],
        "before": ["BeforeToolCallContext", "AbortSignal"],
        "after": ["AfterToolCallContext", "AbortSignal"],
        "prepare": ["PrepareNextTurnContext", "AbortSignal"],
        "plain": ["AbortSignal"],
        "transform": ["AbortSignal"],
        "convert": ["list"],
        "stop": ["PrepareNextTurnContext"],
        "key": ["unknown"],
    }
