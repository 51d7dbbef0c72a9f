"""Iterate over a run's events from another thread.

    run thread                                  reader's thread
    put(event), then waits ◄──── in step ─────► next(stream)

The run thread waits until the reader asks for the next event. An abort, or whoever waits for the run, ends the step: from then on
the run goes on by itself, and the remaining events are queued for the reader.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType

from agentcore.abort import AbortSignal
from agentcore.custom_messages import AgentMessage
from agentcore.events import AgentEvent
from agentcore.loop.config import AgentEventSink
from agentcore.loop.run import Run


class EventChannel:
    """Hands events from the run thread to one reader.

    Threads:
        `put` on the run thread, `take` on the reader's, all else on any. `_changed` guards everything; it is held for the steps
        of the exchange alone.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._events: deque[AgentEvent] = deque()
        self._count_put = 0
        self._count_asked = 0
        self._is_in_step = True
        self._is_ended = False
        self._is_closed = False

    def put(self, event: AgentEvent) -> None:
        """Hand over an event; in step, return when the one after it is asked for."""
        with self._changed:
            if self._is_closed:
                return
            self._events.append(event)
            self._count_put += 1
            self._changed.notify_all()
            while self._is_in_step and self._count_asked <= self._count_put:
                self._changed.wait()

    def take(self) -> AgentEvent | None:
        """Ask for the next event and wait for it; None at the end."""
        slice_ = 0.1 if os.name == "nt" else None  # Ctrl-C does not end a longer wait there
        with self._changed:
            self._count_asked += 1
            self._changed.notify_all()
            while not self._events:
                if self._is_ended or self._is_closed:
                    return None
                self._changed.wait(slice_)
            return self._events.popleft()

    def release(self) -> None:
        """End the step: nobody waits for the reader any more."""
        with self._changed:
            self._is_in_step = False
            self._changed.notify_all()

    def end(self) -> None:
        """Say that no event will come any more."""
        with self._changed:
            self._is_ended = True
            self._is_in_step = False
            self._changed.notify_all()

    def close(self) -> None:
        """Take no more events, and forget those that have not been read."""
        with self._changed:
            self._is_closed = True
            self._is_in_step = False
            self._events.clear()
            self._changed.notify_all()


class RunStream:
    """The events of a run, one by one. Leaving it early aborts the run.

    Attributes:
        run: The run itself, for its result.

    Threads:
        To be read on one thread, not one of the run's own.

    Example:
        >>> with agent.stream("hello") as stream:
        ...     for event in stream:
        ...         if event.type == "message_update":
        ...             ...
        >>> stream.run.text
        'Hello!'
    """

    def __init__(self, run: Run, channel: EventChannel) -> None:
        self.run = run
        self._channel = channel
        self._is_over = False

    def __iter__(self) -> Iterator[AgentEvent]:
        return self

    def __next__(self) -> AgentEvent:
        if self._is_over:
            raise StopIteration
        if not self.run.done():
            self.run.refuse_waiting_inside()
        try:
            event = self._channel.take()
        except KeyboardInterrupt:
            self._is_over = True
            self._channel.close()
            self.run.settle_interrupted()
            raise
        if event is None:
            self._is_over = True
            raise StopIteration
        return event

    def result(self, timeout: float | None = None) -> list[AgentMessage]:
        """Wait for the run and return its new messages, as `Run.result` does."""
        return self.run.result(timeout)

    def close(self) -> None:
        """Leave the stream: a run that is still going is aborted, and settles within its grace period."""
        self._is_over = True
        self._channel.close()
        if not self.run.done():
            self.run.abort("the stream was left")
            self.run.refuse_waiting_inside()
            self.run.settle()

    def __enter__(self) -> RunStream:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        # Whoever breaks out of the loop and drops the stream leaves it too; nobody waits here.
        if not self._is_over:
            self._channel.close()
            self.run.abort("the stream was left")


def start_stream(
    work: Callable[[Run, AgentEventSink], Sequence[AgentMessage]], signal: AbortSignal | None = None, grace: float = 2.0
) -> RunStream:
    """Start a run that tells its events to a stream, and return the stream.

    Args:
        work: `(run, emit)`: what to do on the run thread.
        signal: Aborts the run too.
        grace: See `Run`.
    """
    channel = EventChannel()
    run = Run(lambda run: work(run, channel.put), grace=grace)
    run.attach_reader(channel.release, channel.end)
    if signal is not None:
        run.follow(signal)
    run.start()
    return RunStream(run, channel)
