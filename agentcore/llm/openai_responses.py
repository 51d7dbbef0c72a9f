"""The wire format `openai-responses`: OpenAI's Responses API, always with `store: false`.

    response.created ── output_item.added ── …delta … ── output_item.done ── … ── response.completed | incomplete | failed

The answer is a list of items, addressed by `output_index`; deltas belong to an item, and the finished item has the last word over
what was streamed. Our blocks stand in the order of the indexes, whichever item ends first. Nothing is kept at the service, so a
reasoning item goes back as it came, with its encrypted content: it is the signature of our thinking block. A call's id holds both
of the API's, `call_…|fc_…`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentcore.events import AssistantMessageEvent
from agentcore.llm.assembly import Assembly, LiveText, LiveThinking, LiveToolCall, read_arguments
from agentcore.llm.compat import Compat, compat_of
from agentcore.llm.failures import classify_error
from agentcore.llm.history import JsonPieces, encode_history, plain_id, sanitize_surrogates, short_hash, to_json
from agentcore.llm.http import RequestFailed
from agentcore.llm.request import Context, StreamOptions, ToolSpec, widen_options
from agentcore.llm.sse import SseEvent
from agentcore.llm.thinking import answer_limit, requested_level
from agentcore.llm.usage import count_usage, token_count
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
)
from agentcore.models import Model

DEFAULT_BASE_URL = "https://api.openai.com/v1"
MIN_OUTPUT_TOKENS = 16
"""The API refuses a lower limit."""

_TIER_FACTORS = {"flex": 0.5, "priority": 2.0}


@dataclass
class ResponsesOptions(StreamOptions):
    """The options of this wire format as the API has them; plain `StreamOptions` are turned into these.

    Args:
        reasoning_effort: The effort, a thinking level or the API's own word.
        reasoning_summary: `"auto"`, `"concise"` or `"detailed"`.
        service_tier: `"flex"`, `"priority"`, …: changes the price.
    """

    reasoning_effort: str | None = None
    reasoning_summary: str | None = None
    service_tier: str | None = None


def stream(model: Model, context: Context, options: StreamOptions) -> Iterator[AssistantMessageEvent]:
    """Ask a model over OpenAI's Responses API."""
    return run_wire_format(OpenAIResponses(), model, context, options)


class OpenAIResponses(WireFormat):
    """Builds requests and reads answers of the Responses API."""

    api = "openai-responses"
    terminal = "terminal response event"

    # --- the request -------------------------------------------------------------------------------------------------

    def build(self, call: Call) -> WireRequest:
        model, context = call.model, call.context
        compat = compat_of(model)
        options = _own_options(model, context, call.options)
        items = JsonPieces()
        if context.system_prompt:
            role = "developer" if model.reasoning and compat.supports_developer_role else "system"
            items.append(to_json({"role": role, "content": context.system_prompt}))
        items += encode_history(
            context.messages,
            model,
            lambda messages, start: _encode(messages, start, model),
            tag=self.api,
            normalize_id=_IdRule(model, compat),
        )
        body: dict[str, Any] = {"model": model.id, "input": items, "stream": True}
        body.update(_caching(options, compat))
        body["store"] = False
        if options.max_tokens is not None:
            body["max_output_tokens"] = max(MIN_OUTPUT_TOKENS, options.max_tokens)
        if options.temperature is not None:
            body["temperature"] = options.temperature
        if options.service_tier is not None:
            body["service_tier"] = options.service_tier
        if context.tools:
            body["tools"] = [_tool(tool, model) for tool in context.tools]
            if options.tool_choice is not None:
                body["tool_choice"] = _tool_choice(options.tool_choice)
        if model.reasoning:
            body.update(_reasoning(model, options))
        url = join_url(model, "/responses", vendor="openai", vendor_url=DEFAULT_BASE_URL)
        return WireRequest(url, body, _headers(call, options, compat), state=options.service_tier)

    # --- the answer --------------------------------------------------------------------------------------------------

    def read(self, events: Iterator[SseEvent], answer: Answer) -> Iterator[AssistantMessageEvent]:
        assembly, content = answer.assembly, answer.message.content
        add: dict[type, Callable[[int, str], AssistantMessageEvent]] = {
            LiveText: assembly.add_text,
            LiveThinking: assembly.add_thinking,
            LiveToolCall: assembly.add_arguments,
        }
        places: dict[Any, int] = {}  # output_index → our index, while the item is open
        for event in events:
            if event.data == "[DONE]":
                continue
            data = answer.parse(event)
            if not isinstance(data, dict):
                continue
            kind = data.get("type")
            live = _DELTAS.get(kind)  # type: ignore[arg-type]
            if live is not None:
                index = places.get(data.get("output_index"))
                if index is not None and type(content[index]) is live:
                    yield add[live](index, data.get("delta") or "")
            elif kind == "response.output_item.added":
                opened = _open(assembly, data.get("item") or {})
                if opened is not None:
                    places[data.get("output_index")] = opened.content_index
                    yield opened
            elif kind == "response.output_item.done":
                item = data.get("item") or {}
                index = places.pop(data.get("output_index"), None)
                if index is None:
                    opened = _open(assembly, item)
                    if opened is None:
                        continue
                    index = opened.content_index
                    yield opened
                yield _end(assembly, index, item)
            elif kind == "response.reasoning_summary_part.done":
                index = places.get(data.get("output_index"))
                if index is not None and isinstance(answer.message.content[index], LiveThinking):
                    yield assembly.add_thinking(index, "\n\n")
            elif kind == "response.function_call_arguments.done":
                index = places.get(data.get("output_index"))
                block = answer.message.content[index] if index is not None else None
                said = data.get("arguments")
                if index is not None and isinstance(block, LiveToolCall) and isinstance(said, str):
                    streamed = block.partial_json
                    if len(said) > len(streamed) and said.startswith(streamed):
                        yield assembly.add_arguments(index, said[len(streamed) :])
            elif kind == "response.created":
                answer.message.response_id = (data.get("response") or {}).get("id")
            elif kind in ("response.completed", "response.incomplete"):
                response = data.get("response") or {}
                yield _finish(answer, response, is_cut=kind == "response.incomplete")
                return
            elif kind == "response.failed":
                raise RequestFailed(classify_error(_failure_of(data.get("response") or {})))
            elif kind == "error" or (kind is None and data.get("error")):
                raise RequestFailed(classify_error(data))


