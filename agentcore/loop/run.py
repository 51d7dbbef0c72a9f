"""A run: one thread, what comes of it, and whoever waits for it.

    caller's thread                     run thread
    Run(work).start() ── starts ──────► work(run)
    run.wait(), run.result() ◄───────── settled: idle, result, reader's end, done callbacks

- A run that is waited for goes on by itself: whoever waits ends the reading in step of its stream.
- A run cannot be waited for from inside itself, directly or through a run that it started: it would be a deadlock, and is an error.
- Ctrl-C while waiting aborts the run, lets it settle, and is raised then; a second one is raised at once.
"""

from __future__ import annotations

import contextvars
import itertools
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Any

from agentcore.abort import WAIT_SLICE, AbortController, AbortSignal
from agentcore.callbacks import fit_callback
from agentcore.custom_messages import AgentMessage
from agentcore.errors import AgentAbortedError, AgentRunError
from agentcore.loop.tool_workers import current_tool_signal
from agentcore.messages import AssistantMessage, ToolResultMessage, Usage

_log = logging.getLogger("agentcore")
_numbers = itertools.count(1)

current_runs: contextvars.ContextVar[tuple[Run, ...]] = contextvars.ContextVar("agentcore_runs", default=())
"""The runs that this code runs inside, the outermost first: on a run thread, on its tool workers, in runs that those started."""

# _registry_lock guards _active, the runs that have started and whose thread is not over. Nothing else is done while it is held.
_registry_lock = threading.Lock()
_active: set[Run] = set()

SETTLE_MARGIN = 0.5
"""Seconds on top of a run's grace period that its end may take after an abort."""


def active_runs() -> list[Run]:
    """Return the runs of this process that have not settled, or whose done callbacks have not ended."""
    with _registry_lock:
        return list(_active)


