"""Paths, atomic writes, and one lock per file: what every tool that touches files shares.

- A path as a model writes it (`@notes.txt`, `~/x`, `file:///x`, with a no-break space) becomes an absolute one in one place.
- A file that is written is at every moment either the old or the new one: the bytes go to a temporary file beside it, reach
  the disk, and take its place in one step. A process that is killed in between can leave a hidden `.agentcore-….tmp` behind; on
  Linux this file has a name only in the last moment, so that it hardly ever does.
- Whoever reads a file in order to change it holds `lock_for(its real path)` from the read to the write.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
import secrets
import stat
import threading
import unicodedata
from collections import deque
from collections.abc import Iterator
from urllib.parse import unquote, urlsplit

from agentcore.errors import EnvironmentFileError

_SPECIAL_SPACES = re.compile("[\u00a0\u2000-\u200a\u202f\u205f\u3000]")
_ESCAPED_SLASH_OR_NUL = re.compile("%(?:2f|00)", re.IGNORECASE)
_BAD_ESCAPE = re.compile("%(?![0-9a-fA-F]{2})")
_SPACE_BEFORE_AM_OR_PM = re.compile(r" (AM|PM)\.", re.IGNORECASE)


# Paths


def clean_path(path: str) -> str:
    """Return a path as a model meant it: without one leading `@`, and with plain spaces for no-break and other special ones."""
    return _SPECIAL_SPACES.sub(" ", path[1:] if path.startswith("@") else path)


def absolute_path(path: str, cwd: str | os.PathLike[str]) -> str:
    """Return `path` as an absolute one, without `.`, `..` and doubled slashes; links are not followed.

    `~` and `~/…` are the home directory, a `file:` URL of this machine is the path that it names, all else is relative to `cwd`.

    Raises:
        EnvironmentFileError: The path cannot be one (`invalid`): it holds a NUL character or half a surrogate pair.
    """
    if "\0" in path:
        raise EnvironmentFileError(
            f"{path!r} is no path, because it holds a NUL character: leave it out", code="invalid", path=path
        )
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        raise EnvironmentFileError(
            f"{path!r} is no path, because it holds half a surrogate pair: send it as one whole character",
            code="invalid",
            path=path,
        ) from None
    if path == "~" or path.startswith("~/"):
        path = os.path.expanduser("~") + path[1:]
    elif path.startswith("file://"):
        path = _path_of_url(path) or path
    whole = os.path.normpath(os.path.join(os.fspath(cwd), path))
    return "/" + whole.lstrip("/") if whole.startswith("//") else whole  # POSIX keeps two leading slashes apart; nobody means them


def _path_of_url(url: str) -> str | None:
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost") or _ESCAPED_SLASH_OR_NUL.search(parts.path) or _BAD_ESCAPE.search(parts.path):
        return None
    return unquote(parts.path)


def resolve_path(path: str, cwd: str | os.PathLike[str], root: str | os.PathLike[str] | None = None) -> str:
    """Return the absolute path that a model's `path` names.

    Args:
        path: As the model wrote it; see `clean_path` and `absolute_path`.
        cwd: What relative paths are relative to.
        root: A directory that the path may not leave, by `..`, by a link or by being absolute. The result is then the real
            path, with all links followed, so that what was checked is what is opened.

    Raises:
        EnvironmentFileError: The path leaves `root` (`permission_denied`), or cannot be one (`invalid`).
    """
    whole = absolute_path(clean_path(path), cwd)
    return whole if root is None else path_inside(whole, root, shown=path)


def path_inside(path: str, root: str | os.PathLike[str], *, shown: str | None = None) -> str:
    """Return the real path of `path`, which must be `root` or lie below it. `shown` is how an error names the path.

    Raises:
        EnvironmentFileError: It does not (`permission_denied`).
    """
    real_root = os.path.realpath(root)
    real = os.path.realpath(path)
    if real == real_root or real.startswith(real_root.rstrip(os.sep) + os.sep):
        return real
    raise EnvironmentFileError(
        f"{shown or path} leads out of {os.fspath(root)}: only paths inside it may be used", code="permission_denied", path=path
    )


def other_spellings(path: str) -> list[str]:
    """Return the names under which a file could exist that a model calls `path`, the most likely first.

    macOS puts a narrow no-break space before AM and PM in the names of screenshots, decomposes accents, and writers put a curly
    apostrophe where a model writes a straight one.
    """
    decomposed = unicodedata.normalize("NFD", path)
    candidates = [
        _SPACE_BEFORE_AM_OR_PM.sub("\u202f\\1.", path),
        decomposed,
        path.replace("'", "\u2019"),
        decomposed.replace("'", "\u2019"),
    ]
    return [name for name in dict.fromkeys(candidates) if name != path]


# Writing

_CLOSE_IN_CHILDREN = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


def write_atomically(path: str | os.PathLike[str], data: bytes) -> None:
    """Give the file at `path` the content `data`, so that nobody ever sees a part of it.

    Missing directories are made. Mode, owner and extended attributes of an existing file are kept; a link is followed, not
    replaced; a file that may not be written is not, although its directory would allow to replace it. What cannot be replaced
    is written in place, which is not atomic: a device, a file whose owner cannot be kept, one in a directory that takes no new
    files, a mount point. Other hard links of the file keep the old content.

    Raises:
        OSError: As `open` and `write` raise it; the old file is then as it was.
    """
    target = os.path.realpath(path)
    if os.path.islink(target):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), os.fspath(path))
    make_directories(os.path.dirname(target))
    try:
        old = os.stat(target)
    except FileNotFoundError:
        old = None
    if old is not None:
        if stat.S_ISDIR(old.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
        if not os.access(target, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), os.fspath(path))
        if not stat.S_ISREG(old.st_mode) or not _replace(target, data, old):
            _write_in_place(target, data)
    elif not _replace(target, data, None):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), os.fspath(path))


def make_directories(path: str) -> None:
    """Make a directory and those above it that are missing, however many (`os.makedirs` ends at a thousand)."""
    missing = []
    while not os.path.lexists(path):
        missing.append(path)
        path = os.path.dirname(path)
    for folder in reversed(missing):
        with contextlib.suppress(FileExistsError):  # somebody else made it just now
            os.mkdir(folder)
    if not os.path.isdir(path):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)


def _replace(target: str, data: bytes, old: os.stat_result | None) -> bool:
    """Put a new file in the place of `target`; False, with nothing changed, where the system or the owner forbids it."""
    beside = os.path.join(os.path.dirname(target), f".agentcore-{secrets.token_hex(8)}.tmp")
    # A new file gets what the umask leaves of 0666; one that replaces another is nobody else's until it has that one's mode.
    mode = 0o666 if old is None else 0o600
    try:
        descriptor = _open_nameless(os.path.dirname(target), mode)
        is_nameless = descriptor is not None
        if descriptor is None:
            descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _CLOSE_IN_CHILDREN, mode)
    except PermissionError:
        return False
    try:
        with open(descriptor, "wb", buffering=0) as file:
            is_ours = old is None or _take_over(descriptor, target, old)
            if is_ours:
                _write_all(file, data)
                # Without this a power cut could leave the new name with no content. The directory needs no fsync: losing the
                # rename means the old file.
                os.fsync(descriptor)
                if is_nameless:
                    # With a directory given, although it is not used, the link in /proc is followed.
                    os.link(f"/proc/self/fd/{descriptor}", beside, src_dir_fd=descriptor)
        if is_ours:
            os.replace(beside, target)
            return True
    except OSError as error:
        if error.errno not in (errno.EBUSY, errno.EXDEV, errno.EPERM):
            raise
    finally:
        with contextlib.suppress(OSError):  # it has its new name already, unless something went wrong
            os.unlink(beside)
    return False


def _open_nameless(folder: str, mode: int) -> int | None:
    """Open a new file that has no name yet, so that nothing is left of it if the process is killed; None where there is none."""
    if not hasattr(os, "O_TMPFILE") or not os.path.isdir("/proc/self/fd"):
        return None
    try:
        return os.open(folder, os.O_WRONLY | os.O_TMPFILE | _CLOSE_IN_CHILDREN, mode)
    except PermissionError:
        raise
    except OSError:  # the file system has no such files
        return None


def _take_over(descriptor: int, target: str, old: os.stat_result) -> bool:
    """Give the new file owner, mode and attributes of the old one; False if the owner cannot be kept."""
    if not hasattr(os, "fchown"):
        return True
    new = os.fstat(descriptor)
    if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
        try:
            os.fchown(descriptor, old.st_uid, old.st_gid)
        except PermissionError:
            return False
    if hasattr(os, "listxattr"):
        with contextlib.suppress(OSError):
            for name in os.listxattr(target):
                with contextlib.suppress(OSError):
                    os.setxattr(descriptor, name, os.getxattr(target, name))
    os.fchmod(descriptor, stat.S_IMODE(old.st_mode))  # last: changing the owner takes the setuid bits away
    return True


def _write_in_place(target: str, data: bytes) -> None:
    # O_NONBLOCK: a pipe that nobody reads is an error, not a wait.
    descriptor = os.open(target, os.O_WRONLY | os.O_TRUNC | getattr(os, "O_NONBLOCK", 0) | _CLOSE_IN_CHILDREN)
    with open(descriptor, "wb", buffering=0) as file:
        os.set_blocking(descriptor, True)
        _write_all(file, data)


def _write_all(file: io.FileIO, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]


# Locks


# _turns guards _arrivals and _waiting: those who are about to lock something, in the order in which they came; and for each path
# that is taken the locks of those who wait for it, likewise. It is held for a few dictionary operations, never while a file is
# touched or somebody waits for a path.
_turns = threading.Condition()
_arrivals: dict[Arrival, None] = {}
_waiting: dict[str, deque[threading.Lock]] = {}

_LONGEST_ARRIVAL = 5.0
"""Seconds after which nobody waits any more for one who came earlier and has not found out yet which file it is about."""


class Arrival:
    """A place in the order of those who are about to change a file, taken while it is not yet known which file that is.

    To find the real path of a file takes system calls, and one of two threads that start one after the other may overtake the
    other in them. With an arrival, taken first of all, changes of one file still happen in the order in which they began.

    Example:
        >>> with Arrival() as arrival:
        ...     real = os.path.realpath(path)
        ...     with lock_for(real, arrival):
        ...         change(real)
    """

    def __enter__(self) -> Arrival:
        with _turns:
            _arrivals[self] = None
        return self

    def __exit__(self, *_: object) -> None:
        with _turns:
            if _arrivals.pop(self, self) is None:
                _turns.notify_all()


@contextlib.contextmanager
def lock_for(real_path: str, arrival: Arrival | None = None) -> Iterator[None]:
    """Hold the one lock of a file while the body runs, so that two changes of it take turns.

    Those who wait are served in the order in which they came: here, or where they took their `arrival`. Within this process
    only.

    Args:
        real_path: The path with all links followed (`os.path.realpath`): two spellings of one file are one lock.
        arrival: The place in the order that the caller has; it ends here.

    Threads:
        Any. A thread that asks again for what it holds waits for ever.
    """
    my_turn: threading.Lock | None = None
    with _turns:
        if arrival is not None:
            _turns.wait_for(lambda: next(iter(_arrivals), arrival) is arrival, timeout=_LONGEST_ARRIVAL)
            _arrivals.pop(arrival, None)
            _turns.notify_all()
        waiting = _waiting.get(real_path)
        if waiting is None:
            _waiting[real_path] = deque()  # it is ours
        else:
            my_turn = threading.Lock()
            my_turn.acquire()
            waiting.append(my_turn)
    try:
        if my_turn is not None:
            my_turn.acquire()
        yield
    finally:
        with _turns:
            waiting = _waiting[real_path]
            if my_turn is not None and my_turn in waiting:
                waiting.remove(my_turn)  # interrupted while it waited
            elif waiting:
                waiting.popleft().release()
            else:
                del _waiting[real_path]


def _forget_turns() -> None:
    # The threads that hold them do not exist in a forked child.
    global _turns
    _turns = threading.Condition()
    _arrivals.clear()
    _waiting.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_turns)
