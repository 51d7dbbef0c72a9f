"""Where Gemini's API differs from the recordings, on purpose, and how its cases are played.

What is a rule stands in `wire_rules.py`.
"""

from __future__ import annotations

from typing import Any

from agentcore.llm import StreamOptions
from agentcore.llm.google_generative_ai import GoogleOptions
from agentcore.models import Model
from tests.conformance.cases import Difference

DIFFERENCES: dict[str, Difference] = {}


def adapt(given: dict[str, Any], model: Model, options: StreamOptions) -> None:
    """Play the recorded function that takes this API's own options, which are a class here."""
    if given.get("via", "stream") != "stream":
        return
    options.__class__ = GoogleOptions
    options.__dict__.update(thinking=given["options"].get("thinking"))
