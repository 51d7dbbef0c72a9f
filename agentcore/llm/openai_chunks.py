"""Reads the chunks of chat completions, as servers really send them.

Chunks do not say where a block ends, nor reliably which call a piece belongs to: servers number calls as they like, change ids
between pieces, send content as a list, thinking under four names, usage in five places. What is read here is what was meant.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from agentcore.events import AssistantMessageEvent, TextDeltaEvent, ThinkingDeltaEvent, ToolCallDeltaEvent
from agentcore.llm.assembly import Assembly, LiveToolCall
from agentcore.llm.failures import classify_error
from agentcore.llm.http import RequestFailed
from agentcore.llm.sse import SseEvent
from agentcore.llm.usage import count_usage, token_count
from agentcore.llm.wire import Answer, broken_event
from agentcore.messages import ToolCall, Usage
from agentcore.models import Model

THINKING_FIELDS = ("reasoning_content", "reasoning", "reasoning_text")
"""The fields of a delta, and of an answer sent back, that hold thinking."""


class ChunkReader:
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
    for field in THINKING_FIELDS:
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
