"""Where chat completions differ from the recordings, on purpose."""

from __future__ import annotations

from typing import Any

from agentcore.llm import StreamOptions
from agentcore.models import Model
from tests.conformance.cases import DELETE, Difference

_ABORTED = "a call without a result is answered with `Operation aborted`"
_END_MARK = "`[DONE]` is an end, also without a finish_reason: real servers leave out one or the other"
_NO_EVENT = "an event without data is no event"
_RETRY = "the failure is judged where it arises, not by its text: "
_ARGUMENTS = "arguments are an object: what is none is `{}`, and the text is kept apart, so that the call is not run"
_DONE_AFTER_TEXT: dict[str, Any] = {
    "events[4]": {"type": "done", "reason": "stop"},
    "message.stopReason": "stop",
    "error_message": DELETE,
    "classified": DELETE,
    "service_text": DELETE,
}
_NO_FAILURE: dict[str, Any] = {"error_message": DELETE, "classified": DELETE}
_A: list[dict[str, Any]] = [
    {"type": "start"},
    {"type": "text_start", "contentIndex": 0},
    {"type": "text_delta", "contentIndex": 0, "delta": "a"},
    {"type": "text_end", "contentIndex": 0, "content": "a"},
]


def _call(id: str, name: str, arguments: Any, index: int = 0) -> dict[str, Any]:
    block = {"type": "toolCall", "id": id, "name": name, "arguments": arguments}
    return {"type": "toolcall_end", "contentIndex": index, "toolCall": block}


