"""The lock that keeps a second process from writing to a session.

The lock is an empty file beside the session, `<session>.lock`, that is locked by the operating system (`flock`, on Windows
`msvcrt.locking`) and holds the process id. The system frees it when the process dies, however it dies. It belongs to the process:
two storages of one process share it. A forked child does not have it: it closes what it inherited, so that the parent's death
frees the lock even while the child lives, and has to take the lock itself before it writes. Who reads needs no lock.

Threads: any; one lock guards the table of held locks.
"""

from __future__ import annotations

import errno
import os
import sys
import threading
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from agentcore.errors import SessionLockedError

if sys.platform == "win32":
    import msvcrt

    def _lock_now(fd: int) -> None:
        # The byte lies behind the id, since others may not even read what is locked.
        os.lseek(fd, 1024, os.SEEK_SET)
        msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _lock_now(fd: int) -> None:
        # Not lockf: that lock goes when any descriptor of the file is closed, a reader's too.
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


_TAKEN = (errno.EAGAIN, errno.EACCES, errno.EWOULDBLOCK, errno.EDEADLK)
_UNSUPPORTED = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


@dataclass
class _Held:
    fd: int = -1
    users: int = 0
    is_taken: bool = False
    is_ours: bool = True
    # Held from looking at the file's end to writing there: several storages of this process may write to the file.
    turn: AbstractContextManager[object] = field(default_factory=threading.RLock)


_held: dict[str, _Held] = {}
# _table_lock guards _held and the step from "wanted" to "held". It is held while the lock file is opened; nobody waits in there.
_table_lock = threading.Lock()


class WriterLock:
    """One storage's share in its process's lock on a session. It is made first and taken then, so that it can always be given back.

    Threads: any.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock_path = os.path.realpath(path) + ".lock"
        self._share: _Held | None = None

    def take(self) -> None:
        """Take the lock, without waiting.

        Raises:
            SessionLockedError: Another process has it. The text names its id.
            OSError: The lock file cannot be made.
        """
        with _table_lock:
            held = _held.get(self._lock_path)
            if held is None:
                held = _Held()
                try:
                    _take(self._path, self._lock_path, held)
                except BaseException:  # Ctrl-C too: what is in no table could never be freed
                    if held.fd >= 0:
                        _free(held.fd, self._lock_path, is_ours=held.is_taken)
                    raise
                _held[self._lock_path] = held
            self._share = held
            held.users += 1

    @property
    def is_held(self) -> bool:
        """Whether this process has the lock: false before `take`, after `release` and in a forked child."""
        return self._share is not None and self._share.is_ours

    @property
    def is_lost(self) -> bool:
        """Whether this is a forked child, and its parent had taken the lock."""
        return self._share is not None and not self._share.is_ours

    @property
    def turn(self) -> AbstractContextManager[object]:
        """What a storage holds while it writes, so that those of one process take turns."""
        assert self._share is not None, "not taken, or released"
        return self._share.turn

    def release(self) -> None:
        """Give the share back; the last one frees the lock and removes its file. A second call does nothing."""
        with _table_lock:
            share, self._share = self._share, None
            if share is None or not share.is_ours:
                return
            share.users -= 1
            if share.users == 0:
                del _held[self._lock_path]
                _free(share.fd, self._lock_path)


def _take(path: str, lock_path: str, held: _Held) -> None:
    while True:
        fd = held.fd = os.open(lock_path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            _lock_now(fd)
        except OSError as error:
            if error.errno in _UNSUPPORTED:
                return  # a file system without locks: better no lock than no session
            pid = _read_pid(fd) if error.errno in _TAKEN else None
            who = f"process {pid}" if pid is not None else "another process"
            raise SessionLockedError(f"{path} is open for writing in {who}; close it there first", pid=pid) from error
        # The holder before may have removed the file between our open and our lock; then others would lock another file.
        if _is_same_file(fd, lock_path):
            held.is_taken = True
            os.ftruncate(fd, 0)
            os.lseek(fd, 0, os.SEEK_SET)
            os.write(fd, b"%d\n" % os.getpid())
            return
        held.fd = -1
        os.close(fd)


def _is_same_file(fd: int, lock_path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(lock_path))
    except FileNotFoundError:
        return False


def _read_pid(fd: int) -> int | None:
    for _ in range(20):  # the holder writes its id right after it has the lock
        os.lseek(fd, 0, os.SEEK_SET)
        text = os.read(fd, 64).strip()
        if text.isdigit():
            return int(text)
        time.sleep(0.005)
    return None


def _free(fd: int, lock_path: str, *, is_ours: bool = True) -> None:
    if not is_ours:
        os.close(fd)
        return
    if sys.platform == "win32":
        os.close(fd)  # an open file cannot be removed there; if somebody else has it by now, it stays
        try:
            os.unlink(lock_path)
        except OSError:
            pass
        return
    try:
        os.unlink(lock_path)
    except OSError:
        pass  # the folder is gone
    os.close(fd)


def _forget_in_child() -> None:
    global _table_lock
    _table_lock = threading.Lock()
    for held in _held.values():
        held.is_ours = False
        try:
            os.close(held.fd)
        except OSError:
            pass
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)
