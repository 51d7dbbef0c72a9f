"""Asks models: one `stream` for all wire formats, models and their catalogue, API keys.

The room knows the words and nothing else of the library. What needs a library of its own (`requests`, …) is imported with the first
request, so that importing the room costs nothing.
"""

from agentcore.llm.registry import (
    close_connections,
    get_model,
    list_models,
    openai_compatible,
    register_model,
    register_wire_format,
    stream,
)
from agentcore.llm.request import Context, ProviderResponse, StreamFn, StreamOptions, ToolSpec

__all__ = [
    "Context",
    "ProviderResponse",
    "StreamFn",
    "StreamOptions",
    "ToolSpec",
    "close_connections",
    "get_model",
    "list_models",
    "openai_compatible",
    "register_model",
    "register_wire_format",
    "stream",
]