DIFFERENCES: dict[str, Difference] = {
    # the request: what is well-formed, and what has no such field
    "request: assistant content null": Difference(
        "no content is an empty content, and nothing of it is sent",
        {
            "requests": [
                {
                    "method": "POST",
                    "path": "/v1/chat/completions",
                    "headers": {"authorization": "Bearer <API_KEY>", "content-type": "application/json"},
                    "body": {
                        "model": "test-model",
                        "messages": [{"role": "user", "content": "q"}, {"role": "user", "content": "r"}],
                        "stream": True,
                        "stream_options": {"include_usage": True},
                        "store": False,
                    },
                }
            ],
            "message.stopReason": "stop",
            "message.content": [{"type": "text", "text": "ok"}],
            "message.responseId": "resp-1",
            **_NO_FAILURE,
        },
    ),
    "request: tool history without tools sends an empty list": Difference(
        "an empty list of tools is refused by some servers, so it is never sent", {"requests[0].body.tools": DELETE}
    ),
    "request: failed and aborted assistant messages are dropped": Difference(
        "the results of the calls of a dropped answer are dropped with it", {"requests[0].body.messages[2]": DELETE}
    ),
    "request: missing tool result before a user message": Difference(
        _ABORTED, {"requests[0].body.messages[3].content": "Operation aborted"}
    ),
    "request: missing tool result at the end": Difference(_ABORTED, {"requests[0].body.messages[2].content": "Operation aborted"}),
    "request: missing tool result before another assistant message": Difference(
        _ABORTED, {"requests[0].body.messages[2].content": "Operation aborted"}
    ),
    "request: tool result without call": Difference(
        "a result without a call is refused by most services, so it is left out", {"requests[0].body.messages[1]": DELETE}
    ),
    "request: tool result after an intervening user message": Difference(
        "every call has one result, the real one, right behind it",
        {"requests[0].body.messages[2].content": "x", "requests[0].body.messages[4]": DELETE},
    ),
    "request: cache retention from the environment": Difference(
        "the library has no such variable: cache_retention is an option",
        {"requests[0].body.prompt_cache_key": DELETE, "requests[0].body.prompt_cache_retention": DELETE},
    ),
    # where a stream ends
    'stream: finish reason ""': Difference(_END_MARK, _DONE_AFTER_TEXT),
    "stream: no finish reason": Difference(_END_MARK, _DONE_AFTER_TEXT),
    "stream: last event without blank line": Difference(
        "a last event that only lacks its line ends is whole (a vendor's own test streams end so)", _DONE_AFTER_TEXT
    ),
    "stream: two spaces after the colon": Difference(
        "blanks around the end mark do not count",
        {
            "events": [*_A, {"type": "done", "reason": "stop"}],
            "message.stopReason": "stop",
            **_NO_FAILURE,
        },
    ),
    "stream: empty data line": Difference(
        _NO_EVENT,
        {
            "events": [*_A, {"type": "done", "reason": "stop"}],
            "message.stopReason": "stop",
            "message.content": [{"type": "text", "text": "a"}],
            "message.responseId": "resp-1",
            **_NO_FAILURE,
        },
    ),
    "stream: error reason then stop keeps the error text": Difference(
        "a good answer has no error text", {**_NO_FAILURE, "service_text": DELETE}
    ),
    "stream: plain JSON instead of events": Difference(
        "what is no event stream is refused before an answer begins, and not tried again",
        {"events": [{"type": "error", "reason": "error"}], "classified.retryable": False},
    ),
    "stream: usage: more cached than prompt": Difference(
        "what was read is `prompt_tokens`, and no more of it can have come from a cache",
        {
            "message.usage.cacheRead": 10,
            "message.usage.totalTokens": 15,
            "message.usage.cost.cacheRead": 0.000005,
            "message.usage.cost.total": 0.000015,
        },
    ),
    # tool calls
    "stream: tool call with finish reason stop": Difference(
        "an answer with calls wants them run, whatever the word",
        {"events[4].reason": "toolUse", "message.stopReason": "toolUse"},
    ),
    "stream: tool call pieces without index and id": Difference(
        "a piece that says nothing of its call belongs to the last one",
        {
            "events": [
                {"type": "start"},
                {"type": "toolcall_start", "contentIndex": 0},
                {"type": "toolcall_delta", "contentIndex": 0, "delta": '{"a":'},
                {"type": "toolcall_delta", "contentIndex": 0, "delta": "1}"},
                _call("c1", "read", {"a": 1}),
                {"type": "done", "reason": "toolUse"},
            ],
            "message.content": [{"type": "toolCall", "id": "c1", "name": "read", "arguments": {"a": 1}}],
        },
    ),
    "stream: other id on the same index": Difference(
        "a new id behind complete arguments is a new call",
        {
            "events": [
                {"type": "start"},
                {"type": "toolcall_start", "contentIndex": 0},
                {"type": "toolcall_delta", "contentIndex": 0, "delta": '{"a":1}'},
                {"type": "toolcall_start", "contentIndex": 1},
                {"type": "toolcall_delta", "contentIndex": 1, "delta": '{"b":2}'},
                _call("c1", "read", {"a": 1}),
                _call("c2", "write", {"b": 2}, 1),
                {"type": "done", "reason": "toolUse"},
            ],
            "message.content": [
                {"type": "toolCall", "id": "c1", "name": "read", "arguments": {"a": 1}},
                {"type": "toolCall", "id": "c2", "name": "write", "arguments": {"b": 2}},
            ],
        },
    ),
    "stream: tool call arguments that are not an object": Difference(
        _ARGUMENTS, {"events[3].toolCall.arguments": {}, "message.content[0].arguments": {}}
    ),
    "stream: tool call arguments null": Difference(
        _ARGUMENTS, {"events[3].toolCall.arguments": {}, "message.content[0].arguments": {}}
    ),
    "stream: tool call without id and name": Difference(
        "a call without an id gets one",
        {
            "events[3].toolCall.id": "<generated id for nothing>",
            "message.content[0].id": "<generated id for nothing>",
        },
    ),
    # words that the reference loses
    "stream: other reasoning details are ignored": Difference(
        "the text of reasoning details is thinking, where no other field has it",
        {
            "events": [
                *_A[:3],
                {"type": "thinking_start", "contentIndex": 1},
                {"type": "thinking_delta", "contentIndex": 1, "delta": "t"},
                _A[3],
                {"type": "thinking_end", "contentIndex": 1, "content": "t"},
                {"type": "done", "reason": "stop"},
            ],
            "message.content": [{"type": "text", "text": "a"}, {"type": "thinking", "thinking": "t"}],
        },
    ),
    "stream: refusal field is ignored": Difference(
        "a refusal is shown as text",
        {
            "events": [
                {"type": "start"},
                {"type": "text_start", "contentIndex": 0},
                {"type": "text_delta", "contentIndex": 0, "delta": "I cannot."},
                {"type": "text_end", "contentIndex": 0, "content": "I cannot."},
                {"type": "done", "reason": "stop"},
            ],
            "message.content": [{"type": "text", "text": "I cannot."}],
        },
    ),
    # failures
    "stream: broken JSON": Difference(_RETRY + "a stream with broken JSON is a broken stream", {"classified.retryable": True}),
    "stream: error object in mid-stream": Difference(
        _RETRY + "502 inside a stream is as good as one before", {"classified.retryable": True}
    ),
    "stream: HTTP 200 with an error event first": Difference(
        _RETRY + "`server_error` is as good as a 500", {"classified.retryable": True}
    ),
    **{
        f"stream: {name}": Difference(_RETRY + "a body without a message is no sign of an overflow", {"classified.overflow": False})
        for name in (
            "HTTP 400 with plain object",
            "HTTP 400 with empty object",
            "HTTP 400 with null error",
            "HTTP 400 without body",
        )
    },
    "retry: 400 is not retried": Difference(
        _RETRY + "a body without a message is no sign of an overflow", {"classified.overflow": False}
    ),
    **{
        f"retry: {name}": Difference(_RETRY + "a wait that is too long is retried by nobody", {"classified.retryable": False})
        for name in ("server asks for too long a wait", "server asks for more than the caller allows")
    },
    "retry: server forbids retrying": Difference(_RETRY + "the server said so", {"classified.retryable": False}),
}


def adapt(given: dict[str, Any], model: Model, options: StreamOptions) -> None:
    """Play the recorded function that takes this API's own options: it neither fits the level nor sets a limit of its own."""
    if given.get("via", "stream") != "stream":
        return
    if options.max_tokens is None:
        model.max_tokens = 0
    model.context_window = 0
    effort = given["options"].get("reasoningEffort")
    if effort is not None:
        options.reasoning = effort
        words = dict(model.thinking_level_map or {})
        if words.get(effort) is None and (effort in words or effort in ("xhigh", "max")):
            words[effort] = effort
        if words:
            model.thinking_level_map = words


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
