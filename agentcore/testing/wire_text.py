"""Turns as the text that a provider's server would send: one function for each wire format.

Each gives the pieces of the body in order: an event as text, or a gate of the turn where it stands.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from typing import Any, Union

from agentcore.messages import Usage
from agentcore.testing.turns import CallPart, Gate, GatePart, TextPart, ThinkingPart, Turn

BodyPiece = Union[str, bytes, float, Gate]
"""A piece of a body: it is sent; a number is a pause in seconds; a gate is waited for, or called."""


def turn_pieces(turn: Turn, path: str, request: Mapping[str, Any]) -> Iterator[BodyPiece]:
    """Return the body of `turn` in the wire format that belongs to the request's path.

    Raises:
        ValueError: The path belongs to none.
    """
    path = path.partition("?")[0]
    model = str(request.get("model") or "scripted")
    if path.endswith("/chat/completions"):
        return chat_completions(turn, model)
    if path.endswith("/responses"):
        return responses(turn, model)
    if path.endswith("/messages"):
        return anthropic_messages(turn, model)
    if path.endswith((":streamGenerateContent", ":generateContent")):
        return google_generative_ai(turn, path.rpartition("/")[2].partition(":")[0])
    raise ValueError(f"no wire format has the path {path}: use …/chat/completions, /responses, /messages or :streamGenerateContent")


def _event(data: Any, name: str | None = None) -> str:
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return f"event: {name}\ndata: {text}\n\n" if name else f"data: {text}\n\n"


def _prompt_tokens(usage: Usage) -> int:
    return usage.input + usage.cache_read + usage.cache_write


def _argument_text(part: CallPart) -> str:
    return "".join(piece for piece in part.pieces if isinstance(piece, str))


def _argument_value(part: CallPart) -> Any:
    try:
        return json.loads(_argument_text(part) or "{}")
    except ValueError:
        return {}


_numbers = itertools.count(1)  # its steps are atomic: answers are written on several threads


def _id_of(part: CallPart) -> str:
    """Return the id of a call. One without gets one that no other call of this process has."""
    return f"call_{next(_numbers)}" if part.id is None else part.id


def chat_completions(turn: Turn, model: str) -> Iterator[BodyPiece]:
    """The chunks of OpenAI chat completions, with the usage in a last chunk, and `[DONE]`."""

    def chunk(delta: Mapping[str, Any], finish_reason: str | None = None) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
        return _event({**head, "choices": [choice]})

    head = {"id": "chatcmpl-scripted", "object": "chat.completion.chunk", "created": 1700000000, "model": model}
    calls = 0
    yield chunk({"role": "assistant", "content": ""})
    for part in turn.parts:
        if isinstance(part, GatePart):
            yield part.gate
            continue
        if isinstance(part, CallPart):
            function = {"name": part.name, "arguments": ""}
            yield chunk({"tool_calls": [{"index": calls, "id": _id_of(part), "type": "function", "function": function}]})
        for piece in part.pieces:
            if not isinstance(piece, str):
                yield piece
            elif isinstance(part, CallPart):
                yield chunk({"tool_calls": [{"index": calls, "function": {"arguments": piece}}]})
            elif isinstance(part, ThinkingPart):
                yield chunk({"reasoning_content": piece})
            else:
                yield chunk({"content": piece})
        calls += isinstance(part, CallPart)
    if turn.error is not None:
        yield _event({"error": {"message": turn.error.text, "type": turn.error.code or "server_error", "code": turn.error.code}})
        return
    reasons = {"done": "stop", "length": "length", "toolUse": "tool_calls"}
    yield chunk({}, reasons.get(turn.final_stop_reason, "content_filter"))
    usage = turn.usage or Usage()
    yield _event(
        {
            **head,
            "choices": [],
            "usage": {
                "prompt_tokens": _prompt_tokens(usage),
                "completion_tokens": usage.output,
                "total_tokens": _prompt_tokens(usage) + usage.output,
                "prompt_tokens_details": {"cached_tokens": usage.cache_read},
                "completion_tokens_details": {"reasoning_tokens": usage.reasoning or 0},
            },
        }
    )
    yield _event("[DONE]")


class _ResponsesText:
    """Numbers the events of one Responses answer, and keeps its items for the last one."""

    def __init__(self, model: str) -> None:
        self.sequence = 0
        self.output: list[dict[str, Any]] = []
        self.head: dict[str, Any] = {
            "id": "resp_scripted",
            "object": "response",
            "created_at": 1700000000,
            "model": model,
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "metadata": {},
            "parallel_tool_calls": True,
            "temperature": 1.0,
            "tool_choice": "auto",
            "tools": [],
            "top_p": 1.0,
        }

    def event(self, type: str, **fields: Any) -> str:
        self.sequence += 1
        return _event({"type": type, "sequence_number": self.sequence - 1, **fields}, type)

    def whole(self, type: str, status: str, **fields: Any) -> str:
        return self.event(type, response={**self.head, "status": status, "output": self.output, **fields})

    def item(self, part: TextPart | ThinkingPart | CallPart) -> Iterator[BodyPiece]:
        index = len(self.output)
        item_id = f"item_{index}"
        at: dict[str, Any] = {"item_id": item_id, "output_index": index}
        pieces = part.pieces
        text = "".join(piece for piece in pieces if isinstance(piece, str))
        if isinstance(part, CallPart):
            item: dict[str, Any] = {"id": item_id, "type": "function_call", "call_id": _id_of(part), "name": part.name}
            begun: dict[str, Any] = {**item, "arguments": "", "status": "in_progress"}
            done: dict[str, Any] = {**item, "arguments": text, "status": "completed"}
            before: list[str] = []
            delta_type, delta_fields = "response.function_call_arguments.delta", at
            after: list[tuple[str, dict[str, Any]]] = [
                ("response.function_call_arguments.done", {**at, "name": part.name, "arguments": text})
            ]
        elif isinstance(part, ThinkingPart):
            summary = {"type": "summary_text", "text": text}
            at_part = {**at, "summary_index": 0}
            begun = {"id": item_id, "type": "reasoning", "summary": []}
            done = {"id": item_id, "type": "reasoning", "summary": [summary]}
            if part.signature is not None:
                done["encrypted_content"] = part.signature
            empty: dict[str, Any] = {"type": "summary_text", "text": ""}
            before = ["response.reasoning_summary_part.added"]
            delta_type, delta_fields = "response.reasoning_summary_text.delta", at_part
            after = [
                ("response.reasoning_summary_text.done", {**at_part, "text": text}),
                ("response.reasoning_summary_part.done", {**at_part, "part": summary}),
            ]
        else:
            content: dict[str, Any] = {"type": "output_text", "text": text, "annotations": []}
            empty = {**content, "text": ""}
            at_part = {**at, "content_index": 0}
            begun = {"id": item_id, "type": "message", "role": "assistant", "status": "in_progress", "content": []}
            done = {**begun, "status": "completed", "content": [content]}
            before = ["response.content_part.added"]
            delta_type, delta_fields = "response.output_text.delta", {**at_part, "logprobs": []}
            after = [
                ("response.output_text.done", {**at_part, "text": text, "logprobs": []}),
                ("response.content_part.done", {**at_part, "part": content}),
            ]
        yield self.event("response.output_item.added", output_index=index, item=begun)
        for type in before:
            yield self.event(type, **at_part, part=empty)
        for piece in pieces:
            yield self.event(delta_type, **delta_fields, delta=piece) if isinstance(piece, str) else piece
        for type, fields in after:
            yield self.event(type, **fields)
        self.output.append(done)
        yield self.event("response.output_item.done", output_index=index, item=done)


def responses(turn: Turn, model: str) -> Iterator[BodyPiece]:
    """The events of OpenAI Responses."""
    text = _ResponsesText(model)
    yield text.whole("response.created", "in_progress")
    yield text.whole("response.in_progress", "in_progress")
    for part in turn.parts:
        if isinstance(part, GatePart):
            yield part.gate
        else:
            yield from text.item(part)
    if turn.error is not None:
        error = {"code": turn.error.code or "server_error", "message": turn.error.text}
        yield text.whole("response.failed", "failed", error=error)
        return
    usage = turn.usage or Usage()
    counted = {
        "input_tokens": _prompt_tokens(usage),
        "input_tokens_details": {"cached_tokens": usage.cache_read},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning or 0},
        "total_tokens": _prompt_tokens(usage) + usage.output,
    }
    if turn.final_stop_reason in ("done", "toolUse"):
        yield text.whole("response.completed", "completed", usage=counted)
    else:
        reason = "max_output_tokens" if turn.final_stop_reason == "length" else "content_filter"
        yield text.whole("response.incomplete", "incomplete", usage=counted, incomplete_details={"reason": reason})


def anthropic_messages(turn: Turn, model: str) -> Iterator[BodyPiece]:
    """The events of Anthropic messages."""

    def event(type: str, **fields: Any) -> str:
        return _event({"type": type, **fields}, type)

    usage = turn.usage or Usage()
    counted = {
        "input_tokens": usage.input,
        "cache_creation_input_tokens": usage.cache_write,
        "cache_read_input_tokens": usage.cache_read,
        "output_tokens": 1,
    }
    index = 0
    message = {"id": "msg_scripted", "type": "message", "role": "assistant", "model": model, "content": []}
    yield event("message_start", message={**message, "stop_reason": None, "stop_sequence": None, "usage": counted})
    for part in turn.parts:
        if isinstance(part, GatePart):
            yield part.gate
            continue
        if isinstance(part, CallPart):
            block: dict[str, Any] = {"type": "tool_use", "id": _id_of(part), "name": part.name, "input": {}}
            delta_type, key = "input_json_delta", "partial_json"
        elif isinstance(part, ThinkingPart):
            block = {"type": "thinking", "thinking": "", "signature": ""}
            delta_type, key = "thinking_delta", "thinking"
        else:
            block = {"type": "text", "text": ""}
            delta_type, key = "text_delta", "text"
        yield event("content_block_start", index=index, content_block=block)
        for piece in part.pieces:
            if isinstance(piece, str):
                yield event("content_block_delta", index=index, delta={"type": delta_type, key: piece})
            else:
                yield piece
        if isinstance(part, ThinkingPart) and part.signature is not None:
            delta = {"type": "signature_delta", "signature": part.signature}
            yield event("content_block_delta", index=index, delta=delta)
        yield event("content_block_stop", index=index)
        index += 1
    if turn.error is not None:
        yield event("error", error={"type": turn.error.code or "api_error", "message": turn.error.text})
        return
    reasons = {"done": "end_turn", "length": "max_tokens", "toolUse": "tool_use"}
    reason = reasons.get(turn.final_stop_reason, "refusal")
    yield event("message_delta", delta={"stop_reason": reason, "stop_sequence": None}, usage={"output_tokens": usage.output})
    yield event("message_stop")


def google_generative_ai(turn: Turn, model: str) -> Iterator[BodyPiece]:
    """The chunks of Gemini's `streamGenerateContent?alt=sse`; a call comes whole."""

    def chunk(parts: list[dict[str, Any]], **fields: Any) -> str:
        candidate = {"content": {"parts": parts, "role": "model"}, "index": 0, **fields}
        return _event({"candidates": [candidate], **tail})

    usage = turn.usage or Usage()
    counted = {
        "promptTokenCount": _prompt_tokens(usage),
        "candidatesTokenCount": usage.output - (usage.reasoning or 0),
        "totalTokenCount": _prompt_tokens(usage) + usage.output,
    }
    if usage.cache_read:
        counted["cachedContentTokenCount"] = usage.cache_read
    if usage.reasoning:
        counted["thoughtsTokenCount"] = usage.reasoning
    tail = {"usageMetadata": counted, "modelVersion": model, "responseId": "scripted"}
    for part in turn.parts:
        if isinstance(part, GatePart):
            yield part.gate
            continue
        for piece in part.pieces:
            if not isinstance(piece, str):
                yield piece
            elif isinstance(part, TextPart):
                yield chunk([{"text": piece}])
            elif isinstance(part, ThinkingPart):
                yield chunk([{"text": piece, "thought": True}])
        if isinstance(part, CallPart):
            call = {"name": part.name, "args": _argument_value(part), **({"id": part.id} if part.id else {})}
            yield chunk([{"functionCall": call}])
    if turn.error is not None:
        yield _event({"error": {"code": 500, "message": turn.error.text, "status": turn.error.code or "INTERNAL"}})
        return
    reasons = {"done": "STOP", "toolUse": "STOP", "length": "MAX_TOKENS"}
    yield chunk([{"text": ""}], finishReason=reasons.get(turn.final_stop_reason, "SAFETY"))
