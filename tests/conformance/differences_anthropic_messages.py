"""Where the Messages API differs from the recordings, on purpose."""

from __future__ import annotations

from typing import Any

from agentcore.llm import StreamOptions
from agentcore.llm.anthropic_messages import AnthropicOptions
from agentcore.models import Model
from tests.conformance.cases import Difference

ONE_WORDING = "a call without a result is answered in one wording everywhere"
ONE_ID_EACH = "two different call ids never become one"
NO_ROOM_TO_THINK = "less than the least budget of the API means no thinking"
NO_THINKING = "a limit is not raised by a budget that is not sent"
ZERO_USAGE = "a start without usage counts zero"
CALLS_MEAN_TOOL_USE = "an answer with calls wants them made, whatever its stop reason says"
TERMINAL_EVENT = "a stream without its terminal event is an error, never a finished answer"
NOTHING_AFTER_THE_END = "message_stop is the end; what comes after it belongs to nobody"
BROKEN_STREAM = "a torn or broken event is a broken stream, worth another try"
NO_EMPTY_EVENTS = "an event without data is none, as the standard of server-sent events has it"
TYPE_COUNTS = "what an event is stands in its JSON; its name may be missing (recorded streams of real vendors do so)"
KEEPS_ARGUMENTS = "arguments that came whole with the start are kept"
OBJECTS_ONLY = "arguments are an object; such a call fails without being run"
LINE_ENDS = "a CRLF is one line end, also where the network tore it apart"
NO_GUESS = "an empty 400 is a refused request, not a guess at an overflow"
NO_STREAM = "a 200 that is no event stream is an error with its text"
LONG_WAIT = "a wait that is too long is not retried by anybody"

BROKEN = {"retryable": True, "overflow": False}
FINAL = {"retryable": False, "overflow": False}
ERROR = {"type": "error", "reason": "error"}
EVENTS_OF_A = [
    {"type": "start"},
    {"type": "text_start", "contentIndex": 0},
    {"type": "text_delta", "contentIndex": 0, "delta": "a"},
    {"type": "text_end", "contentIndex": 0, "content": "a"},
    {"type": "done", "reason": "stop"},
]

