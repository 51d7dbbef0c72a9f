"""What a stream says while a model answers, and what a run says while it works.

A *stream* yields `AssistantMessageEvent`s: a `StartEvent`, then for each block its start, deltas and end, then one
`DoneEvent` or `ErrorEvent`. A *run* delivers `AgentEvent`s to its listeners:

    AgentStartEvent
    ├─ TurnStartEvent
    │  ├─ MessageStartEvent, MessageEndEvent                      each prompt, steered or follow-up message
    │  ├─ MessageStartEvent, MessageUpdateEvent …, MessageEndEvent   the answer
    │  ├─ ToolExecutionStartEvent, …UpdateEvent, …EndEvent        each tool call
    │  ├─ MessageStartEvent, MessageEndEvent                      each tool result
    │  └─ TurnEndEvent
    └─ AgentEndEvent

Events are frozen, since many readers share one. The `message` of an update and the `partial` of a stream event are live: one
object that grows until the end event; who keeps it copies it. `delta` and `content_index` never change.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any, Literal, Union

from agentcore.codec import Json, anything, nested, tagged, tagged_list
from agentcore.custom_messages import AgentMessage
from agentcore.errors import ErrorKind
from agentcore.lazy_dataclasses import dataclass
from agentcore.messages import AgentToolResult, AssistantMessage, StopReason, ToolCall, ToolResultMessage


@dataclass(frozen=True)
class StartEvent(Json):
    """The answer begins."""

    partial: AssistantMessage = field(metadata=nested(AssistantMessage))
    type: Literal["start"] = "start"


@dataclass(frozen=True)
class TextStartEvent(Json):
    """A text block begins at `content_index`."""

    content_index: int
    partial: AssistantMessage = field(metadata=nested(AssistantMessage))
    type: Literal["text_start"] = "text_start"


@dataclass(frozen=True)
class TextDeltaEvent(Json):
    """`delta` was added to a text block."""

    content_index: int
    delta: str
    partial: AssistantMessage = field(metadata=nested(AssistantMessage))
    type: Literal["text_delta"] = "text_delta"


@dataclass(frozen=True)
class TextEndEvent(Json):
    """A text block is complete; `content` is its text."""

    content_index: int
    content: str
    partial: AssistantMessage = field(metadata=nested(AssistantMessage))
    type: Literal["text_end"] = "text_end"


@dataclass(frozen=True)
class ThinkingStartEvent(Json):
    """A thinking block begins at `content_index`."""

    content_index: int
    partial: AssistantMessage = field(metadata=nested(AssistantMessage))
    type: Literal["thinking_start"] = "thinking_start"


@dataclass(frozen=True)
class ThinkingDeltaEvent(Json):
    """`delta` was added to a thinking block."""

    content_index: int
    delta: str
    partial: AssistantMessage = field(metadata=nested(AssistantMessage))
    type: Literal["thinking_delta"] = "thinking_delta"


@dataclass(frozen=True)
class ThinkingEndEvent(Json):
    """A thinking block is complete; `content` is its text."""

    content_index: int
    content: str
    partial: AssistantMessage = field(metadata=nested(AssistantMessage))
    type: Literal["thinking_end"] = "thinking_end"


@dataclass(frozen=True)
class ToolCallStartEvent(Json):
    """A tool call begins at `content_index`."""

    content_index: int
    partial: AssistantMessage = field(metadata=nested(AssistantMessage))
    type: Literal["toolcall_start"] = "toolcall_start"


@dataclass(frozen=True)
class ToolCallDeltaEvent(Json):
    """`delta` was added to the JSON text of a call's arguments."""

    content_index: int
    delta: str
    partial: AssistantMessage = field(metadata=nested(AssistantMessage))
    type: Literal["toolcall_delta"] = "toolcall_delta"


@dataclass(frozen=True)
class ToolCallEndEvent(Json):
    """A tool call is complete."""

    content_index: int
    tool_call: ToolCall = field(metadata=nested(ToolCall))
    partial: AssistantMessage = field(metadata=nested(AssistantMessage))
    type: Literal["toolcall_end"] = "toolcall_end"


@dataclass(frozen=True)
class DoneEvent(Json):
    """The last event of a good answer."""

    message: AssistantMessage = field(metadata=nested(AssistantMessage))
    type: Literal["done"] = "done"

    @property
    def reason(self) -> StopReason:
        """Why the answer ended."""
        return self.message.stop_reason


