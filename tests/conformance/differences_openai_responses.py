"""Where the Responses API differs from the recordings, on purpose, and how its cases are played.

What is a rule stands in `wire_rules.py`.
"""

from __future__ import annotations

from typing import Any

from agentcore.llm import StreamOptions
from agentcore.llm.openai_responses import ResponsesOptions
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
    options.__class__ = ResponsesOptions
    options.__dict__.update(
        reasoning_effort=raw.get("reasoningEffort"),
        reasoning_summary=raw.get("reasoningSummary"),
        service_tier=raw.get("serviceTier"),
    )
