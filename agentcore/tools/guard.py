"""The process that ends command groups when Python is gone.

    this process                                   guard (own session, one per process)
    watch(pid)   ── "+pid" ── pipe ──────────────► remembers the group
    linger(pid)  ── "?pid" ──────────────────────► the shell has ended, its group has not: forgets it once it is empty
    forget(pid)  ── "-pid" ──────────────────────► forgets the group
    exit, SIGTERM, kill -9 ── end of file ───────► TERM to each group it knows, KILL two seconds later, exits

- No signal handler is installed and nothing runs at exit: the system closes the pipe of a process that is gone, however it went.
- The guard is told of the end of each group, so it never signals an id that the system has given to somebody else.
- A process forked without exec (`multiprocessing`) closes its copy of the pipe and has, with its first command, a guard of its own.
- A guard that was killed is replaced, and told of all groups, when the next command starts or ends.
- Without `sys.executable` (an embedded Python) there is no guard: commands then outlive a Python that is killed.

A program that is to outlive Python leaves its group: `setsid program …`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
from typing import Any

from agentcore.provider_keys import is_provider_key_variable

GUARD_SOURCE = """
import os, select, signal, time
groups, lingering, rest = set(), set(), b""

def exists(group, signal_number=0):
    try:
        os.killpg(group, signal_number)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True

while True:
    ready = select.select([0], [], [], 1.0 if lingering else None)[0]
    gone = {group for group in lingering if not exists(group)}
    groups -= gone
    lingering -= gone
    if not ready:
        continue
    read = os.read(0, 65536)
    if not read:
        break
    *lines, rest = (rest + read).split(b"\\n")
    for line in lines:
        group = int(line[1:])
        (groups.discard if line[:1] == b"-" else groups.add)(group)
        (lingering.add if line[:1] == b"?" else lingering.discard)(group)
groups = {group for group in groups if exists(group, signal.SIGTERM)}
deadline = time.monotonic() + 2.0
while groups and time.monotonic() < deadline:
    time.sleep(0.02)
    groups = {group for group in groups if exists(group)}
for group in groups:
    exists(group, signal.SIGKILL)
"""


_log = logging.getLogger("agentcore")


class _GuardProcess(subprocess.Popen[bytes]):
    """A child that is meant to outlive this process: that it still runs at exit is nothing to warn about."""

    def __del__(self, *_: Any) -> None:
        pass


class _Guard:
    """The guard of this process.

    Threads:
        Every method may be called from any thread.
    """

    def __init__(self) -> None:
        self._process: _GuardProcess | None = None
        self._pipe = -1
        # The groups that the guard is to know, with the sign of the last message about each.
        self._groups: dict[int, str] = {}
        # _lock guards all of the above and the order of messages: a group's "-" must never reach the pipe before its "+".
        # Held while the guard is started and while a few bytes are written to its pipe, which is always read at once.
        self._lock = threading.Lock()

    def tell(self, sign: str, group: int) -> None:
        with self._lock:
            if sign == "-":
                self._groups.pop(group, None)
            else:
                self._groups[group] = sign
            if sign == "?":
                self._drop_empty_groups()
            if self._is_running():
                with contextlib.suppress(BrokenPipeError):  # it was killed just now: the next message replaces it
                    os.write(self._pipe, f"{sign}{group}\n".encode())
            elif self._groups:
                self._start()

    def process_id(self) -> int | None:
        with self._lock:
            return self._process.pid if self._process is not None and self._is_running() else None

    def groups(self) -> list[int]:
        with self._lock:
            self._drop_empty_groups()
            return [*self._groups]

    def stop(self) -> None:
        with self._lock:
            process = self._process
            self._close()
            self._groups.clear()
        if process is not None:
            process.wait()

    def _is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def _start(self) -> None:
        self._close()
        self._drop_empty_groups()
        if not sys.executable:
            return
        try:
            read_end, write_end = os.pipe()
        except OSError as error:
            _warn(error)
            return
        # A signal that ends a whole process tree must not end the guard before it has done its work, not even while it starts:
        # it inherits that these are blocked, and goes when the pipe is closed.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
        try:
            self._process = _GuardProcess(
                [sys.executable, "-I", "-S", "-c", GUARD_SOURCE],
                stdin=read_end,
                # Not ours: whoever reads our output to its end must not wait for the guard's end too.
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env={name: value for name, value in os.environ.items() if not is_provider_key_variable(name)},
                start_new_session=True,
            )
        except OSError as error:
            os.close(write_end)
            _warn(error)
            return
        finally:
            os.close(read_end)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        self._pipe = write_end
        with contextlib.suppress(BrokenPipeError):
            os.write(write_end, "".join(f"{sign}{group}\n" for group, sign in self._groups.items()).encode())

    def _drop_empty_groups(self) -> None:
        self._groups = {group: sign for group, sign in self._groups.items() if sign != "?" or exists(group)}

    def _close(self) -> None:
        if self._pipe >= 0:
            os.close(self._pipe)
        self._pipe, self._process = -1, None

    def forget_in_child(self) -> None:
        self._lock = threading.Lock()  # another thread may have held it when the process was forked
        self._groups = {}
        self._close()


def _warn(error: OSError) -> None:
    _log.warning("no guard process (%s): commands will outlive this process if it is killed", error)


_guard = _Guard()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_guard.forget_in_child)


def watch(group: int) -> None:
    """Have the process group ended when this process is gone. Starts the guard if there is none."""
    _guard.tell("+", group)


def linger(group: int) -> None:
    """Tell the guard that the group's first process has ended and others have not: it forgets the group once it is empty."""
    _guard.tell("?", group)


def forget(group: int) -> None:
    """Tell the guard that the process group has ended."""
    _guard.tell("-", group)


def exists(group: int) -> bool:
    """Whether the process group has a member, be it one that has ended and waits to be reaped."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def guard_process_id() -> int | None:
    """Return the id of the guard process, None as long as no command has run. For whoever counts child processes."""
    return _guard.process_id()


def watched_groups() -> list[int]:
    """Return the groups that would be ended with this process: those of running commands, and of what they left running."""
    return _guard.groups()


def stop_guard() -> None:
    """End the guard, and with it every group that it knows; return when it has ended. The next command starts a new one.

    For tests and for programs that count their child processes; nobody else needs it.
    """
    _guard.stop()
