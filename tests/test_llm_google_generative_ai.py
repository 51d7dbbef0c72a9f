"""Gemini's API: answers without parts, several calls in one chunk, prompts that are blocked."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentcore.llm import Context, StreamOptions, stream
from agentcore.messages import AssistantMessage, UserMessage
from agentcore.testing import SseServer

USAGE = {"promptTokenCount": 9, "totalTokenCount": 9}


def read(*chunks: dict[str, Any]) -> AssistantMessage:
    body = "".join(f"data: {json.dumps(chunk)}\r\n\r\n" for chunk in chunks)
    with SseServer(body.encode()) as server:
        options = StreamOptions(api_key="k", max_retries=0, stall_timeout=5)
        *_, last = stream(server.model("google-generative-ai"), Context("", [UserMessage("hi")]), options)
    return last.message  # type: ignore[union-attr]


def test_a_malformed_call_is_an_error_in_words() -> None:
    """C040: a candidate without parts that ends with MALFORMED_FUNCTION_CALL is an error that may be tried again; usage is kept."""
    message = read({"candidates": [{"content": {}, "finishReason": "MALFORMED_FUNCTION_CALL"}], "usageMetadata": USAGE})
    assert (message.stop_reason, message.error_retryable, message.usage.input) == ("error", True, 9)
    assert message.error_message == "the service stopped the answer (MALFORMED_FUNCTION_CALL)"


@pytest.mark.parametrize("more", [{}, {"candidates": []}, {"candidates": None}])
def test_a_blocked_prompt_is_an_error_in_words(more: dict[str, Any]) -> None:
    """C040: no candidates but a reason why: an error with that reason, not worth another try; usage is kept."""
    feedback = {"blockReason": "SAFETY", "blockReasonMessage": "Not here."}
    message = read({"promptFeedback": feedback, "usageMetadata": USAGE, **more})
    assert (message.stop_reason, message.error_kind, message.error_retryable) == ("error", "refusal", False)
    assert (message.error_message, message.usage.input) == ("the service blocked the prompt (SAFETY): Not here.", 9)


def test_all_parts_of_a_chunk_are_read() -> None:
    """C041: text and two calls of the same name in one candidate: one text block and two calls with ids of their own."""
    parts = [
        {"text": "One moment."},
        {"functionCall": {"name": "read", "args": {"p": 1}}},
        {"functionCall": {"name": "read", "args": {"p": 2}}},
    ]
    message = read({"candidates": [{"content": {"parts": parts}, "finishReason": "STOP"}]})
    assert message.text == "One moment."
    assert [call.arguments for call in message.tool_calls] == [{"p": 1}, {"p": 2}]
    assert len({call.id for call in message.tool_calls}) == 2 and all(call.id for call in message.tool_calls)
    assert message.stop_reason == "toolUse"


def test_usage_may_come_after_the_reason() -> None:
    """The body ends the answer, not the reason: what comes behind it still counts."""
    message = read({"candidates": [{"content": {"parts": [{"text": "a"}]}, "finishReason": "STOP"}]}, {"usageMetadata": USAGE})
    assert (message.stop_reason, message.usage.input) == ("done", 9)


def test_an_answer_without_a_reason_is_broken() -> None:
    """A body that ends without a finish reason is a failure worth another try; the text is kept."""
    message = read({"candidates": [{"content": {"parts": [{"text": "half"}]}}]})
    assert (message.stop_reason, message.text, message.error_retryable) == ("error", "half", True)


def test_odd_chunks_are_passed_over() -> None:
    """Chunks and parts that are not what they should be do no harm."""
    message = read(
        {},
        {"candidates": [None]},
        {"candidates": [{"content": {"parts": None}}]},
        {"candidates": [{"content": {"parts": [None, 5, {"functionCall": None}, {"functionCall": {}}, {"text": "ok"}]}}]},
        {"candidates": [{"finishReason": "STOP"}], "usageMetadata": None},
    )
    assert (message.stop_reason, message.text, message.tool_calls) == ("done", "ok", [])
