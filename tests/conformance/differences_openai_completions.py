"""Where chat completions differ from the recordings, on purpose, and how its cases are played.

What is a rule stands in `wire_rules.py`.
"""

from __future__ import annotations

from typing import Any

from agentcore.llm import StreamOptions
from agentcore.models import Model
from tests.conformance.cases import Difference

DIFFERENCES: dict[str, Difference] = {}


def adapt(given: dict[str, Any], model: Model, options: StreamOptions) -> None:
    """Play the recorded function that takes this API's own options: it neither fits the level nor sets a limit of its own."""
    retention = (given["options"].get("env") or {}).get("PI_CACHE_RETENTION")
    if retention:
        options.cache_retention = retention
    if given.get("via", "stream") != "stream":
        return
    if options.max_tokens is None:
        model.max_tokens = 0
    model.context_window = 0
    effort = given["options"].get("reasoningEffort")
    if effort is not None:
        options.reasoning = effort
        words = dict(model.thinking_level_map or {})
        if words.get(effort) is None and (effort in words or effort in ("xhigh", "max")):
            words[effort] = effort
        if words:
            model.thinking_level_map = words


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
