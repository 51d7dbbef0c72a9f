"""Chat completions: OpenAI's first wire format, spoken by nearly every other server too.

What a server takes and wants is in `llm/compat.py`; no vendor is known by name here. All text of an answer goes to one block and
all thinking to one other, in order of first appearance, and their end events come at the end: chunks do not say where a block ends.

A stream is complete when it had a `finish_reason` or `[DONE]`: real servers leave out one or the other. After a `finish_reason`
there may still come the usage, so reading goes on, but not for long.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from agentcore.errors import ErrorKind
from agentcore.events import AssistantMessageEvent, TextDeltaEvent, ThinkingDeltaEvent, ToolCallDeltaEvent
from agentcore.llm.assembly import Assembly, LiveToolCall
from agentcore.llm.compat import Compat, compat_of
from agentcore.llm.failures import classify_error
from agentcore.llm.history import JsonPieces, encode_history, plain_id, sanitize_surrogates, short_hash, to_json
from agentcore.llm.http import RequestFailed
from agentcore.llm.request import Context, StreamOptions, ToolSpec
from agentcore.llm.sse import SseEvent
from agentcore.llm.thinking import answer_limit, requested_level
from agentcore.llm.usage import count_usage, token_count
from agentcore.llm.wire import Answer, Call, WireFormat, WireRequest, broken_event, join_url, run_wire_format
from agentcore.messages import (
    AssistantMessage,
    ImageContent,
    Message,
    StopReason,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from agentcore.models import Model

MAX_CACHE_KEY_CHARS = 64
MAX_CALL_ID_CHARS = 40

_THINKING_FIELDS = ("reasoning_content", "reasoning", "reasoning_text")
_STOP_REASONS: dict[str, StopReason] = {
    "stop": "done",
    "end": "done",
    "eos": "done",
    "end_turn": "done",
    "length": "length",
    "max_tokens": "length",
    "tool_calls": "toolUse",
    "tool_use": "toolUse",
    "function_call": "toolUse",
}
_FAILED_REASONS: dict[str, tuple[ErrorKind, bool]] = {
    "content_filter": ("refusal", False),
    "refusal": ("refusal", False),
    "model_context_window_exceeded": ("overflow", False),
    "network_error": ("network", True),
    "error": ("server", True),
    "insufficient_system_resource": ("server", True),
}
_BRIDGE = '{"role":"assistant","content":"I have processed the tool results."}'


def stream(model: Model, context: Context, options: StreamOptions) -> Iterator[AssistantMessageEvent]:
    """Ask a model over chat completions."""
    return run_wire_format(_FORMAT, model, context, options)


class ChatCompletions(WireFormat):
    """The wire format `openai-completions`."""

    api = "openai-completions"
    terminal = "finish_reason"

    def build(self, call: Call) -> WireRequest:
        model, context, options = call.model, call.context, call.options
        compat = compat_of(model)
        retention = options.cache_retention or "short"
        session_id = options.session_id if retention != "none" else None
        body: dict[str, Any] = {
            "model": model.id,
            "messages": _messages(model, context, compat),
            "stream": True,
            **_caching(model, compat, retention, session_id),
        }
        if compat.supports_usage_in_streaming:
            body["stream_options"] = {"include_usage": True}
        if compat.supports_store:
            body["store"] = False
        limit = answer_limit(model, context, options) if options.max_tokens != 0 else None
        if limit:
            body[compat.max_tokens_field] = limit
        if options.temperature is not None:
            body["temperature"] = options.temperature
        if options.stop:
            body["stop"] = list(options.stop)
        if context.tools:
            # An empty list is refused by some servers, so it never goes out.
            body["tools"] = [_tool(tool, compat) for tool in context.tools]
            if options.tool_choice is not None:
                body["tool_choice"] = _tool_choice(options.tool_choice)
            if compat.zai_tool_stream:
                body["tool_stream"] = True
        if model.reasoning:
            body.update(_thinking(model, compat, requested_level(model, options)))
        if compat.open_router_routing:
            body["provider"] = dict(compat.open_router_routing)
        if compat.vercel_gateway_routing:
            body["providerOptions"] = {"gateway": dict(compat.vercel_gateway_routing)}
        if compat.cache_control_format == "anthropic" and retention != "none":
            _mark_for_cache(body, long=retention == "long" and compat.supports_long_cache_retention)
        headers = _session_headers(compat, session_id)
        if call.key:
            is_plain = compat.key_header != "authorization"
            headers[compat.key_header] = call.key if is_plain else f"Bearer {call.key}"
        return WireRequest(join_url(model, "/chat/completions"), body, headers)

    def read(self, events: Iterator[SseEvent], answer: Answer) -> Iterator[AssistantMessageEvent]:
        reader = _Reader(answer)
        yield from reader.events(events)
        for index in answer.assembly.open_indexes():
            reader.settle(index)
            yield answer.assembly.end(index)
        reason = reader.finish_reason
        if reason is None:
            # `[DONE]` alone is an end too, but not of nothing.
            if reader.is_done and answer.message.content:
                yield answer.finish("toolUse" if answer.message.tool_calls else "done")
            return
        stop_reason = _STOP_REASONS.get(reason)
        if stop_reason is None:
            kind, retryable = _FAILED_REASONS.get(reason, ("unknown", False))
            yield answer.fail(f"the provider ended the answer with finish_reason: {reason}", kind=kind, retryable=retryable)
            return
        yield answer.finish("toolUse" if stop_reason == "done" and answer.message.tool_calls else stop_reason)


_FORMAT = ChatCompletions()


# --- the request -----------------------------------------------------------------------------------------------------


def _messages(model: Model, context: Context, compat: Compat) -> JsonPieces:
    tag: tuple[Any, ...] = ("openai-completions", compat, model.reasoning)
    if compat.requires_assistant_after_tool_result:
        tag += (object(),)  # what follows decides how results end, so nothing can be kept
    history = encode_history(
        context.messages,
        model,
        lambda messages, index: _encode(messages, model, compat),
        tag=tag,
        normalize_id=lambda id, source: _call_id(id, model, compat),
    )
    if context.system_prompt:
        role = "developer" if model.reasoning and compat.supports_developer_role else "system"
        history.insert(0, to_json({"role": role, "content": context.system_prompt}))
    return history


def _encode(messages: Sequence[Message], model: Model, compat: Compat) -> list[str]:
    pieces: list[str] = []
    images: list[ImageContent] = []
    after_results = False
    for message in messages:
        is_result = isinstance(message, ToolResultMessage)
        if after_results and not is_result:
            _close_results(pieces, images, compat, is_user=isinstance(message, UserMessage))
        after_results = is_result
        encoded: dict[str, Any] | None
        if isinstance(message, ToolResultMessage):
            encoded = _tool_result(message, compat)
            images += [block for block in message.content if isinstance(block, ImageContent)]
        elif isinstance(message, AssistantMessage):
            encoded = _assistant(message, model, compat)
        else:
            encoded = {"role": "user", "content": _user_content(message)} if message.content else None
        if encoded:
            pieces.append(to_json(encoded))
    if after_results:
        _close_results(pieces, images, compat, is_user=False)
    return pieces


def _close_results(pieces: list[str], images: list[ImageContent], compat: Compat, *, is_user: bool) -> None:
    """Add what must follow a run of tool results: their images, which only a user message can hold."""
    if compat.requires_assistant_after_tool_result and (is_user or images):
        pieces.append(_BRIDGE)
    if images:
        parts = [{"type": "text", "text": "Attached image(s) from tool result:"}, *map(_image, images)]
        pieces.append(to_json({"role": "user", "content": parts}))
        images.clear()


def _user_content(message: UserMessage) -> str | list[dict[str, Any]]:
    content = message.content
    if len(content) == 1 and isinstance(content[0], TextContent):
        return content[0].text
    return [{"type": "text", "text": block.text} if isinstance(block, TextContent) else _image(block) for block in content]


def _image(block: ImageContent) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": f"data:{block.mime_type};base64,{block.data}"}}


def _assistant(message: AssistantMessage, model: Model, compat: Compat) -> dict[str, Any] | None:
    text = "".join(block.text for block in message.content if isinstance(block, TextContent) and block.text.strip())
    thoughts = [block for block in message.content if isinstance(block, ThinkingContent) and block.thinking.strip()]
    calls = message.tool_calls
    encoded: dict[str, Any] = {"role": "assistant", "content": text}
    if thoughts and compat.requires_thinking_as_text:
        thinking = "\n\n".join(block.thinking for block in thoughts)
        encoded["content"] = [{"type": "text", "text": words} for words in (thinking, text) if words]
    elif not text and not calls:
        return None
    elif thoughts and thoughts[0].thinking_signature in _THINKING_FIELDS:
        encoded[str(thoughts[0].thinking_signature)] = "\n".join(block.thinking for block in thoughts)
    if calls:
        if not encoded["content"] and not compat.requires_assistant_after_tool_result:
            encoded["content"] = None
        encoded["tool_calls"] = [_call(call) for call in calls]
        details = [detail for call in calls if (detail := _reasoning_detail(call)) is not None]
        if details:
            encoded["reasoning_details"] = details
    if compat.requires_reasoning_content_on_assistant_messages and model.reasoning:
        encoded.setdefault("reasoning_content", "")
    return encoded


def _call(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": to_json(call.arguments)}}


def _reasoning_detail(call: ToolCall) -> dict[str, Any] | None:
    try:
        detail = json.loads(call.thought_signature or "")
    except ValueError:
        return None
    return detail if isinstance(detail, dict) else None


def _tool_result(message: ToolResultMessage, compat: Compat) -> dict[str, Any]:
    text = "\n".join(block.text for block in message.content if isinstance(block, TextContent))
    if not text:
        has_image = any(isinstance(block, ImageContent) for block in message.content)
        text = "(see attached image)" if has_image else "(no tool output)"
    encoded: dict[str, Any] = {"role": "tool", "content": text, "tool_call_id": message.tool_call_id}
    if compat.requires_tool_result_name:
        encoded["name"] = message.tool_name
    return encoded


def _call_id(id: str, model: Model, compat: Compat) -> str:
    """Return an id that another provider made as this one accepts it."""
    if compat.short_call_ids:
        return id if len(id) == 9 and id.isascii() and id.isalnum() else (short_hash(id) + "000000000")[:9]
    if "|" in id:
        plain = plain_id(id) if len(id) <= MAX_CALL_ID_CHARS else ""
        if plain:
            return plain
        suffix = "_" + short_hash(id)[:8]
        return plain_id(id.partition("|")[0])[: MAX_CALL_ID_CHARS - len(suffix)] + suffix
    return id[:MAX_CALL_ID_CHARS] if model.provider == "openai" else id


def _tool(tool: ToolSpec, compat: Compat) -> dict[str, Any]:
    function: dict[str, Any] = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    if compat.supports_strict_mode:
        function["strict"] = False
    return {"type": "function", "function": function}


def _tool_choice(choice: Any) -> Any:
    if not isinstance(choice, str) or choice in ("auto", "none", "required"):
        return choice
    return {"type": "function", "function": {"name": choice}}


def _thinking(model: Model, compat: Compat, level: str | None) -> dict[str, Any]:
    """Say how much to think, in the way that the server understands."""
    words = model.thinking_level_map or {}
    style = compat.thinking_format
    off = words.get("off")
    off_is_fixed = "off" in words and off is None  # the model cannot be told not to think
    word = (words.get(level) or level) if level else None
    effort: dict[str, Any] = {"reasoning_effort": word} if word and compat.supports_reasoning_effort else {}
    if style == "zai":
        return {"thinking": {"type": "enabled", "clear_thinking": False}, **effort} if word else {"thinking": {"type": "disabled"}}
    if style == "qwen":
        return {"enable_thinking": bool(word)}
    if style == "qwen-chat-template":
        return {"chat_template_kwargs": {"enable_thinking": bool(word), "preserve_thinking": True}}
    if style == "chat-template":
        return _template_kwargs(compat, word, off)
    if style == "together":
        return {"reasoning": {"enabled": bool(word)}, **effort}
    if style == "deepseek":
        if word:
            return {"thinking": {"type": "enabled"}, **effort}
        return {} if off_is_fixed else {"thinking": {"type": "disabled"}}
    if style == "openrouter":
        return {} if not word and off_is_fixed else {"reasoning": {"effort": word or off or "none"}}
    if style == "string-thinking":
        return {} if not word and off_is_fixed else {"thinking": word or off or "none"}
    if style == "ant-ling" and level:
        return {"reasoning": {"effort": words[level]}} if words.get(level) else {}
    if not word and off and compat.supports_reasoning_effort:
        return {"reasoning_effort": off}
    return effort


def _template_kwargs(compat: Compat, word: str | None, off: str | None) -> dict[str, Any]:
    filled: dict[str, Any] = {}
    for name, value in (compat.chat_template_kwargs or {}).items():
        variable = value.get("$var") if isinstance(value, dict) else None
        if variable == "thinking.enabled":
            filled[name] = bool(word)
        elif variable == "thinking.effort":
            if word or (off and not value.get("omitWhenOff")):
                filled[name] = word or off
        else:
            filled[name] = value
    return {"chat_template_kwargs": filled} if filled else {}


def _caching(model: Model, compat: Compat, retention: str, session_id: str | None) -> dict[str, Any]:
    keeps_long = retention == "long" and compat.supports_long_cache_retention
    fields: dict[str, Any] = {}
    if session_id and (keeps_long or "api.openai.com" in model.base_url):
        fields["prompt_cache_key"] = sanitize_surrogates(session_id)[:MAX_CACHE_KEY_CHARS]
    if keeps_long:
        fields["prompt_cache_retention"] = "24h"
    return fields


def _session_headers(compat: Compat, session_id: str | None) -> dict[str, str]:
    if not session_id or not compat.send_session_affinity_headers:
        return {}
    if compat.session_affinity_format == "openrouter":
        return {"x-session-id": session_id}
    headers = {"x-client-request-id": session_id, "x-session-affinity": session_id}
    if compat.session_affinity_format == "openai":
        headers["session_id"] = session_id
    return headers


def _mark_for_cache(body: dict[str, Any], *, long: bool) -> None:
    """Set cache breakpoints as Anthropic has them: after the tools, the system prompt, and the last message with text."""
    mark = {"type": "ephemeral", "ttl": "1h"} if long else {"type": "ephemeral"}
    pieces: JsonPieces = body["messages"]
    if body.get("tools"):
        body["tools"][-1]["cache_control"] = mark
    if pieces:
        first = json.loads(pieces[0])
        if first["role"] in ("system", "developer") and _mark_text(first, mark):
            pieces[0] = to_json(first)
    for index in range(len(pieces) - 1, -1, -1):
        message = json.loads(pieces[index])
        if message["role"] in ("system", "developer"):
            break
        if _mark_text(message, mark):
            pieces[index] = to_json(message)
            break


def _mark_text(message: dict[str, Any], mark: dict[str, Any]) -> bool:
    content = message.get("content")
    if isinstance(content, str) and content:
        message["content"] = [{"type": "text", "text": content, "cache_control": mark}]
        return True
    parts: list[Any] = content if isinstance(content, list) else []
    for part in reversed(parts):
        if part.get("type") == "text":
            part["cache_control"] = mark
            return True
    return False


# --- the answer ------------------------------------------------------------------------------------------------------


class _Reader:
    """Reads the chunks of one answer. `finish_reason` is the last one that came."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.assembly: Assembly = answer.assembly
        self.message = answer.message
        self.model = answer.call.model
        self.finish_reason: str | None = None
        self.is_done = False
        self._text: int | None = None
        self._thinking: int | None = None
        self._calls_by_index: dict[Any, int] = {}
        self._calls_by_id: dict[str, int] = {}
        self._last_call: int | None = None
        self._signatures: dict[str, str] = {}  # by call id

    def events(self, events: Iterator[SseEvent]) -> Iterator[AssistantMessageEvent]:
        message, loads = self.message, json.loads
        has_head = False
        for event in events:
            try:
                chunk = loads(event.data)
            except ValueError:
                if event.data.strip() == "[DONE]":
                    self.is_done = True
                    return
                if event.event == "error":
                    raise RequestFailed(classify_error(event.data)) from None
                raise broken_event(event) from None
            if type(chunk) is not dict:
                continue
            if not has_head:
                has_head = self._read_head(chunk)
            choices = chunk.get("choices")
            usage = chunk.get("usage")
            if usage is not None:
                self._read_usage(usage)
            if not choices:
                if chunk.get("error") or event.event == "error":
                    raise RequestFailed(classify_error(chunk.get("error") or chunk))
                self._read_groq_usage(chunk)
                continue
            choice = choices[0]
            if type(choice) is not dict:
                continue
            delta = choice.get("delta")
            if delta:
                content = delta.get("content")
                if type(content) is str and content and len(delta) <= 2:
                    # The common chunk first, on the shortest way.
                    index = self._text
                    if index is None:
                        yield self._open_text()
                        index = self._text
                    message.content[index].pieces.append(content)  # type: ignore[index, union-attr]
                    yield TextDeltaEvent(index, content, message)  # type: ignore[arg-type]
                    if len(delta) == 2:
                        yield from self._read_delta(delta, skip_text=True)
                elif (more := self._next_arguments(delta)) is not None:
                    yield more
                else:
                    yield from self._read_delta(delta)
            reason = choice.get("finish_reason")
            if reason:
                self.finish_reason = str(reason)
                self.answer.expect_end()
                if usage is None:
                    self._read_groq_usage(chunk)
            if choice.get("usage"):
                self._read_usage(choice["usage"])
            error = chunk.get("error") or choice.get("error")
            if error:
                raise RequestFailed(classify_error(error))

    def _read_head(self, chunk: dict[str, Any]) -> bool:
        message = self.message
        if message.response_id is None and isinstance(chunk.get("id"), str) and chunk["id"]:
            message.response_id = chunk["id"]
        name = chunk.get("model")
        if message.response_model is None and isinstance(name, str) and name and name != self.model.id:
            message.response_model = name
        return message.response_id is not None and isinstance(name, str)

    def _open_text(self) -> AssistantMessageEvent:
        event = self.assembly.open_text()
        self._text = event.content_index
        return event

    def _read_delta(self, delta: dict[str, Any], *, skip_text: bool = False) -> Iterator[AssistantMessageEvent]:
        message = self.message
        content = delta.get("content")
        thinking, field = _thinking_of(delta)
        if isinstance(content, list):
            content, listed = _join_parts(content)
            thinking = thinking or listed
        if not skip_text:
            text = content or delta.get("refusal")
            if isinstance(text, str) and text:
                if self._text is None:
                    yield self._open_text()
                yield self.assembly.add_text(self._text, text)  # type: ignore[arg-type]
        if thinking:
            if self._thinking is None:
                # This service reads back another field than the one it writes.
                signature = "reasoning_content" if self.model.provider == "opencode-go" else field
                opened = self.assembly.open_thinking(signature)
                self._thinking = opened.content_index
                yield opened
            index = self._thinking
            message.content[index].pieces.append(thinking)  # type: ignore[union-attr]
            yield ThinkingDeltaEvent(index, thinking, message)
        calls = delta.get("tool_calls")
        if calls:
            for piece in calls if isinstance(calls, list) else [calls]:
                if isinstance(piece, dict):
                    yield from self._read_call(piece)
        details = delta.get("reasoning_details")
        if details:
            self._read_signatures(details)

    def _next_arguments(self, delta: dict[str, Any]) -> AssistantMessageEvent | None:
        """Read a chunk that is nothing but the next piece of a call's arguments, as most of a call's are."""
        calls = delta.get("tool_calls")
        if len(delta) != 1 or type(calls) is not list or len(calls) != 1 or type(calls[0]) is not dict:
            return None
        piece = calls[0]
        index = self._calls_by_index.get(piece.get("index"))
        function = piece.get("function")
        if index is None or piece.get("id") or type(function) is not dict or function.get("name"):
            return None
        text = function.get("arguments")
        if type(text) is not str:
            return None
        self._last_call = index
        message = self.message
        message.content[index].pieces.append(text)  # type: ignore[union-attr]
        return ToolCallDeltaEvent(index, text, message)

    def _read_call(self, piece: dict[str, Any]) -> Iterator[AssistantMessageEvent]:
        function = piece.get("function")
        if not isinstance(function, dict):
            # A call of a tool that takes bare text: never asked for, but not to be taken for a call without a name.
            custom = piece.get("custom")
            function = {"name": custom.get("name"), "arguments": custom.get("input")} if isinstance(custom, dict) else {}
        id = piece.get("id")
        id = id if isinstance(id, str) else ""
        name = function.get("name")
        name = name if isinstance(name, str) else ""
        delta = _argument_text(function.get("arguments"))
        index = self._find_call(piece.get("index"), id, name, delta)
        if index is None:
            opened = self.assembly.open_call(id, name)
            index = opened.content_index
            yield opened
        block = self.message.content[index]
        assert isinstance(block, LiveToolCall)
        block.id = block.id or id
        block.name = block.name or name
        if piece.get("index") is not None:
            self._calls_by_index[piece["index"]] = index
        if id:
            self._calls_by_id.setdefault(id, index)
        self._last_call = index
        block.pieces.append(delta)
        yield ToolCallDeltaEvent(index, delta, self.message)

    def _find_call(self, place: Any, id: str, name: str, delta: str) -> int | None:
        """Return the block that a piece of a call belongs to, None if it begins a new call.

        Servers number calls as they like: all of them 0, not at all, or with an id that changes from piece to piece. A new id on
        a known number is a new call if the one so far is complete.
        """
        index = self._calls_by_index.get(place) if place is not None else None
        if index is not None:
            block = self.message.content[index]
            assert isinstance(block, LiveToolCall)
            if not id or not block.id or id == block.id or self._calls_by_id.get(id) == index:
                return index
            return self._calls_by_id.get(id) if _is_complete(block, name, delta) else index
        if id:
            return self._calls_by_id.get(id)
        if place is None and not name:
            return self._last_call
        return None

    def _read_signatures(self, details: Any) -> None:
        for detail in details if isinstance(details, list) else ():
            if isinstance(detail, dict) and detail.get("type") == "reasoning.encrypted" and detail.get("id") and detail.get("data"):
                self._signatures[str(detail["id"])] = json.dumps(detail, ensure_ascii=False, separators=(",", ":"))

    def settle(self, index: int) -> None:
        """See to it that a call about to end has an id of its own and its signature."""
        block = self.message.content[index]
        if isinstance(block, ToolCall):
            others = {other.id for other in self.message.tool_calls if other is not block}
            if not block.id or block.id in others:
                block.id = f"call_{uuid.uuid4().hex[:24]}"
            block.thought_signature = self._signatures.get(block.id, block.thought_signature)

    def _read_usage(self, raw: Any) -> None:
        if isinstance(raw, dict) and (raw or not self.message.usage.total_tokens):
            self.message.usage = _usage(raw, self.model)

    def _read_groq_usage(self, chunk: dict[str, Any]) -> None:
        extra = chunk.get("x_groq")
        if isinstance(extra, dict) and extra.get("usage"):
            self._read_usage(extra["usage"])


