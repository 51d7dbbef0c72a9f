"""Messages that a transcript keeps beside those spoken with a model, and their text for a model.

`bash_execution_to_text` and `convert_to_llm` (`agentcore.transcript`) turn them into user messages. Timestamps are integer
milliseconds since the Unix epoch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Union

from agentcore.codec import OMIT_NONE, Json, tagged_blocks
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


@dataclass
class CompactionSummaryMessage(Json):
    """Stands for all that was compacted. `tokens_before` is the size of the context before that."""

    summary: str
    tokens_before: int
    timestamp: int = field(default_factory=now_ms)
    role: Literal["compactionSummary"] = "compactionSummary"


@dataclass
class BranchSummaryMessage(Json):
    """Stands for a branch that was left. `from_id` is the entry at which it was left."""

    summary: str
    from_id: str
    timestamp: int = field(default_factory=now_ms)
    role: Literal["branchSummary"] = "branchSummary"


@dataclass(init=False)
class CustomMessage(Json):
    """A message of an extension. The model reads `content` as a user message; `display` and `details` are for the program."""

    custom_type: str
    content: list[TextContent | ImageContent] = field(metadata=tagged_blocks())
    display: bool = True
    details: Any = field(default=None, metadata=OMIT_NONE)
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
        return content_text(self.content)


@dataclass
class OtherMessage(Json):
    """A message of a role that the library does not know. `fields` is all but its role and time, as it was.

    No model gets it unless `convert_to_llm` makes a message of it.
    """

    role: str = "*"
    fields: dict[str, Any] = field(default_factory=dict)
    timestamp: int = field(default_factory=now_ms)

    def _encode(self) -> dict[str, Any]:
        return {"role": self.role, **self.fields, "timestamp": self.timestamp}

    @classmethod
    def _decode(cls, raw: Mapping[str, Any]) -> OtherMessage:
        fields = {key: value for key, value in raw.items() if key not in ("role", "timestamp")}
        return cls(raw["role"], fields, raw["timestamp"] if "timestamp" in raw else now_ms())

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
