"""The wire format `proxy`: a server of one's own that asks the model and holds the keys.

    POST {proxy_url}/api/stream   {"model", "context", "options"}
    ← data: {"type": "start" | "text_start" | "text_delta" | … | "done" | "error", "contentIndex", …}

The events are ours without the partial message, which is put together here again. The key of a provider, the headers of the model,
time limits and retries stay at home: what goes along is what the answer depends on. The token for the proxy is
`ProxyOptions.auth_token`, with plain `StreamOptions` their `api_key`; no key of the environment is sent, since it would belong to
somebody else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from agentcore.codec import camel_case, decode, encode
from agentcore.events import (
    AssistantMessageEvent,
    TextStartEvent,
    ThinkingStartEvent,
    ToolCallStartEvent,
)
from agentcore.llm.assembly import LiveText, LiveThinking, LiveToolCall
from agentcore.llm.failures import Failure, classify_text
from agentcore.llm.http import RequestFailed
from agentcore.llm.request import Context, StreamOptions, widen_options
from agentcore.llm.sse import SseEvent
from agentcore.llm.wire import Answer, Call, WireFormat, WireRequest, join_url, run_wire_format, setup_failure
from agentcore.messages import Message, StopReason, TextContent, Usage, UserMessage
from agentcore.models import Model

_FORWARDED = (
    "temperature", "max_tokens", "reasoning", "cache_retention", "session_id", "headers", "metadata", "transport",
    "thinking_budgets", "max_retry_delay_ms",
)  # fmt: skip
_STOP_REASONS: dict[str, StopReason] = {"stop": "done", "length": "length", "toolUse": "toolUse"}


@dataclass
class ProxyOptions(StreamOptions):
    """Where the proxy is, and the token for it. Without an address, `Model.base_url` counts."""

    proxy_url: str = ""
    auth_token: str | None = field(default=None, repr=False)


def stream(model: Model, context: Context, options: StreamOptions) -> Iterator[AssistantMessageEvent]:
    """Ask a model through a proxy."""
    # What is meant for the provider goes into the body; nothing of it is for the proxy itself.
    own = replace(options, headers=None)
    return run_wire_format(Proxy(model, options), replace(model, headers=None), context, own)


class Proxy(WireFormat):
    """Builds requests and reads answers of the proxy's protocol."""

    api = "proxy"
    terminal = "done event"
    needs_key = False

    def __init__(self, model: Model, options: StreamOptions) -> None:
        self.model = model
        self.options = options

    # --- the request -------------------------------------------------------------------------------------------------

    def build(self, call: Call) -> WireRequest:
        options = self.options
        if not isinstance(options, ProxyOptions):
            options = _own_options(options)
        place = replace(self.model, base_url=options.proxy_url or self.model.base_url)
        if not place.base_url:
            raise setup_failure("no address of a proxy: set ProxyOptions.proxy_url, or base_url of the model")
        forwarded = {camel_case(name): getattr(options, name) for name in _FORWARDED if getattr(options, name, None) is not None}
        body: dict[str, Any] = {"model": encode(self.model), "context": _context(call.context), "options": forwarded}
        headers = {"authorization": f"Bearer {options.auth_token}"} if options.auth_token else {}
        return WireRequest(join_url(place, "/api/stream"), body, headers)

    # --- the answer --------------------------------------------------------------------------------------------------

    def read(self, events: Iterator[SseEvent], answer: Answer) -> Iterator[AssistantMessageEvent]:
        assembly, message = answer.assembly, answer.message
        content = message.content
        for event in events:
            if not event.data.strip():
                continue
            data = answer.parse(event)
            if not isinstance(data, dict):
                continue
            kind = data.get("type")
            index: Any = data.get("contentIndex")
            if kind in _DELTAS:
                _expect(content, index, _DELTAS[kind], kind)
                delta = str(data.get("delta", ""))
                if kind == "text_delta":
                    yield assembly.add_text(index, delta)
                elif kind == "thinking_delta":
                    yield assembly.add_thinking(index, delta)
                else:
                    yield assembly.add_arguments(index, delta)
            elif kind in _STARTS:
                yield _start(answer, kind, index, data)
            elif kind in ("text_end", "thinking_end"):
                block: Any = _expect(content, index, _ENDS[kind], kind)
                signature = data.get("contentSignature")
                if signature is not None:
                    setattr(block, "text_signature" if kind == "text_end" else "thinking_signature", signature)
                yield assembly.end(index)
            elif kind == "toolcall_end":
                if isinstance(index, int) and 0 <= index < len(content) and isinstance(content[index], LiveToolCall):
                    yield assembly.end(index)
            elif kind == "done":
                message.usage = _usage(data)
                yield answer.finish(_STOP_REASONS.get(data.get("reason", "stop"), "done"))
                return
            elif kind == "error":
                message.usage = _usage(data)
                yield _fail(answer, data)
                return


