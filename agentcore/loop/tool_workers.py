"""The executor of a run, and the queue on which its workers report to the run thread.

- `execute` runs on a worker (`agentcore-tool-…`); everything else runs on the run thread.
- A worker never touches the transcript: it reports over one queue, and the run thread takes from it.
- Results come out in the order in which calls finish, each exactly once, also after an abort. Of a call that was given up, nothing
  comes out any more.

The executor is made with the first call of a run and shut at the end of the run. When a call takes longer than its tool allows, its
worker may never come back: then the calls that still wait for a place move to another executor.
"""

from __future__ import annotations

import contextvars
import queue
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from agentcore.abort import AbortController, AbortSignal
from agentcore.tools.agent_tool import ToolUpdateFn

WORKER_NAME = "agentcore-tool"
"""What the names of all tool workers begin with."""

MAX_WAIT = 3600.0
"""Seconds of one wait at most: a lock refuses a time without end. The wait begins again."""

current_tool_signal: contextvars.ContextVar[AbortSignal | None] = contextvars.ContextVar("agentcore_tool_signal", default=None)
"""The signal of the tool call that this code runs inside; None outside of tools. A run started here is linked to it."""


class Job:
    """One call on its way: `execute(signal, on_update)` on a worker, updates and one result back.

    Threads:
        Made and given up on the run thread. The worker sets `deadline` when the call begins, and clears `is_open` when `execute`
        has returned.
    """

    __slots__ = (
        "_ticket", "context", "controller", "deadline", "error", "execute", "future", "is_done", "is_open", "result", "signal",
        "tag", "timeout",
    )  # fmt: skip

    def __init__(self, tag: Any, execute: Callable[[AbortSignal, ToolUpdateFn], Any], timeout: float | None) -> None:
        self.tag = tag
        self.execute = execute
        self.timeout = timeout
        self.context = contextvars.copy_context()
        self.is_open = True  # updates are still welcome
        self.is_done = False  # its result came out, or it was given up
        self.result: Any = None
        self.error: BaseException | None = None
        self.future: Future[None] | None = None
        self.deadline: float | None = None
        self.controller: AbortController | None = None
        self.signal: AbortSignal | None = None
        self._ticket = [True]

    def claim(self) -> bool:
        """Return true once: to whoever is to run the call."""
        try:
            return self._ticket.pop()
        except IndexError:
            return False


