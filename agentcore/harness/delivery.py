"""Who is told what: listeners and handlers, one at a time.

    run thread           ── tell(event) ──►  subscribers and handlers, in the order in which they were added
    a thread that calls  ── tell(event) ──►  the same, on that thread; if one of them is just at work elsewhere, it is told when
    steer(), set_…(), …                      that one has returned, on the other thread

So a listener needs no lock. Nobody waits for a listener but the run thread and whoever compacts or moves in the tree: `steer` in a
tool never waits for a listener that waits for the tool.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any

from agentcore.abort import AbortSignal
from agentcore.callbacks import fit_callback
from agentcore.harness.events import NOTIFICATIONS, QUESTIONS, HandlerErrorEvent
from agentcore.loop.run import Run, current_runs

_log = logging.getLogger("agentcore")


class Handler:
    """A function that is told events: all of them, or those of one type."""

    __slots__ = ("call", "event_type", "is_active", "name")

    def __init__(self, function: Callable[..., Any], event_type: str | None) -> None:
        what = "a listener" if event_type is None else f"a handler of {event_type!r}"
        self.call = fit_callback(function, ("event", "signal"), what=what, is_listener=True)
        self.event_type = event_type
        self.is_active = True
        self.name = _name_of(function)


def _name_of(function: Callable[..., Any]) -> str:
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    module = getattr(function, "__module__", None)
    return f"{module}.{name}" if module else name


class Delivery:
    """Tells events to those who asked for them.

    Args:
        active_run: The run that is going, None where there is none.

    Threads: any.
    """

    def __init__(self, active_run: Callable[[], Run | None]) -> None:
        self._active_run = active_run
        # _turn is held while a listener or a handler runs, by the thread that it runs on. It is the one lock under which foreign
        # code runs: that is what it is for. Calls from elsewhere do not wait for it, see `tell`.
        self._turn = threading.RLock()
        self._pid = os.getpid()
        self._depth = 0  # belongs to whoever has the turn
        self._late: deque[tuple[Any, AbortSignal | None]] = deque()
        # _lock guards changes of _handlers, a tuple that is replaced.
        self._lock = threading.Lock()
        self._handlers: tuple[Handler, ...] = ()

    # --- who asked -----------------------------------------------------------------------------------------------------

    def add(self, function: Callable[..., Any], event_type: str | None = None) -> Callable[[], None]:
        """Tell a function all events that are no questions, or those of one type; returns a function that ends this.

        Raises:
            ValueError: There is no such type.
            TypeError: The function needs more arguments than there are.
        """
        if event_type is not None and event_type not in QUESTIONS and event_type not in NOTIFICATIONS:
            near = get_close_matches(event_type, [*QUESTIONS, *NOTIFICATIONS], 1)
            hint = f"did you mean {near[0]!r}?" if near else f"it is one of {', '.join(sorted(QUESTIONS | NOTIFICATIONS))}"
            raise ValueError(f"unknown event type {event_type!r}: {hint}")
        handler = Handler(function, event_type)
        with self._lock:
            self._handlers = (*self._handlers, handler)

        def remove() -> None:
            handler.is_active = False
            with self._lock:
                self._handlers = tuple(one for one in self._handlers if one is not handler)

        return remove

    def handlers(self, event_type: str) -> list[Handler]:
        """Return the handlers of a question, in the order of registration."""
        return [handler for handler in self._handlers if handler.event_type == event_type]

    # --- telling -------------------------------------------------------------------------------------------------------

    def tell(self, event: Any, signal: AbortSignal | None = None, *, waits: bool = True) -> None:
        """Tell an event.

        Args:
            waits: Whether to wait while a listener is at work on another thread; otherwise that thread tells the event when the
                listener has returned, and what listeners then raise is logged.

        Raises:
            Exception: What a subscriber raised; the later ones are not told then. What a handler raises is told in an event.
        """
        self._renew_if_forked()
        if self._turn.acquire(blocking=waits):
            try:
                self._enter()
                self._deliver(event, signal)
            finally:
                self._leave()
        else:
            self._late.append((event, signal))
        self._tell_late()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Hold the turn: nobody else is told anything meanwhile."""
        self._renew_if_forked()
        self._turn.acquire()
        self._enter()
        try:
            yield
        finally:
            self._leave()
            self._tell_late()

    def _renew_if_forked(self) -> None:
        if self._pid != os.getpid():  # whoever had the turn is not here
            self._pid, self._turn, self._depth = os.getpid(), threading.RLock(), 0

    def _enter(self) -> None:
        self._depth += 1

    def _leave(self) -> None:
        self._depth -= 1
        self._turn.release()

    def _tell_late(self) -> None:
        """Tell what came while the turn was taken. Whoever lets the turn go looks here afterwards, so nothing stays behind."""
        while self._late and self._turn.acquire(blocking=False):
            try:
                self._enter()
                if self._depth > 1:  # inside a listener: when that has returned
                    return
                while self._late:
                    event, signal = self._late.popleft()
                    try:
                        self._deliver(event, signal)
                    except Exception:
                        _log.exception("a listener raised at %s", event.type)
            finally:
                self._leave()

    def _deliver(self, event: Any, signal: AbortSignal | None) -> None:
        handlers = self._handlers
        if not handlers:
            return
        run = self._active_run()
        inside = current_runs.get()
        # On a thread that is not the run's own, the run must not be waited for either: it may be waiting for its turn.
        token = current_runs.set((*inside, run)) if run is not None and run not in inside else None
        try:
            for handler in handlers:
                if not handler.is_active:
                    continue
                if handler.event_type is None:
                    handler.call(event, signal)
                elif handler.event_type == event.type:
                    self._call_guarded(handler, event, signal)
        finally:
            if token is not None:
                current_runs.reset(token)

    def _call_guarded(self, handler: Handler, event: Any, signal: AbortSignal | None) -> None:
        try:
            handler.call(event, signal)
        except Exception as error:
            _log.warning("the %s handler %s raised", event.type, handler.name, exc_info=True)
            if event.type != "handler_error":
                self._deliver(HandlerErrorEvent(event.type, handler.name, str(error), error), signal)
