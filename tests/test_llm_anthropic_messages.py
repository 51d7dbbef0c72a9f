"""Anthropic's Messages API: streams that end badly, events that are unknown, thoughts that are encrypted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from agentcore.events import AssistantMessageEvent
from agentcore.llm import Context, StreamOptions, stream
from agentcore.messages import AssistantMessage, Message, TextContent, ThinkingContent, ToolCall, ToolResultMessage, UserMessage
from agentcore.testing import SseServer

START = {"type": "message_start", "message": {"id": "msg_1", "usage": {"input_tokens": 10, "output_tokens": 1}}}
STOP = {"type": "message_stop"}


def begin(index: int, **block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def add(index: int, type: str, **delta: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": type, **delta}}


def end(index: int) -> dict[str, Any]:
    return {"type": "content_block_stop", "index": index}


def because(reason: str) -> dict[str, Any]:
    return {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 5}}


def text(said: str, index: int = 0) -> list[dict[str, Any]]:
    return [begin(index, type="text", text=""), add(index, "text_delta", text=said), end(index)]


def body(*events: dict[str, Any] | str) -> bytes:
    """Write events; a text goes out as it is."""
    written = [event if isinstance(event, str) else f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events]
    return "".join(written).encode()


def read(*events: dict[str, Any] | str) -> tuple[AssistantMessage, list[AssistantMessageEvent]]:
    with SseServer(body(*events)) as server:
        model = server.model("anthropic-messages")
        seen = list(stream(model, Context("", [UserMessage("hi")]), StreamOptions(max_retries=0, stall_timeout=5)))
    return seen[-1].message, seen  # type: ignore[union-attr]


def test_a_stream_without_its_end_is_a_failure() -> None:
    """C010: a stream that closes before message_stop is an error worth another try; the text so far is kept."""
    message, _ = read(START, begin(0, type="text", text=""), add(0, "text_delta", text="half"))
    assert (message.stop_reason, message.text, message.error_retryable) == ("error", "half", True)


@pytest.mark.parametrize("before", [[], text("half")[:2]])
def test_an_overload_inside_a_good_answer_is_like_its_status(before: list[Any]) -> None:
    """C014: an overload that comes as an event, before or after text, is retryable like a 529."""
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    message, _ = read(START, *before, error)
    assert (message.error_kind, message.error_retryable) == ("server", True)
    assert message.error_message == "529 Overloaded: Overloaded (overloaded_error)"


@pytest.mark.parametrize(
    "event",
    [
        'event: error\ndata: {"error":{"type":"overloaded_error","message":"Overloaded"}}\n\n',
        "event: error\ndata: overloaded, come back later\n\n",
        'data: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}\n\n',
    ],
)
def test_an_error_event_of_a_gateway_is_one_by_its_name_or_its_type(event: str) -> None:
    """C014: gateways send the name of the event without its type inside, plain text, or the type without the name."""
    message, _ = read(START, event)
    assert (message.stop_reason, message.error_kind, message.error_retryable) == ("error", "server", True)
    assert "verloaded" in message.error_message


def test_unknown_events_are_passed_over() -> None:
    """C016: an end mark of a proxy, pings and events of the future do not disturb an answer."""
    message, _ = read(
        START,
        "event: done\ndata: [DONE]\n\n",
        {"type": "ping"},
        {"type": "future_thing", "x": [1]},
        *text("fine"),
        "event: future_thing\ndata: null\n\n",
        because("end_turn"),
        STOP,
    )
    assert (message.stop_reason, message.text) == ("done", "fine")


def test_encrypted_thoughts_go_back_unchanged() -> None:
    """C031: a redacted block is kept with its opaque data, and the next request has it as it came."""
    first = body(START, begin(0, type="redacted_thinking", data="opaque=="), end(0), *text("so", 1), because("end_turn"), STOP)
    with SseServer(first, body(START, *text("ok"), because("end_turn"), STOP)) as server:
        model = server.model("anthropic-messages", reasoning=True)
        history: list[Message] = [UserMessage("hi")]
        *_, last = stream(model, Context("", history), StreamOptions())
        history += [last.message, UserMessage("again")]  # type: ignore[union-attr]
        list(stream(model, Context("", history), StreamOptions()))
        sent = server.requests[1].json["messages"][1]["content"]
    assert sent == [{"type": "redacted_thinking", "data": "opaque=="}, {"type": "text", "text": "so"}]


def test_thoughts_and_calls_keep_their_order_and_signatures() -> None:
    """C032: thinking, call, thinking, call go back in that order, each thought with its own signature."""
    thoughts = []
    for index, word in ((0, "A"), (2, "B")):
        thoughts.append(
            [
                begin(index, type="thinking", thinking="", signature=""),
                add(index, "thinking_delta", thinking=word),
                add(index, "signature_delta", signature=f"sig-{word}"),
                end(index),
            ]
        )
    first = body(
        START,
        *thoughts[0],
        begin(1, type="tool_use", id="t1", name="read", input={}),
        end(1),
        *thoughts[1],
        begin(3, type="tool_use", id="t2", name="read", input={}),
        end(3),
        because("tool_use"),
        STOP,
    )
    with SseServer(first, body(START, *text("ok"), because("end_turn"), STOP)) as server:
        model = server.model("anthropic-messages", reasoning=True)
        *_, last = stream(model, Context("", [UserMessage("hi")]), StreamOptions())
        results = [ToolResultMessage(id, "read", [TextContent(id)]) for id in ("t1", "t2")]
        list(stream(model, Context("", [UserMessage("hi"), last.message, *results]), StreamOptions()))  # type: ignore[union-attr]
        sent = server.requests[1].json["messages"][1]["content"]
    assert sent == [
        {"type": "thinking", "thinking": "A", "signature": "sig-A"},
        {"type": "tool_use", "id": "t1", "name": "read", "input": {}},
        {"type": "thinking", "thinking": "B", "signature": "sig-B"},
        {"type": "tool_use", "id": "t2", "name": "read", "input": {}},
    ]


@pytest.mark.parametrize(("signature", "model_id"), [("", "scripted"), (None, "scripted"), ("sig", "another")])
def test_a_thought_without_a_signature_of_its_own_is_not_sent_as_signed(signature: str | None, model_id: str) -> None:
    """C032: an empty or foreign signature makes plain text of a thought."""
    with SseServer(body(START, *text("ok"), because("end_turn"), STOP)) as server:
        model = server.model("anthropic-messages", reasoning=True)
        thought = AssistantMessage([ThinkingContent("why", signature)], api=model.api, provider=model.provider, model=model_id)
        list(stream(model, Context("", [UserMessage("hi"), thought, UserMessage("on")]), StreamOptions()))
        sent = server.requests[0].json["messages"][1]
    assert sent == {"role": "assistant", "content": [{"type": "text", "text": "why"}]}


def test_a_cut_call_is_kept_apart() -> None:
    """C055: the half arguments of an answer that reached its limit are marked as no JSON, so that the call is never run."""
    message, _ = read(
        START,
        begin(0, type="tool_use", id="t1", name="write", input={}),
        add(0, "input_json_delta", partial_json='{"path":"a","content":"ha'),
        end(0),
        because("max_tokens"),
        STOP,
    )
    (call,) = message.tool_calls
    assert (message.stop_reason, call.raw_arguments) == ("length", '{"path":"a","content":"ha')


def test_a_full_window_is_an_overflow() -> None:
    """C050: the stop reason `model_context_window_exceeded` is an error of the kind `overflow`."""
    message, _ = read(START, *text("half"), because("model_context_window_exceeded"), STOP)
    assert (message.stop_reason, message.error_kind, message.error_retryable) == ("error", "overflow", False)


def requests_of(messages: Sequence[Message], **settings: Any) -> Any:
    with SseServer(body(START, *text("ok"), because("end_turn"), STOP)) as server:
        model = server.model("anthropic-messages", **settings.pop("model", {}))
        list(stream(model, Context("Be brief.", messages), StreamOptions(**settings)))
        return server.requests[0].json


def test_cache_marks_stand_at_the_end_of_what_is_kept() -> None:
    """The system prompt and the last user message carry a cache mark; a longer conversation does not carry the old one along."""
    history: list[Message] = [UserMessage("one")]
    first = requests_of(history)
    mark = {"cache_control": {"type": "ephemeral"}}
    assert first["system"] == [{"type": "text", "text": "Be brief.", **mark}]
    assert first["messages"] == [{"role": "user", "content": [{"type": "text", "text": "one", **mark}]}]
    call = AssistantMessage([ToolCall("t1", "read", {}), ToolCall("t2", "read", {})], stop_reason="toolUse")
    history += [call, *(ToolResultMessage(id, "read", [TextContent(id)]) for id in ("t1", "t2"))]
    second = requests_of(history, cache_retention="long")
    assert second["messages"][0] == {"role": "user", "content": "one"}
    assert ["cache_control" in block for block in second["messages"][2]["content"]] == [False, True]
    assert second["messages"][2]["content"][1]["cache_control"] == {"type": "ephemeral", "ttl": "1h"}
    assert "cache_control" not in json.dumps(requests_of(history, cache_retention="none"))


def test_a_schema_keeps_its_definitions() -> None:
    """A tool schema that refers to definitions goes out with them."""

    class Tool:
        name, description = "t", "A tool."
        parameters = {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"type": "string"}}}  # noqa: RUF012

    with SseServer(body(START, *text("ok"), because("end_turn"), STOP)) as server:
        list(stream(server.model("anthropic-messages"), Context("", [UserMessage("hi")], [Tool]), StreamOptions()))  # type: ignore[list-item]
        (sent,) = server.requests[0].json["tools"]
    assert sent["input_schema"]["$defs"] == {"A": {"type": "string"}}
