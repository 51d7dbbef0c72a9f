"""What a harness says beside the events of its runs, and what a hook may answer.

There are two sorts. A *notification* tells what has happened; subscribers get it, and so do handlers of its type. A *question* goes
to the handlers of its type alone, in the order of registration; what one of them answers is in the event that the next one gets:

    question                   answer                       what a handler can do
    before_agent_start         BeforeAgentStartResult       add messages to the prompt, replace the system prompt of the run
    context                    ContextResult                change what one request holds; the transcript stays
    before_provider_request    BeforeProviderRequestResult  change headers, timeouts and the like of one request
    before_provider_payload    BeforeProviderPayloadResult  replace the body of one request
    tool_call                  BeforeToolCallResult         keep a call from being run; change its `input` in place
    tool_result                AfterToolCallResult          replace parts of a result
    session_before_compact     SessionBeforeCompactResult   cancel a compaction, or give the summary
    session_before_tree        SessionBeforeTreeResult      cancel a move in the tree, or give the summary

Events are frozen. Those of a run are in `agentcore.events`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal, Union

from agentcore.abort import AbortSignal
from agentcore.codec import HIDDEN, OMIT_NONE, Json, nested, tagged_list
from agentcore.custom_messages import AgentMessage
from agentcore.events import AgentEvent
from agentcore.harness.compaction import CompactionPreparation, CompactionResult
from agentcore.harness.skills import Skill
from agentcore.harness.templates import PromptTemplate
from agentcore.lazy_dataclasses import dataclass
from agentcore.llm.request import StreamOptions
from agentcore.messages import AgentToolResult, ImageContent, TextContent, Usage
from agentcore.models import Model, ThinkingLevel
from agentcore.session.entries import BranchSummary, BranchSummaryEntry, CompactionEntry, SessionTreeEntry

RetriedOperation = Literal["compaction", "branch_summary"]
CompactionReason = Literal["threshold", "overflow"]


@dataclass
class Resources:
    """The skills and prompt templates that a harness can call up."""

    skills: list[Skill] = field(default_factory=list)
    prompt_templates: list[PromptTemplate] = field(default_factory=list)


# --- notifications ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class QueueUpdateEvent(Json):
    """Messages were queued, taken or cleared; these wait now."""

    steer: list[AgentMessage] = field(metadata=tagged_list())
    follow_up: list[AgentMessage] = field(metadata=tagged_list())
    next_turn: list[AgentMessage] = field(metadata=tagged_list())
    type: Literal["queue_update"] = "queue_update"


@dataclass(frozen=True)
class SavePointEvent(Json):
    """A turn is over, and all is stored. `had_pending_mutations` says whether something had waited for this."""

    had_pending_mutations: bool
    type: Literal["save_point"] = "save_point"


@dataclass(frozen=True)
class SettledEvent(Json):
    """A run is over, and its `agent_end` has been told. `next_turn_count` messages wait for the next prompt."""

    next_turn_count: int
    type: Literal["settled"] = "settled"


@dataclass(frozen=True)
class AbortEvent(Json):
    """`abort()` was called, and the queues were cleared of these messages."""

    cleared_steer: list[AgentMessage] = field(metadata=tagged_list())
    cleared_follow_up: list[AgentMessage] = field(metadata=tagged_list())
    type: Literal["abort"] = "abort"


@dataclass(frozen=True)
class ModelUpdateEvent(Json):
    """Another model answers from the next turn on."""

    model: Model = field(metadata=nested(Model))
    previous_model: Model = field(metadata=nested(Model))
    source: Literal["set"] = "set"
    type: Literal["model_update"] = "model_update"


@dataclass(frozen=True)
class ThinkingLevelUpdateEvent(Json):
    """The model thinks this much from the next turn on."""

    level: ThinkingLevel
    previous_level: ThinkingLevel
    type: Literal["thinking_level_update"] = "thinking_level_update"


@dataclass(frozen=True)
class ToolsUpdateEvent(Json):
    """The tools, or those of them that the model is offered, are others from the next turn on."""

    tool_names: list[str]
    previous_tool_names: list[str]
    active_tool_names: list[str]
    previous_active_tool_names: list[str]
    source: Literal["set"] = "set"
    type: Literal["tools_update"] = "tools_update"


@dataclass(frozen=True)
class ResourcesUpdateEvent(Json):
    """The skills or prompt templates are others."""

    resources: Resources
    previous_resources: Resources
    type: Literal["resources_update"] = "resources_update"


@dataclass(frozen=True)
class AfterProviderResponseEvent(Json):
    """The headers of an answer are there; names are in lower case."""

    status: int
    headers: dict[str, str]
    type: Literal["after_provider_response"] = "after_provider_response"


@dataclass(frozen=True)
class SessionCompactEvent(Json):
    """The session was compacted. `from_hook` says that a hook gave the summary."""

    compaction_entry: CompactionEntry = field(metadata=nested(CompactionEntry))
    from_hook: bool
    type: Literal["session_compact"] = "session_compact"


@dataclass(frozen=True)
class SessionTreeEvent(Json):
    """The session stands at another entry (None: before the first)."""

    new_leaf_id: str | None
    old_leaf_id: str | None
    from_hook: bool
    summary_entry: BranchSummaryEntry | None = field(default=None, metadata=nested(BranchSummaryEntry, omit_none=True))
    type: Literal["session_tree"] = "session_tree"


@dataclass(frozen=True)
class RetryScheduledEvent(Json):
    """A summary request failed and will be made again after `delay` seconds. `attempt` counts from 1."""

    operation: RetriedOperation
    attempt: int
    max_attempts: int
    delay: float
    error_message: str
    type: Literal["retry_scheduled"] = "retry_scheduled"


@dataclass(frozen=True)
class RetryAttemptStartEvent(Json):
    """The pause is over: the summary request is made again."""

    operation: RetriedOperation
    type: Literal["retry_attempt_start"] = "retry_attempt_start"


@dataclass(frozen=True)
class RetryFinishedEvent(Json):
    """There will be no more tries, since one went well or was the last."""

    operation: RetriedOperation
    type: Literal["retry_finished"] = "retry_finished"


@dataclass(frozen=True)
class AutoCompactionStartEvent(Json):
    """The harness compacts by itself: the context is nearly full (`threshold`), or was too large (`overflow`)."""

    reason: CompactionReason
    type: Literal["auto_compaction_start"] = "auto_compaction_start"


@dataclass(frozen=True)
class AutoCompactionEndEvent(Json):
    """It has compacted, or could not and says why; then the run goes on as it is."""

    reason: CompactionReason
    compaction_entry: CompactionEntry | None = field(default=None, metadata=nested(CompactionEntry, omit_none=True))
    error_message: str | None = field(default=None, metadata=OMIT_NONE)
    type: Literal["auto_compaction_end"] = "auto_compaction_end"


@dataclass(frozen=True)
class HandlerErrorEvent(Json):
    """A handler of a notification raised. The others have been called, and what was going on goes on."""

    event_type: str
    handler: str
    error_message: str
    error: BaseException | None = field(default=None, metadata=HIDDEN)
    type: Literal["handler_error"] = "handler_error"


# --- questions -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BeforeAgentStartEvent:
    """A run is about to begin. `messages` are those that handlers have added; they come behind the prompt."""

    prompt: str
    images: list[ImageContent]
    system_prompt: str
    resources: Resources
    messages: list[AgentMessage] = field(default_factory=list)
    type: Literal["before_agent_start"] = "before_agent_start"


@dataclass
class BeforeAgentStartResult:
    """`messages` are added; `system_prompt` holds for the run."""

    messages: list[AgentMessage] | None = None
    system_prompt: str | None = None


@dataclass(frozen=True)
class ContextEvent:
    """A request is about to be made of these messages."""

    messages: list[AgentMessage]
    type: Literal["context"] = "context"


@dataclass
class ContextResult:
    """The messages of the request. A handler may return the bare list as well."""

    messages: list[AgentMessage] | None = None


@dataclass(frozen=True)
class BeforeProviderRequestEvent:
    """A request is about to be made this way. `stream_options` is a copy."""

    model: Model
    session_id: str
    stream_options: StreamOptions
    type: Literal["before_provider_request"] = "before_provider_request"


@dataclass
class BeforeProviderRequestResult:
    """The options of the request, or changes to them.

    `stream_options` replaces the options, or is a mapping of changes: a value replaces a field, None sets it back to what it is by
    default; inside `headers`, `metadata`, `extra_body` and `thinking_budgets` a value replaces one key, None takes it away.
    """

    stream_options: StreamOptions | Mapping[str, Any] | None = None


@dataclass(frozen=True)
class BeforeProviderPayloadEvent:
    """This body is about to be sent. It may be changed in place."""

    model: Model
    payload: Any
    type: Literal["before_provider_payload"] = "before_provider_payload"


@dataclass
class BeforeProviderPayloadResult:
    """The body of the request."""

    payload: Any = None


@dataclass(frozen=True)
class ToolCallEvent:
    """A tool is about to be run. `input` may be changed in place. `block` and `reason` are what handlers have said so far."""

    tool_call_id: str
    tool_name: str
    input: Any
    block: bool | None = None
    reason: str | None = None
    type: Literal["tool_call"] = "tool_call"


@dataclass(frozen=True)
class ToolResultEvent:
    """A tool was run, and this came of it. `terminate` is what handlers have said so far."""

    tool_call_id: str
    tool_name: str
    input: Any
    content: list[TextContent | ImageContent]
    details: Any
    is_error: bool
    usage: Usage | None = None
    terminate: bool | None = None
    type: Literal["tool_result"] = "tool_result"

    @property
    def result(self) -> AgentToolResult:
        """What came of it, as a tool's result."""
        return AgentToolResult(self.content, self.details, usage=self.usage, terminate=self.terminate)


