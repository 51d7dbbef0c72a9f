"""The proxy: what goes along, what stays at home."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentcore.llm import Context, StreamOptions, stream
from agentcore.llm.proxy import ProxyOptions
from agentcore.llm.proxy import stream as stream_proxy
from agentcore.messages import AssistantMessage, UserMessage
from agentcore.models import Model
from agentcore.testing import SseServer

DONE = {"type": "done", "reason": "stop", "usage": {"input": 3, "output": 1, "totalTokens": 4}}


def body(*events: dict[str, Any]) -> bytes:
    return "".join(f"data: {json.dumps(event)}\n\n" for event in events).encode()


def ask(server: SseServer, options: StreamOptions, **fields: Any) -> AssistantMessage:
    model = Model("m", api="some-api", provider="openai", base_url="https://elsewhere.invalid/v1", **fields)
    *_, last = stream_proxy(model, Context("", [UserMessage("hi")]), options)
    return last.message  # type: ignore[union-attr]


def test_keys_and_headers_of_the_provider_stay_at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """C115: only the proxy is contacted, with its own token; neither the environment's key nor the model's headers go to it."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-somebody-else")
    with SseServer(body({"type": "start"}, DONE)) as server:
        options = ProxyOptions(proxy_url=server.url, auth_token="token-1", api_key="sk-given", headers={"x-provider": "1"})
        message = ask(server, options, headers={"authorization": "Bearer model-secret"})
        request = server.requests[0]
    assert (message.stop_reason, message.usage.input) == ("done", 3)
    assert (request.path, request.headers["authorization"]) == ("/api/stream", "Bearer token-1")
    sent = json.dumps([request.headers, request.json])
    assert not any(secret in sent for secret in ("sk-of-somebody-else", "sk-given", "model-secret"))
    assert request.json["options"]["headers"] == {"x-provider": "1"} and "x-provider" not in request.headers


def test_a_model_may_be_a_proxy_by_its_wire_format() -> None:
    """With `api="proxy"`, the base URL is the proxy and the key is its token."""
    with SseServer(body({"type": "start"}, DONE)) as server:
        model = Model("m", api="proxy", provider="house", base_url=server.url)
        *_, last = stream(model, Context("", [UserMessage("hi")]), StreamOptions(api_key="token-2"))
        assert server.requests[0].headers["authorization"] == "Bearer token-2"
    assert last.message.stop_reason == "done"  # type: ignore[union-attr]


def test_a_proxy_without_an_address_is_an_error_that_says_so() -> None:
    """Neither an address in the options nor one of the model: the text names both."""
    *_, last = stream_proxy(Model("m", api="proxy"), Context("", [UserMessage("hi")]), StreamOptions())
    message = last.message  # type: ignore[union-attr]
    assert message.error_message == "no address of a proxy: set ProxyOptions.proxy_url, or base_url of the model"
    assert (message.error_kind, message.error_retryable) == ("setup", False)


def test_the_token_is_in_no_repr() -> None:
    """Options can be printed."""
    assert "token-1" not in repr(ProxyOptions(auth_token="token-1"))


@pytest.mark.parametrize("index", [-1, 2, None, "0"])
def test_a_block_that_cannot_be_is_refused(index: Any) -> None:
    """An index that leaves a gap or is none ends the answer with an error, never with a crash."""
    with SseServer(body({"type": "start"}, {"type": "text_start", "contentIndex": index}, DONE)) as server:
        message = ask(server, ProxyOptions(proxy_url=server.url, auth_token="t"))
    assert (message.stop_reason, message.error_kind, message.content) == ("error", "protocol", [])
