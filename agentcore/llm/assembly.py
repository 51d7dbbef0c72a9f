"""Grows the partial answer of a stream, each delta at constant cost.

A block that is still growing is an instance of a subclass that keeps its pieces in a list: appending is all that a delta costs,
and only who reads `text`, `thinking` or `arguments` pays for joining or parsing them. When the block ends, the same object becomes
one of the plain class. So who holds a partial sees nothing but messages, and a finished answer is nothing but plain ones.

Every method returns the event that says what it did; the wire format yields it. A delta, an id or a name that is no text is
refused (`TypeError`) before it is taken in: the frame makes a broken stream of that, and what came before is kept.
"""

from __future__ import annotations

import json
from typing import Any, Union

from agentcore.errors import ErrorKind
from agentcore.events import (
    AssistantMessageEvent,
    DoneEvent,
    ErrorEvent,
    StartEvent,
    TextDeltaEvent,
    TextEndEvent,
    TextStartEvent,
    ThinkingDeltaEvent,
    ThinkingEndEvent,
    ThinkingStartEvent,
    ToolCallDeltaEvent,
    ToolCallEndEvent,
    ToolCallStartEvent,
)
from agentcore.llm.partial_json import parse_json_with_repair, parse_streaming_json
from agentcore.messages import AssistantMessage, StopReason, TextContent, ThinkingContent, ToolCall
from agentcore.models import Model

ABORTED = "Request was aborted"
"""The error message of an aborted answer."""


class _Pieces:
    """A text that grows: a list of pieces that is joined for whoever reads it."""

    __slots__ = ("_pieces", "append")

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self.append = self._pieces.append

    def join(self) -> str:
        pieces = self._pieces
        if len(pieces) != 1:
            pieces[:] = ["".join(pieces)]
        return pieces[0]

    def __len__(self) -> int:
        return len(self._pieces)


class LiveText(TextContent):
    """A text block that is still growing."""

    def __init__(self, text_signature: str | None = None) -> None:
        self.pieces = _Pieces()
        self.text_signature = text_signature
        self.type = "text"

    @property
    def text(self) -> str:  # type: ignore[override]
        return self.pieces.join()

    def settle(self) -> None:
        """Become a plain `TextContent`."""
        text = self.text
        self.__dict__.pop("pieces")
        self.__dict__["text"] = text
        self.__class__ = TextContent  # type: ignore[assignment]

    def __reduce__(self) -> Any:
        return TextContent, (self.text, self.text_signature)


class LiveThinking(ThinkingContent):
    """A thinking block that is still growing."""

    def __init__(self, thinking_signature: str | None = None, redacted: bool | None = None) -> None:
        self.pieces = _Pieces()
        self.thinking_signature = thinking_signature
        self.redacted = redacted
        self.type = "thinking"

    @property
    def thinking(self) -> str:  # type: ignore[override]
        return self.pieces.join()

    def settle(self) -> None:
        """Become a plain `ThinkingContent`."""
        thinking = self.thinking
        self.__dict__.pop("pieces")
        self.__dict__["thinking"] = thinking
        self.__class__ = ThinkingContent  # type: ignore[assignment]

    def __reduce__(self) -> Any:
        return ThinkingContent, (self.thinking, self.thinking_signature, self.redacted)


class LiveToolCall(ToolCall):
    """A tool call whose arguments are still coming. `arguments` is what can be read of them so far."""

    def __init__(self, id: str, name: str, thought_signature: str | None = None) -> None:
        self.pieces = _Pieces()
        self.id = id
        self.name = name
        self.thought_signature = thought_signature
        self.raw_arguments = None
        self.type = "tool"
        self._parsed: tuple[str, dict[str, Any]] = ("", {})

    @property
    def partial_json(self) -> str:  # type: ignore[override]
        return self.pieces.join()

    @property
    def arguments(self) -> dict[str, Any]:  # type: ignore[override]
        text = self.pieces.join()
        if self._parsed[0] != text:
            self._parsed = (text, _as_object(parse_streaming_json(text)))
        return self._parsed[1]

    def settle(self, *, arguments: dict[str, Any] | None = None) -> None:
        """Become a plain `ToolCall`, with the arguments given, else with those that came."""
        text = self.pieces.join()
        raw = None
        if arguments is None:
            arguments, raw = read_arguments(text)
        attributes = self.__dict__
        del attributes["pieces"], attributes["_parsed"]
        attributes.update(arguments=arguments, partial_json=None, raw_arguments=raw)
        self.__class__ = ToolCall  # type: ignore[assignment]

    def __reduce__(self) -> Any:
        return ToolCall, (self.id, self.name, self.arguments, self.partial_json, self.thought_signature, None)


LiveBlock = Union[LiveText, LiveThinking, LiveToolCall]
_LIVE = (LiveText, LiveThinking, LiveToolCall)