@dataclass(frozen=True)
class SessionBeforeCompactEvent:
    """The session is about to be compacted this way. `cancel` and `compaction` are what handlers have said so far."""

    preparation: CompactionPreparation
    branch_entries: list[SessionTreeEntry]
    custom_instructions: str | None
    signal: AbortSignal
    cancel: bool | None = None
    compaction: CompactionResult | None = None
    type: Literal["session_before_compact"] = "session_before_compact"


@dataclass
class SessionBeforeCompactResult:
    """`cancel` stops the compaction; `compaction` is taken in place of asking a model.

    It must name a `first_kept_entry_id` of the branch, such as that of the preparation. Without a `retained_tail`, all from that
    entry on is kept.
    """

    cancel: bool | None = None
    compaction: CompactionResult | None = None


@dataclass(frozen=True)
class TreePreparation:
    """A move in the tree: from where, to where (None: before the first entry), and what is left behind."""

    target_id: str | None
    old_leaf_id: str | None
    common_ancestor_id: str | None
    entries_to_summarize: list[SessionTreeEntry]
    user_wants_summary: bool
    custom_instructions: str | None = None
    replace_instructions: bool | None = None
    label: str | None = None


@dataclass(frozen=True)
class SessionBeforeTreeEvent:
    """The session is about to go elsewhere. `cancel` and `summary` are what handlers have said so far."""

    preparation: TreePreparation
    signal: AbortSignal
    cancel: bool | None = None
    summary: BranchSummary | None = None
    type: Literal["session_before_tree"] = "session_before_tree"


