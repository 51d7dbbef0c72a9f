"""The wire format `anthropic-messages`: Anthropic's Messages API.

    message_start ── content_block_start ── content_block_delta … ── content_block_stop ── … ── message_delta ── message_stop

The `type` inside an event's JSON says what it is; its name and events of other kinds are passed over. Blocks are addressed by
an index that may have gaps, since blocks of kinds that are not ours (server tools and their results) are skipped. Usage comes at
the start and is corrected at the end, field by field.

What goes out: results of one batch share one user message; thinking goes back signed, in its place, to the model that signed it and
as plain text elsewhere; the last user message, the system prompt and the last tool carry a cache mark.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentcore.events import AssistantMessageEvent
from agentcore.llm.assembly import Assembly, LiveToolCall
from agentcore.llm.compat import Compat, compat_of
from agentcore.llm.failures import classify_error
from agentcore.llm.history import encode_history, is_blank, plain_id, to_json
from agentcore.llm.http import RequestFailed
from agentcore.llm.partial_json import parse_json_with_repair
from agentcore.llm.request import Context, StreamOptions, ToolSpec, widen_options
from agentcore.llm.sse import SseEvent
from agentcore.llm.thinking import (
    MIN_ANSWER_TOKENS,
    adjust_max_tokens,
    answer_limit,
    clamp_max_tokens,
    requested_level,
    supported_thinking_levels,
)
from agentcore.llm.usage import count_usage, token_count
from agentcore.llm.wire import Answer, Call, WireFormat, WireRequest, broken_event, join_url, run_wire_format
from agentcore.messages import (
    AssistantMessage,
    ImageContent,
    Message,
    StopReason,
    TextContent,
    ThinkingContent,
    ToolResultMessage,
)
from agentcore.models import Model

DEFAULT_BASE_URL = "https://api.anthropic.com"
DEFAULT_MAX_TOKENS = 8192
"""The API insists on a limit; this one holds for models of which none is known."""

MIN_THINKING_BUDGET = 1024
REDACTED = "[Reasoning redacted]"
_EFFORTS = {"minimal": "low", "low": "low", "medium": "medium", "high": "high", "xhigh": "high", "max": "high"}
_STOP_REASONS: dict[str, StopReason] = {
    "end_turn": "done",
    "stop_sequence": "done",
    "pause_turn": "done",
    "max_tokens": "length",
    "tool_use": "toolUse",
}


@dataclass
class AnthropicOptions(StreamOptions):
    """The options of this wire format as the API has them; plain `StreamOptions` are turned into these.

    Args:
        thinking_enabled: True and False are sent, None is not.
        thinking_budget_tokens: For models that think by budget (default 1024).
        thinking_display: `"summarized"` or `"omitted"`.
        effort: For models that think by effort.
        interleaved_thinking: Whether the model may think between tool calls.
    """

    thinking_enabled: bool | None = None
    thinking_budget_tokens: int | None = None
    thinking_display: str = "summarized"
    effort: str | None = None
    interleaved_thinking: bool = True


def stream(model: Model, context: Context, options: StreamOptions) -> Iterator[AssistantMessageEvent]:
    """Ask a model over Anthropic's Messages API."""
    return run_wire_format(AnthropicMessages(), model, context, options)


