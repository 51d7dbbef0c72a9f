"""What is known of a model: where it is, what it takes, what it costs."""

from __future__ import annotations

import re
from dataclasses import field, fields
from typing import Any, Literal, get_args

from agentcore.codec import HIDDEN, OMIT_NONE, Json, anything, nested
from agentcore.lazy_dataclasses import dataclass

ThinkingLevel = Literal["off", "minimal", "low", "medium", "high", "xhigh", "max"]
"""How much a reasoning model thinks before it answers. What a level means is the provider's affair."""

THINKING_LEVELS: tuple[ThinkingLevel, ...] = get_args(ThinkingLevel)


@dataclass
class ModelCost(Json):
    """Prices in US dollars for a million tokens.

    `tiers` are prices that hold above a number of input tokens (input, cache reads and cache writes together):
    `{"input_tokens_above": 200000, "input": 6, "output": 22.5, "cache_read": 0.6, "cache_write": 7.5}`.
    """

    input: float = 0.0
    output: float = 0.0
    cache_read: float = 0.0
    cache_write: float = 0.0
    tiers: list[dict[str, float]] | None = field(default=None, metadata=OMIT_NONE)


@dataclass
class Model(Json):
    """A model at an address, and how to talk to it.

    `api` names the wire format (`openai-completions`, `anthropic-messages`, …), `provider` whose key is used.
    `context_window` and `max_tokens` (the longest answer) are in tokens, 0 where they are not known. `headers` go out
    with every request. `compat` says how a server bends the wire format. `thinking_level_map` maps a thinking level to
    the provider's word for it; None there means that the model does not have the level.
    """

    id: str
    name: str = ""
    api: str = "openai-completions"
    provider: str = ""
    base_url: str = ""
    reasoning: bool = False
    input: list[Literal["text", "image"]] = field(default_factory=lambda: ["text"])
    cost: ModelCost = field(default_factory=ModelCost, metadata=nested(ModelCost))
    context_window: int = 0
    max_tokens: int = 0
    headers: dict[str, str] | None = field(default=None, repr=False, metadata=HIDDEN)
    compat: dict[str, Any] | None = field(default=None, metadata=anything(omit_none=True))
    thinking_level_map: dict[str, str | None] | None = field(default=None, metadata=OMIT_NONE)

    def __repr__(self) -> str:
        # Some put a key into the address; headers are not shown at all.
        address = re.sub(r"(?<=//)[^/@]*@", "***@", self.base_url)
        address = re.sub(r"([?&][^=&]*(?:key|token|secret|auth|sig)[^=&]*=)[^&#]+", r"\1***", address, flags=re.IGNORECASE)
        shown = {item.name: getattr(self, item.name) for item in fields(self) if item.repr}
        shown["base_url"] = address
        return f"Model({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    def __post_init__(self) -> None:
        if not isinstance(self.id, str) or not self.id:
            raise ValueError("a model needs an id, such as Model('gpt-5-mini', provider='openai')")
        if not self.name:
            self.name = self.id
