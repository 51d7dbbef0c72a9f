"""Messages and what they are made of.

Three messages are spoken with a model: `UserMessage`, `AssistantMessage`, `ToolResultMessage`. Their content is a list of
blocks: `TextContent`, `ImageContent`, `ThinkingContent`, `ToolCall`. All are plain, mutable dataclasses; their JSON is that of
pi's session format, version 3 (`agentcore.codec`). Timestamps are integer milliseconds since the Unix epoch.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import Any, Literal, Union

from agentcore.codec import HIDDEN, OMIT_NONE, STOP_REASON, TOOL_CALL_TAG, Json, anything, named, nested, tagged_blocks
from agentcore.errors import ErrorKind
from agentcore.lazy_dataclasses import dataclass

StopReason = Literal["done", "length", "toolUse", "error", "aborted"]
"""Why an answer ended: it was complete, reached the token limit, wants tools run, failed, or was aborted."""


def now_ms() -> int:
    """Return the time in milliseconds since the Unix epoch."""
    return time.time_ns() // 1_000_000


@dataclass
class TextContent(Json):
    """A piece of text. `text_signature` is opaque and belongs to the provider that made it."""

    text: str
    text_signature: str | None = field(default=None, metadata=OMIT_NONE)
    type: Literal["text"] = "text"


@dataclass
class ImageContent(Json):
    """An image: base64 text of the file's bytes, and its MIME type (`image/png`, …)."""

    data: str
    mime_type: str
    type: Literal["image"] = "image"


@dataclass
class ThinkingContent(Json):
    """What a reasoning model thought.

    `thinking_signature` is opaque and goes back unchanged to the provider that made it. Where `redacted` is true,
    `thinking` is empty or a placeholder and the signature holds the encrypted thoughts.
    """

    thinking: str
    thinking_signature: str | None = field(default=None, metadata=OMIT_NONE)
    redacted: bool | None = field(default=None, metadata=OMIT_NONE)
    type: Literal["thinking"] = "thinking"


@dataclass
class ToolCall(Json):
    """A call that the model wants made.

    `arguments` is what could be read of the arguments. `raw_arguments` is set by a wire format when the text of the
    arguments was not JSON: such a call is never run. `partial_json` is the text so far, while a call is streaming.
    Neither of the two is written to JSON. In files the tag is `toolCall`.
    """

    id: str
    name: str
    arguments: dict[str, Any] = field(default_factory=dict, metadata=anything())
    partial_json: str | None = field(default=None, metadata=HIDDEN)
    thought_signature: str | None = field(default=None, metadata=OMIT_NONE)
    raw_arguments: str | None = field(default=None, metadata=HIDDEN)
    type: Literal["tool"] = field(default="tool", metadata=TOOL_CALL_TAG)


UserContent = Union[TextContent, ImageContent]
AssistantContent = Union[TextContent, ThinkingContent, ToolCall]
MessageContent = Union[TextContent, ImageContent, ThinkingContent, ToolCall]


@dataclass
class Cost(Json):
    """What an answer cost, in US dollars."""

    input: float = 0.0
    output: float = 0.0
    cache_read: float = 0.0
    cache_write: float = 0.0
    total: float = 0.0


@dataclass
class Usage(Json):
    """The tokens of one answer, counted the same way for every provider.

    `input` is without what was read from or written to a cache; `output` includes `reasoning`. `total_tokens` is the size of
    the context after the answer: input, output, cache reads and cache writes.
    """

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    total_tokens: int = 0
    cost: Cost = field(default_factory=Cost, metadata=nested(Cost))
    reasoning: int | None = field(default=None, metadata=OMIT_NONE)
    cache_write_1h: int | None = field(default=None, metadata=named("cacheWrite1h", omit_none=True))

    def __add__(self, other: Usage) -> Usage:
        """Add two usages up, field by field."""
        if not isinstance(other, Usage):
            return NotImplemented
        return Usage(
            input=self.input + other.input,
            output=self.output + other.output,
            cache_read=self.cache_read + other.cache_read,
            cache_write=self.cache_write + other.cache_write,
            total_tokens=self.total_tokens + other.total_tokens,
            cost=Cost(
                input=self.cost.input + other.cost.input,
                output=self.cost.output + other.cost.output,
                cache_read=self.cost.cache_read + other.cost.cache_read,
                cache_write=self.cost.cache_write + other.cost.cache_write,
                total=self.cost.total + other.cost.total,
            ),
            reasoning=_add_optional(self.reasoning, other.reasoning),
            cache_write_1h=_add_optional(self.cache_write_1h, other.cache_write_1h),
        )


def _add_optional(one: int | None, other: int | None) -> int | None:
    return None if one is None and other is None else (one or 0) + (other or 0)


@dataclass(init=False)
class UserMessage(Json):
    """What the user says. A string is taken as one text block; `content` is always a list."""

    content: list[TextContent | ImageContent] = field(metadata=tagged_blocks())
    timestamp: int = 0
    role: Literal["user"] = field(default="user", init=False)

    def __init__(self, content: str | Sequence[TextContent | ImageContent], timestamp: int | None = None) -> None:
        self.content = to_blocks(content)
        self.timestamp = now_ms() if timestamp is None else timestamp
        self.role = "user"

    @property
    def text(self) -> str:
        """The text blocks, joined."""
        return content_text(self.content, "")