def _thinking_of(delta: dict[str, Any]) -> tuple[str, str | None]:
    for field in _THINKING_FIELDS:
        value = delta.get(field)
        if value and isinstance(value, str):
            return value, field
    details = delta.get("reasoning_details")
    if isinstance(details, list):
        found = [detail.get("text") or detail.get("summary") for detail in details if isinstance(detail, dict)]
        return "".join(text for text in found if isinstance(text, str)), None
    return "", None


def _join_parts(parts: Iterable[Any]) -> tuple[str, str]:
    """Return text and thinking of a content that comes as a list of parts."""
    text: list[str] = []
    thinking: list[str] = []
    for part in parts:
        if not isinstance(part, dict):
            continue
        if part.get("type") == "thinking":
            inner = part.get("thinking")
            pieces: Sequence[Any] = inner if isinstance(inner, list) else [{"text": inner}]
            thinking += [piece["text"] for piece in pieces if isinstance(piece, dict) and isinstance(piece.get("text"), str)]
        elif isinstance(part.get("text"), str):
            text.append(part["text"])
    return "".join(text), "".join(thinking)


def _argument_text(raw: Any) -> str:
    if isinstance(raw, str):
        return raw
    return json.dumps(raw, ensure_ascii=False) if isinstance(raw, dict) and raw else ""


