"""A ready listener that prints a run as it happens."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TextIO

from agentcore.codec import dumps
from agentcore.events import (
    AgentEvent,
    MessageEndEvent,
    MessageUpdateEvent,
    RetryEvent,
    ToolExecutionEndEvent,
    ToolExecutionStartEvent,
)
from agentcore.messages import AssistantMessage, content_text

MAX_LINE_CHARS = 200
"""Calls and results are cut to this length."""


def print_events(file: TextIO | None = None, *, thinking: bool = False) -> Callable[[AgentEvent], None]:
    """Make a listener that prints answers as they stream, tool calls, their results, new tries and failures.

    Args:
        file: Where to; None is the standard output of the moment.
        thinking: Whether to print what the model thinks, too.

    Threads:
        It runs on the run thread, as all listeners do.

    Example:
        >>> agent.subscribe(print_events())
    """
    printer = _Printer(file, thinking)
    return printer.on_event


class _Printer:
    def __init__(self, file: TextIO | None, shows_thinking: bool) -> None:
        self._file = file
        self._shows_thinking = shows_thinking
        self._is_in_line = False

    def on_event(self, event: AgentEvent) -> None:
        if isinstance(event, MessageUpdateEvent):
            self._print_delta(event.assistant_message_event)
        elif isinstance(event, MessageEndEvent):
            self._end_line()
            message = event.message
            if isinstance(message, AssistantMessage) and message.stop_reason in ("error", "aborted"):
                self._print_line(f"[{message.stop_reason}] {message.error_message or ''}")
        elif isinstance(event, ToolExecutionStartEvent):
            self._print_line(f"→ {event.tool_name} {_cut(dumps(event.args))}")
        elif isinstance(event, ToolExecutionEndEvent):
            mark = "✗" if event.is_error else "←"
            self._print_line(f"{mark} {event.tool_name} {_cut(content_text(event.result.content or [], ' '))}")
        elif isinstance(event, RetryEvent):
            self._print_line(f"[retry {event.attempt} of {event.max_retries} in {event.delay:.1f} s] {event.error_message}")

    def _print_delta(self, event: Any) -> None:
        kind = event.type
        if kind == "text_delta" or (kind == "thinking_delta" and self._shows_thinking):
            self._write(event.delta)
        elif kind in ("text_end", "thinking_end"):
            self._end_line()

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


def _cut(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= MAX_LINE_CHARS else text[:MAX_LINE_CHARS] + "…"
