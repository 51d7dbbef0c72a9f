"""Messages that a transcript keeps beside those spoken with a model, and their text for a model.

The `…_to_text` functions say how a model reads them; `convert_to_llm` (`agentcore.transcript`) makes user messages of them.
Timestamps are integer milliseconds since the Unix epoch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Literal, Union

from agentcore.codec import OMIT_NONE, Json, anything, tagged_blocks
from agentcore.lazy_dataclasses import dataclass
from agentcore.messages import (
    AssistantMessage,
    ImageContent,
    TextContent,
    ToolResultMessage,
    UserMessage,
    content_text,
    now_ms,
    to_blocks,
)


@dataclass
class BashExecutionMessage(Json):
    """A command that the user ran beside the conversation. `exclude_from_context` keeps it from the model."""

    command: str
    output: str
    exit_code: int | None = field(default=None, metadata=OMIT_NONE)
    cancelled: bool = False
    truncated: bool = False
    full_output_path: str | None = field(default=None, metadata=OMIT_NONE)
    timestamp: int = field(default_factory=now_ms)
    exclude_from_context: bool | None = field(default=None, metadata=OMIT_NONE)
    role: Literal["bashExecution"] = "bashExecution"

    @property
    def text(self) -> str:
        """What a model reads of it."""
        return bash_execution_to_text(self)


@dataclass
class CompactionSummaryMessage(Json):
    """Stands for all that was compacted. `tokens_before` is the size of the context before that."""

    summary: str
    tokens_before: int
    timestamp: int = field(default_factory=now_ms)
    role: Literal["compactionSummary"] = "compactionSummary"

    @property
    def text(self) -> str:
        """The summary."""
        return self.summary


@dataclass
class BranchSummaryMessage(Json):
    """Stands for a branch that was left. `from_id` is the entry at which it was left."""

    summary: str
    from_id: str
    timestamp: int = field(default_factory=now_ms)
    role: Literal["branchSummary"] = "branchSummary"

    @property
    def text(self) -> str:
        """The summary."""
        return self.summary


@dataclass(init=False)
class CustomMessage(Json):
    """A message of an extension. The model reads `content` as a user message; `display` and `details` are for the program."""

    custom_type: str
    content: list[TextContent | ImageContent] = field(metadata=tagged_blocks())
    display: bool = True
    details: Any = field(default=None, metadata=anything(omit_none=True))
    timestamp: int = 0
    role: Literal["custom"] = field(default="custom", init=False)

    def __init__(
        self,
        custom_type: str,
        content: str | Sequence[TextContent | ImageContent],
        display: bool = True,
        details: Any = None,
        timestamp: int | None = None,
    ) -> None:
        self.custom_type = custom_type
        self.content = to_blocks(content)
        self.display = display
        self.details = details
        self.timestamp = now_ms() if timestamp is None else timestamp
        self.role = "custom"

    @property
    def message(self) -> UserMessage:
        """The same as a user message, as a model gets it."""
        return UserMessage(self.content, self.timestamp)

    @property
    def text(self) -> str:
        """The text blocks, joined."""
        return content_text(self.content, "")


@dataclass(init=False)
class OtherMessage(Json):
    """A message of a role that the library does not know. `fields` is all but its role and time, as it was.

    No model gets it unless `convert_to_llm` makes a message of it. `role` may be any word; a type checker is told that it is
    none of the known ones, so that `message.role == "assistant"` tells the messages of a transcript apart. To compare it with a
    word of your own, write `str(message.role)`.
    """

    role: Literal["*"] = "*"
    fields: dict[str, Any] = field(default_factory=dict)
    timestamp: int = field(default_factory=now_ms)

    def __init__(self, role: str = "*", fields: Mapping[str, Any] | None = None, timestamp: int | None = None) -> None:
        self.role = role  # type: ignore[assignment]
        self.fields = {} if fields is None else dict(fields)
        self.timestamp = now_ms() if timestamp is None else timestamp

    @property
    def text(self) -> str:
        """The field `text` where that is a text, else nothing."""
        text = self.fields.get("text")
        return text if isinstance(text, str) else ""

    def _encode(self) -> dict[str, Any]:
        return {"role": self.role, **self.fields, "timestamp": self.timestamp}

    @classmethod
    def _decode(cls, raw: Mapping[str, Any]) -> OtherMessage:
        fields = {key: value for key, value in raw.items() if key not in ("role", "timestamp")}
        made = cls(raw["role"], fields)
        made.timestamp = raw.get("timestamp", made.timestamp)
        return made

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form: the role, the fields and the time side by side."""
        return self._encode()

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> OtherMessage:
        """Make a message from its JSON form."""
        return cls._decode(raw)


