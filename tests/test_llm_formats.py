"""What holds for every wire format: no empty fields, ids and thoughts that come back as they went out, keys in headers only."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from agentcore.errors import ErrorKind
from agentcore.llm import Context, StreamOptions, stream
from agentcore.messages import (
    AssistantMessage,
    ImageContent,
    Message,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from agentcore.models import Model
from agentcore.testing import Answer, SseServer, answer, calls, ends, says, thinks

APIS = ("openai-completions", "openai-responses", "anthropic-messages", "google-generative-ai")
FOUR = pytest.mark.parametrize("api", APIS)
KEY = "K-SECRET-0123456789"


class Read:
    """A tool as a wire format sees it."""

    name = "read"
    description = "Read a file."
    parameters = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}  # noqa: RUF012


def ask(
    server: SseServer,
    api: str,
    messages: list[Message] | None = None,
    *,
    tools: Any = (),
    model: Model | None = None,
    **options: Any,
) -> AssistantMessage:
    """Ask once and return the last message."""
    settings = {"api_key": KEY, "max_retries": 0, "stall_timeout": 5, **options}
    context = Context("", messages if messages is not None else [UserMessage("hi")], tools)
    *_, last = stream(model or server.model(api, provider="house", reasoning=True), context, StreamOptions(**settings))
    return last.message  # type: ignore[union-attr]


@FOUR
@pytest.mark.parametrize("tools", [None, ()])
def test_no_tools_means_no_field(api: str, tools: Any) -> None:
    """C038: an agent without tools sends no empty list, which some servers refuse, and no tool choice."""
    with SseServer(says("ok")) as server:
        assert ask(server, api, tools=tools, tool_choice="required").text == "ok"
        assert {"tools", "toolConfig", "tool_choice"}.isdisjoint(server.requests[0].json)


@FOUR
def test_a_call_without_arguments_is_an_empty_object(api: str) -> None:
    """C026: no argument text is `{}`, and goes back as an object, never as an empty text."""
    with SseServer(calls("read"), says("ok")) as server:
        first = ask(server, api, tools=[Read])
        (call,) = first.tool_calls
        assert (call.arguments, call.raw_arguments, first.stop_reason) == ({}, None, "toolUse")
        ask(server, api, [UserMessage("hi"), first, ToolResultMessage(call.id, "read", [TextContent("x")])], tools=[Read])
        body = json.dumps(server.requests[1].json)
    expected = {
        "openai-completions": r'"arguments": "{}"',
        "openai-responses": r'"arguments": "{}"',
        "anthropic-messages": r'"input": {}',
        "google-generative-ai": r'"args": {}',
    }
    assert expected[api] in body


@FOUR
def test_an_answer_that_reached_its_limit_says_so(api: str) -> None:
    """C055: a cut answer ends with `length`, also with a call in it."""
    with SseServer(calls("read", path="a") + ends("length")) as server:
        assert ask(server, api, tools=[Read]).stop_reason == "length"


@FOUR
def test_thoughts_and_calls_go_back_in_order_and_signed(api: str) -> None:
    """C032: what the same model thought goes back where it stood; the transcript is sent, not regrouped."""
    with SseServer(thinks("first", signature="c2ln") + calls("read", path="a"), says("ok")) as server:
        model = server.model(api, provider="house", reasoning=True)
        first = ask(server, api, tools=[Read], model=model)
        (call,) = first.tool_calls
        assert [block.type for block in first.content[:2]] == ["thinking", "tool"]
        history: list[Message] = [UserMessage("hi"), first, ToolResultMessage(call.id, "read", [TextContent("x")])]
        ask(server, api, history, tools=[Read], model=model)
        sent = server.requests[1].json
    body = json.dumps(next(sent[name] for name in ("messages", "input", "contents") if name in sent))
    assert body.index("first") < body.index("read")
    assert "<thinking>" not in body


@FOUR
def test_ids_of_one_provider_are_taken_by_another(api: str) -> None:
    """C035: long foreign ids are rewritten to what the API accepts, alike for call and result, and the way back works too."""
    id = "call_ab|fc_" + "x" * 78 + "_"
    first = AssistantMessage(
        [ToolCall(id, "read", {"path": "a"})], api="other", provider="other", model="other", stop_reason="toolUse"
    )
    history: list[Message] = [UserMessage("q"), first, ToolResultMessage(id, "read", [TextContent("x")]), UserMessage("go on")]
    with SseServer(says("ok")) as server:
        ask(server, api, history, tools=[Read])
        body = server.requests[0].json
    sent, received = ids_in(api, body)
    assert sent == received
    assert all(len(name) <= 64 and name.replace("_", "").replace("-", "").isalnum() for name in sent)
    assert first.tool_calls[0].id == id


def ids_in(api: str, body: Any) -> tuple[list[str], list[str]]:
    """Return the ids of the calls and of the results in a request."""
    if api == "google-generative-ai":
        return [], []  # pairs by name and order
    if api == "openai-responses":
        items = body["input"]
        return (
            [item["call_id"] for item in items if item.get("type") == "function_call"],
            [item["call_id"] for item in items if item.get("type") == "function_call_output"],
        )
    messages = body["messages"]
    if api == "openai-completions":
        return (
            [call["id"] for message in messages for call in message.get("tool_calls") or ()],
            [message["tool_call_id"] for message in messages if message["role"] == "tool"],
        )
    blocks = [block for message in messages if isinstance(message["content"], list) for block in message["content"]]
    return (
        [block["id"] for block in blocks if block["type"] == "tool_use"],
        [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"],
    )


@FOUR
def test_a_request_is_valid_json_whatever_a_tool_gave_back(api: str) -> None:
    """C094: half a surrogate pair in a result and NaN in arguments leave a body that every server can read."""
    first = AssistantMessage([ToolCall("c1", "read", {"n": float("nan")})], stop_reason="toolUse")
    history: list[Message] = [UserMessage("q"), first, ToolResultMessage("c1", "read", [TextContent("a\ud83db")])]
    with SseServer(says("ok")) as server:
        assert ask(server, api, history, tools=[Read]).text == "ok"
        body = server.requests[0].body
    json.loads(body.decode("utf-8"))
    assert b"NaN" not in body and b"\\ud83d" not in body
    assert b"ab" in body


@FOUR
def test_images_go_out_in_prompts_and_in_results(api: str) -> None:
    """An image reaches a model that can see, from the user and from a tool."""
    image = ImageContent("QUJDREVG", "image/png")
    first = AssistantMessage([ToolCall("c1", "read", {})], stop_reason="toolUse")
    history: list[Message] = [
        UserMessage([TextContent("look"), image]),
        first,
        ToolResultMessage("c1", "read", [TextContent("shot"), ImageContent("R0hJSktM", "image/png")]),
    ]
    with SseServer(says("ok")) as server:
        model = server.model(api, provider="house", input=["text", "image"])
        ask(server, api, history, tools=[Read], model=model)
        body = json.dumps(server.requests[0].json)
    assert "QUJDREVG" in body and "R0hJSktM" in body


@FOUR
def test_options_reach_the_request(api: str) -> None:
    """Limits, temperature, stop words, tool choice, headers and further fields go out under each API's own names."""
    with SseServer(says("ok")) as server:
        model = server.model(api, provider="house", max_tokens=900, headers={"x-house": "1", "x-gone": "2"})
        options: dict[str, Any] = {"temperature": 0.5, "max_tokens": 77, "stop": ["END"], "tool_choice": "required"}
        ask(server, api, tools=[Read], model=model, headers={"x-gone": None, "x-mine": "3"}, extra_body={"more": [1]}, **options)
        request = server.requests[0]
    body = request.json
    assert body["more"] == [1]
    assert (request.headers["x-house"], request.headers["x-mine"], "x-gone" in request.headers) == ("1", "3", False)
    config = body.get("generationConfig", body)
    limits = {"max_completion_tokens", "max_output_tokens", "max_tokens", "maxOutputTokens"}
    assert [config[name] for name in limits & set(config)] == [77]
    assert config["temperature"] == 0.5
    assert [config[name] for name in ("stop", "stop_sequences", "stopSequences") if name in config] == (
        [] if api == "openai-responses" else [["END"]]
    )
    choice = body.get("tool_choice") or body["toolConfig"]["functionCallingConfig"]
    assert choice in ("required", {"type": "any"}, {"mode": "ANY"})