def _is_complete(block: LiveToolCall, name: str, delta: str) -> bool:
    """Whether a call is all there, so that a piece with another id begins the next one."""
    text = block.partial_json.strip()
    if not text:
        return bool(name) and name != block.name
    if not text.endswith("}") or (not name and not delta.strip()):
        return False
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _usage(raw: dict[str, Any], model: Model) -> Usage:
    read = token_count(raw, "prompt_tokens")
    details = raw.get("prompt_tokens_details")
    if isinstance(details, dict) and details.get("cached_tokens") is not None:
        cached = token_count(details, "cached_tokens")
    else:
        cached = token_count(raw, "prompt_cache_hit_tokens") or token_count(raw, "cached_tokens")
    cached = min(cached, read)  # a server was seen that counts what it had cached beyond the prompt
    written_to_cache = token_count(raw, "prompt_tokens_details", "cache_write_tokens")
    output = token_count(raw, "completion_tokens")
    reasoning = token_count(raw, "completion_tokens_details", "reasoning_tokens")
    total = token_count(raw, "total_tokens")
    if reasoning and total == read + output + reasoning:
        output += reasoning  # some count the reasoning apart, and only the total shows it
    return count_usage(
        model,
        input=read - cached - written_to_cache,
        output=output,
        cache_read=cached,
        cache_write=written_to_cache,
        reasoning=reasoning,
    )
