"""Chat completions: OpenAI's first wire format, spoken by nearly every other server too.

What a server takes and wants is in `llm/compat.py`; no vendor is known by name here. All text of an answer goes to one block and
all thinking to one other, in order of first appearance, and their end events come at the end: chunks do not say where a block ends.

A stream is complete when it had a `finish_reason` or `[DONE]`: real servers leave out one or the other. After a `finish_reason`
there may still come the usage, so reading goes on, but not for long.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from agentcore.errors import ErrorKind
from agentcore.events import AssistantMessageEvent
from agentcore.llm.compat import Compat, compat_of
from agentcore.llm.history import JsonPieces, encode_history, is_blank, plain_id, sanitize_surrogates, short_hash, to_json
from agentcore.llm.openai_chunks import THINKING_FIELDS, ChunkReader
from agentcore.llm.request import Context, StreamOptions, ToolSpec
from agentcore.llm.sse import SseEvent
from agentcore.llm.thinking import answer_limit, requested_level
from agentcore.llm.wire import Answer, Call, WireFormat, WireRequest, join_url, run_wire_format
from agentcore.messages import (
    AssistantMessage,
    ImageContent,
    Message,
    StopReason,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from agentcore.models import Model

MAX_CACHE_KEY_CHARS = 64
MAX_CALL_ID_CHARS = 40

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
        reader = ChunkReader(answer)
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
    text = "".join(block.text for block in message.content if isinstance(block, TextContent) and not is_blank(block.text))
    thoughts = [block for block in message.content if isinstance(block, ThinkingContent) and not is_blank(block.thinking)]
    calls = message.tool_calls
    encoded: dict[str, Any] = {"role": "assistant", "content": text}
    if thoughts and compat.requires_thinking_as_text:
        thinking = "\n\n".join(block.thinking for block in thoughts)
        encoded["content"] = [{"type": "text", "text": words} for words in (thinking, text) if words]
    elif not text and not calls:
        return None
    elif thoughts and thoughts[0].thinking_signature in THINKING_FIELDS:
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
    if not sanitize_surrogates(text):
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