@dataclass
class SessionBeforeTreeResult:
    """`cancel` stops the move; `summary` is taken in place of asking a model; the others replace what the caller said."""

    cancel: bool | None = None
    summary: BranchSummary | None = None
    custom_instructions: str | None = None
    replace_instructions: bool | None = None
    label: str | None = None


HarnessEvent = Union[
    AgentEvent,
    QueueUpdateEvent,
    SavePointEvent,
    SettledEvent,
    AbortEvent,
    ModelUpdateEvent,
    ThinkingLevelUpdateEvent,
    ToolsUpdateEvent,
    ResourcesUpdateEvent,
    AfterProviderResponseEvent,
    SessionCompactEvent,
    SessionTreeEvent,
    RetryScheduledEvent,
    RetryAttemptStartEvent,
    RetryFinishedEvent,
    AutoCompactionStartEvent,
    AutoCompactionEndEvent,
    HandlerErrorEvent,
]
"""What subscribers of a harness get."""

HookEvent = Union[
    BeforeAgentStartEvent,
    ContextEvent,
    BeforeProviderRequestEvent,
    BeforeProviderPayloadEvent,
    ToolCallEvent,
    ToolResultEvent,
    SessionBeforeCompactEvent,
    SessionBeforeTreeEvent,
]
"""What only handlers of its type get, and may answer."""

QUESTIONS = frozenset(
    (
        "before_agent_start", "context", "before_provider_request", "before_provider_payload", "tool_call", "tool_result",
        "session_before_compact", "session_before_tree",
    )
)  # fmt: skip
NOTIFICATIONS = frozenset(
    (
        "agent_start", "agent_end", "turn_start", "turn_end", "message_start", "message_update", "message_end",
        "tool_execution_start", "tool_execution_update", "tool_execution_end", "retry",
        "queue_update", "save_point", "settled", "abort", "model_update", "thinking_level_update", "tools_update",
        "resources_update", "after_provider_response", "session_compact", "session_tree", "retry_scheduled",
        "retry_attempt_start", "retry_finished", "auto_compaction_start", "auto_compaction_end", "handler_error",
    )
)  # fmt: skip