class AnthropicMessages(WireFormat):
    """Builds requests and reads answers of the Messages API."""

    api = "anthropic-messages"
    terminal = "message_stop"

    # --- the request -------------------------------------------------------------------------------------------------

    def build(self, call: Call) -> WireRequest:
        model, context = call.model, call.context
        compat = compat_of(model)
        options, max_tokens = _own_options(model, context, call.options, compat)
        control = _cache_control(options, compat)
        body: dict[str, Any] = {"model": model.id}
        pieces = encode_history(
            context.messages,
            model,
            lambda messages, start: _encode(messages, compat),
            tag=(self.api, compat.allow_empty_signature),
            normalize_id=plain_id,
            has_unique_ids=True,
        )
        if control is not None and pieces:
            pieces[-1] = _mark(pieces[-1], control)
        body["messages"] = pieces
        body["max_tokens"] = max_tokens
        body["stream"] = True
        if context.system_prompt:
            block: dict[str, Any] = {"type": "text", "text": context.system_prompt}
            body["system"] = [{**block, "cache_control": control} if control is not None else block]
        thinks = bool(options.thinking_enabled) and model.reasoning
        if options.temperature is not None and not thinks and compat.supports_temperature:
            body["temperature"] = options.temperature
        if options.stop:
            body["stop_sequences"] = list(options.stop)
        if context.tools:
            body["tools"] = _tools(context.tools, compat, control)
            if options.tool_choice is not None:  # which the API refuses without tools
                body["tool_choice"] = _tool_choice(options.tool_choice)
        if model.reasoning:
            body.update(_thinking(model, options, compat))
        user = (options.metadata or {}).get("user_id")
        if isinstance(user, str):
            body["metadata"] = {"user_id": user}
        url = join_url(model, "/v1/messages", vendor="anthropic", vendor_url=DEFAULT_BASE_URL)
        return WireRequest(url, body, _headers(call, options, compat), state=model)

    # --- the answer --------------------------------------------------------------------------------------------------

    def read(self, events: Iterator[SseEvent], answer: Answer) -> Iterator[AssistantMessageEvent]:
        assembly, model = answer.assembly, answer.call.model
        add_text, add_thinking, add_arguments = assembly.add_text, assembly.add_thinking, assembly.add_arguments
        places: dict[Any, tuple[int, str]] = {}  # the service's index → our index and the kind of block
        given: dict[int, Any] = {}  # arguments that came with the start of a call
        usage: dict[str, int] = {}
        stop: StopReason = "done"
        refusal: str | None = None
        for event in events:
            if event.event == "error":
                raise RequestFailed(classify_error(event.data))
            if event.data == "[DONE]":
                continue
            data = _parse(event)
            if not isinstance(data, dict):
                continue
            kind = data.get("type")
            if kind == "content_block_delta":
                place = places.get(data.get("index"))
                delta = data.get("delta") or {}
                if place is None:
                    continue
                word = delta.get("type")
                if word == "text_delta" and place[1] == "text":
                    yield add_text(place[0], delta.get("text") or "")
                elif word == "input_json_delta" and place[1] == "tool_use":
                    yield add_arguments(place[0], delta.get("partial_json") or "")
                elif word == "thinking_delta" and place[1] == "thinking":
                    yield add_thinking(place[0], delta.get("thinking") or "")
                elif word == "signature_delta" and place[1] == "thinking":
                    thought = answer.message.content[place[0]]
                    if isinstance(thought, ThinkingContent):
                        thought.thinking_signature = (thought.thinking_signature or "") + (delta.get("signature") or "")
            elif kind == "content_block_start":
                opened = _open(assembly, data.get("content_block") or {})
                if opened is not None:
                    block = data["content_block"]
                    places[data.get("index")] = (opened.content_index, block["type"])
                    if block.get("input"):
                        given[opened.content_index] = block["input"]
                    yield opened
            elif kind == "content_block_stop":
                place = places.pop(data.get("index"), None)
                if place is not None:
                    call = answer.message.content[place[0]]
                    if place[0] in given and isinstance(call, LiveToolCall) and not call.partial_json:
                        # Some services send the arguments whole, with the start, and no deltas.
                        call.pieces.append(to_json(given[place[0]]))
                    yield assembly.end(place[0])
            elif kind == "message_start":
                message = data.get("message") or {}
                answer.message.response_id = message.get("id")
                _take_usage(usage, message.get("usage") or {}, is_start=True)
                answer.message.usage = _count(model, usage)
            elif kind == "message_delta":
                delta = data.get("delta") or {}
                word = delta.get("stop_reason")
                if word in ("refusal", "sensitive"):
                    refusal = _refusal(word, delta)
                elif word is not None:
                    known = _STOP_REASONS.get(word)
                    if known is None:
                        yield _unknown_end(answer, word)
                        return
                    stop = known
                _take_usage(usage, data.get("usage") or {})
                answer.message.usage = _count(model, usage)
            elif kind == "message_stop":
                if refusal is not None:
                    yield answer.fail(refusal, kind="refusal")
                    return
                if stop == "done" and answer.message.tool_calls:
                    stop = "toolUse"
                yield answer.finish(stop)
                return
            elif kind == "error":
                raise RequestFailed(classify_error(data))


def _parse(event: SseEvent) -> Any:
    try:
        return json.loads(event.data)
    except ValueError:
        try:
            return parse_json_with_repair(event.data)  # proxies let raw control characters through
        except ValueError:
            raise broken_event(event) from None


def _open(assembly: Assembly, block: Mapping[str, Any]) -> Any:
    kind = block.get("type")
    if kind == "text":
        return assembly.open_text()
    if kind == "thinking":
        return assembly.open_thinking("")
    if kind == "redacted_thinking":
        thought = assembly.open_thinking(block.get("data"), redacted=True)
        assembly.add_thinking(thought.content_index, REDACTED)
        return thought
    if kind == "tool_use":
        return assembly.open_call(block.get("id") or f"call_{len(assembly.message.content)}", block.get("name") or "")
    return None


