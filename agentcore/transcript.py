"""What a model gets to see of a transcript, and how a transcript is kept well-formed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Union

from agentcore.codec import decode_tagged, dumps, encode
from agentcore.custom_messages import (
    AgentMessage,
    BashExecutionMessage,
    BranchSummaryMessage,
    CompactionSummaryMessage,
    CustomMessage,
    bash_execution_to_text,
    branch_summary_to_text,
    compaction_summary_to_text,
)
from agentcore.messages import (
    AssistantMessage,
    ImageContent,
    Message,
    TextContent,
    ToolResultMessage,
    UserMessage,
)

PromptInput = Union[str, AgentMessage, Sequence[AgentMessage]]
"""What `prompt` takes: a text, a message, or a list of messages."""


def normalize_prompt_input(value: PromptInput, images: Sequence[ImageContent] = ()) -> list[AgentMessage]:
    """Return a prompt as a list of messages: a string becomes a user message with the images behind its text.

    Raises:
        TypeError: The value is neither a string nor a message nor a list of messages, or images come without a text.
    """
    raise NotImplementedError


def convert_to_llm(messages: Iterable[AgentMessage]) -> list[Message]:
    """Return the messages that a model gets: the custom ones as user messages, unknown ones left out.

    Unpaired tool calls stay as they are; see `pair_tool_results`. As the reference's `convertToLlm`.
    """
    raise NotImplementedError


def pair_tool_results(messages: Sequence[Message]) -> list[Message]:
    """Return the messages with exactly one result for every call, right behind the answer that made it.

    A call without a result gets an error result, `Operation aborted`; a result without a call is left out; failed and aborted answers …
    """
    raise NotImplementedError


def dump_messages(messages: Sequence[AgentMessage]) -> str:
    """Return a conversation as JSON text, a list; `load_messages` reads it."""
    return dumps([encode(message) for message in messages])


def load_messages(text: str | bytes) -> list[AgentMessage]:
    """Read what `dump_messages` wrote."""
    return [decode_tagged(raw) for raw in json.loads(text)]
