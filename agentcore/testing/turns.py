"""The words of a script: what one answer of the model says, calls, waits for, and how it ends."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Union

from agentcore.errors import ErrorKind
from agentcore.llm.request import Context
from agentcore.messages import StopReason, Usage

Gate = Union[threading.Event, Callable[[], object]]
"""What a script stops at: an event is waited for, a function is called."""


@dataclass(frozen=True)
class Turn:
    """One answer of the scripted model. Made by `says`, `calls`, …; `+` joins two."""

    parts: tuple[Part, ...] = ()
    stop_reason: StopReason | None = None
    usage: Usage | None = None
    error: Failure | None = None

    def __add__(self, other: Turn) -> Turn:
        if not isinstance(other, Turn):
            return NotImplemented
        return Turn(
            self.parts + other.parts,
            other.stop_reason or self.stop_reason,
            other.usage or self.usage,
            other.error or self.error,
        )

    @property
    def final_stop_reason(self) -> StopReason:
        """The stop reason given, else `toolUse` where there is a call and `done` where there is none."""
        return self.stop_reason or ("toolUse" if any(isinstance(part, CallPart) for part in self.parts) else "done")


@dataclass(frozen=True)
class TextPart:
    """A text block, one delta a piece; a gate among the pieces is passed before the next one."""

    pieces: tuple[str | Gate, ...]


@dataclass(frozen=True)
class ThinkingPart:
    """A thinking block, likewise."""

    pieces: tuple[str | Gate, ...]
    signature: str | None = None


@dataclass(frozen=True)
class CallPart:
    """A tool call, its arguments as text, one delta a piece. Without an id it gets one: `call_1`, `call_2`, …"""

    name: str
    pieces: tuple[str | Gate, ...]
    id: str | None = None


@dataclass(frozen=True)
class GatePart:
    """Between two blocks: wait for an event, or call a function."""

    gate: Gate


Part = Union[TextPart, ThinkingPart, CallPart, GatePart]


@dataclass(frozen=True)
class Failure:
    """How a turn breaks off. `code` is the word that a server puts beside the text."""

    text: str
    kind: ErrorKind = "server"
    retryable: bool = False
    code: str | None = None


def says(
    *pieces: str | Gate, thinking: str | None = None, stop_reason: StopReason | None = None, usage: Usage | None = None
) -> Turn:
    """Answer with a text, one delta for each piece, after some thinking if there is any."""
    before: tuple[Part, ...] = (ThinkingPart((thinking,)),) if thinking is not None else ()
    return Turn((*before, TextPart(pieces)), stop_reason, usage)


def thinks(*pieces: str | Gate, signature: str | None = None) -> Turn:
    """Think, one delta for each piece."""
    return Turn((ThinkingPart(pieces, signature),))


def calls(tool_name: str, /, **arguments: Any) -> Turn:
    """Call a tool, the arguments in one delta."""
    return calls_raw(tool_name, json.dumps(arguments, ensure_ascii=False))


def calls_raw(tool_name: str, /, *pieces: str | Gate, id: str | None = None) -> Turn:
    """Call a tool with arguments given as text, one delta for each piece; the text need not be good JSON."""
    return Turn((CallPart(tool_name, pieces, id),))


def waits(gate: Gate) -> Turn:
    """Wait for an event before the next part, or call a function. An abort ends the wait for an event."""
    return Turn((GatePart(gate),))


def ends(stop_reason: StopReason | None = None, *, usage: Usage | None = None) -> Turn:
    """Say why the answer ends and what it took."""
    return Turn((), stop_reason, usage)


def fails(text: str, *, kind: ErrorKind = "server", retryable: bool = False, code: str | None = None) -> Turn:
    """Break off with an error, after what the turn said before.

    A turn that does nothing but fail, and is not `retryable`, has no start event: the request failed, not the answer.
    """
    return Turn(error=Failure(text, kind, retryable, code))


ScriptedTurn = Union[Turn, Sequence[Turn], Callable[[Context], Turn]]
"""A turn, a list of turns that are joined, or a function that makes one of the request's context."""


def join_turn(scripted: ScriptedTurn, context: Context) -> Turn:
    """Return what is scripted as one turn."""
    if isinstance(scripted, Turn):
        return scripted
    if callable(scripted):
        return join_turn(scripted(context), context)
    joined = Turn()
    for turn in scripted:
        joined += turn
    return joined
