"""Iterate over a run's events from another thread.

    run thread                                  reader's thread
    put(event), then waits ◄──── in step ─────► next(stream)

The run thread waits until the reader asks for the next event. An abort, or whoever waits for the run, ends the step: from then on
the run goes on by itself, and the remaining events are queued for the reader.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType

from agentcore.abort import WAIT_SLICE, AbortSignal
from agentcore.custom_messages import AgentMessage
from agentcore.events import AgentEvent
from agentcore.loop.config import AgentEventSink
from agentcore.loop.run import Run


class EventChannel:
    """Hands events from the run thread to one reader.

    Threads:
        `put` on the run thread, `take` on the reader's, all else on any. `_lock` guards everything, and nobody waits while it is
        held: who has to wait makes a lock of its own that the other side lets go. (A Condition does not bear Ctrl-C.)
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._events: deque[AgentEvent] = deque()
        self._count_put = 0
        self._count_asked = 0
        self._is_in_step = True
        self._is_ended = False
        self._is_closed = False
        self._waiting_readers: list[threading.Lock] = []
        self._waiting_run: threading.Lock | None = None

    def put(self, event: AgentEvent) -> None:
        """Hand over an event; in step, return when the one after it is asked for."""
        with self._lock:
            if self._is_closed:
                return
            self._events.append(event)
            self._count_put += 1
            self._wake_reader()
            if not self._is_in_step or self._count_asked > self._count_put:
                return
            waiter = self._waiting_run = threading.Lock()
            waiter.acquire()
        waiter.acquire()

    def take(self) -> AgentEvent | None:
        """Ask for the next event and wait for it; None at the end."""
        with self._lock:
            self._count_asked += 1
            self._wake_run()
        while True:
            with self._lock:
                if self._events:
                    return self._events.popleft()
                if self._is_ended or self._is_closed:
                    return None
                waiter = threading.Lock()
                waiter.acquire()
                self._waiting_readers.append(waiter)
            while not waiter.acquire(timeout=WAIT_SLICE):
                pass

    def release(self) -> None:
        """End the step: the run does not wait for the reader any more."""
        with self._lock:
            self._is_in_step = False
            self._wake_run()

    def end(self) -> None:
        """Say that no event will come any more."""
        with self._lock:
            self._is_ended = True
            self._is_in_step = False
            self._wake_reader()

    def close(self) -> None:
        """Take no more events, and forget those that have not been read."""
        with self._lock:
            self._is_closed = True
            self._is_in_step = False
            self._events.clear()
            self._wake_run()
            self._wake_reader()

    def _wake_reader(self) -> None:
        for waiter in self._waiting_readers:
            waiter.release()
        self._waiting_readers.clear()

    def _wake_run(self) -> None:
        waiter, self._waiting_run = self._waiting_run, None
        if waiter is not None:
            waiter.release()


class RunStream:
    """The events of a run, one by one. Leaving it early aborts the run.

    The events of a failed or an aborted run end like those of any other: the iteration itself raises nothing. `stream.result()`,
    the same as `stream.run.result()`, raises behind it.

    Attributes:
        run: The run itself, for its result.

    Threads:
        To be read on any thread but those of the run itself; of several readers, each event goes to one.

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

    def __repr__(self) -> str:
        return f"<RunStream {'read or left' if self._is_over else 'open'} of {self.run!r}>"

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
            self._channel.close()
            self.run.settle_interrupted()
            self._is_over = True
            raise
        if event is None:
            self._is_over = True
            raise StopIteration
        return event

    def result(self, timeout: float | None = None) -> list[AgentMessage]:
        """Wait for the run and return its new messages, as `Run.result` does."""
        return self.run.result(timeout)

    def close(self) -> None:
        """Leave the stream: a run that is still going is aborted, and settles within its grace period.

        Raises:
            RuntimeError: Called from inside the run, which is aborted but cannot be waited for there.
        """
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

    def discard(self) -> None:
        """Forget the stream of a run that has not started."""
        self._is_over = True

    def __del__(self) -> None:
        # Whoever breaks out of the loop and drops the stream leaves it too. Garbage collection may come at any moment, on a
        # thread that holds one of our locks: so another thread takes them, and nobody waits here.
        if not self._is_over and not self.run.done():
            with contextlib.suppress(RuntimeError):  # the interpreter goes down, and settles all runs itself
                threading.Thread(target=_leave, args=(self.run, self._channel), name="agentcore-leave", daemon=True).start()


def _leave(run: Run, channel: EventChannel) -> None:
    channel.close()
    run.abort("the stream was left")


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
    stream = RunStream(run, channel)
    run.start()
    return stream
