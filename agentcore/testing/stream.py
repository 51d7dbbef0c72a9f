"""The stream function that plays a script."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator

from agentcore.abort import AbortSignal
from agentcore.events import AssistantMessageEvent
from agentcore.llm.assembly import Assembly
from agentcore.llm.request import Context, StreamOptions
from agentcore.messages import Message, Usage
from agentcore.models import Model
from agentcore.testing.turns import Gate, GatePart, ScriptedTurn, TextPart, ThinkingPart, Turn, fails, join_turn


class ScriptedStream:
    """A stream function that plays turns, one for each request. Made by `scripted_stream`.

    `requests` holds the messages of each request, as a list that later requests do not change; `contexts`, `models` and `options`
    are what else was given; `remaining` counts the turns that are left. An abort takes hold before each event.

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

    @property
    def remaining(self) -> int:
        """How many turns have not been asked for; 0 at the end of a test says that the script was played whole."""
        with self._lock:
            return max(0, len(self._turns) - len(self.requests))

    def __repr__(self) -> str:
        with self._lock:
            took, count = len(self.requests), len(self._turns)
        return f"<ScriptedStream: {took} requests, {count} turns scripted>"

    def __call__(self, model: Model, context: Context, options: StreamOptions) -> Iterator[AssistantMessageEvent]:
        with self._lock:
            self.requests.append(list(context.messages))
            self.contexts.append(context)
            self.models.append(model)
            self.options.append(options)
            number = len(self.requests)
            count = len(self._turns)
            turn = self._turns[number - 1] if number <= len(self._turns) else None
        if turn is None:
            what = "turn is" if count == 1 else "turns are"
            turn = fails(f"request {number} came, but only {count} {what} scripted: add one to scripted_stream", kind="setup")
        return self._play(model, context, options, turn)

    def _play(
        self, model: Model, context: Context, options: StreamOptions, scripted: ScriptedTurn
    ) -> Iterator[AssistantMessageEvent]:
        turn = join_turn(scripted, context)
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
