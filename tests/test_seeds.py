"""The documents of AgentCore.jl name types, fields, functions and methods: each is here, under the name that Python gives it.

Fields stand in the order of those documents; the fixed tag (`role`, `type`, `kind`) is last, and fields of our own follow with
defaults, so that a call by position means the same.
"""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Callable
from typing import Any

import pytest

import agentcore
from agentcore import Agent, ImageContent, Session, TextContent, ToolCall

pytestmark = pytest.mark.pythons

# Type → its fields as the documents have them, without the tag.
TYPES: dict[str, str] = {
    # messages and what they are made of
    "TextContent": "text",
    "ImageContent": "data mime_type",
    "ToolCall": "id name arguments partial_json",
    "UserMessage": "content timestamp",
    "AssistantMessage": "content api provider model usage stop_reason error_message timestamp",
    "ToolResultMessage": "tool_call_id tool_name content details usage added_tool_names is_error timestamp",
    "BashExecutionMessage": "command output exit_code cancelled truncated full_output_path timestamp exclude_from_context",
    "CompactionSummaryMessage": "summary tokens_before timestamp",
    "BranchSummaryMessage": "summary from_id timestamp",
    "CustomMessage": "custom_type",
    "Usage": "input output cache_read cache_write",
    # tools
    "AgentTool": "name label description parameters execute prepare_arguments execution_mode",
    "AgentToolResult": "content details usage added_tool_names terminate",
    "AgentToolResultMutable": "content details usage added_tool_names terminate",
    "BashExecution": "command cwd env inherit_env",
    "BashPrepare": "function context signal",
    "BashToolOptions": "command_prefix prepare",
    "BashToolDetails": "truncation full_output_path",
    "BashToolInput": "command",
    "ReadToolDetails": "truncation",
    "ReadToolOptions": "auto_resize_images image_processor",
    "ReadToolInput": "path",
    "ReadImageProcessor": "",
    "ReadImageProcessorResult": "",
    "EditToolDetails": "diff patch first_changed_line",
    "EditToolInput": "path edits",
    "WriteToolInput": "path content",
    # hooks and the loop
    "Context": "system_prompt messages tools",
    "AgentContext": "system_prompt messages tools",
    "BeforeToolCallContext": "assistant_message tool_call args context",
    "BeforeToolCallResult": "block reason",
    "AfterToolCallContext": "assistant_message tool_call args result is_error context",
    "AfterToolCallResult": "content details is_error usage terminate",
    "PrepareNextTurnContext": "message tool_results context new_messages",
    "AgentLoopTurnUpdate": "context model thinking_level",
    "PreparedToolCall": "tool_call tool args",
    "ImmediateToolCallOutcome": "result is_error",
    "ExecutedToolCallOutcome": "result is_error",
    "FinalizedToolCallOutcome": "tool_call result is_error",
    "ExecutedToolCallBatch": "messages terminate",
    # events of a stream
    "StartEvent": "partial",
    "TextStartEvent": "",
    "TextDeltaEvent": "",
    "TextEndEvent": "",
    "ToolCallStartEvent": "",
    "ToolCallDeltaEvent": "",
    "ToolCallEndEvent": "",
    "DoneEvent": "message",
    # events of a run
    "AgentStartEvent": "",
    "AgentEndEvent": "messages",
    "TurnStartEvent": "",
    "TurnEndEvent": "message tool_results",
    "MessageStartEvent": "message",
    "MessageUpdateEvent": "message",
    "MessageEndEvent": "message",
    "ToolExecutionStartEvent": "tool_call_id tool_name",
    "ToolExecutionUpdateEvent": "tool_call_id tool_name",
    "ToolExecutionEndEvent": "tool_call_id tool_name",
    # entries of a session
    "MessageEntry": "id parent_id timestamp message",
    "CompactionEntry": "id parent_id timestamp summary first_kept_entry_id tokens_before",
    "BranchSummaryEntry": "id parent_id timestamp from_id summary",
    "ModelChangeEntry": "id parent_id timestamp provider model_id",
    "ThinkingLevelChangeEntry": "id parent_id timestamp thinking_level",
    "ActiveToolsChangeEntry": "id parent_id timestamp active_tool_names",
}
TAGS = {"role", "type", "kind"}