_STARTS = ("text_start", "thinking_start", "toolcall_start")
_DELTAS = {"text_delta": LiveText, "thinking_delta": LiveThinking, "toolcall_delta": LiveToolCall}
_ENDS = {"text_end": LiveText, "thinking_end": LiveThinking}


def _expect(content: list[Any], index: Any, kind: type, event: str) -> Any:
    """Return the open block at `index`.

    Raises:
        RequestFailed: There is none, or it is of another kind.
    """
    if isinstance(index, int) and 0 <= index < len(content) and isinstance(content[index], kind):
        return content[index]
    text = f"the proxy sent {event} for block {index}, which is not an open block of that kind"
    raise RequestFailed(Failure("protocol", False, text))


def _start(answer: Answer, kind: str, index: Any, data: Mapping[str, Any]) -> AssistantMessageEvent:
    content, message = answer.message.content, answer.message
    if not isinstance(index, int) or not 0 <= index <= len(content):
        text = f"the proxy began block {index}, but there are {len(content)} blocks"
        raise RequestFailed(Failure("protocol", False, text))
    block: LiveText | LiveThinking | LiveToolCall
    event: AssistantMessageEvent
    if kind == "text_start":
        block, event = LiveText(), TextStartEvent(index, message)
    elif kind == "thinking_start":
        block, event = LiveThinking(), ThinkingStartEvent(index, message)
    else:
        block = LiveToolCall(str(data.get("id", "")), str(data.get("toolName", "")))
        event = ToolCallStartEvent(index, message)
    content[index : index + 1] = [block]  # a block that begins again begins anew
    return event


def _usage(data: Mapping[str, Any]) -> Usage:
    usage = data.get("usage")
    return decode(Usage, usage) if isinstance(usage, dict) else Usage()


def _fail(answer: Answer, data: Mapping[str, Any]) -> AssistantMessageEvent:
    text = data.get("errorMessage")
    if data.get("reason") == "aborted":
        event = answer.assembly.abort()
        if text:
            answer.message.error_message = str(text)
        return event
    failure = classify_text(str(text)) if text else Failure("unknown", False, "the proxy reported an error without a text")
    return answer.fail(failure.text, kind=failure.kind, retryable=failure.retryable)


def _own_options(options: StreamOptions) -> ProxyOptions:
    own = widen_options(options, ProxyOptions)
    own.auth_token = options.api_key
    return own


def _context(context: Context) -> dict[str, Any]:
    written: dict[str, Any] = {}
    if context.system_prompt:
        written["systemPrompt"] = context.system_prompt
    written["messages"] = [_message(message) for message in context.messages]
    if context.tools is not None:
        written["tools"] = [
            {"name": tool.name, "description": tool.description, "parameters": tool.parameters} for tool in context.tools
        ]
    return written


def _message(message: Message) -> Any:
    written = encode(message)
    if isinstance(message, UserMessage) and len(message.content) == 1:
        block = message.content[0]
        if isinstance(block, TextContent) and block.text_signature is None:
            written["content"] = block.text
    return written