# --- reading ---------------------------------------------------------------------------------------------------------


_DELTAS: dict[str, type[LiveText] | type[LiveThinking] | type[LiveToolCall]] = {
    "response.output_text.delta": LiveText,
    "response.refusal.delta": LiveText,
    "response.reasoning_summary_text.delta": LiveThinking,
    "response.reasoning_text.delta": LiveThinking,
    "response.function_call_arguments.delta": LiveToolCall,
}


def _open(assembly: Assembly, item: Mapping[str, Any]) -> Any:
    kind = item.get("type")
    if kind == "message":
        return assembly.open_text()
    if kind == "reasoning":
        return assembly.open_thinking()
    if kind == "function_call":
        opened = assembly.open_call(_call_id(assembly, item), item.get("name") or "")
        given = item.get("arguments")
        if isinstance(given, str) and given:
            assembly.add_arguments(opened.content_index, given)
        return opened
    return None


def _call_id(assembly: Assembly, item: Mapping[str, Any]) -> str:
    call_id, item_id = item.get("call_id") or item.get("id") or "call", item.get("id")
    taken = {call.id.partition("|")[0] for call in assembly.message.tool_calls}
    unique, count = call_id, 2
    while unique in taken:
        unique, count = f"{call_id}_{count}", count + 1
    return f"{unique}|{item_id}" if item_id and item.get("call_id") else unique


def _end(assembly: Assembly, index: int, item: Mapping[str, Any]) -> AssistantMessageEvent:
    """End the block of an item: what the finished item says counts, what it does not say stays as it was streamed."""
    block = assembly.message.content[index]
    settled: Any = block  # `settle` makes it a plain block, whose text can be set
    if isinstance(block, LiveText):
        parts = [part for part in item.get("content") or () if isinstance(part, dict)]
        said = "".join(part.get("text") or part.get("refusal") or "" for part in parts)
        block.settle()
        if said:
            settled.text = said
        if item.get("id"):
            signature = {"v": 1, "id": item["id"]}
            if item.get("phase"):
                signature["phase"] = item["phase"]
            block.text_signature = to_json(signature)
    elif isinstance(block, LiveThinking):
        said = _joined(item.get("summary")) or _joined(item.get("content"))
        block.settle()
        if said:
            settled.thinking = said
        block.thinking_signature = to_json(item)
    elif isinstance(block, LiveToolCall):
        text = item.get("arguments")
        if isinstance(text, str) and text and text != block.partial_json:
            arguments, raw = read_arguments(text)
            block.settle(arguments=arguments)
            block.raw_arguments = raw
    return assembly.end(index)


def _joined(parts: Any) -> str:
    return "\n\n".join(part["text"] for part in parts or () if isinstance(part, dict) and part.get("text"))


