"""How large a context is, in tokens: what the last answer was counted to hold, and a guess for what came after it.

A guess takes four characters for a token, an image for 1,200, and a tool call for the JSON of its arguments. Characters are code
points, so a text of emoji counts half of what a JavaScript program would take it for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agentcore.codec import dumps
from agentcore.custom_messages import (
    AgentMessage,
    BashExecutionMessage,
    BranchSummaryMessage,
    CompactionSummaryMessage,
    CustomMessage,
)
from agentcore.llm.request import Context, ToolSpec
from agentcore.messages import (
    AssistantMessage,
    ImageContent,
    MessageContent,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
)

CHARS_PER_TOKEN = 4
CHARS_PER_IMAGE = 4800


@dataclass(frozen=True)
class ContextTokens:
    """The size of a context.

    `tokens` is all of it: `usage_tokens`, as the provider counted them for the answer at `last_usage_index` (None where no answer
    counts), and `trailing_tokens`, the guess for the rest.
    """

    tokens: int
    usage_tokens: int
    trailing_tokens: int
    last_usage_index: int | None


def calculate_context_tokens(usage: Usage) -> int:
    """Return the size of the context after an answer, as the provider counted it."""
    return usage.total_tokens or usage.input + usage.output + usage.cache_read + usage.cache_write


def estimate_tokens(message: AgentMessage) -> int:
    """Return a guess at the size of a message; 0 for one that no model gets."""
    return _to_tokens(_count_chars(message))


def _to_tokens(chars: int) -> int:
    return -(-chars // CHARS_PER_TOKEN)


def _count_chars(message: AgentMessage) -> int:
    if isinstance(message, (UserMessage, AssistantMessage, ToolResultMessage, CustomMessage)):
        return sum(map(_count_block, message.content))
    if isinstance(message, BashExecutionMessage):
        return len(message.command) + len(message.output)
    if isinstance(message, (BranchSummaryMessage, CompactionSummaryMessage)):
        return len(message.summary)
    return 0


def _count_block(block: MessageContent) -> int:
    if isinstance(block, TextContent):
        return len(block.text)
    if isinstance(block, ThinkingContent):
        return len(block.thinking)
    if isinstance(block, ImageContent):
        return CHARS_PER_IMAGE
    if isinstance(block, ToolCall):
        return len(block.name) + len(dumps(block.arguments))
    return 0


def estimate_context_tokens(messages: Sequence[AgentMessage]) -> ContextTokens:
    """Return the size of a transcript.

    The usage of an answer counts if the answer is whole and no message before it is younger: an answer that a compaction kept was
    counted when the context was another one.
    """
    index = _last_usage_index(messages)
    if index is None:
        trailing = sum(map(estimate_tokens, messages))
        return ContextTokens(trailing, 0, trailing, None)
    answer = messages[index]
    assert isinstance(answer, AssistantMessage)
    counted = calculate_context_tokens(answer.usage)
    trailing = sum(estimate_tokens(message) for message in messages[index + 1 :])
    return ContextTokens(counted + trailing, counted, trailing, index)


def estimate_request_context_tokens(context: Context | Sequence[AgentMessage]) -> ContextTokens:
    """Return the size of a request: that of its messages, and of the system prompt and the tools where no usage has them in it."""
    if not isinstance(context, Context):
        return estimate_context_tokens(context)
    size = estimate_context_tokens(context.messages)
    tools = context.tools or ()
    if size.last_usage_index is None:
        more = _to_tokens(len(context.system_prompt)) + _tool_tokens(tools)
    else:
        # Tools that a result brought after the usage are not in it.
        added: set[str] = set()
        for message in context.messages[size.last_usage_index + 1 :]:
            added.update(getattr(message, "added_tool_names", None) or ())
        more = _tool_tokens([tool for tool in tools if tool.name in added])
    return ContextTokens(size.tokens + more, size.usage_tokens, size.trailing_tokens + more, size.last_usage_index)


def _tool_tokens(tools: Sequence[ToolSpec]) -> int:
    if not tools:
        return 0
    listed = [{"name": tool.name, "description": tool.description, "parameters": tool.parameters} for tool in tools]
    return _to_tokens(len(dumps(listed)))


def _last_usage_index(messages: Sequence[AgentMessage]) -> int | None:
    # A summary and what it kept can have the same millisecond; then what was kept is the older one.
    found: int | None = None
    youngest: float = float("-inf")
    for index, message in enumerate(messages):
        is_summary = isinstance(message, CompactionSummaryMessage)
        timestamp = getattr(message, "timestamp", 0)
        if (
            isinstance(message, AssistantMessage)
            and message.stop_reason not in ("error", "aborted")
            and timestamp >= youngest
            and calculate_context_tokens(message.usage) > 0
        ):
            found = index
        youngest = max(youngest, timestamp + 0.5 if is_summary else timestamp)
    return found
