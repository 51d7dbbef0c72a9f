"""OpenAI's Responses API: items that end out of order, items without content, reasoning that goes back."""

from __future__ import annotations

import json
from typing import Any

from agentcore.llm import Context, StreamOptions, stream
from agentcore.messages import AssistantMessage, Message, TextContent, ToolResultMessage, UserMessage
from agentcore.testing import Answer, SseServer, answer

CREATED = {"type": "response.created", "response": {"id": "resp_1"}}
COMPLETED = {"type": "response.completed", "response": {"id": "resp_1", "status": "completed", "output": []}}


def added(index: int, **item: Any) -> dict[str, Any]:
    return {"type": "response.output_item.added", "output_index": index, "item": item}


def done(index: int, **item: Any) -> dict[str, Any]:
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def events(*members: dict[str, Any]) -> Answer:
    return answer("".join(f"data: {json.dumps(member)}\n\n" for member in members).encode())


def ask(server: SseServer, messages: list[Message], **settings: Any) -> AssistantMessage:
    model = server.model("openai-responses", provider="openai", reasoning=True, **settings)
    *_, last = stream(model, Context("", messages), StreamOptions(api_key="k", max_retries=0, stall_timeout=5))
    return last.message  # type: ignore[union-attr]


def test_items_that_end_out_of_order_keep_their_place_and_their_reasoning() -> None:
    """C028: blocks stand in the order of the output indexes; the encrypted reasoning goes back in the next request."""
    call = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "read", "arguments": '{"path":"a"}'}
    thought = {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "why"}],
        "encrypted_content": "enc==",
    }
    first = events(
        CREATED,
        added(0, type="reasoning", id="rs_1", summary=[]),
        added(1, **{**call, "arguments": ""}),
        done(1, **call),
        done(0, **thought),
        COMPLETED,
    )
    with SseServer(first, events(CREATED, COMPLETED)) as server:
        message = ask(server, [UserMessage("hi")])
        assert [block.type for block in message.content] == ["thinking", "tool"]
        (made,) = message.tool_calls
        assert (made.id, made.arguments, message.stop_reason) == ("call_1|fc_1", {"path": "a"}, "toolUse")
        ask(server, [UserMessage("hi"), message, ToolResultMessage(made.id, "read", [TextContent("x")])])
        sent = server.requests[1].json["input"]
    assert sent[1:] == [thought, call, {"type": "function_call_output", "call_id": "call_1", "output": "x"}]


def test_a_message_without_content_is_no_harm() -> None:
    """C029: a message item whose content is null, then a call: no crash, and the call is there."""
    call = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "read", "arguments": "{}"}
    with SseServer(events(CREATED, done(0, type="message", id="m", content=None), done(1, **call), COMPLETED)) as server:
        message = ask(server, [UserMessage("hi")])
    assert message.stop_reason == "toolUse"
    assert [call.name for call in message.tool_calls] == ["read"]
    assert message.text == ""


def test_two_calls_of_one_message_never_share_an_id() -> None:
    """A gateway that gives two calls the same id does not make one of them."""
    call = {"type": "function_call", "call_id": "call_1", "name": "read"}
    first, second = done(0, **call, arguments='{"a":1}'), done(1, **call, arguments='{"a":2}')
    with SseServer(events(CREATED, first, second, COMPLETED)) as server:
        message = ask(server, [UserMessage("hi")])
    assert [made.arguments for made in message.tool_calls] == [{"a": 1}, {"a": 2}]
    assert len({made.id for made in message.tool_calls}) == 2


def test_a_reused_id_is_paired_with_its_own_item() -> None:
    """A reasoning item of another model is not sent on, and neither are its item ids."""
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "enc=="}
    call = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "read", "arguments": "{}"}
    with SseServer(events(CREATED, done(0, **thought), done(1, **call), COMPLETED), events(CREATED, COMPLETED)) as server:
        message = ask(server, [UserMessage("hi")], id="one")
        result = ToolResultMessage("call_1|fc_1", "read", [TextContent("x")])
        ask(server, [UserMessage("hi"), message, result], id="two")
        sent = server.requests[1].json["input"]
    assert sent[1:] == [
        {"type": "function_call", "call_id": "call_1", "name": "read", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_1", "output": "x"},
    ]


def test_a_failed_response_is_judged_by_its_code() -> None:
    """C014: a `response.failed` with a rate limit is retryable, one with a full context is an overflow."""
    for code, kind, retryable in (("rate_limit_exceeded", "rate_limit", True), ("context_length_exceeded", "overflow", False)):
        failed = {"type": "response.failed", "response": {"status": "failed", "error": {"code": code, "message": "No."}}}
        with SseServer(events(CREATED, failed)) as server:
            message = ask(server, [UserMessage("hi")])
        assert (message.error_kind, message.error_retryable) == (kind, retryable)
        assert "No." in (message.error_message or "")


def test_azure_gets_its_key_in_its_own_header() -> None:
    """A model at Azure sends `api-key`, and keeps the version in its address."""
    with SseServer(events(CREATED, COMPLETED)) as server:
        model = server.model("openai-responses", provider="azure-openai-responses")
        model.base_url = f"{server.url}/openai/v1?api-version=preview"
        list(stream(model, Context("", [UserMessage("hi")]), StreamOptions(api_key="azure-key", max_retries=0)))
        request = server.requests[0]
    assert (request.path, request.headers["api-key"]) == ("/openai/v1/responses?api-version=preview", "azure-key")
    assert "authorization" not in request.headers
