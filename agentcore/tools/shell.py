"""One command in its own process group: stream its output, time out, abort, kill.

- The command is the leader of a session and process group of its own. Ending it means the whole group: TERM, and half a second
  later KILL for whoever is left.
- Its end is the end of its process, not the end of its output: a background child may hold the pipes for ever. After the end
  the pipes are read until they have been quiet for 100 ms, or one second in all.
- One thread does all of it, the caller's: it waits in `poll` for output, for the process and for the abort.
- While it runs the process is not reaped, so its id, which names the group, cannot be given to somebody else.

POSIX only: Windows has neither process groups nor `poll`.
"""

from __future__ import annotations

import contextlib
import errno
import io
import logging
import math
import os
import re
import select
import signal as process_signals
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from agentcore.abort import AbortSignal
from agentcore.errors import EnvironmentFileError
from agentcore.tools import guard

_log = logging.getLogger("agentcore")

OutputStream = Literal["stdout", "stderr"]
OutputFn = Callable[[OutputStream, bytes], object]

MAX_TIMEOUT = 2147483.647
TERM_GRACE = 0.5
TICK = 0.1
QUIET = 0.1
LATE_OUTPUT_LIMIT = 1.0

_READ_SIZE = 65536
_READS_A_TURN = 4  # how often a stream that is full is read before the other one, the clock and the abort are looked at
_PIPE_SIZE = 1 << 18  # a command that prints much runs ahead instead of waiting for us: up to a quarter faster
_TURNS_FOR_A_PIPE = 2 + _PIPE_SIZE // (_READ_SIZE * _READS_A_TURN)
_KILL_GRACE = 1.0
_HALF_PAIR = re.compile("[\ud800-\udbff\udc00-\udc7f\udd00-\udfff]")  # the others stand for bytes that are no UTF-8
_POLL_PAUSE = 0.02  # where the system has no pidfd: how often to ask whether the process has ended


def check_timeout(timeout: float | None) -> None:
    """Raise `EnvironmentFileError` (`timeout`) unless a command may be given this many seconds."""
    if timeout is not None and not (0 < timeout <= MAX_TIMEOUT):  # also false for NaN
        raise EnvironmentFileError(
            f"invalid timeout {timeout:.15g}: give a number of seconds above 0 and at most {MAX_TIMEOUT}, or none for no limit",
            code="timeout",
        )


def run_process_group(
    arguments: Sequence[str],
    on_output: OutputFn,
    *,
    cwd: str,
    env: Mapping[str, str],
    timeout: float | None = None,
    signal: AbortSignal | None = None,
    on_tick: Callable[[], object] | None = None,
) -> int:
    """Run a program in a process group of its own and wait for its end.

    Args:
        arguments: The program and its arguments.
        on_output: `(stream, data)`: gets the output as it comes, in order of arrival, on this thread. If it raises, the group
            is ended.
        cwd: The directory to run in.
        env: The whole environment.
        timeout: Seconds, more than 0 and at most `MAX_TIMEOUT`; None for no limit.
        signal: Ends the group when it is set.
        on_tick: Called about every 100 ms while the program runs, also when it is silent.

    Returns:
        The exit code; 128 + n for a program that was killed by signal n.

    Raises:
        EnvironmentFileError: `spawn_error` (it cannot be started), `timeout`, `aborted`, or `callback_error` (`on_output` or
            `on_tick` raised; the cause is its exception). The whole group has then been ended.

    Threads:
        Any; all callbacks run on it.
    """
    check_timeout(timeout)
    if signal is not None and signal.aborted:
        raise EnvironmentFileError("the command was aborted before it started", code="aborted")
    group = _Group(_start(arguments, cwd, env), on_output, on_tick)
    try:
        remove = signal.on_abort(lambda reason: group.abort()) if signal is not None else None
        try:
            return group.run(timeout)
        finally:
            if remove is not None:
                remove()
    finally:
        group.close()


