"""Where the Responses API differs from the recordings, on purpose."""

from __future__ import annotations

from typing import Any

from agentcore.llm import StreamOptions
from agentcore.llm.openai_responses import ResponsesOptions
from agentcore.models import Model
from tests.conformance.cases import Difference

ONE_WORDING = "a call without a result is answered in one wording everywhere"
FOREIGN_SIGNATURE = "a reasoning item that cannot be read is left out"
KEEPS_THE_TEXT = "what was streamed stays where the finished item is silent"
FILTER = "an answer that a filter stopped is a refusal, not one that reached its limit"
LIKE_A_STATUS = "an error inside a stream is treated like the HTTP status in it"
NOTHING_AFTER_THE_END = "the terminal event is the end; what comes after it belongs to nobody"
NO_UNDEFINED = "an id that is not there is left out"
BROKEN_STREAM = "a torn or broken event is a broken stream, worth another try"
LONG_WAIT = "a wait that is too long is not retried by anybody"

BROKEN = {"retryable": True, "overflow": False}
FINAL = {"retryable": False, "overflow": False}

DIFFERENCES: dict[str, Difference] = {
    "request: thinking signature that is not JSON": Difference(
        FOREIGN_SIGNATURE,
        {
            "requests": [
                {
                    "method": "POST",
                    "path": "/v1/responses",
                    "headers": {"content-type": "application/json", "authorization": "Bearer <API_KEY>"},
                    "body": {
                        "model": "test-model",
                        "input": [
                            {"role": "user", "content": [{"type": "input_text", "text": "q"}]},
                            {
                                "type": "message",
                                "role": "assistant",
                                "content": [{"type": "output_text", "text": "a", "annotations": []}],
                                "status": "completed",
                                "id": "msg_pi_1",
                            },
                            {"role": "user", "content": [{"type": "input_text", "text": "r"}]},
                        ],
                        "stream": True,
                        "store": False,
                        "reasoning": {"effort": "none"},
                    },
                }
            ],
            "message": {"stopReason": "stop", "responseId": "resp-1"},
            "error_message": False,
        },
    ),
    "request: missing tool result before a user message": Difference(
        ONE_WORDING, {"requests[0].body.input[4].output": "Operation aborted"}
    ),
    "request: missing tool result at the end": Difference(ONE_WORDING, {"requests[0].body.input[2].output": "Operation aborted"}),
    "stream: finished item without content": Difference(
        KEEPS_THE_TEXT, {"events[3].content": "draft", "message.content[0].text": "draft"}
    ),
    "stream: incomplete by content filter": Difference(
        FILTER, {"events[4]": {"type": "error", "reason": "error"}, "message.stopReason": "error"}
    ),
    "stream: error object without type": Difference(LIKE_A_STATUS, {"classified": BROKEN}),
    "stream: events after the terminal event": Difference(
        NOTHING_AFTER_THE_END,
        {
            "events": [
                {"type": "start"},
                {"type": "text_start", "contentIndex": 0},
                {"type": "text_delta", "contentIndex": 0, "delta": "a"},
                {"type": "text_end", "contentIndex": 0, "content": "a"},
                {"type": "done", "reason": "stop"},
            ],
            "message.content": [{"type": "text", "text": "a", "textSignature": '{"v":1,"id":"m"}'}],
        },
    ),
    "stream: tool call without item id": Difference(
        NO_UNDEFINED, {"events[2].toolCall.id": "call_1", "message.content[0].id": "call_1"}
    ),
    "stream: broken JSON": Difference(BROKEN_STREAM, {"classified": BROKEN}),
    "retry: too long a wait": Difference(LONG_WAIT, {"classified": FINAL}),
}


def adapt(given: dict[str, Any], model: Model, options: StreamOptions) -> None:
    """Play the recorded function that takes this API's own options, which are a class here."""
    raw = given["options"]
    if (raw.get("env") or {}).get("PI_CACHE_RETENTION"):
        options.cache_retention = raw["env"]["PI_CACHE_RETENTION"]
    if given.get("via", "stream") != "stream":
        return
    options.__class__ = ResponsesOptions
    options.__dict__.update(
        reasoning_effort=raw.get("reasoningEffort"),
        reasoning_summary=raw.get("reasoningSummary"),
        service_tier=raw.get("serviceTier"),
    )