def _take_usage(usage: dict[str, int], raw: Mapping[str, Any], *, is_start: bool = False) -> None:
    """Take over the numbers that are there: the last value of each field counts."""
    if not isinstance(raw, dict):
        raw = {}
    names = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    for name in names:
        if raw.get(name) is not None or is_start:
            usage[name] = token_count(raw, name)
    long_writes = token_count(raw, "cache_creation", "ephemeral_1h_input_tokens")
    if is_start or long_writes:
        usage["cache_write_1h"] = long_writes
    details = raw.get("output_tokens_details")
    if isinstance(details, dict) and details.get("thinking_tokens") is not None:
        usage["reasoning"] = token_count(details, "thinking_tokens")


def _count(model: Model, usage: Mapping[str, int]) -> Any:
    return count_usage(
        model,
        input=usage.get("input_tokens", 0),
        output=usage.get("output_tokens", 0),
        cache_read=usage.get("cache_read_input_tokens", 0),
        cache_write=usage.get("cache_creation_input_tokens", 0),
        reasoning=usage.get("reasoning"),
        cache_write_1h=usage.get("cache_write_1h"),
    )


def _refusal(word: str, delta: Mapping[str, Any]) -> str:
    details = delta.get("stop_details")
    said = details.get("explanation") if isinstance(details, dict) else None
    if said:
        return f"the model refused: {said}"
    return "the model refused to answer" if word == "refusal" else "a content filter stopped the answer"


def _unknown_end(answer: Answer, word: str) -> AssistantMessageEvent:
    if word == "model_context_window_exceeded":
        text = "the context window is full (model_context_window_exceeded); shorten or compact the conversation"
        return answer.fail(text, kind="overflow")
    return answer.fail(f"the answer ended for a reason that is not known: {word}", kind="protocol")


# --- options ---------------------------------------------------------------------------------------------------------


def _own_options(model: Model, context: Context, options: StreamOptions, compat: Compat) -> tuple[AnthropicOptions, int]:
    """Return the options as the API has them, and the token limit."""
    if isinstance(options, AnthropicOptions):
        limit = options.max_tokens if options.max_tokens is not None else model.max_tokens or DEFAULT_MAX_TOKENS
        return options, limit
    own = widen_options(options, AnthropicOptions)
    limit = answer_limit(model, context, options) or clamp_max_tokens(model, context, DEFAULT_MAX_TOKENS)
    level = requested_level(model, options)
    own.thinking_enabled = False
    if level is None:
        return own, limit
    if compat.force_adaptive_thinking:
        own.thinking_enabled = True
        own.effort = (model.thinking_level_map or {}).get(level) or _EFFORTS[level]
        return own, limit
    model_max = model.max_tokens or max(DEFAULT_MAX_TOKENS, options.max_tokens or 0) + 16384
    limit, budget = adjust_max_tokens(options.max_tokens, model_max, level, options.thinking_budgets)
    limit = clamp_max_tokens(model, context, limit)
    budget = min(budget, limit - MIN_ANSWER_TOKENS)
    if budget >= MIN_THINKING_BUDGET:  # the API refuses less: then the model answers without thinking
        own.thinking_enabled = True
        own.thinking_budget_tokens = budget
    return own, limit


def _cache_control(options: StreamOptions, compat: Compat) -> dict[str, str] | None:
    if options.cache_retention == "none":
        return None
    if options.cache_retention == "long" and compat.supports_long_cache_retention:
        return {"type": "ephemeral", "ttl": "1h"}
    return {"type": "ephemeral"}


def _thinking(model: Model, options: AnthropicOptions, compat: Compat) -> dict[str, Any]:
    if options.thinking_enabled is None:
        return {}
    if not options.thinking_enabled:
        return {"thinking": {"type": "disabled"}} if "off" in supported_thinking_levels(model) else {}
    if not compat.force_adaptive_thinking:
        budget = options.thinking_budget_tokens or MIN_THINKING_BUDGET
        return {"thinking": {"type": "enabled", "budget_tokens": budget, "display": options.thinking_display}}
    asked: dict[str, Any] = {"thinking": {"type": "adaptive", "display": options.thinking_display}}
    if options.effort:
        asked["output_config"] = {"effort": options.effort}
    return asked


def _tool_choice(choice: Any) -> Any:
    if not isinstance(choice, str):
        return choice
    if choice in ("auto", "any", "none"):
        return {"type": choice}
    return {"type": "any"} if choice == "required" else {"type": "tool", "name": choice}


def _tools(tools: Sequence[ToolSpec], compat: Compat, control: dict[str, str] | None) -> list[dict[str, Any]]:
    by_name = {tool.name: tool for tool in tools}  # of two tools of one name, which the API refuses, the last one counts
    listed = [_tool(tool, compat) for tool in by_name.values()]
    if control is not None and compat.supports_cache_control_on_tools:
        listed[-1]["cache_control"] = control
    return listed


