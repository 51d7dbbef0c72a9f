"""Where the proxy's protocol differs from the recordings, on purpose, and how its cases are played.

What is a rule stands in `wire_rules.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from agentcore.events import AssistantMessageEvent
from agentcore.llm import Context, StreamOptions, proxy, register_wire_format
from agentcore.llm.proxy import ProxyOptions
from agentcore.models import Model
from tests.conformance.cases import Difference

DIFFERENCES: dict[str, Difference] = {}


def adapt(given: dict[str, Any], model: Model, options: StreamOptions) -> None:
    """The recorded proxy stands for whatever wire format the model has; it is at the address of the test's server."""

    def once(model: Model, context: Context, options: StreamOptions) -> Iterator[AssistantMessageEvent]:
        unregister()
        return proxy.stream(model, context, options)

    unregister = register_wire_format(model.api, once)
    raw = given["options"]
    options.__class__ = ProxyOptions
    options.__dict__.update(proxy_url=given["server"], auth_token=raw.get("authToken"), transport=raw.get("transport"))
