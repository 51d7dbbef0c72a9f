"""Abort: one flag that is set once, and whoever wants to hear of it.

An `AbortController` belongs to whoever may stop the work, its `signal` to whoever does the work. Aborting is one-way:
a signal that is set stays set, and the first reason is kept.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from types import FunctionType, MethodType

from agentcore.callbacks import fit_callback
from agentcore.errors import AgentAbortedError

WAIT_SLICE = 0.1 if os.name == "nt" else 1.0
"""Waits go in slices of so many seconds. On Windows, Ctrl-C does not end a wait for a lock. Elsewhere it does, but one that comes
just before the wait begins is seen only when the wait is over."""


class AbortSignal:
    """Tells work that it should stop.

    Threads:
        Every method may be called from any thread.
    """

    def __init__(self) -> None:
        # Not an Event: Ctrl-C inside its Python code can leave its lock taken for ever, and whoever waits with it.
        self._is_aborted = False
        self._reason: object = None
        # _lock guards _reason, _callbacks, _waiters (a lock for each thread that waits, let go by the abort) and the one step from
        # "not aborted" to "aborted". It is never held while a callback runs, because a callback may add or remove callbacks.
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[object], object]] = []
        self._waiters: list[threading.Lock] = []

    @property
    def aborted(self) -> bool:
        """Whether the signal has been set."""
        return self._is_aborted

    @property
    def reason(self) -> object:
        """What was given to `abort`; None before, and where no reason was given."""
        return self._reason

    def wait(self, timeout: float | None = None) -> bool:
        """Block until the signal is set or `timeout` seconds are over; True when it is set."""
        if self._is_aborted:
            return True
        if timeout is not None and timeout != timeout:
            raise ValueError("timeout must be seconds or None, not NaN")
        waiter = threading.Lock()
        waiter.acquire()
        with self._lock:
            if self._is_aborted:
                return True
            self._waiters.append(waiter)
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            while True:
                left = WAIT_SLICE if deadline is None else max(0.0, deadline - time.monotonic())
                if waiter.acquire(timeout=min(left, WAIT_SLICE)):
                    return True
                if deadline is not None and time.monotonic() >= deadline:
                    return self._is_aborted
        finally:
            with self._lock:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)

    def raise_if_aborted(self) -> None:
        """Raise `AgentAbortedError` if the signal has been set."""
        if self._is_aborted:
            raise AgentAbortedError("the operation was aborted", reason=self._reason)

    def on_abort(self, callback: Callable[..., object]) -> Callable[[], None]:
        """Call `callback(reason)` once when the signal is set, or now if it is set already.

        It may take no argument: `on_abort(event.set)`.

        Returns:
            A function that takes the callback out again; calling it twice is harmless.

        Raises:
            TypeError: The callback needs more arguments than there are.

        Threads:
            The callback runs on the thread that calls `abort` (on this one, if the signal is set already), and that
            thread waits for it, so it must not block. Its exception is raised to that thread after all other
            callbacks have run.
        """
        if not _takes_one_argument(callback):
            callback = fit_callback(callback, ("reason",), what="on_abort")
        entry = _Once(callback)
        with self._lock:
            if not self._is_aborted:
                self._callbacks.append(entry)
                return lambda: self._remove(entry)
        callback(self._reason)
        return lambda: None

    def _remove(self, entry: Callable[[object], object]) -> None:
        with self._lock:
            if entry in self._callbacks:
                self._callbacks.remove(entry)

    def _set(self, reason: object) -> None:
        with self._lock:
            if self._is_aborted:
                return
            self._reason = reason
            callbacks, self._callbacks = self._callbacks, []
            waiters, self._waiters = self._waiters, []
            self._is_aborted = True
            for waiter in waiters:
                waiter.release()
        failure: BaseException | None = None
        for callback in callbacks:
            try:
                callback(reason)
            except BaseException as error:  # user code: every callback is called, the first failure is raised
                failure = failure or error
        if failure is not None:
            raise failure


class _Once:
    """Gives each registration an identity of its own, so that the same function may be registered twice."""

    __slots__ = ("_callback",)

    def __init__(self, callback: Callable[[object], object]) -> None:
        self._callback = callback

    def __call__(self, reason: object) -> object:
        return self._callback(reason)


def _takes_one_argument(callback: Callable[..., object]) -> bool:
    """Return whether a plain function or method needs exactly one argument: the usual case, without a look at the signature."""
    is_method = isinstance(callback, MethodType)
    function = callback.__func__ if isinstance(callback, MethodType) else callback
    if not isinstance(function, FunctionType) or function.__defaults__ or function.__code__.co_kwonlyargcount:
        return False
    has_more = function.__code__.co_flags & 0x0C  # *args, **kwargs
    return not has_more and function.__code__.co_argcount == 1 + is_method


class AbortController:
    """Owns an `AbortSignal` and can set it.

    Threads:
        `abort` may be called from any thread; a second call does nothing.
    """

    def __init__(self) -> None:
        self.signal = AbortSignal()

    def abort(self, reason: object = None) -> None:
        """Set the signal. The callbacks of `on_abort` run on this thread before it returns."""
        self.signal._set(reason)

    def follow(self, outer: AbortSignal) -> Callable[[], None]:
        """Abort with the same reason when `outer` is aborted.

        Returns:
            A function that ends this; to be called when the work is over.
        """
        return outer.on_abort(self.signal._set)