def _finish(answer: Answer, response: Mapping[str, Any], *, is_cut: bool) -> AssistantMessageEvent:
    message = answer.message
    if response.get("id"):
        message.response_id = response["id"]
    _take_encrypted(message, response.get("output"))
    usage = response.get("usage")
    if isinstance(usage, dict):
        tier = response.get("service_tier")
        message.usage = _count(answer.call.model, usage, tier if isinstance(tier, str) else answer.state)
    status = response.get("status")
    if status == "incomplete" or is_cut:
        reason = (response.get("incomplete_details") or {}).get("reason")
        if reason == "content_filter":
            return answer.fail("a content filter stopped the answer (content_filter)", kind="refusal")
        return answer.finish("length")
    if status in ("failed", "cancelled"):
        if response.get("error"):
            raise RequestFailed(classify_error(_failure_of(response)))
        return answer.fail(f"the service ended the answer as {status}, without a reason", kind="unknown")
    if status not in ("completed", "in_progress", "queued", None):
        return answer.fail(f"the answer ended for a reason that is not known: {status}", kind="protocol")
    stop: StopReason = "toolUse" if message.tool_calls else "done"
    return answer.finish(stop)


def _take_encrypted(message: AssistantMessage, output: Any) -> None:
    """Add the encrypted content of reasoning items where it came only at the very end."""
    encrypted = {
        item.get("id"): item["encrypted_content"]
        for item in output or ()
        if isinstance(item, dict) and item.get("type") == "reasoning" and item.get("encrypted_content")
    }
    if not encrypted:
        return
    for block in message.content:
        item = _reasoning_item(block) if isinstance(block, ThinkingContent) else None
        if item is not None and not item.get("encrypted_content") and item.get("id") in encrypted:
            assert isinstance(block, ThinkingContent)
            block.thinking_signature = to_json({**item, "encrypted_content": encrypted[item["id"]]})


def _count(model: Model, usage: Mapping[str, Any], tier: str | None) -> Any:
    cached = token_count(usage, "input_tokens_details", "cached_tokens")
    written = token_count(usage, "input_tokens_details", "cache_write_tokens")
    factor = _TIER_FACTORS.get(tier or "", 1.0)
    if tier == "priority" and model.id == "gpt-5.5":
        factor = 2.5
    return count_usage(
        model,
        input=token_count(usage, "input_tokens") - cached - written,
        output=token_count(usage, "output_tokens"),
        cache_read=cached,
        cache_write=written,
        total=token_count(usage, "total_tokens"),
        reasoning=token_count(usage, "output_tokens_details", "reasoning_tokens"),
        factor=factor,
    )


def _failure_of(response: Mapping[str, Any]) -> Any:
    error = response.get("error")
    if isinstance(error, dict):
        return error if error.get("message") else {**error, "message": "the service gave no message"}
    reason = (response.get("incomplete_details") or {}).get("reason")
    return f"incomplete: {reason}" if reason else "the service failed without saying why"


# --- options ---------------------------------------------------------------------------------------------------------


def _own_options(model: Model, context: Context, options: StreamOptions) -> ResponsesOptions:
    if isinstance(options, ResponsesOptions):
        return options
    own = widen_options(options, ResponsesOptions)
    own.max_tokens = answer_limit(model, context, options)
    own.reasoning_effort = requested_level(model, options)
    return own


def _reasoning(model: Model, options: ResponsesOptions) -> dict[str, Any]:
    known = model.thinking_level_map or {}
    asked: dict[str, Any] = {}
    if options.reasoning_effort or options.reasoning_summary:
        level = options.reasoning_effort or "medium"
        asked["reasoning"] = {"effort": known.get(level) or level, "summary": options.reasoning_summary or "auto"}
        asked["include"] = ["reasoning.encrypted_content"]
    elif known.get("off", "none") is not None:
        asked["reasoning"] = {"effort": known.get("off", "none")}
    if model.provider == "xai":
        asked["include"] = ["reasoning.encrypted_content"]  # its models reason whatever is asked
    return asked


def _caching(options: ResponsesOptions, compat: Compat) -> dict[str, Any]:
    if options.cache_retention == "none":
        return {"prompt_cache_options": {"mode": "explicit"}} if compat.supports_explicit_prompt_cache_mode else {}
    asked: dict[str, Any] = {}
    if options.session_id:
        asked["prompt_cache_key"] = clamp_cache_key(options.session_id)
    if options.cache_retention == "long" and compat.supports_long_cache_retention:
        asked["prompt_cache_retention"] = "24h"
    return asked


def clamp_cache_key(key: str) -> str:
    """Cut a cache key to what the API takes."""
    return key[:64]


def _tool_choice(choice: Any) -> Any:
    if not isinstance(choice, str) or choice in ("auto", "none", "required"):
        return choice
    return "required" if choice == "any" else {"type": "function", "name": choice}


def _tool(tool: ToolSpec, model: Model) -> dict[str, Any]:
    listed: dict[str, Any] = {"type": "function", "name": tool.name, "description": tool.description, "parameters": tool.parameters}
    switches = model.compat or {}
    if switches.get("supportsStrictMode") or switches.get("supports_strict_mode") or "api.openai.com" in model.base_url:
        listed["strict"] = False  # left out, OpenAI bends the schema until it fits its strict mode
    return listed


