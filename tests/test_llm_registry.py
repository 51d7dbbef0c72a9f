"""Ways to a model, and to the wire format that asks it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from agentcore.events import AssistantMessageEvent, DoneEvent
from agentcore.llm import Context, StreamOptions, openai_compatible, register_wire_format, stream
from agentcore.messages import AssistantMessage, TextContent, UserMessage
from agentcore.models import Model
from agentcore.testing import SseServer, says


def test_a_compatible_server_is_described_by_address_and_id() -> None:
    """`openai_compatible` gives a model of chat completions at that address, and takes further fields."""
    model = openai_compatible("http://localhost:11434/v1/", "llama3.2", context_window=8192, input=["text", "image"])
    assert (model.api, model.provider, model.base_url) == ("openai-completions", "openai-compatible", "http://localhost:11434/v1")
    assert (model.id, model.name, model.context_window, model.input) == ("llama3.2", "llama3.2", 8192, ["text", "image"])


def test_the_key_of_a_compatible_server_goes_with_the_model_but_never_shows() -> None:
    """A key given with the address is sent as a bearer token, and is in no repr and no JSON."""
    with SseServer(says("x")) as server:
        model = openai_compatible(server.url + "/v1", "m", api_key="sk-own-0123456789")
        *_, last = stream(model, Context("", [UserMessage("hi")]), StreamOptions())
        assert last.message.text == "x"  # type: ignore[union-attr]
        assert server.requests[0].headers["authorization"] == "Bearer sk-own-0123456789"
    assert "sk-own" not in repr(model) and "sk-own" not in model.to_json()


def test_a_login_in_the_address_goes_with_the_model_but_never_shows() -> None:
    """A name and a password in front of the host are sent as `requests` sends them, and are in no repr and no JSON."""
    with SseServer(says("x")) as server:
        model = openai_compatible(server.url.replace("//", "//me:pass%20word@") + "/v1", "llama3.2")
        *_, last = stream(model, Context("", [UserMessage("hi")]), StreamOptions())
        assert last.message.text == "x"  # type: ignore[union-attr]
        assert server.requests[0].headers["authorization"] == "Basic bWU6cGFzcyB3b3Jk"
    assert model.base_url == server.url + "/v1"
    assert "pass" not in repr(model) + model.to_json()


@pytest.mark.parametrize("base_url", ["localhost:11434", "", "ftp://x", "http://", "http://x y", None])
def test_an_address_that_is_none_is_refused(base_url: Any) -> None:
    """What does not begin with http:// or https:// is a ValueError that shows how it should look."""
    with pytest.raises(ValueError, match=r"^base_url must begin with http:// or https://, such as http://localhost:11434/v1, not "):
        openai_compatible(base_url, "m")


def test_a_wire_format_can_be_added() -> None:
    """A registered function is asked for models of its `api`, until it is taken out again."""

    def mine(model: Model, context: Context, options: StreamOptions) -> Iterator[AssistantMessageEvent]:
        yield DoneEvent(AssistantMessage([TextContent(model.id)]))

    unregister = register_wire_format("mine", mine)
    (event,) = stream(Model("m1", api="mine"), Context())
    assert event.message.text == "m1"  # type: ignore[union-attr]
    unregister()
    (event,) = stream(Model("m1", api="mine"), Context())
    assert event.message.error_message.startswith("no wire format is called 'mine'")  # type: ignore[union-attr]


def test_importing_llm_brings_no_http_library() -> None:
    """The room can be imported without requests, urllib3 and sseclient; the first request brings them."""
    code = "import sys, agentcore.llm; print([name for name in ('requests', 'urllib3', 'sseclient', 'ssl') if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert result.stdout.strip() == "[]"