AgentMessage = Union[
    UserMessage,
    AssistantMessage,
    ToolResultMessage,
    BashExecutionMessage,
    CompactionSummaryMessage,
    BranchSummaryMessage,
    CustomMessage,
    OtherMessage,
]
"""All that a transcript may hold."""


def bash_execution_to_text(message: BashExecutionMessage) -> str:
    """Return what a model reads of a command: the command, its output, and how it ended if that was not well."""
    parts = [f"Ran `{message.command}`\n"]
    parts.append(f"```\n{message.output}\n```" if message.output else "(no output)")
    if message.cancelled:
        parts.append("\n\n(command cancelled)")
    elif message.exit_code:
        parts.append(f"\n\nCommand exited with code {message.exit_code}")
    if message.truncated and message.full_output_path:
        parts.append(f"\n\n[Output truncated. Full output: {message.full_output_path}]")
    return "".join(parts)


def branch_summary_to_text(message: BranchSummaryMessage) -> str:
    """Return what a model reads of a branch that was left."""
    # The closing tag follows without a line break, unlike below: a summary is part of what providers cache, so the bytes
    # are those that the reference sends.
    return (
        f"The following is a summary of a branch that this conversation came back from:\n\n<summary>\n{message.summary}</summary>"
    )


def compaction_summary_to_text(message: CompactionSummaryMessage) -> str:
    """Return what a model reads in place of all that was compacted."""
    return (
        "The conversation history before this point was compacted into the following summary:\n\n"
        f"<summary>\n{message.summary}\n</summary>"
    )


def create_branch_summary_message(summary: str, from_id: str, timestamp: str | int) -> BranchSummaryMessage:
    """Make the message of a branch summary; the time may be that of a session entry (`iso_to_ms`)."""
    return BranchSummaryMessage(summary, from_id, _to_ms(timestamp))


def create_compaction_summary_message(summary: str, tokens_before: int, timestamp: str | int) -> CompactionSummaryMessage:
    """Make the message of a compaction; the time may be that of a session entry (`iso_to_ms`)."""
    return CompactionSummaryMessage(summary, tokens_before, _to_ms(timestamp))


def create_custom_message(
    custom_type: str,
    content: str | Sequence[TextContent | ImageContent],
    display: bool,
    details: Any,
    timestamp: str | int,
) -> CustomMessage:
    """Make a custom message; the time may be that of a session entry (`iso_to_ms`)."""
    return CustomMessage(custom_type, content, display, details, _to_ms(timestamp))


def _to_ms(timestamp: str | int) -> int:
    return iso_to_ms(timestamp) if isinstance(timestamp, str) else timestamp


def iso_to_ms(text: str) -> int:
    """Return an ISO-8601 time in milliseconds since the Unix epoch.

    A time without an offset is taken as UTC. What cannot be read is 0: one bad time must not make a whole session unreadable.
    """
    from datetime import datetime, timezone  # here, since a program without a session never needs it

    # `fromisoformat` of Python 3.10 knows neither `Z` nor fractions of other than three or six digits.
    whole, dot, rest = text.strip().replace("Z", "+00:00").partition(".")
    digits = len(rest) - len(rest.lstrip("0123456789"))
    if dot:
        whole += "." + rest[:digits][:6].ljust(6, "0") + rest[digits:]
    try:
        moment = datetime.fromisoformat(whole)
    except ValueError:
        return 0
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    since = moment - datetime(1970, 1, 1, tzinfo=timezone.utc)
    return since.days * 86_400_000 + since.seconds * 1000 + since.microseconds // 1000