class Run:
    """Something that runs on a thread of its own, much like a `concurrent.futures.Future`.

    Args:
        work: `(run)`: what to do on the run thread. It returns the messages that are new.
        grace: Seconds that a tool has to return after an abort; the wait after Ctrl-C goes by it.
        on_settled: Called on the run thread when the work is over, before anybody who waits is told.
        on_lost: Called in its place in a forked child, where the run thread is missing.

    Threads:
        Every method may be called from any thread; those that wait not from inside the run.
    """

    def __init__(
        self,
        work: Callable[[Run], Sequence[AgentMessage]],
        *,
        grace: float = 2.0,
        on_settled: Callable[[], object] | None = None,
        on_lost: Callable[[], object] | None = None,
    ) -> None:
        self._work: Callable[[Run], Sequence[AgentMessage]] | None = work
        self._on_settled = on_settled
        self._on_lost = on_lost
        self._grace = grace
        self._controller = AbortController()
        self._unfollow: list[Callable[[], None]] = []
        # _lock guards _is_settled, _waiters, _callbacks, _future, _has_begun and _is_withdrawn. No callback runs while it is held.
        self._lock = threading.Lock()
        self._is_settled = False
        # One lock for each thread that waits, held until the run has settled. Not an Event: Ctrl-C inside its Python code can
        # leave its lock taken for ever, or released twice.
        self._waiters: list[threading.Lock] = []
        self._callbacks: list[Callable[[Run], object]] = []
        self._future: Future[list[AgentMessage]] | None = None
        self._has_begun = False  # the run thread is at work
        self._is_withdrawn = False  # it must not begin any more
        self._messages: list[AgentMessage] = []
        self._error: BaseException | None = None
        self._release_reader: Callable[[], object] | None = None
        self._end_reader: Callable[[], object] | None = None
        self._thread: threading.Thread | None = None
        self.cause: BaseException | None = None
        """What a hook, a listener or a stream function raised, if that is why the run failed."""

    def __repr__(self) -> str:
        state = "going" if not self.done() else "done" if self._error is None else type(self._error).__name__
        return f"<Run {self._thread.name if self._thread else 'not started'}: {state}>"

    # --- how it goes -------------------------------------------------------------------------------------------------

    @property
    def signal(self) -> AbortSignal:
        """Is set when the run is aborted."""
        return self._controller.signal

    def abort(self, reason: object = None) -> None:
        """Ask the run to stop; returns at once. After its end, or for the second time, it does nothing."""
        if not self._is_settled:
            self._controller.abort(reason)

    def done(self) -> bool:
        """Return whether the run has settled, well or not."""
        return self._is_settled

    def wait(self, timeout: float | None = None) -> bool:
        """Block until the run has settled.

        Args:
            timeout: Seconds to wait; None waits without limit. When they are over the run goes on.

        Returns:
            Whether it has settled.

        Raises:
            RuntimeError: Called from inside the run: it would wait for itself.
            KeyboardInterrupt: Ctrl-C; the run has been aborted.
            TypeError: `timeout` is no number.
        """
        check_timeout(timeout)
        if self._is_settled:
            return True
        try:
            self.refuse_waiting_inside()
            self._go_on_alone()
            return self.block(timeout)
        except KeyboardInterrupt:
            self.settle_interrupted()
            raise

    def result(self, timeout: float | None = None) -> list[AgentMessage]:
        """Wait, and return the messages that the run added to the transcript.

        Raises:
            AgentRunError: The run failed. `kind` says how, `message` is the answer that says so, `__cause__` what a hook raised.
            AgentAbortedError: The run was aborted.
            TimeoutError: It has not settled in time; it goes on.
            RuntimeError: Called from inside the run.
        """
        error = self.exception(timeout)
        if error is not None:
            raise error
        return self._messages

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait, and return what `result` would raise of the run, or None.

        Raises:
            TimeoutError: It has not settled in time; it goes on.
            RuntimeError: Called from inside the run.
        """
        if not self.wait(timeout):
            raise TimeoutError(f"the run has not settled within {timeout:g} s and goes on: wait longer, or abort() it")
        return self._error

    @property
    def message(self) -> AssistantMessage | None:
        """The last answer of the run; None as long as there is none."""
        for message in reversed(self._messages):
            if isinstance(message, AssistantMessage):
                return message
        return None

    @property
    def text(self) -> str:
        """The text of the last answer."""
        message = self.message
        return "" if message is None else message.text

    @property
    def messages(self) -> list[AgentMessage]:
        """The messages that the run has added to the transcript so far, also where it failed. A copy."""
        return list(self._messages)

    @property
    def usage(self) -> Usage:
        """What the answers and tool results of this run took so far, added up."""
        return total_usage(self.messages)

    def add_done_callback(self, callback: Callable[..., object]) -> None:
        """Call `callback(run)` when the run has settled, or now if it has. It may take no argument.

        Raises:
            TypeError: It needs more arguments than there are.

        Threads:
            It runs on the run thread (here, if the run has settled), once. It may start the next run. What it raises is logged.
        """
        callback = fit_callback(callback, ("run",), what="a done callback")
        with self._lock:
            if not self._is_settled:
                self._callbacks.append(callback)
                return
        _call(callback, self)

    def future(self) -> Future[list[AgentMessage]]:
        """Return the run as a `Future`, for `asyncio.wrap_future` and the like. Cancelling it aborts the run.

        Whoever asks for it waits for the run: a stream is not read in step any more. Its `result` and `exception` raise a
        `RuntimeError` inside the run, as `Run.result` does.
        """
        self._go_on_alone()
        with self._lock:
            if self._future is None:
                self._future = _RunFuture(self)
                self._future.set_running_or_notify_cancel()
                if self._is_settled:
                    self._fill(self._future)
            return self._future

    # --- for those who start it --------------------------------------------------------------------------------------

    def start(self, *, is_detached: bool = False) -> None:
        """Start the run thread. In a tool, the run is linked to the call's signal unless it is detached.

        Raises:
            RuntimeError: No thread could be started.
        """
        outer = current_tool_signal.get()
        if outer is not None and not is_detached:
            self.follow(outer)
        context = contextvars.copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._main,), name=f"agentcore-run-{next(_numbers)}", daemon=True)
        with _registry_lock:
            _active.add(self)
        try:
            self._thread.start()
        except BaseException as error:  # no thread to be had, or Ctrl-C
            self.withdraw(error)
            raise

    def withdraw(self, error: BaseException) -> None:
        """Take back a start that failed or was interrupted; a run thread that is at work already is aborted."""
        with self._lock:
            if self._is_withdrawn:
                return
            self._is_withdrawn = not self._has_begun
        if self._is_withdrawn:
            self._settle(error)
        else:
            self.settle_interrupted()
        if isinstance(error.__context__, KeyboardInterrupt):
            # Ctrl-C inside `Thread.start` can come out as a RuntimeError of its Condition.
            raise KeyboardInterrupt from error

    def follow(self, outer: AbortSignal) -> None:
        """Abort the run when `outer` is aborted."""
        self._unfollow.append(self._controller.follow(outer))

    def attach_reader(self, release: Callable[[], object], end: Callable[[], object]) -> None:
        """Set who reads the run in step: `release` is called when it shall go on alone, `end` when it has settled."""
        self._release_reader, self._end_reader = release, end
        self._unfollow.append(self.signal.on_abort(lambda reason: release()))

    def is_on_run_thread(self) -> bool:
        """Return whether this code runs on the run thread."""
        return self._thread is threading.current_thread()

    def add_message(self, message: AgentMessage) -> None:
        """Note a message that the run added to the transcript. Run thread only."""
        self._messages.append(message)

    def refuse_waiting_inside(self) -> None:
        """Raise if this code runs inside the run."""
        if self in current_runs.get():
            raise RuntimeError(
                "a run cannot be waited for from inside itself (a listener, a hook or a tool of it): it would wait for ever; "
                "return first, or use add_done_callback()"
            )

    def block(self, timeout: float | None = None) -> bool:
        """Wait for the end and do nothing else."""
        waiter = threading.Lock()
        waiter.acquire()
        with self._lock:
            if self._is_settled:
                return True
            self._waiters.append(waiter)
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left = WAIT_SLICE if deadline is None else max(0.0, deadline - time.monotonic())
            if waiter.acquire(timeout=min(left, WAIT_SLICE)):
                return True
            if deadline is not None and time.monotonic() >= deadline:
                with self._lock:
                    if waiter in self._waiters:  # else it has settled just now
                        self._waiters.remove(waiter)
                    return self._is_settled

    def settle_interrupted(self) -> None:
        """Abort, and wait no longer than it takes to give up a tool."""
        self.abort("interrupted")
        self.settle()

    def settle(self) -> bool:
        """Wait for the end of an aborted run, no longer than it takes to give up a tool."""
        self._go_on_alone()
        return self.block(self._grace + SETTLE_MARGIN)

    def join(self, timeout: float | None = None) -> None:
        """Wait for the end of the run thread, which comes after the done callbacks."""
        if self._thread is not None and self._thread.is_alive():
            self._thread.join(timeout)

    def _go_on_alone(self) -> None:
        if self._release_reader is not None:
            self._release_reader()

    # --- the run thread ----------------------------------------------------------------------------------------------

    def _main(self) -> None:
        with self._lock:
            if self._is_withdrawn:
                return
            self._has_begun = True
        # Only those that are still going: runs that start each other in done callbacks must not grow a chain without end.
        current_runs.set((*(run for run in current_runs.get() if not run.done()), self))
        current_tool_signal.set(None)
        assert self._work is not None
        error: BaseException | None = None
        try:
            self._messages = list(self._work(self))
            error = self._failure()
        except BaseException as raised:
            error = raised
        self._settle(error)

    def _failure(self) -> BaseException | None:
        """Return what the last answer means for `result`."""
        message = self.message
        if message is None or message.stop_reason not in ("error", "aborted"):
            return None
        error: BaseException
        if message.stop_reason == "aborted":
            reason = self.signal.reason
            error = AgentAbortedError("the run was aborted" if reason is None else f"the run was aborted: {reason}", reason=reason)
        else:
            from agentcore.llm.failures import kind_of

            error = AgentRunError(
                message.error_message or "the run failed, and the answer does not say why", kind=kind_of(message), message=message
            )
        error.__cause__ = self.cause
        return error

    def _settle(self, error: BaseException | None) -> None:
        self._stop_following()
        self._error = error
        self._work = None
        on_settled, self._on_settled, self._on_lost = self._on_settled, None, None
        try:
            if on_settled is not None:
                on_settled()
        except BaseException:  # a hook's SystemExit, say: whoever waits is told all the same
            _log.exception("what was to be done at the end of a run raised")
        with self._lock:
            self._is_settled = True
            waiters, self._waiters = self._waiters, []
            callbacks, self._callbacks = self._callbacks, []
            future = self._future
        for waiter in waiters:
            waiter.release()
        if self._end_reader is not None:
            self._end_reader()
        if future is not None:
            self._fill(future)
        for callback in callbacks:
            _call(callback, self)
        # Last of all: a callback may have started the next run, and the wait at exit must see one of the two.
        with _registry_lock:
            _active.discard(self)

    def _stop_following(self) -> None:
        for unfollow in self._unfollow:
            unfollow()
        self._unfollow.clear()

    def _fill(self, future: Future[list[AgentMessage]]) -> None:
        if self._error is not None:
            future.set_exception(self._error)
        else:
            future.set_result(self._messages)

    def _forget_in_child(self) -> None:
        """In a forked child: the run thread is not there, so the run has ended."""
        if self._is_settled:
            return
        self._lock = threading.Lock()
        self._error = AgentRunError(
            "the run went on in the parent process: a forked child has only the thread that forked", kind="setup"
        )
        if self._on_lost is not None:
            self._on_lost()
        self._is_settled = True


class _RunFuture(Future[list[AgentMessage]]):
    """A run as a `Future`."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self._run = run

    def cancel(self) -> bool:
        """Abort the run. It is not cancelled at once: it settles, with an `AgentAbortedError`."""
        self._run.abort("the future was cancelled")
        return False

    def result(self, timeout: float | None = None) -> list[AgentMessage]:
        self._refuse_waiting_inside()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._refuse_waiting_inside()
        return super().exception(timeout)

    def _refuse_waiting_inside(self) -> None:
        if not self.done():
            self._run.refuse_waiting_inside()


def check_timeout(timeout: float | None) -> None:
    """Raise if a time to wait is none.

    Raises:
        TypeError: It is neither a number nor None.
        ValueError: It is NaN.
    """
    if timeout is None:
        return
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)):
        raise TypeError(f"timeout must be seconds or None, not {type(timeout).__name__}")
    if timeout != timeout:
        raise ValueError("timeout must be seconds or None, not NaN")


def total_usage(messages: Iterable[AgentMessage]) -> Usage:
    """Return what all answers and tool results took, added up."""
    total = Usage()
    for message in messages:
        if isinstance(message, (AssistantMessage, ToolResultMessage)) and message.usage is not None:
            total = total + message.usage
    return total


def _call(callback: Callable[[Run], Any], run: Run) -> None:
    try:
        callback(run)
    except BaseException:  # a SystemExit too: it must not keep the other callbacks from being called
        _log.exception("a done callback of a run raised")


def _after_fork_in_child() -> None:
    global _registry_lock
    _registry_lock = threading.Lock()
    runs = list(_active)
    _active.clear()
    for run in runs:
        run._forget_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