@dataclass(frozen=True)
class ErrorEvent(Json):
    """The last event of an answer that failed or was aborted; `message.error_message` says why."""

    message: AssistantMessage = field(metadata=nested(AssistantMessage))
    type: Literal["error"] = "error"

    @property
    def reason(self) -> StopReason:
        """`"error"` or `"aborted"`."""
        return self.message.stop_reason


@dataclass(frozen=True)
class RetryEvent(Json):
    """A request or an answer failed and will be tried again after a pause of `delay` seconds.

    It is delivered before the pause. `attempt` counts from 1. `source` is `"request"` where no answer had begun (the stream says
    it), `"answer"` where one broke off (the loop says it, after the `message_end` of the failed answer, which then leaves the
    transcript).
    """

    attempt: int
    max_retries: int
    delay: float
    error_message: str
    kind: ErrorKind = "unknown"
    source: Literal["request", "answer"] = "answer"
    type: Literal["retry"] = "retry"


AssistantMessageEvent = Union[
    StartEvent,
    TextStartEvent,
    TextDeltaEvent,
    TextEndEvent,
    ThinkingStartEvent,
    ThinkingDeltaEvent,
    ThinkingEndEvent,
    ToolCallStartEvent,
    ToolCallDeltaEvent,
    ToolCallEndEvent,
    DoneEvent,
    ErrorEvent,
    RetryEvent,
]
"""What a stream function yields. A `RetryEvent` may come before the `StartEvent` only."""


@dataclass(frozen=True)
class AgentStartEvent(Json):
    """A run begins."""

    type: Literal["agent_start"] = "agent_start"


@dataclass(frozen=True)
class AgentEndEvent(Json):
    """A run ends; `messages` are those it added to the transcript."""

    messages: list[AgentMessage] = field(metadata=tagged_list())
    type: Literal["agent_end"] = "agent_end"


@dataclass(frozen=True)
class TurnStartEvent(Json):
    """A turn begins: one answer and its tool calls."""

    type: Literal["turn_start"] = "turn_start"


@dataclass(frozen=True)
class TurnEndEvent(Json):
    """A turn ends."""

    message: AssistantMessage = field(metadata=nested(AssistantMessage))
    tool_results: list[ToolResultMessage] = field(metadata=tagged_list())
    type: Literal["turn_end"] = "turn_end"


@dataclass(frozen=True)
class MessageStartEvent(Json):
    """A message begins. An answer is live and still empty, all others are complete."""

    message: AgentMessage = field(metadata=tagged())
    type: Literal["message_start"] = "message_start"


@dataclass(frozen=True)
class MessageUpdateEvent(Json):
    """An answer grew; `assistant_message_event` says by what."""

    message: AssistantMessage = field(metadata=nested(AssistantMessage))
    assistant_message_event: AssistantMessageEvent = field(metadata=tagged())
    type: Literal["message_update"] = "message_update"


@dataclass(frozen=True)
class MessageEndEvent(Json):
    """A message is complete and in the transcript."""

    message: AgentMessage = field(metadata=tagged())
    type: Literal["message_end"] = "message_end"


@dataclass(frozen=True)
class ToolExecutionStartEvent(Json):
    """A tool call is about to be made. `args` are the arguments as the model gave them."""

    tool_call_id: str
    tool_name: str
    args: Any = field(metadata=anything())
    type: Literal["tool_execution_start"] = "tool_execution_start"


@dataclass(frozen=True)
class ToolExecutionUpdateEvent(Json):
    """A tool reports a partial result."""

    tool_call_id: str
    tool_name: str
    args: Any = field(metadata=anything())
    partial_result: Any = field(metadata=anything())
    type: Literal["tool_execution_update"] = "tool_execution_update"


@dataclass(frozen=True)
class ToolExecutionEndEvent(Json):
    """A tool call has ended, well or not."""

    tool_call_id: str
    tool_name: str
    result: AgentToolResult = field(metadata=nested(AgentToolResult))
    is_error: bool
    type: Literal["tool_execution_end"] = "tool_execution_end"


AgentEvent = Union[
    AgentStartEvent,
    AgentEndEvent,
    TurnStartEvent,
    TurnEndEvent,
    MessageStartEvent,
    MessageUpdateEvent,
    MessageEndEvent,
    ToolExecutionStartEvent,
    ToolExecutionUpdateEvent,
    ToolExecutionEndEvent,
    RetryEvent,
]
"""What a run tells its listeners."""