class ToolWorkers:
    """The tool workers of one run.

    Args:
        signal: The run's. All tools get a signal that follows it.
        max_workers: Calls that run at the same time at most.
        grace: Seconds that calls have to return once the signal is set.

    Threads:
        Belongs to the run thread. `_reports` is put to by the workers and by whoever aborts, and taken from by the run thread
        alone; it ends with the run.
    """

    def __init__(self, signal: AbortSignal, max_workers: int, grace: float) -> None:
        self._run_signal = signal
        self._max_workers = max_workers
        self._grace = grace
        self._executor: ThreadPoolExecutor | None = None
        self._controller: AbortController | None = None
        self._unfollow: Callable[[], None] | None = None
        self._reports: queue.SimpleQueue[tuple[Job | None, bool, Any]] = queue.SimpleQueue()
        self._open: list[Job] = []
        self._grace_ends: float | None = None
        self._has_given_up = False

    def start(self, tag: Any, execute: Callable[[AbortSignal, ToolUpdateFn], Any], timeout: float | None = None) -> Job:
        """Run a call on a worker; its reports come out of `next_report` with `tag` on the job.

        `timeout` counts from when the call begins, not while it waits for a worker.
        """
        if self._controller is None:
            self._controller = AbortController()
            self._unfollow = self._run_signal.on_abort(self._on_abort)
        job = Job(tag, execute, timeout)
        if timeout is None:
            job.signal = self._controller.signal
        else:
            job.controller = AbortController()
            job.controller.follow(self._controller.signal)
            job.signal = job.controller.signal
        self._open.append(job)
        self._submit(job, self._max_workers)
        return job

    def _submit(self, job: Job, max_workers: int) -> None:
        if self._executor is None:
            self._executor = ThreadPoolExecutor(max_workers, thread_name_prefix=WORKER_NAME)
        try:
            job.future = self._executor.submit(job.context.run, self._work, job)
        except RuntimeError:
            # The interpreter is going down, or there are no threads to be had: the run thread makes the call itself. The executor
            # may have queued it before it failed, for a worker that it has: only one of the two gets to run it.
            contextvars.copy_context().run(self._work, job)

    def _work(self, job: Job) -> None:
        if not job.claim():
            return
        signal = job.signal
        assert signal is not None
        current_tool_signal.set(signal)
        if job.timeout is not None:
            job.deadline = time.monotonic() + job.timeout
            self._reports.put((None, False, None))  # the run thread waits no longer than that from now on

        def on_update(partial_result: Any) -> None:
            if job.is_open:
                self._reports.put((job, False, partial_result))

        try:
            job.result = job.execute(signal, on_update)
        except BaseException as error:  # the tool's own code: the model reads what it raised
            job.error = error
        job.is_open = False
        self._reports.put((job, True, None))

    def next_report(self) -> tuple[Job, bool, Any]:
        """Wait for the next report of a call.

        Returns:
            `(job, False, partial_result)` for an update; `(job, True, None)` when the call has ended. A call that did not end in
            time has `job.error` set to a `GaveUp`.

        Threads:
            The run thread alone. An abort ends the wait after the grace period.
        """
        while True:
            deadline = self._next_deadline()
            left = None if deadline is None else min(max(0.0, deadline - time.monotonic()), MAX_WAIT)
            try:
                job, is_end, value = self._reports.get(timeout=left)
            except queue.Empty:
                late = self._give_up_one(time.monotonic())
                if late is not None:
                    return late, True, None
                continue
            if job is None:  # there is a new deadline: a call with a timeout has begun, or the signal was set
                if self._grace_ends is None and self._controller is not None and self._controller.signal.aborted:
                    self._grace_ends = time.monotonic() + self._grace
                continue
            if job.is_done:
                continue
            if is_end:
                self._close(job)
            return job, is_end, value

    def abort(self, reason: object) -> None:
        """Ask all calls to stop, without an abort of the run; their grace period begins now."""
        if self._controller is not None:
            self._on_abort(reason)

    @property
    def has_open_calls(self) -> bool:
        """Whether a call is still going."""
        return bool(self._open)

    def shut(self) -> None:
        """Let the workers go. Those of calls that were given up end by themselves, when they can."""
        if self._unfollow is not None:
            self._unfollow()
        if self._executor is not None:
            self._executor.shutdown(wait=not self._has_given_up and not self._open, cancel_futures=True)
            self._executor = None

    def _on_abort(self, reason: object) -> None:
        """Runs on the thread that calls `abort`."""
        assert self._controller is not None
        self._controller.abort(reason)
        self._reports.put((None, False, None))

    def _next_deadline(self) -> float | None:
        deadlines = [job.deadline for job in self._open if job.deadline is not None]
        if self._grace_ends is not None:
            deadlines.append(self._grace_ends)
        return min(deadlines) if deadlines else None

    def _give_up_one(self, now: float) -> Job | None:
        for job in self._open:
            is_late = job.deadline is not None and now >= job.deadline
            if not is_late and not (self._grace_ends is not None and now >= self._grace_ends):
                continue
            job.error = GaveUp("timeout" if is_late else "aborted")
            if job.controller is not None:
                job.controller.abort("the tool took too long")
            self._close(job)
            if job.future is None or not job.future.cancel():
                # Its worker may never come back, so it must not take a place away from other calls.
                self._has_given_up = True
                if not self._open or self._grace_ends is None or now < self._grace_ends:
                    self._change_executor()
            return job
        return None

    def _change_executor(self) -> None:
        if self._executor is None:
            return
        waiting = [job for job in self._open if job.future is not None and job.future.cancel()]
        self._executor.shutdown(wait=False, cancel_futures=True)
        self._executor = None
        places = max(1, self._max_workers - (len(self._open) - len(waiting)))  # those that are running still count
        for job in waiting:
            self._submit(job, places)

    def _close(self, job: Job) -> None:
        job.is_done = True
        job.is_open = False
        self._open.remove(job)


class GaveUp(Exception):
    """A call did not return in time. `why` is `"timeout"` (the tool's own) or `"aborted"` (the grace period)."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why