def read_arguments(text: str) -> tuple[dict[str, Any], str | None]:
    """Read the arguments of a finished call.

    Returns:
        What could be read, `{}` at worst; and the text itself if it was not a JSON object, else None. An empty text is `{}`: a call
        of a tool without parameters often comes so.
    """
    if not text or text.isspace():
        return {}, None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        try:
            value = parse_json_with_repair(text)  # a raw line break or a bad escape in a string: what was meant is plain
        except ValueError:
            return _as_object(parse_streaming_json(text)), text
    if value is None:
        return {}, None
    return (value, None) if isinstance(value, dict) else ({}, text)


def _no_text() -> TypeError:
    return TypeError("a delta is no text")


def _as_object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


class Assembly:
    """One answer in the making.

    `message` is the live message: every event carries this one object. Blocks are addressed by their index in its content.
    """

    def __init__(self, model: Model) -> None:
        self.message = AssistantMessage(content=[], api=model.api, provider=model.provider, model=model.id)
        self.has_started = False

    def start(self) -> StartEvent:
        """Begin the answer: from here on a failure is a failed answer, no longer a failed request."""
        self.has_started = True
        return StartEvent(self.message)

    def open_text(self, signature: str | None = None) -> TextStartEvent:
        """Begin a text block at the end of the content."""
        return TextStartEvent(self._append(LiveText(signature)), self.message)

    def open_thinking(self, signature: str | None = None, *, redacted: bool | None = None) -> ThinkingStartEvent:
        """Begin a thinking block at the end of the content."""
        return ThinkingStartEvent(self._append(LiveThinking(signature, redacted)), self.message)

    def open_call(self, id: str, name: str, signature: str | None = None) -> ToolCallStartEvent:
        """Begin a tool call at the end of the content."""
        if type(id) is not str or type(name) is not str:
            raise TypeError("the id or the name of a call is no text")
        return ToolCallStartEvent(self._append(LiveToolCall(id, name, signature)), self.message)

    def _append(self, block: LiveBlock) -> int:
        content = self.message.content
        content.append(block)
        return len(content) - 1

    def add_text(self, index: int, delta: str) -> TextDeltaEvent:
        """Add to the text block at `index`."""
        if type(delta) is not str:
            raise _no_text()
        message = self.message
        message.content[index].pieces.append(delta)  # type: ignore[union-attr]
        return TextDeltaEvent(index, delta, message)

    def add_thinking(self, index: int, delta: str) -> ThinkingDeltaEvent:
        """Add to the thinking block at `index`."""
        if type(delta) is not str:
            raise _no_text()
        message = self.message
        message.content[index].pieces.append(delta)  # type: ignore[union-attr]
        return ThinkingDeltaEvent(index, delta, message)

    def add_arguments(self, index: int, delta: str) -> ToolCallDeltaEvent:
        """Add to the argument text of the call at `index`."""
        if type(delta) is not str:
            raise _no_text()
        message = self.message
        message.content[index].pieces.append(delta)  # type: ignore[union-attr]
        return ToolCallDeltaEvent(index, delta, message)

    def is_open(self, index: int) -> bool:
        """Whether there is a block at `index` that has not ended."""
        return index < len(self.message.content) and isinstance(self.message.content[index], _LIVE)

    def end(self, index: int) -> AssistantMessageEvent:
        """End the block at `index`."""
        block = self.message.content[index]
        if isinstance(block, _LIVE):
            block.settle()
        if isinstance(block, ToolCall):
            return ToolCallEndEvent(index, block, self.message)
        if isinstance(block, ThinkingContent):
            return ThinkingEndEvent(index, block.thinking, self.message)
        return TextEndEvent(index, block.text, self.message)

    def open_indexes(self) -> list[int]:
        """Return the indexes of the blocks that have not ended, in order."""
        return [index for index, block in enumerate(self.message.content) if isinstance(block, _LIVE)]

    def finish(self, stop_reason: StopReason) -> DoneEvent:
        """End a good answer; blocks that are open are settled without an event."""
        self._settle()
        self.message.stop_reason = stop_reason
        return DoneEvent(self.message)

    def fail(self, text: str, *, kind: ErrorKind, retryable: bool) -> ErrorEvent:
        """End a failed answer, keeping what was streamed. The blocks that are open get no end event."""
        self._settle()
        message = self.message
        message.stop_reason = "error"
        message.error_message = text
        message.error_kind = kind
        message.error_retryable = retryable
        return ErrorEvent(message)

    def abort(self) -> ErrorEvent:
        """End an aborted answer, keeping what was streamed."""
        self._settle()
        self.message.stop_reason = "aborted"
        self.message.error_message = ABORTED
        return ErrorEvent(self.message)

    def _settle(self) -> None:
        for block in self.message.content:
            if isinstance(block, _LIVE):
                block.settle()
