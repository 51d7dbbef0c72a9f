"""LLM agents in plain synchronous Python: an `Agent`, the loop under it, tools, sessions, a harness above.

Here are the public names, and nothing else. The words, the loop and the agent are imported with the package; whatever needs a
library of its own (requests, jsonschema, …) comes when its name is first used.
"""

# The lists are packed and sorted by room: this file is read as an index.
# ruff: noqa: I001, RUF022
# fmt: off

from __future__ import annotations

from typing import TYPE_CHECKING

from agentcore.abort import AbortController, AbortSignal
from agentcore.agent import Agent, AgentSession, AgentState, PendingMessageQueue, QueueMode, Run, RunStream, print_events
from agentcore.custom_messages import (
    AgentMessage, BashExecutionMessage, BranchSummaryMessage, CompactionSummaryMessage, CustomMessage, OtherMessage,
    bash_execution_to_text,
)
from agentcore.errors import (
    AgentAbortedError, AgentBusyError, AgentCoreError, AgentRunError, EntryNotFoundError, EntryNotStoredError,
    EnvironmentFileError, ErrorKind, HarnessBusyError, HarnessError, SessionCorruptError, SessionError, SessionLockedError,
    ToolArgumentsError,
)
from agentcore.events import (
    AgentEndEvent, AgentEvent, AgentStartEvent, AssistantMessageEvent, DoneEvent, ErrorEvent, MessageEndEvent,
    MessageStartEvent, MessageUpdateEvent, RetryEvent, StartEvent, TextDeltaEvent, TextEndEvent, TextStartEvent,
    ThinkingDeltaEvent, ThinkingEndEvent, ThinkingStartEvent, ToolCallDeltaEvent, ToolCallEndEvent, ToolCallStartEvent,
    ToolExecutionEndEvent, ToolExecutionStartEvent, ToolExecutionUpdateEvent, TurnEndEvent, TurnStartEvent,
)
from agentcore.llm import close_connections, get_model, list_models, openai_compatible, register_model, register_wire_format
from agentcore.llm.request import Context, ProviderResponse, StreamFn, StreamOptions, ToolSpec
from agentcore.loop import (
    AfterToolCallContext, AfterToolCallResult, AgentContext, AgentEventSink, AgentLoopConfig, AgentLoopTurnUpdate,
    BeforeToolCallContext, BeforeToolCallResult, ExecutedToolCallBatch, ExecutedToolCallOutcome, FinalizedToolCallOutcome,
    ImmediateToolCallOutcome, PrepareNextTurnContext, PreparedToolCall, RetryPolicy, ShouldStopAfterTurnContext, agent_loop,
    agent_loop_continue, create_tool_result_message, execute_prepared_tool_call, execute_tool_calls,
    execute_tool_calls_parallel, execute_tool_calls_sequential, finalize_executed_tool_call, prepare_tool_call,
    prepare_tool_call_arguments, run_agent_loop, run_agent_loop_continue, stream_assistant_response, validate_tool_arguments,
)
from agentcore.messages import (
    AgentToolResult, AgentToolResultMutable, AssistantMessage, Cost, ImageContent, Message, MessageContent, StopReason,
    TextContent, ThinkingContent, ToolCall, ToolResultMessage, Usage, UserMessage,
)
from agentcore.models import Model, ModelCost, ThinkingLevel
from agentcore.tools.agent_tool import AgentTool, EXECUTION_PARALLEL, EXECUTION_SEQUENTIAL, ToolExecutionMode, ToolUpdateFn
from agentcore.transcript import (
    PromptInput, convert_to_llm, dump_messages, load_messages, normalize_prompt_input, pair_tool_results,
)