def _start(arguments: Sequence[str], cwd: str, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    # The pipes and the null device are ours, because Python 3.10 leaves its own open where the start fails.
    ends: list[int] = []
    try:
        ends += os.pipe()
        ends += os.pipe()
        with open(os.devnull, "rb") as nothing:
            process = subprocess.Popen(
                arguments, cwd=cwd, env=env, stdin=nothing, stdout=ends[1], stderr=ends[3], bufsize=0, start_new_session=True
            )
    except BaseException as error:
        for end in ends:
            os.close(end)
        if not isinstance(error, (OSError, ValueError, TypeError)):
            raise
        raise EnvironmentFileError(_why_not_started(error, arguments, cwd, env), code="spawn_error") from error
    os.close(ends[1])
    os.close(ends[3])
    process.stdout, process.stderr = io.FileIO(ends[0]), io.FileIO(ends[2])
    return process


def _why_not_started(error: Exception, arguments: Sequence[str], cwd: str, env: Mapping[str, str]) -> str:
    if isinstance(error, TypeError):
        wrong = [str(name) for name, value in env.items() if not isinstance(name, str) or not isinstance(value, str)]
        return (
            f"these environment variables are no texts: {', '.join(wrong)}; give names and values as str" if wrong else str(error)
        )
    if not isinstance(error, OSError):
        for what, text in (("the command", arguments[-1]), *((f"the environment variable {name!r}", env[name]) for name in env)):
            if "\0" in text or _HALF_PAIR.search(text):
                return f"{what} holds a NUL character or half a surrogate pair: leave it out"
        return f"cannot start {arguments[0]}: {error}"
    if error.errno != errno.E2BIG:
        return f"cannot start {arguments[0]} in {cwd}: {error.strerror or error}"
    longest = max(env, key=lambda name: len(env[name]), default="")
    if len(arguments[-1]) >= len(env.get(longest, "")):
        return f"the command is too long for the system ({len(arguments[-1])} characters): write it to a file and run that"
    size = len(env[longest])
    return f"the environment is too large for the system ({longest} has {size} characters): hand long values over in a file"


class _Group:
    """A process group with its pipes, from its start to its end.

    Threads:
        `abort` may be called from any thread; all else belongs to the thread that runs the command.
    """

    def __init__(self, process: subprocess.Popen[bytes], on_output: OutputFn, on_tick: Callable[[], object] | None) -> None:
        self._process = process
        self._on_output = on_output
        self._on_tick = on_tick
        self._why_ended: EnvironmentFileError | None = None  # set when the group is being ended by us
        self._is_over = False
        self._has_exited = False
        self._is_reaped_elsewhere = False
        self._pidfd = -1
        # _lock guards the life of the wake pipe: whoever aborts must not write to a descriptor that has been closed. Under it,
        # one byte is written to a pipe that takes at least 4096.
        self._lock = threading.Lock()
        self._wake_read, self._wake_write = -1, -1
        self._poll = select.poll()
        self._streams: dict[int, OutputStream] = {}
        try:
            guard.watch(process.pid)
            self._wake_read, self._wake_write = os.pipe()
            self._poll.register(self._wake_read, select.POLLIN)
            assert process.stdout is not None and process.stderr is not None
            self._streams = {process.stdout.fileno(): "stdout", process.stderr.fileno(): "stderr"}
            for descriptor in self._streams:
                os.set_blocking(descriptor, False)
                _widen(descriptor)
                self._poll.register(descriptor, select.POLLIN)
            self._pidfd = _open_pidfd(process.pid)
            if self._pidfd >= 0:
                self._poll.register(self._pidfd, select.POLLIN)
        except BaseException as error:
            self.close()
            if isinstance(error, OSError):
                raise EnvironmentFileError(f"cannot follow a command: {error.strerror}", code="spawn_error") from error
            raise

    def abort(self) -> None:
        """Have the group ended as soon as its thread wakes up."""
        with self._lock:
            if self._wake_write >= 0:
                os.write(self._wake_write, b"a")

    def run(self, timeout: float | None) -> int:
        """Pass on the output until the group has ended; see `run_process_group`."""
        now = time.monotonic()
        deadline = math.inf if timeout is None else now + timeout
        tick = now + TICK if self._on_tick is not None else math.inf
        while not self._has_exited:
            self._wait_for_something(min(deadline, tick) - now)
            now = time.monotonic()
            if self._why_ended is not None:
                raise self._end(self._why_ended)
            if now >= deadline and not self._has_exited:
                raise self._end(EnvironmentFileError(f"the command timed out after {timeout:.15g} seconds", code="timeout"))
            if now >= tick:
                self._call_tick()
                tick = now + TICK
        self._read_late_output()
        if self._why_ended is not None:
            raise self._end(self._why_ended)
        code = self._process.wait()
        self._is_over = True
        if self._is_reaped_elsewhere:
            _log.warning(
                "the exit code of a command is lost, and taken for 255: this process ignores SIGCHLD, or reaps all children"
            )
            code = 255
        # What the command left running in the background goes on, and ends with Python.
        (guard.linger if guard.exists(self._process.pid) else guard.forget)(self._process.pid)
        return code if code >= 0 else 128 - code

    def close(self) -> None:
        """Close the pipes; kill the group if `run` was left by an exception that is not ours (Ctrl-C)."""
        if not self._is_over:
            _send(self._process.pid, process_signals.SIGKILL)
            self._process.wait()
            guard.forget(self._process.pid)
        with self._lock:
            ends = (self._wake_read, self._wake_write)
            self._wake_read = self._wake_write = -1
        for descriptor in (*ends, self._pidfd):
            if descriptor >= 0:
                os.close(descriptor)
        for pipe in (self._process.stdout, self._process.stderr):
            assert pipe is not None
            pipe.close()

    def _wait_for_something(self, seconds: float) -> bool:
        """Wait for output, the end or the abort, and take in what has come; False if nothing has."""
        if self._pidfd < 0:
            seconds = min(seconds, _POLL_PAUSE)
        # Rounded up: a wait of 0.4 ms must not become a busy loop. Longer than a day makes no difference.
        events = self._poll.poll(None if math.isinf(seconds) else max(0, min(math.ceil(seconds * 1000), 86_400_000)))
        for descriptor, _ in events:
            if descriptor in self._streams:
                self._read(descriptor)
            elif descriptor == self._wake_read:
                self._poll.unregister(descriptor)
                self._why_ended = self._why_ended or EnvironmentFileError("the command was aborted", code="aborted")
        if not self._has_exited and (self._pidfd < 0 or any(descriptor == self._pidfd for descriptor, _ in events)):
            self._look_for_the_end()
            if self._has_exited and self._pidfd >= 0:
                self._poll.unregister(self._pidfd)
        return bool(events)

    def _look_for_the_end(self) -> None:
        if not hasattr(os, "waitid"):
            self._has_exited = self._process.poll() is not None
            return
        try:
            self._has_exited = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
        except ChildProcessError:  # SIGCHLD is ignored, or somebody waits for all children of this process
            self._has_exited = self._is_reaped_elsewhere = True

    def _read(self, descriptor: int) -> None:
        stream = self._streams[descriptor]
        for _ in range(_READS_A_TURN):
            try:
                data = os.read(descriptor, _READ_SIZE)
            except BlockingIOError:
                return
            if not data:
                self._poll.unregister(descriptor)
                del self._streams[descriptor]
            elif self._why_ended is None or self._why_ended.code != "callback_error":
                try:
                    self._on_output(stream, data)
                except Exception as error:
                    self._fail_in_callback(error)
            if len(data) < _READ_SIZE:
                return

    def _call_tick(self) -> None:
        assert self._on_tick is not None
        try:
            self._on_tick()
        except Exception as error:
            self._fail_in_callback(error)

    def _fail_in_callback(self, error: Exception) -> None:
        self._why_ended = EnvironmentFileError(str(error), code="callback_error")
        self._why_ended.__cause__ = error

    def _read_late_output(self) -> None:
        """Read what is still in the pipes, and what background children write right after the shell has ended."""
        now = time.monotonic()
        limit = now + LATE_OUTPUT_LIMIT
        quiet_at = now + QUIET
        while self._streams and self._why_ended is None and now < min(quiet_at, limit):
            had_output = self._wait_for_something(min(quiet_at, limit) - now)
            now = time.monotonic()
            if had_output:
                quiet_at = now + QUIET
        self._read_the_rest()

    def _read_the_rest(self) -> None:
        """Read what the pipes hold, however long the callback takes for it, and no more than they can hold."""
        for _ in range(_TURNS_FOR_A_PIPE):
            if not self._streams or not self._wait_for_something(0):
                return

    def _end(self, why: EnvironmentFileError) -> EnvironmentFileError:
        """End the whole group, take in what it still says, and return why."""
        self._why_ended = why
        group = self._process.pid
        _send(group, process_signals.SIGTERM)
        pause = 0.001
        now = time.monotonic()
        deadline, next_look = now + TERM_GRACE, now + 0.005
        while now < deadline:
            self._wait_for_something(pause)
            pause = min(pause * 2, 0.02)
            now = time.monotonic()
            if not self._has_exited:
                continue
            self._process.wait()  # the id stays the group's as long as the group has members
            if not guard.exists(group):
                break
            if now >= next_look:
                if _is_only_zombies(group):
                    break
                next_look = now + 0.05
        else:
            _send(group, process_signals.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):  # a process that hangs in the kernel goes when it can
                self._process.wait(_KILL_GRACE)
        self._is_over = True
        guard.forget(group)
        self._read_the_rest()
        return why


def _widen(pipe: int) -> None:
    import fcntl  # not on Windows, where the module is imported too

    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # the user has used up what pipes may take
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_SIZE)


def _open_pidfd(process_id: int) -> int:
    try:
        return os.pidfd_open(process_id)
    except (AttributeError, OSError):  # no Linux, an old kernel, a sandbox
        return -1


def _send(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _is_only_zombies(group: int) -> bool:
    """Whether all that is left of a group waits to be reaped by a parent that is not us. Linux only, elsewhere False."""
    try:
        process_ids = [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return False
    found = False
    for process_id in process_ids:
        with contextlib.suppress(OSError):
            with open(f"/proc/{process_id}/stat", "rb") as file:
                state, _, its_group = file.read().rpartition(b")")[2].split()[:3]
            if int(its_group) == group:
                found = True
                if state not in (b"Z", b"X"):
                    return False
    return found