@dataclass
class AssistantMessage(Json):
    """What the model answered: `content`, who said it, what it took, and why it ended.

    While an answer is streaming, the message is live: one object that grows until the end event. `error_kind` and
    `error_retryable` say of a failed answer what sort of failure it was and whether a new try could help; they are set
    where the failure arises and are not written to JSON.
    """

    content: list[TextContent | ThinkingContent | ToolCall] = field(default_factory=list, metadata=tagged_blocks())
    api: str = ""
    provider: str = ""
    model: str = ""
    usage: Usage = field(default_factory=Usage, metadata=nested(Usage))
    stop_reason: StopReason = field(default="done", metadata=STOP_REASON)
    error_message: str | None = field(default=None, metadata=OMIT_NONE)
    timestamp: int = field(default_factory=now_ms)
    response_id: str | None = field(default=None, metadata=OMIT_NONE)
    response_model: str | None = field(default=None, metadata=OMIT_NONE)
    error_kind: ErrorKind | None = field(default=None, metadata=HIDDEN)
    error_retryable: bool | None = field(default=None, metadata=HIDDEN)
    role: Literal["assistant"] = "assistant"

    @property
    def text(self) -> str:
        """The text blocks, joined."""
        return content_text(self.content, "")

    @property
    def tool_calls(self) -> list[ToolCall]:
        """The calls, in the order in which the model made them."""
        return [block for block in self.content if isinstance(block, ToolCall)]


@dataclass
class ToolResultMessage(Json):
    """What one tool call gave back, as the model will read it.

    `details` is for the program and never reaches the model.
    """

    tool_call_id: str
    tool_name: str
    content: list[TextContent | ImageContent] = field(metadata=tagged_blocks())
    details: Any = field(default=None, metadata=anything(omit_none=True))
    usage: Usage | None = field(default=None, metadata=nested(Usage, omit_none=True))
    added_tool_names: list[str] | None = field(default=None, metadata=OMIT_NONE)
    is_error: bool = False
    timestamp: int = field(default_factory=now_ms)
    role: Literal["toolResult"] = "toolResult"

    @property
    def text(self) -> str:
        """The text blocks, joined."""
        return content_text(self.content, "")

    @property
    def error(self) -> str | None:
        """The text of the result when the call failed, else None."""
        return self.text if self.is_error else None


Message = Union[UserMessage, AssistantMessage, ToolResultMessage]
"""The messages that a model understands."""


@dataclass(init=False)
class AgentToolResult(Json):
    """What a tool's `execute` gives back.

    `content` is for the model, `details` for the program. A string is taken as one text block; the attribute is always a list.
    `terminate` asks the run to stop after this batch; it does so when all results of the batch ask for it.

    Raises:
        TypeError: The content holds something that is neither text nor an image, or `usage` or `added_tool_names` is of a wrong
            kind. Here it is an error of one call; in a session it would be an entry that nobody can read.
    """

    content: list[TextContent | ImageContent] = field(default_factory=list, metadata=tagged_blocks())
    details: Any = field(default=None, metadata=anything(omit_none=True))
    usage: Usage | None = field(default=None, metadata=nested(Usage, omit_none=True))
    added_tool_names: list[str] | None = field(default=None, metadata=OMIT_NONE)
    terminate: bool | None = field(default=None, metadata=OMIT_NONE)

    def __init__(
        self,
        content: str | Iterable[TextContent | ImageContent] = (),
        details: Any = None,
        usage: Usage | None = None,
        added_tool_names: list[str] | None = None,
        terminate: bool | None = None,
    ) -> None:
        if usage is not None and not isinstance(usage, Usage):
            raise TypeError(f"the usage of a tool result must be a Usage(…) or None, not {type(usage).__name__}")
        if added_tool_names is not None and not _are_names(added_tool_names):
            raise TypeError("the added_tool_names of a tool result must be a list of names or None")
        self.content = to_blocks(content)
        self.details = details
        self.usage = usage
        self.added_tool_names = added_tool_names
        self.terminate = terminate

    @property
    def text(self) -> str:
        """The text blocks, joined."""
        return content_text(self.content, "")


def _are_names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


AgentToolResultMutable = AgentToolResult
"""The seeds' second name; the result is mutable anyway."""


def to_blocks(content: str | Iterable[TextContent | ImageContent]) -> list[TextContent | ImageContent]:
    """Return content as a list of blocks; a string becomes one text block.

    Raises:
        TypeError: A member is neither text nor an image.
    """
    if isinstance(content, str):
        return [TextContent(content)]
    if not isinstance(content, Iterable):
        raise TypeError(f"content must be a string or a list of blocks, not {type(content).__name__}")
    blocks: list[TextContent | ImageContent] = []
    for block in content:
        if not isinstance(block, (TextContent, ImageContent)):
            raise TypeError(f"content must hold TextContent and ImageContent, not {type(block).__name__}")
        blocks.append(block)
    return blocks


def content_text(content: str | Sequence[MessageContent], separator: str = "\n") -> str:
    """Return the text of the text blocks of a content, joined by `separator`; a string is returned as it is."""
    if isinstance(content, str):
        return content
    return separator.join(block.text for block in content if isinstance(block, TextContent))
