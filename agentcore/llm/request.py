"""What a stream function takes: a model, a context, options."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, Literal, Protocol, TypeVar

from agentcore.abort import AbortSignal
from agentcore.callbacks import fit_callback
from agentcore.events import AssistantMessageEvent
from agentcore.lazy_dataclasses import dataclass
from agentcore.messages import Message
from agentcore.models import Model, ThinkingLevel


class ToolSpec(Protocol):
    """All that a wire format needs to know of a tool."""

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    @property
    def parameters(self) -> dict[str, Any]: ...


@dataclass
class Context:
    """What a model is asked: the system prompt, the messages, and the tools that it may call (None: no list was given)."""

    system_prompt: str = ""
    messages: Sequence[Message] = ()
    tools: Sequence[ToolSpec] | None = None


@dataclass
class ProviderResponse:
    """What `on_response` gets before the body is read: the status, and the headers with names in lower case."""

    status: int
    headers: dict[str, str]


@dataclass
class StreamOptions:
    """How a request is made. Durations are in seconds; None leaves a setting to the wire format or the provider.

    Args:
        signal: Ends the request, wherever it is.
        api_key: The key; else `get_api_key` of the agent or the environment give it.
        reasoning: The thinking level; None and `"off"` mean no thinking.
        thinking_budgets: Tokens for a thinking level, where the provider counts them: `{"low": 2048}`.
        temperature, max_tokens, stop, tool_choice: As the provider has them. `tool_choice` is `"auto"`, `"none"`,
            `"required"` or the name of a tool.
        session_id: Stands for the conversation, for the provider's cache. `cache_retention` is how long it keeps it.
        metadata: Passed on where the provider has such a field (`{"user_id": …}`).
        headers, extra_body: Added to the request, replacing what is there; a header of None takes one away.
        connect_timeout: For the connection alone (default 10). `timeout`: for the headers of the answer (default 600).
        stall_timeout: The longest wait between two events of a stream (default 300); None or 0 turns it off.
        max_retries: Tries after the first one, before the answer has begun. `max_retry_delay_ms`: a provider that asks for
            a longer wait than this (default 60,000) is not tried again.
        on_payload: `(payload, model)`, before the request: may change the body or return another one.
        on_response: `(response, model)`, when the headers are there.
        transport: Understood for the sake of the reference; there is only server-sent events.

    Raises:
        TypeError: A hook needs more arguments than there are.
    """

    signal: AbortSignal | None = None
    api_key: str | None = field(default=None, repr=False)
    reasoning: ThinkingLevel | None = None
    thinking_budgets: dict[str, int] | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    stop: str | Sequence[str] | None = None
    tool_choice: str | None = None
    session_id: str | None = None
    cache_retention: Literal["none", "short", "long"] | None = None
    metadata: dict[str, Any] | None = None
    headers: Mapping[str, str | None] | None = field(default=None, repr=False)
    extra_body: dict[str, Any] | None = None
    connect_timeout: float = 10.0
    timeout: float | None = 600.0
    stall_timeout: float | None = 300.0
    max_retries: int = 2
    max_retry_delay_ms: int | None = None
    on_payload: Callable[..., Any] | None = None
    on_response: Callable[..., Any] | None = None
    transport: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.stop, str):
            self.stop = [self.stop]
        for name, value in (("on_payload", self.on_payload), ("on_response", self.on_response)):
            if value is not None:
                fit_callback(value, (name.removeprefix("on_"), "model"), what=name)


OptionsT = TypeVar("OptionsT", bound=StreamOptions)


def widen_options(options: StreamOptions, kind: type[OptionsT]) -> OptionsT:
    """Return plain options as those of one wire format, whose further fields keep their defaults."""
    return kind(**{name: getattr(options, name) for name in StreamOptions.__dataclass_fields__})


StreamFn = Callable[[Model, Context, StreamOptions], Iterable[AssistantMessageEvent]]
"""Asks a model. A plain generator will do.

It runs on the run thread, which asks for the next event when all listeners have had the last one. The last event is a `DoneEvent`
or an `ErrorEvent`; an iterable that ends without one is asked for its `result()`. It should heed `options.signal`.
"""