# What the documents name and have no fields for: unions, protocols, classes with methods, functions.
NAMES = """
    Agent AgentHarness AgentState AgentEvent AgentMessage AssistantMessageEvent Message MessageContent Model StreamFn ThinkingLevel
    ToolExecutionMode EXECUTION_SEQUENTIAL EXECUTION_PARALLEL
    Session SessionRepo SessionTreeEntry JsonlSessionStorage Skill PromptTemplate
    agent_loop agent_loop_continue run_agent_loop stream_assistant_response
    execute_tool_calls execute_tool_calls_sequential execute_tool_calls_parallel
    prepare_tool_call prepare_tool_call_arguments validate_tool_arguments execute_prepared_tool_call
    finalize_executed_tool_call create_tool_result_message
    normalize_prompt_input convert_to_llm bash_execution_to_text
    create_bash_tool create_read_tool create_write_tool create_edit_tool
"""

# Named otherwise here.
OTHER_NAMES = {"ActiveRun": "Run", "SteeringQueue": "PendingMessageQueue", "FollowUpQueue": "PendingMessageQueue"}

AGENT = """
    prompt continue_ steer follow_up subscribe wait_for_idle reset clear_all_queues clear_steering_queue clear_follow_up_queue
    has_queued_messages abort get_state state active_run
    before_tool_call after_tool_call prepare_next_turn prepare_next_turn_with_context tool_execution
"""

SESSION = """
    append_message append_compaction move_to build_context get_branch get_session_stats
    append_thinking_level_change append_model_change append_active_tools_change
"""


def fields_of(cls: Any) -> dict[str, bool]:
    """Return field → whether it may be left out."""
    if dataclasses.is_dataclass(cls):
        made = {}
        for item in dataclasses.fields(cls):
            has_default = (
                item.default is not dataclasses.MISSING or item.default_factory is not dataclasses.MISSING or not item.init
            )
            made[item.name] = has_default
        return made
    if typing.is_typeddict(cls):
        return {name: name in cls.__optional_keys__ for name in cls.__annotations__}
    return {}


@pytest.mark.parametrize("name", TYPES)
def test_a_type_has_the_fields_in_order(name: str) -> None:
    """The fields come first and in that order; what is added may be left out; the tag is last."""
    wanted = TYPES[name].split()
    fields = fields_of(getattr(agentcore, name))
    assert list(fields)[: len(wanted)] == wanted
    added = list(fields)[len(wanted) :]
    if wanted and name not in ("CustomMessage", "MessageUpdateEvent") and not name.startswith("ToolExecution"):
        assert [field for field in added if not fields[field]] == []
    tags = [field for field in fields if field in TAGS]
    assert tags in ([], list(fields)[-1:])


@pytest.mark.parametrize("name", [*NAMES.split(), *OTHER_NAMES.values()])
def test_a_name_is_public(name: str) -> None:
    """It can be imported from the package."""
    assert name in agentcore.__all__
    assert getattr(agentcore, name) is not None


@pytest.mark.parametrize(
    ("cls", "name"), [*((Agent, name) for name in AGENT.split()), *((Session, name) for name in SESSION.split())]
)
def test_a_method_is_there(cls: type, name: str) -> None:
    """It is a method or an attribute of its class."""
    assert name in dir(cls)


