"""Where the proxy's protocol differs from the recordings, on purpose."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from agentcore.events import AssistantMessageEvent
from agentcore.llm import Context, StreamOptions, proxy, register_wire_format
from agentcore.llm.proxy import ProxyOptions
from agentcore.models import Model
from tests.conformance.cases import Difference

ALWAYS_STARTS = "every stream that is a success begins with a start event"
AS_IT_WAS = "the message is what it was at its end"
NO_HOLES = "a block that leaves a gap is refused"
TERMINAL_EVENT = "a stream without its terminal event is an error, never a finished answer"
WHOLE_EVENT = "a last event that only lacks its line ends is whole"
BROKEN_STREAM = "a torn or broken event is a broken stream, worth another try"
BLANK_IS_OPTIONAL = "the blank after the colon may be missing, as the standard of server-sent events has it"
NOTHING_AFTER_THE_END = "what comes after the done event belongs to nobody"
LIKE_A_STATUS = "a 500 is a failure of the server"

BROKEN = {"retryable": True, "overflow": False}
ERROR = {"type": "error", "reason": "error"}
TEXT_A = [
    {"type": "start"},
    {"type": "text_start", "contentIndex": 0},
    {"type": "text_delta", "contentIndex": 0, "delta": "a"},
    {"type": "text_end", "contentIndex": 0, "content": "a"},
]
NO_USAGE = {
    "input": 0,
    "output": 0,
    "cacheRead": 0,
    "cacheWrite": 0,
    "totalTokens": 0,
    "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 0},
}


def _broken_off(content: list[Any]) -> dict[str, Any]:
    return {
        "role": "assistant",
        "content": content,
        "api": "some-api",
        "provider": "some-provider",
        "model": "test-model",
        "usage": NO_USAGE,
        "stopReason": "error",
        "timestamp": "<time-ms>",
    }


DIFFERENCES: dict[str, Difference] = {
    "done without start": Difference(ALWAYS_STARTS, {"events": [{"type": "start"}, {"type": "done", "reason": "stop"}]}),
    "events after done are dropped": Difference(AS_IT_WAS, {"message.content": []}),
    "content index with a gap": Difference(
        NO_HOLES,
        {
            "events": [{"type": "start"}, ERROR],
            "message.content": [],
            "message.usage": NO_USAGE,
            "message.stopReason": "error",
            "error_message": True,
        },
    ),
    "no terminal event": Difference(
        TERMINAL_EVENT, {"events": [*TEXT_A, ERROR], "message": _broken_off([{"type": "text", "text": "a"}])}
    ),
    "empty body": Difference(TERMINAL_EVENT, {"events": [{"type": "start"}, ERROR], "message": _broken_off([])}),
    "last line without line break is lost": Difference(
        WHOLE_EVENT, {"events": [*TEXT_A, {"type": "done", "reason": "stop"}], "message": {"stopReason": "stop"}}
    ),
    "broken JSON": Difference(BROKEN_STREAM, {"classified": BROKEN}),
    "end mark before done": Difference(BROKEN_STREAM, {"classified": BROKEN}),
    "no space after the colon is skipped": Difference(
        BLANK_IS_OPTIONAL,
        {"events": [*TEXT_A, {"type": "done", "reason": "stop"}], "message.content[0].text": "a"},
    ),
    "end mark": Difference(NOTHING_AFTER_THE_END, {"message.stopReason": "stop", "error_message": False}),
    "HTTP 500 with error object": Difference(LIKE_A_STATUS, {"classified": BROKEN}),
}


def adapt(given: dict[str, Any], model: Model, options: StreamOptions) -> None:
    """The recorded proxy stands for whatever wire format the model has; it is at the address of the test's server."""

    def once(model: Model, context: Context, options: StreamOptions) -> Iterator[AssistantMessageEvent]:
        unregister()
        return proxy.stream(model, context, options)

    unregister = register_wire_format(model.api, once)
    raw = given["options"]
    options.__class__ = ProxyOptions
    options.__dict__.update(proxy_url=given["server"], auth_token=raw.get("authToken"), transport=raw.get("transport"))