if TYPE_CHECKING:
    from agentcore import harness as harness
    from agentcore import local as local
    from agentcore import session as session
    from agentcore import testing as testing
    from agentcore.harness import (
        AgentHarness, CompactionPreparation, CompactionResult, CompactionSettings, PromptTemplate, ResourceDiagnostic, Skill,
        Summarizer,
        compact, estimate_context_tokens, estimate_tokens, format_skills_for_system_prompt, load_prompt_templates, load_skills,
        prepare_compaction, resume, should_compact,
    )
    from agentcore.session import (
        ActiveToolsChangeEntry, BranchSummary, BranchSummaryEntry, CompactionEntry, CustomEntry, CustomMessageEntry,
        EntryProjector, EntryTransform, JsonlSessionRepo, JsonlSessionStorage, LabelEntry, LeafEntry,
        MemorySessionRepo, MemorySessionStorage, MessageEntry, ModelChangeEntry, Session, SessionContext, SessionInfoEntry,
        SessionMetadata, SessionModel, SessionRepairWarning, SessionRepo, SessionStats, SessionStorage, SessionTreeEntry,
        SqliteSessionRepo, SqliteSessionStorage, ThinkingLevelChangeEntry, UnknownEntry,
    )
    from agentcore.tools import (
        BashExecution, BashPrepare, BashToolDetails, BashToolInput, BashToolOptions, EditToolDetails, EditToolInput,
        ExecutionEnvironment, LocalEnvironment, ReadImageProcessor, ReadImageProcessorResult, ReadToolDetails, ReadToolInput,
        ReadToolOptions, WriteToolInput, create_bash_tool, create_edit_tool, create_find_tool, create_grep_tool, create_ls_tool,
        create_read_tool, create_write_tool, tool,
    )

__all__ = [
    # agent
    "Agent", "AgentSession", "AgentState", "PendingMessageQueue", "QueueMode", "Run", "RunStream", "print_events",
    # loop
    "AfterToolCallContext", "AfterToolCallResult", "AgentContext", "AgentEventSink", "AgentLoopConfig", "AgentLoopTurnUpdate",
    "BeforeToolCallContext", "BeforeToolCallResult", "ExecutedToolCallBatch", "ExecutedToolCallOutcome",
    "FinalizedToolCallOutcome", "ImmediateToolCallOutcome", "PrepareNextTurnContext", "PreparedToolCall", "RetryPolicy",
    "ShouldStopAfterTurnContext", "agent_loop", "agent_loop_continue", "create_tool_result_message",
    "execute_prepared_tool_call", "execute_tool_calls", "execute_tool_calls_parallel", "execute_tool_calls_sequential",
    "finalize_executed_tool_call", "prepare_tool_call", "prepare_tool_call_arguments", "run_agent_loop",
    "run_agent_loop_continue", "stream_assistant_response", "validate_tool_arguments",
    # tools
    "AgentTool", "BashExecution", "BashPrepare", "BashToolDetails", "BashToolInput", "BashToolOptions", "EXECUTION_PARALLEL",
    "EXECUTION_SEQUENTIAL", "EditToolDetails", "EditToolInput", "ExecutionEnvironment", "LocalEnvironment",
    "ReadImageProcessor", "ReadImageProcessorResult", "ReadToolDetails", "ReadToolInput", "ReadToolOptions",
    "ToolExecutionMode", "ToolUpdateFn", "WriteToolInput", "create_bash_tool", "create_edit_tool", "create_find_tool",
    "create_grep_tool", "create_ls_tool", "create_read_tool", "create_write_tool", "tool",
    # llm
    "Context", "ProviderResponse", "StreamFn", "StreamOptions", "ToolSpec", "close_connections", "get_model", "list_models",
    "openai_compatible", "register_model", "register_wire_format",
    # session
    "ActiveToolsChangeEntry", "BranchSummary", "BranchSummaryEntry", "CompactionEntry", "CustomEntry", "CustomMessageEntry",
    "EntryProjector", "EntryTransform", "JsonlSessionRepo", "JsonlSessionStorage", "LabelEntry",
    "LeafEntry", "MemorySessionRepo", "MemorySessionStorage", "MessageEntry", "ModelChangeEntry", "Session", "SessionContext",
    "SessionInfoEntry", "SessionMetadata", "SessionModel", "SessionRepairWarning", "SessionRepo", "SessionStats",
    "SessionStorage", "SessionTreeEntry", "SqliteSessionRepo", "SqliteSessionStorage", "ThinkingLevelChangeEntry",
    "UnknownEntry",
    # harness
    "AgentHarness", "CompactionPreparation", "CompactionResult", "CompactionSettings", "PromptTemplate", "ResourceDiagnostic",
    "Skill", "Summarizer", "compact", "estimate_context_tokens", "estimate_tokens", "format_skills_for_system_prompt",
    "load_prompt_templates", "load_skills", "prepare_compaction", "resume", "should_compact",
    # words
    "AbortController", "AbortSignal", "AgentAbortedError", "AgentBusyError", "AgentCoreError", "AgentEndEvent", "AgentEvent",
    "AgentMessage", "AgentRunError", "AgentStartEvent", "AgentToolResult", "AgentToolResultMutable", "AssistantMessage",
    "AssistantMessageEvent", "BashExecutionMessage", "BranchSummaryMessage", "CompactionSummaryMessage", "Cost",
    "CustomMessage", "DoneEvent", "EntryNotFoundError", "EntryNotStoredError", "EnvironmentFileError", "ErrorEvent", "ErrorKind",
    "HarnessBusyError", "HarnessError", "ImageContent", "Message", "MessageContent", "MessageEndEvent", "MessageStartEvent",
    "MessageUpdateEvent", "Model", "ModelCost", "OtherMessage", "PromptInput", "RetryEvent", "SessionCorruptError", "SessionError",
    "SessionLockedError", "StartEvent", "StopReason", "TextContent", "TextDeltaEvent", "TextEndEvent", "TextStartEvent",
    "ThinkingContent", "ThinkingDeltaEvent", "ThinkingEndEvent", "ThinkingLevel", "ThinkingStartEvent", "ToolArgumentsError",
    "ToolCall", "ToolCallDeltaEvent", "ToolCallEndEvent", "ToolCallStartEvent", "ToolExecutionEndEvent",
    "ToolExecutionStartEvent", "ToolExecutionUpdateEvent", "ToolResultMessage", "TurnEndEvent", "TurnStartEvent", "Usage",
    "UserMessage", "bash_execution_to_text", "convert_to_llm", "dump_messages", "load_messages", "normalize_prompt_input",
    "pair_tool_results",
]

