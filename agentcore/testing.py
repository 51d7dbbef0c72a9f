"""A model that plays a script, for tests: as a stream function, and as a real server on the loopback.

A *turn* is one answer of the model. It is put together from parts:

    says("The file ", "is empty.")             a text block, one delta for each string
    thinks("Let me see …")                     a thinking block
    calls("read", path="a.txt")                a tool call
    calls("read", path="a.txt") + calls("ls")  two calls in one answer
    says("one") + waits(event) + says("two")   waits in between until the event is set
    ends("length", usage=Usage(input=10))      why it ends, what it took
    fails("overloaded")                        breaks off with an error

`scripted_stream` plays turns without any network:

    stream = scripted_stream(calls("read", path="a.txt"), says("It is empty."))
    agent = Agent(tools=[read], stream_fn=stream)
    agent.run("What is in a.txt?")
    assert [message.role for message in stream.requests[1]] == ["user", "assistant", "toolResult"]

`SseServer` sends them over HTTP in the wire format that the request's path asks for, whole or broken in every way:

    with SseServer(says("hello"), answer(says("hello"), cut_at=100), answer("busy", status=503)) as server:
        model = server.model()                  # Model(base_url=server.url + "/v1", …)
        agent = Agent(model=model, stream_options=StreamOptions(api_key="test"))
        agent.run("hi")
        assert server.requests[0].json["messages"][-1]["content"] == "hi"
"""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Any, Union

from agentcore.abort import AbortSignal
from agentcore.errors import ErrorKind
from agentcore.events import AssistantMessageEvent
from agentcore.llm.assembly import Assembly, LiveToolCall
from agentcore.llm.request import Context, StreamOptions
from agentcore.messages import Cost, Message, StopReason, Usage, now_ms
from agentcore.models import Model

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


def says(*pieces: str | Gate, thinking: str | None = None, stop_reason: StopReason | None = None, usage: Usage | None = None) -> Turn:
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


class ScriptedStream:
    """A stream function that plays turns, one for each request. Made by `scripted_stream`.

    `requests` holds the messages of each request, as a list that later requests do not change; `contexts`, `models` and `options`
    are what else was given. An abort takes hold before each event.

    Threads:
        May be shared by agents on several threads; the turns are then given out in the order of the requests.
    """

    def __init__(self, turns: Iterable[ScriptedTurn]) -> None:
        self.requests: list[list[Message]] = []
        self.contexts: list[Context] = []
        self.models: list[Model] = []
        self.options: list[StreamOptions] = []
        # _lock guards the four lists and the place in the script.
        self._lock = threading.Lock()
        self._turns = list(turns)
        self._calls = 0

    def add(self, *turns: ScriptedTurn) -> None:
        """Put turns at the end of the script."""
        with self._lock:
            self._turns.extend(turns)

    def __call__(self, model: Model, context: Context, options: StreamOptions) -> Iterator[AssistantMessageEvent]:
        with self._lock:
            self.requests.append(list(context.messages))
            self.contexts.append(context)
            self.models.append(model)
            self.options.append(options)
            number = len(self.requests)
            turn = self._turns[number - 1] if number <= len(self._turns) else None
        if turn is None:
            turn = fails(f"request {number} came, but only {number - 1} turns are scripted: add one to scripted_stream", kind="setup")
        return self._play(model, context, options, turn)

    def _play(
        self, model: Model, context: Context, options: StreamOptions, scripted: ScriptedTurn
    ) -> Iterator[AssistantMessageEvent]:
        turn = _to_turn(scripted, context)
        assembly = Assembly(model)
        try:
            yield from self._events(assembly, turn, options.signal)
            _heed(options.signal)
        except _Stopped:
            yield assembly.abort()
            return
        if turn.error is not None:
            yield assembly.fail(turn.error.text, kind=turn.error.kind, retryable=turn.error.retryable)
        else:
            assembly.message.usage = turn.usage or Usage()
            yield assembly.finish(turn.final_stop_reason)

    def _events(self, assembly: Assembly, turn: Turn, signal: AbortSignal | None) -> Iterator[AssistantMessageEvent]:
        _heed(signal)
        if turn.parts or turn.error is None or turn.error.retryable:
            yield assembly.start()
        for part in turn.parts:
            if isinstance(part, GatePart):
                _pass(part.gate, signal)
                continue
            _heed(signal)
            if isinstance(part, TextPart):
                opened: AssistantMessageEvent = assembly.open_text()
                add: Callable[[int, str], AssistantMessageEvent] = assembly.add_text
            elif isinstance(part, ThinkingPart):
                opened, add = assembly.open_thinking(part.signature), assembly.add_thinking
            else:
                opened, add = assembly.open_call(part.id or self._next_id(), part.name), assembly.add_arguments
            yield opened
            index = len(assembly.message.content) - 1
            for piece in part.pieces:
                if isinstance(piece, str):
                    _heed(signal)
                    yield add(index, piece)
                else:
                    _pass(piece, signal)
            _heed(signal)
            yield assembly.end(index)

    def _next_id(self) -> str:
        with self._lock:
            self._calls += 1
            return f"call_{self._calls}"


def scripted_stream(*turns: ScriptedTurn) -> ScriptedStream:
    """Make a stream function that plays `turns`, one for each request; a request too many is an error that says so."""
    return ScriptedStream(turns)


def _to_turn(scripted: ScriptedTurn, context: Context) -> Turn:
    if isinstance(scripted, Turn):
        return scripted
    if callable(scripted):
        return _to_turn(scripted(context), context)
    joined = Turn()
    for turn in scripted:
        joined += turn
    return joined


class _Stopped(Exception):
    """The signal was set; the script ends here."""


def _heed(signal: AbortSignal | None) -> None:
    if signal is not None and signal.aborted:
        raise _Stopped


def _pass(gate: Gate, signal: AbortSignal | None) -> None:
    if not isinstance(gate, threading.Event):
        gate()
        return
    # Two things can end this wait and threading can only wait for one: a look at the signal every 2 ms is near enough.
    while not gate.wait(None if signal is None else 0.002):
        _heed(signal)