def _tool(tool: ToolSpec, compat: Compat) -> dict[str, Any]:
    parameters = tool.parameters
    schema = {"type": "object", "properties": parameters.get("properties") or {}, "required": parameters.get("required") or []}
    for name in ("$defs", "definitions"):
        if parameters.get(name):
            schema[name] = parameters[name]
    listed: dict[str, Any] = {"name": tool.name, "description": tool.description}
    if compat.supports_eager_tool_input_streaming:
        listed["eager_input_streaming"] = True
    listed["input_schema"] = schema
    return listed


def _headers(call: Call, options: AnthropicOptions, compat: Compat) -> dict[str, str]:
    headers = {"anthropic-version": "2023-06-01"}
    if call.key:
        headers["x-api-key"] = call.key
    betas = []
    if call.context.tools and not compat.supports_eager_tool_input_streaming:
        betas.append("fine-grained-tool-streaming-2025-05-14")
    if options.interleaved_thinking and not compat.force_adaptive_thinking:
        betas.append("interleaved-thinking-2025-05-14")
    if betas:
        headers["anthropic-beta"] = ",".join(betas)
    if compat.send_session_affinity_headers and options.session_id and options.cache_retention != "none":
        headers["x-session-affinity"] = options.session_id
    return headers


# --- messages --------------------------------------------------------------------------------------------------------

_USER = '{"role":"user","content":'


def _encode(messages: Sequence[Message], compat: Compat) -> list[str]:
    """Write messages; results that follow each other share one user message."""
    pieces: list[str] = []
    results: list[str] = []
    for message in messages:
        if isinstance(message, ToolResultMessage):
            results.append(to_json(_result(message)))
            continue
        if results:
            pieces.append(f"{_USER}[{','.join(results)}]}}")
            results = []
        if isinstance(message, AssistantMessage):
            content = _assistant_content(message, compat)
            if content:
                pieces.append(to_json({"role": "assistant", "content": content}))
        else:
            said = _user_content(message.content)
            if said:
                pieces.append(to_json({"role": "user", "content": said}))
    if results:
        pieces.append(f"{_USER}[{','.join(results)}]}}")
    return pieces


def _user_content(content: Sequence[TextContent | ImageContent]) -> Any:
    blocks = [block for block in content if not isinstance(block, TextContent) or not is_blank(block.text)]
    if len(blocks) == 1 and isinstance(blocks[0], TextContent):
        return blocks[0].text
    return [_block(block) for block in blocks]


def _block(block: TextContent | ImageContent) -> dict[str, Any]:
    if isinstance(block, TextContent):
        return {"type": "text", "text": block.text}
    return {"type": "image", "source": {"type": "base64", "media_type": block.mime_type, "data": block.data}}


def _assistant_content(message: AssistantMessage, compat: Compat) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    for block in message.content:
        if isinstance(block, TextContent):
            if not is_blank(block.text):
                blocks.append({"type": "text", "text": block.text})
        elif isinstance(block, ThinkingContent):
            if block.redacted:
                blocks.append({"type": "redacted_thinking", "data": block.thinking_signature})
            elif block.thinking_signature or (compat.allow_empty_signature and not is_blank(block.thinking)):
                blocks.append({"type": "thinking", "thinking": block.thinking, "signature": block.thinking_signature or ""})
            elif not is_blank(block.thinking):
                blocks.append({"type": "text", "text": block.thinking})  # unsigned: the API refuses it as thinking
        else:
            blocks.append({"type": "tool_use", "id": block.id, "name": block.name, "input": block.arguments or {}})
    return blocks


def _result(message: ToolResultMessage) -> dict[str, Any]:
    content: Any
    if any(isinstance(block, ImageContent) for block in message.content):
        content = [_block(block) for block in message.content if not isinstance(block, TextContent) or not is_blank(block.text)]
        if not any(isinstance(block, TextContent) and not is_blank(block.text) for block in message.content):
            content.insert(0, {"type": "text", "text": "(see attached image)"})
    else:
        content = "\n".join(block.text for block in message.content if isinstance(block, TextContent))
    return {
        "type": "tool_result",
        "tool_use_id": message.tool_call_id,
        "content": content,
        "is_error": message.is_error,
    }


def _mark(piece: str, control: Mapping[str, str]) -> str:
    """Set a cache mark on the last block of a user message that `_encode` wrote."""
    mark = f',"cache_control":{to_json(control)}'
    if piece.startswith(_USER + '"'):
        return f'{_USER}[{{"type":"text","text":{piece[len(_USER) : -1]}{mark}}}]}}'
    if piece.startswith(_USER + "[") and piece.endswith("}]}"):
        return f"{piece[:-3]}{mark}}}]}}"
    return piece
