"""Where Gemini's API differs from the recordings, on purpose."""

from __future__ import annotations

from typing import Any

from agentcore.llm import StreamOptions
from agentcore.llm.google_generative_ai import GoogleOptions
from agentcore.models import Model
from tests.conformance.cases import Difference

ONE_WORDING = "a call without a result is answered in one wording everywhere"
OWN_KEY_HEADER = "a header that brings the key is enough, as in the other wire formats"
LIMIT = "an answer that was cut stays cut, so that none of its calls is run"
REFUSED = "an answer that was stopped or blocked is an error"
CALLS_MEAN_TOOL_USE = "an answer with calls wants them made, whenever its finish reason came"
MALFORMED = "a malformed call is worth another try (C040)"
TERMINAL_EVENT = "a stream without a finish reason is an error, never a finished answer"
NOT_NEGATIVE = "usage is never negative"
WHOLE_EVENT = "a last event that only lacks its line ends is whole"
BROKEN_STREAM = "a torn or broken event is a broken stream, worth another try"
LIKE_A_STATUS = "an error inside a stream is treated like the HTTP status in it"
RETRIED = "requests are retried in all wire formats"

BROKEN = {"retryable": True, "overflow": False}
ERROR = {"type": "error", "reason": "error"}
GOOD_USAGE = {
    "input": 10,
    "output": 5,
    "cacheRead": 0,
    "cacheWrite": 0,
    "reasoning": 0,
    "totalTokens": 15,
    "cost": {"input": 1e-05, "output": 2e-05, "cacheRead": 0, "cacheWrite": 0, "total": 3e-05},
}
WHOLE_ANSWER: dict[str, Any] = {
    "events": [
        {"type": "start"},
        {"type": "text_start", "contentIndex": 0},
        {"type": "text_delta", "contentIndex": 0, "delta": "a"},
        {"type": "text_end", "contentIndex": 0, "content": "a"},
        {"type": "done", "reason": "stop"},
    ],
    "message.usage": GOOD_USAGE,
    "message.stopReason": "stop",
    "error_message": False,
}

DIFFERENCES: dict[str, Difference] = {
    "request: missing tool result before a user message": Difference(
        ONE_WORDING, {"requests[0].body.contents[2].parts[1].functionResponse.response.error": "Operation aborted"}
    ),
    "request: missing tool result at the end": Difference(
        ONE_WORDING, {"requests[0].body.contents[2].parts[0].functionResponse.response.error": "Operation aborted"}
    ),
    "request: key only in a header is refused": Difference(
        OWN_KEY_HEADER,
        {
            "requests": [
                {
                    "method": "POST",
                    "path": "/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse",
                    "headers": {"content-type": "application/json", "x-goog-api-key": "own"},
                    "body": {"contents": [{"role": "user", "parts": [{"text": "hi"}]}], "generationConfig": {}},
                }
            ],
            "message": {"stopReason": "stop", "responseId": "resp-1"},
            "error_message": False,
        },
    ),
    "stream: tool call with finish MAX_TOKENS": Difference(LIMIT, {"events[4].reason": "length", "message.stopReason": "length"}),
    "stream: tool call with finish SAFETY": Difference(REFUSED, {"events[4]": ERROR, "message.stopReason": "error"}),
    "stream: prompt blocked": Difference(REFUSED, {"events[1]": ERROR, "message.stopReason": "error"}),
    "stream: tool call in the chunk after the finish reason": Difference(
        CALLS_MEAN_TOOL_USE, {"events[7].reason": "toolUse", "message.stopReason": "toolUse"}
    ),
    "stream: finish reason MALFORMED_FUNCTION_CALL": Difference(MALFORMED, {"classified": BROKEN}),
    "stream: no finish reason": Difference(
        TERMINAL_EVENT,
        {
            "events": [
                {"type": "start"},
                {"type": "text_start", "contentIndex": 0},
                {"type": "text_delta", "contentIndex": 0, "delta": "a"},
                ERROR,
            ],
            "message.stopReason": "error",
        },
    ),
    "stream: empty body": Difference(TERMINAL_EVENT, {"events[1]": ERROR, "message.stopReason": "error"}),
    "stream: usage: more cached than prompt": Difference(
        NOT_NEGATIVE, {"message.usage.input": 0, "message.usage.cost.input": 0, "message.usage.cost.total": 3e-05}
    ),
    "stream: last event without blank line": Difference(WHOLE_EVENT, WHOLE_ANSWER),
    "stream: last event with one line break": Difference(WHOLE_EVENT, WHOLE_ANSWER),
    "stream: broken JSON": Difference(BROKEN_STREAM, {"classified": BROKEN}),
    "stream: error object in mid-stream": Difference(
        LIKE_A_STATUS,
        {
            "events": [
                {"type": "start"},
                {"type": "text_start", "contentIndex": 0},
                {"type": "text_delta", "contentIndex": 0, "delta": "a"},
                ERROR,
            ],
            "message.stopReason": "error",
            "classified": BROKEN,
            "service_text": ["The model is overloaded."],
        },
    ),
    "retry: never done by this API": Difference(
        RETRIED,
        {
            "request_count": 2,
            "events": [
                {"type": "start"},
                {"type": "text_start", "contentIndex": 0},
                {"type": "text_delta", "contentIndex": 0, "delta": "ok"},
                {"type": "text_delta", "contentIndex": 0, "delta": ""},
                {"type": "text_end", "contentIndex": 0, "content": "ok"},
                {"type": "done", "reason": "stop"},
            ],
            "message.content": [{"type": "text", "text": "ok"}],
            "message.usage": GOOD_USAGE,
            "message.stopReason": "stop",
            "message.responseId": "resp-1",
            "error_message": False,
        },
    ),
}


def adapt(given: dict[str, Any], model: Model, options: StreamOptions) -> None:
    """Play the recorded function that takes this API's own options, which are a class here."""
    if given.get("via", "stream") != "stream":
        return
    options.__class__ = GoogleOptions
    options.__dict__.update(thinking=given["options"].get("thinking"))