@FOUR
def test_one_stop_word_need_not_be_a_list(api: str) -> None:
    """A text is one stop word, not a list of letters."""
    with SseServer(says("ok")) as server:
        ask(server, api, stop="END")
        body = server.requests[0].json
    config = body.get("generationConfig", body)
    found = [config[name] for name in ("stop", "stop_sequences", "stopSequences") if name in config]
    assert found == ([] if api == "openai-responses" else [["END"]])


@FOUR
@pytest.mark.parametrize("level", ["off", "minimal", "low", "medium", "high", "xhigh"])
def test_every_thinking_level_is_understood(api: str, level: Any) -> None:
    """Each level makes a request that says something about thinking, and none is sent to a model that cannot think."""
    with SseServer(says("ok"), says("ok")) as server:
        thinking = server.model(api, provider="house", id="gemini-2.5-flash", reasoning=True, max_tokens=32000)
        plain = server.model(api, provider="house", id="gemini-2.5-flash", max_tokens=32000)
        assert ask(server, api, model=thinking, reasoning=level).stop_reason == "done"
        assert ask(server, api, model=plain, reasoning=level).stop_reason == "done"
        first, second = [json.dumps(request.json) for request in server.requests]
    words = ("reasoning", "thinking")
    assert any(word in first for word in words) or (api, level) == ("openai-completions", "off")
    assert not any(word in second for word in words)


@FOUR
@pytest.mark.parametrize(("fault", "kind"), [(answer("busy", status=503), "server"), (answer(drop=True), "network")])
def test_a_key_is_in_headers_only(api: str, fault: Answer, kind: ErrorKind, caplog: pytest.LogCaptureFixture) -> None:
    """C043: no error, message, log record or address has the key, when the server refuses and when the connection breaks."""
    caplog.set_level(logging.DEBUG)
    with SseServer(fault, fault) as server:
        message = ask(server, api)
        request = server.requests[0]
    assert message.error_kind == kind
    assert KEY in " ".join(request.headers.values())
    assert KEY not in request.path and KEY.encode() not in request.body
    assert KEY not in repr(message) and KEY not in caplog.text


@FOUR
def test_a_key_that_is_echoed_is_masked(api: str) -> None:
    """C116: a 401 that repeats the header does not bring the key into the error."""
    with SseServer(answer({"error": {"message": f"bad key {KEY}"}}, status=401)) as server:
        message = ask(server, api)
    assert (message.error_kind, message.error_retryable) == ("auth", False)
    assert KEY not in (message.error_message or "") and "bad key ***" in (message.error_message or "")


@FOUR
def test_half_a_thought_of_an_aborted_answer_is_not_replayed(api: str) -> None:
    """C034: what an abort left of a thought is not sent, and no tag for a model to copy either."""
    half = AssistantMessage([ThinkingContent("half a tho")], api=api, provider="house", model="scripted", stop_reason="aborted")
    with SseServer(says("ok")) as server:
        ask(server, api, [UserMessage("q"), half, UserMessage("go on")])
        body = json.dumps(server.requests[0].json)
    assert "half a tho" not in body and "thinking>" not in body
