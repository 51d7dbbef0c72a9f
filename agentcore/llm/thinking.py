"""How much a model thinks, and how long its answer may be.

A thinking level is what a user says; each wire format turns it into what its provider understands: a budget of tokens, a
word for the effort, or nothing. A level that a model does not have becomes the nearest one that it has, the higher one first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

from agentcore.codec import dumps
from agentcore.llm.request import Context, StreamOptions, ToolSpec
from agentcore.messages import AssistantMessage, ImageContent, Message, TextContent, ThinkingContent, ToolCall, Usage
from agentcore.models import THINKING_LEVELS, Model, ThinkingLevel

BUDGETS: Mapping[str, int] = {"minimal": 1024, "low": 2048, "medium": 8192, "high": 16384}
"""Tokens of thinking by level, for models that count them."""

MIN_ANSWER_TOKENS = 1024
"""What thinking leaves of the token limit for the answer itself."""

CONTEXT_RESERVE_TOKENS = 4096
"""Kept free in the context window, because the size of a request is only estimated."""

_CHARS_PER_TOKEN = 4
_IMAGE_TOKENS = 1200
_EXTRA_LEVELS = ("xhigh", "max")  # a model has these only if its map names them


def supported_thinking_levels(model: Model) -> list[ThinkingLevel]:
    """Return the thinking levels that a model has, in rising order."""
    if not model.reasoning:
        return ["off"]
    known = model.thinking_level_map or {}
    levels: list[ThinkingLevel] = []
    for level in THINKING_LEVELS:
        is_there = known.get(level) is not None if level in known or level in _EXTRA_LEVELS else True
        if is_there:
            levels.append(level)
    return levels


def clamp_thinking_level(model: Model, level: str | None) -> ThinkingLevel:
    """Return the level that a model has for the one asked for: itself, else the next higher one, else the next lower one."""
    levels = supported_thinking_levels(model)
    if not levels:
        return "off"
    for known in levels:
        if known == level:
            return known
    if level not in THINKING_LEVELS:
        return levels[0]
    asked = THINKING_LEVELS.index(level)
    higher = [known for known in levels if THINKING_LEVELS.index(known) > asked]
    return higher[0] if higher else levels[-1]


def requested_level(model: Model, options: StreamOptions) -> ThinkingLevel | None:
    """Return the level at which a model thinks in this request; None where it does not think."""
    if options.reasoning is None or options.reasoning == "off":
        return None
    level = clamp_thinking_level(model, options.reasoning)
    return None if level == "off" else level


def adjust_max_tokens(
    base: int | None, model_max: int, level: str, custom_budgets: Mapping[str, int] | None = None
) -> tuple[int, int]:
    """Return the token limit and the thinking budget of a request to a model that counts both together.

    The budget comes on top of the caller's limit, and both stay within the model's; levels above `high` count as `high`.
    """
    name = "high" if level in _EXTRA_LEVELS else level
    budget = (custom_budgets or {}).get(name, BUDGETS.get(name, BUDGETS["high"]))
    limit = model_max if base is None else min(base + budget, model_max)
    if limit <= budget:
        budget = max(0, limit - MIN_ANSWER_TOKENS)
    return limit, budget


def clamp_max_tokens(model: Model, context: Context, max_tokens: int) -> int:
    """Return a token limit that fits into what the context leaves of the model's window, at least 1."""
    if model.context_window <= 0:
        return max(1, max_tokens)
    room = model.context_window - estimate_request_tokens(context) - CONTEXT_RESERVE_TOKENS
    return min(max_tokens, max(1, room))


def answer_limit(model: Model, context: Context, options: StreamOptions) -> int | None:
    """Return the token limit of a request: the caller's or the model's, within the window; None where neither is known."""
    limit = options.max_tokens if options.max_tokens is not None else (model.max_tokens or None)
    return None if limit is None else clamp_max_tokens(model, context, limit)


# --- the size of a request -------------------------------------------------------------------------------------------


def estimate_request_tokens(context: Context) -> int:
    """Estimate the size of a request: what the last answer was counted to hold, and a guess for what came after it.

    A usage that is older than a message before it stands for another context (the history was edited) and does not count.
    """
    messages = context.messages
    index = _last_usage(messages)
    if index is None:
        size = _tokens(len(context.system_prompt)) if context.system_prompt else 0
        size += _tool_tokens(context.tools or ())
        return size + sum(_estimate(message) for message in messages)
    answer = messages[index]
    assert isinstance(answer, AssistantMessage)
    size = context_tokens(answer.usage)
    added: set[str] = set()
    for message in messages[index + 1 :]:
        size += _estimate(message)
        added.update(getattr(message, "added_tool_names", None) or ())
    if added:
        size += _tool_tokens([tool for tool in context.tools or () if tool.name in added])
    return size


def context_tokens(usage: Usage) -> int:
    """Return the size of the context after an answer."""
    return usage.total_tokens or usage.input + usage.output + usage.cache_read + usage.cache_write


def _last_usage(messages: Sequence[Message]) -> int | None:
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if not isinstance(message, AssistantMessage) or message.stop_reason in ("error", "aborted"):
            continue
        if context_tokens(message.usage) <= 0:
            continue
        if message.timestamp >= max(map(_timestamp_of, messages[:index]), default=0):
            return index
    return None


_timestamp_of = attrgetter("timestamp")


def _estimate(message: Any) -> int:
    chars = tokens = 0
    for block in message.content:
        if isinstance(block, TextContent):
            chars += len(block.text)
        elif isinstance(block, ThinkingContent):
            chars += len(block.thinking)
        elif isinstance(block, ToolCall):
            chars += len(block.name) + len(dumps(block.arguments))
        elif isinstance(block, ImageContent):
            tokens += _IMAGE_TOKENS
    return tokens + _tokens(chars)


def _tool_tokens(tools: Sequence[ToolSpec]) -> int:
    if not tools:
        return 0
    listed = [{"name": tool.name, "description": tool.description, "parameters": tool.parameters} for tool in tools]
    return _tokens(len(dumps(listed)))


def _tokens(chars: int) -> int:
    return -(-chars // _CHARS_PER_TOKEN)