def _headers(call: Call, options: ResponsesOptions, compat: Compat) -> dict[str, str]:
    headers = {}
    if call.key:
        headers[compat.key_header] = f"Bearer {call.key}" if compat.key_header == "authorization" else call.key
    if options.session_id and options.cache_retention != "none":
        if compat.session_affinity_format == "openrouter":
            headers["x-session-id"] = options.session_id
        else:
            if compat.session_affinity_format == "openai":
                headers["session_id"] = options.session_id
            headers["x-client-request-id"] = options.session_id
    return headers


# --- messages --------------------------------------------------------------------------------------------------------


class _IdRule:
    """Rewrites call ids of other providers: `call_id|item_id` where the service knows item ids, else one plain id."""

    def __init__(self, model: Model, compat: Compat) -> None:
        self.model = model
        self.has_item_ids = compat.supports_item_ids

    def __call__(self, id: str, source: AssistantMessage) -> str:
        if not self.has_item_ids or "|" not in id:
            return _plain(id)
        call_id, _, item_id = id.partition("|")
        if source.provider == self.model.provider and source.api == self.model.api:
            item_id = plain_id(item_id)
            return f"{_plain(call_id)}|{item_id if item_id.startswith('fc_') else 'fc_' + item_id}"
        return f"{_plain(call_id)}|fc_{short_hash(item_id)}"


def _plain(id: str) -> str:
    return plain_id(id).rstrip("_") or "call"


def _encode(messages: Sequence[Message], start: int, model: Model) -> list[str]:
    items: list[dict[str, Any]] = []
    for index, message in enumerate(messages, start):
        if isinstance(message, ToolResultMessage):
            items.append(_result(message))
        elif isinstance(message, AssistantMessage):
            items += _assistant_items(message, index, model)
        elif message.content:
            items.append({"role": "user", "content": [_part(block) for block in message.content]})
    return [to_json(item) for item in items]


def _part(block: TextContent | ImageContent) -> dict[str, Any]:
    if isinstance(block, TextContent):
        return {"type": "input_text", "text": block.text}
    return {"type": "input_image", "detail": "auto", "image_url": f"data:{block.mime_type};base64,{block.data}"}


def _assistant_items(message: AssistantMessage, index: int, model: Model) -> Iterator[dict[str, Any]]:
    texts = 0
    # Item ids of another model of the same provider name reasoning that does not go along: without them, all is well.
    is_other_model = message.model != model.id and message.provider == model.provider and message.api == model.api
    for block in message.content:
        if isinstance(block, ThinkingContent):
            item = _reasoning_item(block)
            if item is not None:
                yield item
        elif isinstance(block, ToolCall):
            call_id, _, item_id = block.id.partition("|")
            item = {"type": "function_call", "call_id": call_id, "name": block.name, "arguments": to_json(block.arguments or {})}
            if item_id.startswith("fc_") and not is_other_model:
                item["id"] = item_id
            yield item
        else:
            id, phase = _read_signature(block.text_signature)
            if id is None:
                id = f"msg_pi_{index}_{texts}" if texts else f"msg_pi_{index}"
            elif len(id) > 64:
                id = f"msg_{short_hash(id)}"
            texts += 1
            part = {"type": "output_text", "text": block.text, "annotations": []}
            item = {"type": "message", "role": "assistant", "content": [part], "status": "completed", "id": id}
            if phase is not None:
                item["phase"] = phase
            yield item


def _read_signature(signature: str | None) -> tuple[str | None, str | None]:
    """Return the id and the phase of a message item; the signature is JSON of ours, or the id alone."""
    if not signature:
        return None, None
    if signature.startswith("{"):
        try:
            read = json.loads(signature)
        except ValueError:
            return signature, None
        if isinstance(read, dict) and read.get("v") == 1 and isinstance(read.get("id"), str):
            phase = read.get("phase")
            return read["id"], phase if phase in ("commentary", "final_answer") else None
    return signature, None


def _reasoning_item(block: ThinkingContent) -> dict[str, Any] | None:
    if not (block.thinking_signature or "").startswith("{"):
        return None
    try:
        item = json.loads(block.thinking_signature or "")
    except ValueError:
        return None
    return item if isinstance(item, dict) and item.get("type") == "reasoning" else None


def _result(message: ToolResultMessage) -> dict[str, Any]:
    text = sanitize_surrogates("\n".join(block.text for block in message.content if isinstance(block, TextContent)))
    images = [_part(block) for block in message.content if isinstance(block, ImageContent)]
    output: Any = text or "(no tool output)"
    if images:
        output = [{"type": "input_text", "text": text}, *images] if text else images
    return {"type": "function_call_output", "call_id": message.tool_call_id.partition("|")[0], "output": output}