DIFFERENCES: dict[str, Difference] = {
    "request: missing tool result before a user message": Difference(
        ONE_WORDING, {"requests[0].body.messages[2].content[1].content": "Operation aborted"}
    ),
    "request: missing tool result at the end": Difference(
        ONE_WORDING, {"requests[0].body.messages[2].content[0].content": "Operation aborted"}
    ),
    "request: two foreign ids that become equal": Difference(
        ONE_ID_EACH,
        {
            "requests[0].body.messages[1].content[1].id": "a_b_a9i0szw7",
            "requests[0].body.messages[2].content[1].tool_use_id": "a_b_a9i0szw7",
        },
    ),
    "request: simple: reasoning with a tiny model limit": Difference(
        NO_ROOM_TO_THINK, {"requests[0].body.thinking": {"type": "disabled"}}
    ),
    "request: simple: reasoning on a model without it": Difference(NO_THINKING, {"requests[0].body.max_tokens": 100}),
    "stream: message without usage": Difference(
        ZERO_USAGE,
        {
            "events": EVENTS_OF_A,
            "message.content": [{"type": "text", "text": "a"}],
            "message.usage.output": 5,
            "message.usage.totalTokens": 5,
            "message.usage.cost.output": 7.5e-05,
            "message.usage.cost.total": 7.5e-05,
            "message.usage.cacheWrite1h": 0,
            "message.stopReason": "stop",
            "error_message": False,
            "classified": FINAL,
        },
    ),
    "stream: tool call with stop reason end_turn": Difference(
        CALLS_MEAN_TOOL_USE, {"events[4].reason": "toolUse", "message.stopReason": "toolUse"}
    ),
    "stream: empty body": Difference(TERMINAL_EVENT, {"events[1]": ERROR, "message.stopReason": "error"}),
    "stream: only pings": Difference(TERMINAL_EVENT, {"events[1]": ERROR, "message.stopReason": "error"}),
    "stream: events after message_stop are still read": Difference(
        NOTHING_AFTER_THE_END, {"events": EVENTS_OF_A, "message.content": [{"type": "text", "text": "a"}]}
    ),
    "stream: connection ends inside an event": Difference(BROKEN_STREAM, {"classified": BROKEN}),
    "stream: broken JSON": Difference(BROKEN_STREAM, {"classified": BROKEN}),
    "stream: error event without data": Difference(NO_EMPTY_EVENTS, {"classified": BROKEN}),
    "stream: empty data": Difference(
        NO_EMPTY_EVENTS,
        {
            "events[1]": {"type": "done", "reason": "stop"},
            "message.usage.output": 5,
            "message.usage.totalTokens": 15,
            "message.usage.cost.output": 7.5e-05,
            "message.usage.cost.total": 0.000105,
            "message.stopReason": "stop",
            "error_message": False,
        },
    ),
    "stream: events without a name are skipped": Difference(
        TYPE_COUNTS,
        {
            "events": [
                {"type": "start"},
                {"type": "text_start", "contentIndex": 0},
                {"type": "text_start", "contentIndex": 1},
                {"type": "text_delta", "contentIndex": 1, "delta": "b"},
                {"type": "text_end", "contentIndex": 1, "content": "b"},
                {"type": "done", "reason": "stop"},
            ],
            "message.content": [{"type": "text", "text": ""}, {"type": "text", "text": "b"}],
        },
    ),
    "stream: tool call with input at the start only": Difference(
        KEEPS_ARGUMENTS,
        {"events[2].toolCall.arguments": {"path": "whole"}, "message.content[0].arguments": {"path": "whole"}},
    ),
    "stream: tool call input not an object": Difference(
        OBJECTS_ONLY, {"events[3].toolCall.arguments": {}, "message.content[0].arguments": {}}
    ),
    "stream: CRLF cut between CR and LF": Difference(
        LINE_ENDS,
        {
            "events": [
                {"type": "start"},
                {"type": "text_start", "contentIndex": 0},
                {"type": "text_delta", "contentIndex": 0, "delta": "é日本😀"},
                {"type": "text_delta", "contentIndex": 0, "delta": "ñ"},
                {"type": "text_end", "contentIndex": 0, "content": "é日本😀ñ"},
                {"type": "done", "reason": "stop"},
            ],
            "message.content": [{"type": "text", "text": "é日本😀ñ"}],
            "message.usage.input": 10,
            "message.usage.output": 5,
            "message.usage.totalTokens": 15,
            "message.usage.cost.input": 3e-05,
            "message.usage.cost.output": 7.5e-05,
            "message.usage.cost.total": 0.000105,
            "message.usage.cacheWrite1h": 0,
            "message.stopReason": "stop",
            "message.responseId": "msg-1",
            "error_message": False,
        },
    ),
    "stream: HTTP 400 without body": Difference(NO_GUESS, {"classified": FINAL}),
    "stream: HTTP 200 with JSON instead of events": Difference(
        NO_STREAM, {"events": [ERROR], "message.stopReason": "error", "error_message": True, "service_text": ["x"]}
    ),
    "retry: server asks for too long a wait": Difference(LONG_WAIT, {"classified": FINAL}),
}


def adapt(given: dict[str, Any], model: Model, options: StreamOptions) -> None:
    """Play the recorded function that takes this API's own options, which are a class here."""
    raw = given["options"]
    if (raw.get("env") or {}).get("PI_CACHE_RETENTION"):
        options.cache_retention = raw["env"]["PI_CACHE_RETENTION"]
    if given.get("via", "stream") != "stream":
        return
    options.__class__ = AnthropicOptions
    options.__dict__.update(
        thinking_enabled=raw.get("thinkingEnabled"),
        thinking_budget_tokens=raw.get("thinkingBudgetTokens"),
        thinking_display=raw.get("thinkingDisplay", "summarized"),
        effort=raw.get("effort"),
        interleaved_thinking=raw.get("interleavedThinking", True),
    )


def normalize_body(body: Any) -> Any:
    """A user message of one text block goes out as a string: in memory, a string is one text block."""
    for message in body.get("messages") or ():
        content = message.get("content")
        if (
            message.get("role") == "user"
            and isinstance(content, list)
            and len(content) == 1
            and set(content[0]) == {"type", "text"}
        ):
            message["content"] = content[0]["text"]
    return body
