"""A ready listener that prints a run as it happens."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, TextIO

from agentcore.codec import dumps
from agentcore.events import (
    AgentEvent,
    AgentStartEvent,
    MessageEndEvent,
    MessageUpdateEvent,
    RetryEvent,
    ToolExecutionEndEvent,
    ToolExecutionStartEvent,
)
from agentcore.messages import AssistantMessage, ImageContent, TextContent, UserMessage, content_text

MAX_LINE_CHARS = 200
"""Calls and results are cut to this length."""

MAX_CALL_CHARS = 60
"""So much of a call is said again with a result that does not stand right below it."""


def print_events(file: TextIO | None = None, *, thinking: bool = False) -> Callable[[AgentEvent], None]:
    """Make a listener that prints answers as they stream, tool calls, their results, new tries and failures.

        I'll look into both files.
        → read {"path":"notes.txt"}
        → read {"path":"missing.txt"}
        ✗ read {"path":"missing.txt"}: missing.txt does not exist
        ← read {"path":"notes.txt"}: Tides of the week …
        [error] overloaded
        [retry 1 of 3 in 0.9 s]
        The notes say when the tide is high.
        > and on Sunday?                             (a message that was steered, or a follow-up)

    Args:
        file: Where to; None is the standard output of the moment.
        thinking: Whether to print what the model thinks, too.

    Raises:
        TypeError: `file` is none.

    Threads:
        It runs on the run thread, as all listeners do.

    Example:
        >>> agent.subscribe(print_events())
    """
    if file is not None and not hasattr(file, "write"):  # an event, where it was subscribed without the parentheses
        raise TypeError(f"print_events takes a file, not {type(file).__name__}: subscribe(print_events()), with the parentheses")
    printer = _Printer(file, thinking)
    return printer.on_event


class _Printer:
    def __init__(self, file: TextIO | None, shows_thinking: bool) -> None:
        self._file = file
        self._shows_thinking = shows_thinking
        self._is_in_line = False
        self._is_thinking = False
        self._has_answer = False  # since the run began
        self._calls: dict[str, str] = {}  # those that are going: id → what was printed
        self._last_call: str | None = None  # the id of the call in the last line
        self._last_failure: str | None = None

    def on_event(self, event: AgentEvent) -> None:
        if isinstance(event, MessageUpdateEvent):
            self._print_delta(event.assistant_message_event)
        elif isinstance(event, MessageEndEvent):
            self._end_line()
            self._print_end(event.message)
        elif isinstance(event, ToolExecutionStartEvent):
            call = f"{event.tool_name} {_cut(dumps(event.args))}"
            self._print_line(f"→ {call}")
            self._calls[event.tool_call_id] = call
            self._last_call = event.tool_call_id
        elif isinstance(event, ToolExecutionEndEvent):
            self._print_result(event)
        elif isinstance(event, RetryEvent):
            # Where the answer broke off, the line above has said why.
            why = "" if event.error_message == self._last_failure else f" {_cut(event.error_message)}"
            self._print_line(f"[retry {event.attempt} of {event.max_retries} in {event.delay:.1f} s]{why}")
        elif isinstance(event, AgentStartEvent):
            self._has_answer = False
            self._calls.clear()

    def _print_end(self, message: Any) -> None:
        if isinstance(message, AssistantMessage):
            self._has_answer = True
            self._last_failure = message.error_message
            if message.stop_reason in ("error", "aborted"):
                self._print_line(f"[{message.stop_reason}] {_cut(message.error_message or '')}")
            elif message.stop_reason == "length":
                self._print_line("[length] the answer was cut at the token limit")
        elif isinstance(message, UserMessage) and self._has_answer:
            self._print_line(f"> {_shown(message.content)}")

    def _print_result(self, event: ToolExecutionEndEvent) -> None:
        call = self._calls.pop(event.tool_call_id, event.tool_name)
        begin = event.tool_name if self._last_call == event.tool_call_id else f"{_cut(call, MAX_CALL_CHARS)}:"
        self._last_call = None
        mark = "✗" if event.is_error else "←"
        self._print_line(f"{mark} {begin} {_shown(event.result.content or [])}")

    def _print_delta(self, event: Any) -> None:
        kind = event.type
        if kind == "text_delta":
            self._write(event.delta)
        elif kind == "thinking_delta" and self._shows_thinking:
            if not self._is_in_line and not self._is_thinking:
                self._write("[thinking] ")
            self._is_thinking = True
            self._write(event.delta)
        elif kind in ("text_end", "thinking_end"):
            self._end_line()
            self._is_thinking = False

    def _write(self, text: str) -> None:
        if not text:
            return
        file = self._file or sys.stdout
        try:
            file.write(text)
        except UnicodeEncodeError:
            encoding = file.encoding or "ascii"
            file.write(text.encode(encoding, "replace").decode(encoding))
        file.flush()
        self._is_in_line = not text.endswith("\n")

    def _end_line(self) -> None:
        if self._is_in_line:
            self._write("\n")

    def _print_line(self, text: str) -> None:
        self._end_line()
        self._write(text.rstrip() + "\n")


def _cut(text: str, limit: int = MAX_LINE_CHARS) -> str:
    """Return a text as one short line, without what would move the cursor of a terminal or colour it."""
    is_long = len(text) > 10 * limit
    text = " ".join(text[: 10 * limit].split())
    text = "".join(character if character.isprintable() else "\ufffd" for character in text[: limit + 1])
    return text[:limit] + "…" if is_long or len(text) > limit else text


def _shown(content: Sequence[TextContent | ImageContent]) -> str:
    images = [f"[{block.mime_type}]" for block in content if isinstance(block, ImageContent)]
    return " ".join([*filter(None, [_cut(content_text(content, " "))]), *images]) or "(nothing)"
