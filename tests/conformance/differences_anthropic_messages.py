"""Where the Messages API differs from the recordings, on purpose, and how its cases are played.

What is a rule stands in `wire_rules.py`.
"""

from __future__ import annotations

from typing import Any

from agentcore.llm import StreamOptions
from agentcore.llm.anthropic_messages import AnthropicOptions
from agentcore.models import Model
from tests.conformance.cases import Difference

DIFFERENCES: dict[str, Difference] = {}


def adapt(given: dict[str, Any], model: Model, options: StreamOptions) -> None:
    """Play the recorded function that takes this API's own options, which are a class here."""
    raw = given["options"]
    if (raw.get("env") or {}).get("PI_CACHE_RETENTION"):
        options.cache_retention = raw["env"]["PI_CACHE_RETENTION"]
    if given.get("via", "stream") != "stream":
        return
    options.__class__ = AnthropicOptions
    options.__dict__.update(
        thinking_enabled=raw.get("thinkingEnabled"),
        thinking_budget_tokens=raw.get("thinkingBudgetTokens"),
        thinking_display=raw.get("thinkingDisplay", "summarized"),
        effort=raw.get("effort"),
        interleaved_thinking=raw.get("interleavedThinking", True),
    )


def normalize_body(body: Any) -> Any:
    """A user message of one text block goes out as a string: in memory, a string is one text block."""
    for message in body.get("messages") or ():
        content = message.get("content")
        if (
            message.get("role") == "user"
            and isinstance(content, list)
            and len(content) == 1
            and set(content[0]) == {"type", "text"}
        ):
            message["content"] = content[0]["text"]
    return body
