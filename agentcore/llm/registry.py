"""`stream`: picks the wire format by `model.api`, and imports it when it is first used. And the ways to a `Model`."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from agentcore.events import AssistantMessageEvent, ErrorEvent
from agentcore.llm.request import Context, StreamFn, StreamOptions
from agentcore.messages import AssistantMessage
from agentcore.models import Model

_MODULES = {
    "openai-completions": "agentcore.llm.openai_completions",
    "openai-responses": "agentcore.llm.openai_responses",
    "anthropic-messages": "agentcore.llm.anthropic_messages",
    "google-generative-ai": "agentcore.llm.google_generative_ai",
    "proxy": "agentcore.llm.proxy",
}
_stream_fns: dict[str, StreamFn] = {}


def stream(model: Model | None, context: Context, options: StreamOptions | None = None) -> Iterator[AssistantMessageEvent]:
    """Ask a model, over the wire format that `model.api` names.

    Returns:
        The events of the answer. Nothing is sent before the first is asked for, and nothing is raised: whatever fails is an
        `ErrorEvent` at the end.

    Threads:
        The request runs on the thread that reads; setting `options.signal` from any thread ends it.
    """
    if model is None:
        text = 'no model was chosen: give one, such as Agent(model="openai/gpt-5-mini") or Agent(model=openai_compatible(url, id))'
        yield _refuse(Model("none"), text)
        return
    stream_fn = _stream_fns.get(model.api) or _find(model.api)
    if stream_fn is None:
        known = ", ".join(sorted({*_MODULES, *_stream_fns}))
        yield _refuse(model, f"no wire format is called {model.api!r}: model.api must be one of {known}")
        return
    yield from stream_fn(model, context, options or StreamOptions())


def _find(api: str) -> StreamFn | None:
    module = _MODULES.get(api)
    if module is None:
        return None
    found: StreamFn = importlib.import_module(module).stream
    _stream_fns[api] = found
    return found


def _refuse(model: Model, text: str) -> ErrorEvent:
    message = AssistantMessage([], api=model.api, provider=model.provider, model=model.id, stop_reason="error", error_message=text)
    message.error_kind = "setup"
    message.error_retryable = False
    return ErrorEvent(message)


def register_wire_format(api: str, stream_fn: StreamFn) -> Callable[[], None]:
    """Add a wire format, or replace one: models with this `api` are asked by `stream_fn`.

    Returns:
        A function that takes it out again.
    """

    def unregister() -> None:
        if _stream_fns.get(api) is stream_fn:
            del _stream_fns[api]

    _stream_fns[api] = stream_fn
    return unregister


def openai_compatible(base_url: str, model_id: str, *, api_key: str | None = None, **fields: Any) -> Model:
    """Describe a model of a server that speaks OpenAI's chat completions: Ollama, vLLM, llama.cpp, LM Studio, a gateway, …

    Args:
        base_url: The address before `/chat/completions`, mostly with `/v1` at its end: `http://localhost:11434/v1`. A name and a
            password in it (`https://name:password@host/v1`) go out as a header, as with `requests`, and do not show.
        model_id: The model's name at that server.
        api_key: Goes out with every request to this server, and to no other. Without one, the key of `fields["provider"]` is
            looked up; a server that needs none gets none.
        fields: Further fields of `Model`: `provider`, `context_window`, `input`, `compat`, …

    Raises:
        ValueError: `base_url` is no address of the web.

    Example:
        >>> openai_compatible("http://localhost:11434/v1", "llama3.2").provider
        'openai-compatible'
    """
    is_address = isinstance(base_url, str) and re.match(r"https?://[^\s/]\S*$", base_url, re.IGNORECASE)
    if not is_address:
        raise ValueError(f"base_url must begin with http:// or https://, such as http://localhost:11434/v1, not {base_url!r}")
    given: dict[str, Any] = {"provider": "openai-compatible", "api": "openai-completions", **fields}
    scheme, mark, rest = base_url.partition("://")
    login, at, _ = rest.partition("/")[0].rpartition("@")
    if at:
        import base64
        from urllib.parse import unquote

        name, _, password = login.partition(":")
        token = base64.b64encode(f"{unquote(name)}:{unquote(password)}".encode()).decode()
        given["headers"] = {"authorization": f"Basic {token}", **(given.get("headers") or {})}
        base_url = scheme + mark + rest[len(login) + 1 :]
    if api_key is not None:
        given["headers"] = {**(given.get("headers") or {}), "authorization": f"Bearer {api_key.strip()}"}
    return Model(model_id, base_url=base_url.rstrip("/"), **given)


def get_model(name: str, model_id: str | None = None) -> Model:
    """Return a model of the catalogue: `get_model("openai/gpt-5-mini")` or `get_model("openai", "gpt-5-mini")`.

    Raises:
        ValueError: The catalogue has no such provider. (An id that it does not know at a provider that it does know is taken.)
    """
    from agentcore.llm import catalogue

    found: Model = catalogue.get_model(name, model_id)
    return found


def list_models(provider: str | None = None) -> list[Model]:
    """Return the models of the catalogue, or those of one provider."""
    from agentcore.llm import catalogue

    found: list[Model] = catalogue.list_models(provider)
    return found


def register_model(model: Model) -> None:
    """Add a model to the catalogue, or replace the one of the same provider and id."""
    from agentcore.llm import catalogue

    catalogue.register_model(model)


def close_connections() -> None:
    """Close all idle connections to providers; new ones are made as they are needed."""
    connections = sys.modules.get("agentcore.llm.connections")
    if connections is not None:  # else nobody has made one yet
        connections.close_connections()


def wire_format_names() -> Iterable[str]:
    """Return the names that `Model.api` may have."""
    return sorted({*_MODULES, *_stream_fns})