def test_what_the_guide_says_of_small_things() -> None:
    """`result.error`, `entry.agent_message`, `custom.message`, the words of modes and tags."""
    failed = agentcore.ToolResultMessage("1", "bash", [TextContent("no such file")], is_error=True)
    assert (failed.is_error, failed.error) == (True, "no such file")
    assert agentcore.ToolResultMessage("1", "bash", [TextContent("fine")]).error is None
    hello = agentcore.UserMessage("hello", 1)
    assert agentcore.MessageEntry("e1", None, "2025-06-01T10:00:00.000Z", hello).agent_message is hello
    assert agentcore.CustomMessage("note", "hello", timestamp=1).message == hello
    assert agentcore.AgentToolResultMutable is agentcore.AgentToolResult
    result = agentcore.AgentToolResultMutable([TextContent("a")])
    result.content = [TextContent("b")]
    assert agentcore.EXECUTION_PARALLEL.value == "parallel"
    assert agentcore.EXECUTION_SEQUENTIAL.value == "sequential"
    assert ToolCall("1", "bash", {"command": "ls -la"}).type == "tool"
    assert failed.role == "toolResult"
    assert agentcore.normalize_prompt_input("hello")[0].content == [TextContent("hello")]  # type: ignore[union-attr]
    assert ImageContent("aGk=", "image/png").mime_type == "image/png"


def test_a_tool_made_by_position() -> None:
    """The guide's custom tool: seven arguments in this order; `execute` gets up to five."""

    def execute(tool_call_id: str, params: Any, signal: Any, on_update: Any, context: Any) -> agentcore.AgentToolResult:
        return agentcore.AgentToolResult([TextContent(f"{tool_call_id} {params['x']}")])

    schema = {"type": "object", "properties": {"x": {"type": "integer"}}}
    tool = agentcore.AgentTool("custom", "Custom", "Does custom thing", schema, execute, None, agentcore.EXECUTION_PARALLEL)
    stream = agentcore.testing.scripted_stream(agentcore.testing.calls("custom", x=3), agentcore.testing.says("done"))
    agent = Agent(tools=[tool], stream_fn=stream, tool_execution=agentcore.EXECUTION_SEQUENTIAL)
    assert agent.run("go", timeout=10).text == "done"
    results = [message.text.split()[1] for message in agent.messages if message.role == "toolResult"]
    assert results == ["3"]


def test_the_guides_three_patterns_of_sessions(tmp_path: Any) -> None:
    """Memory, compaction by position, branches with a summary given as a mapping."""
    storage = agentcore.JsonlSessionStorage.create(tmp_path / "notes.jsonl", cwd=".")
    with Session(storage) as session:
        question = session.append_message(agentcore.UserMessage("hello"))
        first_kept = session.append_message(agentcore.AssistantMessage([TextContent("hi")]))
        assert [message.role for message in session.build_context().messages] == ["user", "assistant"]
        compaction = session.append_compaction("they greeted", first_kept, 1200)
        assert [message.role for message in session.build_context().messages] == ["compactionSummary", "assistant"]
        assert [entry.id for entry in session.get_branch()] == [first_kept, compaction]
        session.move_to(question)
        session.move_to(question, summary={"summary": "Exploring alternative approach"})
        session.append_message(agentcore.UserMessage("anew"))
        assert [message.role for message in session.build_context().messages] == ["user", "branchSummary", "user"]
        assert session.get_session_stats().message_count == 3


def test_callbacks_have_the_documents_arguments() -> None:
    """Hooks of `(context, signal)` and listeners of `(event, signal)` are called with both."""
    seen: list[Callable[..., Any] | str] = []
    stream = agentcore.testing.scripted_stream(agentcore.testing.calls("look"), agentcore.testing.says("done"))

    @agentcore.tool
    def look() -> str:
        """Look."""
        return "seen"

    agent = Agent(
        tools=[look],
        stream_fn=stream,
        before_tool_call=lambda context, signal: seen.append(f"before {context.tool_call.name} {signal.aborted}"),
        after_tool_call=lambda context, signal: seen.append(f"after {context.tool_call.name} {context.is_error}"),
    )
    agent.subscribe(lambda event, signal: seen.append(event.type) if event.type == "tool_execution_end" else None)
    agent.prompt("go")
    assert agent.wait_for_idle(timeout=10)
    assert seen == ["before look False", "after look False", "tool_execution_end"]
    assert agent.active_run is None
    assert list(inspect.signature(agent.subscribe).parameters) == ["listener"]