if not TYPE_CHECKING:  # a type checker that saw `__getattr__` would let every misspelt name pass
    _LAZY = {
        "agentcore.harness": (
            "AgentHarness", "CompactionPreparation", "CompactionResult", "CompactionSettings", "PromptTemplate",
            "ResourceDiagnostic", "Skill", "Summarizer", "compact", "estimate_context_tokens", "estimate_tokens",
            "format_skills_for_system_prompt", "load_prompt_templates", "load_skills", "prepare_compaction", "resume",
            "should_compact",
        ),
        "agentcore.session": (
            "ActiveToolsChangeEntry", "BranchSummary", "BranchSummaryEntry", "CompactionEntry", "CustomEntry",
            "CustomMessageEntry", "EntryProjector", "EntryTransform", "JsonlSessionRepo",
            "JsonlSessionStorage", "LabelEntry", "LeafEntry", "MemorySessionRepo", "MemorySessionStorage", "MessageEntry",
            "ModelChangeEntry", "Session", "SessionContext", "SessionInfoEntry", "SessionMetadata", "SessionModel",
            "SessionRepairWarning", "SessionRepo", "SessionStats", "SessionStorage", "SessionTreeEntry", "SqliteSessionRepo",
            "SqliteSessionStorage", "ThinkingLevelChangeEntry", "UnknownEntry",
        ),
        "agentcore.tools": (
            "BashExecution", "BashPrepare", "BashToolDetails", "BashToolInput", "BashToolOptions", "EditToolDetails",
            "EditToolInput", "ExecutionEnvironment", "LocalEnvironment", "ReadImageProcessor", "ReadImageProcessorResult",
            "ReadToolDetails", "ReadToolInput", "ReadToolOptions", "WriteToolInput", "create_bash_tool", "create_edit_tool",
            "create_find_tool", "create_grep_tool", "create_ls_tool", "create_read_tool", "create_write_tool", "tool",
        ),
    }
    _HOMES = {name: module for module, names in _LAZY.items() for name in names}
    _SUBMODULES = ("harness", "local", "session", "testing",)

    def __getattr__(name):
        import importlib

        if name in _HOMES:
            value = getattr(importlib.import_module(_HOMES[name]), name)
        elif name in _SUBMODULES:
            value = importlib.import_module(f"agentcore.{name}")
        elif name == "__version__":
            value = importlib.import_module("importlib.metadata").version("agentcore-sync")
        else:
            raise AttributeError(f"module 'agentcore' has no attribute {name!r}")
        globals()[name] = value
        return value

    def __dir__():
        return sorted({*globals(), *__all__, *_SUBMODULES})
