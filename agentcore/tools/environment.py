"""Files and processes behind one interface: all that the tools need of the machine that they work on.

`LocalEnvironment` is this machine. Another class with the same methods can stand for a container or a remote host; it needs to
inherit from nothing.

- Paths are texts. A relative one belongs to `cwd`; `~` and `file:` URLs are understood.
- Every failure is an `EnvironmentFileError`. `code` is one of `aborted`, `not_found`, `permission_denied`, `not_directory`,
  `is_directory`, `invalid`, `not_supported`, `unknown`; for commands `timeout`, `aborted`, `spawn_error`, `shell_unavailable`,
  `callback_error`.
- Commands do not see the keys of providers, unless asked for (`LocalEnvironment`).

Windows: paths are those of the system, but `LocalEnvironment` runs no commands there (`shell_unavailable`).
"""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import os
import posixpath
import re
import shutil
import stat
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from agentcore.abort import AbortSignal
from agentcore.errors import EnvironmentErrorCode, EnvironmentFileError
from agentcore.provider_keys import is_provider_key_variable
from agentcore.tools.files import absolute_path, lock_for, make_directories, write_atomically
from agentcore.tools.shell import OutputFn, OutputStream, check_timeout, run_process_group

__all__ = [
    "ExecutionEnvironment",
    "FileInfo",
    "FileKind",
    "LocalEnvironment",
    "OutputFn",
    "OutputStream",
    "file_error",
    "file_errors",
]

FileKind = Literal["file", "directory", "symlink"]


@dataclass(frozen=True)
class FileInfo:
    """What a directory says of one of its members; a link is not followed.

    `size_bytes` is the file's own; `modified_ms` is in milliseconds since the Unix epoch.
    """

    name: str
    path: str
    kind: FileKind
    size_bytes: int = 0
    modified_ms: int = 0


class ExecutionEnvironment(Protocol):
    """What the tools need of files and processes.

    Every method takes relative and absolute paths and raises `EnvironmentFileError`. A method with a `signal` raises with the
    code `aborted`, and does nothing, if it is set.

    Threads:
        Every method may be called from any thread, several at the same time.
    """

    @property
    def cwd(self) -> str:
        """The absolute path that relative ones belong to."""
        ...

    def absolute_path(self, path: str) -> str:
        """Return the path as an absolute one, without `.`, `..` and doubled slashes; links are not followed."""
        ...

    def join_path(self, *parts: str) -> str:
        """Join parts of a path and take `.` and `..` out; a leading slash of a later part does not start anew."""
        ...

    def canonical_path(self, path: str) -> str:
        """Return the absolute path with all links followed. Nothing there: `not_found`."""
        ...

    def exists(self, path: str) -> bool:
        """Whether there is something of that name, be it a broken link. Below a file: `not_directory`."""
        ...

    def file_info(self, path: str) -> FileInfo:
        """Return what is at `path`; anything but a file, a directory or a link is `invalid`."""
        ...

    def list_dir(self, path: str, *, signal: AbortSignal | None = None) -> list[FileInfo]:
        """Return the members of a directory, sorted by name, hidden ones too; devices, sockets and pipes are left out."""
        ...

    def read_binary_file(self, path: str, *, signal: AbortSignal | None = None) -> bytes:
        """Return the content of a file."""
        ...

    def read_text_file(self, path: str, *, signal: AbortSignal | None = None) -> str:
        """Return a file as text: UTF-8, U+FFFD for what is none, line ends and byte order mark as they are."""
        ...

    def read_text_lines(self, path: str, *, max_lines: int | None = None, signal: AbortSignal | None = None) -> list[str]:
        """Return the first lines of a file without reading further. LF, CR and CR LF end a line, and nothing else does."""
        ...

    def write_file(self, path: str, content: str | bytes, *, signal: AbortSignal | None = None) -> None:
        """Write a file; it is at every moment either the old or the new one. Missing directories are made."""
        ...

    def append_file(self, path: str, content: str | bytes, *, signal: AbortSignal | None = None) -> None:
        """Add to the end of a file, which is made if there is none, with its directories."""
        ...

    def create_dir(self, path: str, *, recursive: bool = True) -> None:
        """Make a directory; with `recursive` also those above it, and without complaint if it is there."""
        ...

    def remove(self, path: str, *, recursive: bool = False, force: bool = False) -> None:
        """Remove a file or a link, with `recursive` also a directory; with `force` without complaint if there is nothing."""
        ...

    def create_temp_dir(self, prefix: str = "tmp-") -> str:
        """Make a new directory for temporary files and return its path."""
        ...

    def create_temp_file(self, *, prefix: str = "", suffix: str = "") -> str:
        """Make an empty file in a new temporary directory of its own and return its path."""
        ...

    def run_command(
        self,
        command: str,
        on_output: OutputFn,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        inherit_env: bool = True,
        timeout: float | None = None,
        signal: AbortSignal | None = None,
        on_tick: Callable[[], object] | None = None,
    ) -> int:
        """Run a command in a shell and return its exit code, 128 + n if signal n killed the shell.

        Args:
            command: What the shell is to run. Its standard input is empty.
            on_output: `(stream, data)` gets the output, as bytes, as it comes. If it raises, the command is ended.
            cwd: The directory to run in, instead of the environment's own.
            env: Variables to set.
            inherit_env: False: `env` is all that the command gets.
            timeout: Seconds, more than 0 and at most 2147483.647; None for no limit.
            signal: Ends the command when it is set.
            on_tick: To be called about every 100 ms while the command runs. It only makes progress visible while a command is
                silent: an environment that cannot do it may leave it out.

        Raises:
            EnvironmentFileError: `timeout`, `aborted`, `spawn_error`, `shell_unavailable`, or `callback_error` (the cause is
                the exception of `on_output`). Every process of the command has then been ended.

        Threads:
            The callbacks run on the thread that calls.
        """
        ...


class LocalEnvironment:
    """Files and processes of this machine.

    Args:
        cwd: What relative paths belong to, and where commands run; by default the current directory, looked up now.
        shell_path: The shell, which must take `-c COMMAND`; by default bash, where there is none `sh`.
        env: Variables that every command gets.
        inherit_env: Whether commands get the variables of this process.
        allowed_variables: Patterns (`PATH`, `LC_*`) of those that they get, instead of all.
        pass_provider_keys: Whether the keys of providers (`agentcore.provider_keys`: every `…_API_KEY`, and some tokens) are
            among them. A key can also be handed over by itself: in `env`, or by its full name in `allowed_variables`. This keeps
            keys out of what commands print and pass on; it is no wall: on Linux a program of the same user that looks for them
            finds those that this process was started with in `/proc`.

    Threads:
        Every method may be called from any thread.
    """

    def __init__(
        self,
        cwd: str | os.PathLike[str] | None = None,
        *,
        shell_path: str | None = None,
        env: Mapping[str, str] | None = None,
        inherit_env: bool = True,
        allowed_variables: Iterable[str] | None = None,
        pass_provider_keys: bool = False,
    ) -> None:
        if isinstance(allowed_variables, str):
            raise TypeError(f"allowed_variables must be a list of patterns, not one string: write [{allowed_variables!r}]")
        self._cwd = os.path.abspath(os.getcwd() if cwd is None else os.path.expanduser(os.fspath(cwd)))
        self.shell_path = shell_path
        self.env = dict(env or {})
        self.inherit_env = inherit_env
        self.allowed_variables = None if allowed_variables is None else tuple(allowed_variables)
        self.pass_provider_keys = pass_provider_keys

    @property
    def cwd(self) -> str:
        """The absolute path that relative ones belong to."""
        return self._cwd

    # Paths

    def absolute_path(self, path: str) -> str:
        """See `ExecutionEnvironment.absolute_path`."""
        return absolute_path(path, self._cwd)

    def join_path(self, *parts: str) -> str:
        """See `ExecutionEnvironment.join_path`."""
        joined = "/".join(part for part in parts if part)
        normal = re.sub("^//+", "/", posixpath.normpath(joined))
        return f"{normal}/" if joined.endswith("/") and not normal.endswith("/") else normal

    def canonical_path(self, path: str) -> str:
        """See `ExecutionEnvironment.canonical_path`."""
        whole = self.absolute_path(path)
        with file_errors(whole, "find"):
            return os.path.realpath(whole, strict=True)

    # Files

    def exists(self, path: str) -> bool:
        """See `ExecutionEnvironment.exists`."""
        whole = self.absolute_path(path)
        with file_errors(whole, "look at"):
            try:
                os.lstat(whole)
            except FileNotFoundError:
                return False
            return True

    def file_info(self, path: str) -> FileInfo:
        """See `ExecutionEnvironment.file_info`."""
        whole = self.absolute_path(path)
        with file_errors(whole, "look at"):
            found = _describe(os.path.basename(whole), whole, os.lstat(whole))
        if found is None:
            raise EnvironmentFileError(f"{whole} is no file, directory or link: name one of these", code="invalid", path=whole)
        return found

    def list_dir(self, path: str, *, signal: AbortSignal | None = None) -> list[FileInfo]:
        """See `ExecutionEnvironment.list_dir`."""
        whole = self._begin(path, signal)
        found: list[FileInfo] = []
        with file_errors(whole, "list"):
            with os.scandir(whole) as members:
                for member in members:
                    with contextlib.suppress(FileNotFoundError):  # removed since
                        described = _describe(member.name, os.path.join(whole, member.name), member.stat(follow_symlinks=False))
                        if described is not None:
                            found.append(described)
        return sorted(found, key=lambda info: info.name)

    def read_binary_file(self, path: str, *, signal: AbortSignal | None = None) -> bytes:
        """See `ExecutionEnvironment.read_binary_file`."""
        whole = self._begin(path, signal)
        with file_errors(whole, "read"):
            with open(whole, "rb", opener=_open_without_waiting) as file:
                content: bytes | None = file.read()
        if content is None:  # a file of the kernel's, such as /proc/kmsg
            raise EnvironmentFileError(f"{whole} has nothing to read now, and no end: use another path", code="invalid", path=whole)
        return content

    def read_text_file(self, path: str, *, signal: AbortSignal | None = None) -> str:
        """See `ExecutionEnvironment.read_text_file`."""
        return self.read_binary_file(path, signal=signal).decode("utf-8", "replace")

    def read_text_lines(self, path: str, *, max_lines: int | None = None, signal: AbortSignal | None = None) -> list[str]:
        """See `ExecutionEnvironment.read_text_lines`."""
        whole = self._begin(path, signal)
        lines: list[str] = []
        if max_lines is not None and max_lines <= 0:
            return lines
        with file_errors(whole, "read"):
            with open(whole, encoding="utf-8", errors="replace", newline=None) as file:
                for line in file:
                    lines.append(line.removesuffix("\n"))
                    if len(lines) == max_lines:
                        break
        return lines

    def write_file(self, path: str, content: str | bytes, *, signal: AbortSignal | None = None) -> None:
        """See `ExecutionEnvironment.write_file`."""
        whole = self._begin(path, signal)
        with file_errors(whole, "write"):
            write_atomically(whole, _to_bytes(content))

    def append_file(self, path: str, content: str | bytes, *, signal: AbortSignal | None = None) -> None:
        """See `ExecutionEnvironment.append_file`."""
        whole = self._begin(path, signal)
        with file_errors(whole, "append to"):
            make_directories(os.path.dirname(whole))
            with lock_for(os.path.realpath(whole)), open(whole, "ab", buffering=0) as file:
                view = memoryview(_to_bytes(content))
                while view:
                    view = view[file.write(view) :]

    def create_dir(self, path: str, *, recursive: bool = True) -> None:
        """See `ExecutionEnvironment.create_dir`."""
        whole = self.absolute_path(path)
        with file_errors(whole, "make the directory"):
            if recursive:
                make_directories(whole)
            else:
                os.mkdir(whole)

    def remove(self, path: str, *, recursive: bool = False, force: bool = False) -> None:
        """See `ExecutionEnvironment.remove`."""
        whole = self.absolute_path(path)
        with file_errors(whole, "remove"):
            try:
                is_directory = stat.S_ISDIR(os.lstat(whole).st_mode)
            except FileNotFoundError:
                if force:
                    return
                raise
            if not is_directory:
                os.unlink(whole)
            elif recursive:
                shutil.rmtree(whole)
            else:
                raise EnvironmentFileError(
                    f"cannot remove {whole}: it is a directory, ask for recursive to remove it with all that is in it",
                    code="unknown",
                    path=whole,
                )

    def create_temp_dir(self, prefix: str = "tmp-") -> str:
        """See `ExecutionEnvironment.create_temp_dir`."""
        parent = tempfile.gettempdir()
        with file_errors(parent, "make a temporary directory in"):
            return tempfile.mkdtemp(prefix=prefix, dir=parent)

    def create_temp_file(self, *, prefix: str = "", suffix: str = "") -> str:
        """See `ExecutionEnvironment.create_temp_file`."""
        path = os.path.join(self.create_temp_dir(), f"{prefix}{uuid.uuid4()}{suffix}")
        with file_errors(path, "make the temporary file"):
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        return path

    # Commands

    def run_command(
        self,
        command: str,
        on_output: OutputFn,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        inherit_env: bool = True,
        timeout: float | None = None,
        signal: AbortSignal | None = None,
        on_tick: Callable[[], object] | None = None,
    ) -> int:
        """See `ExecutionEnvironment.run_command`; the command has a process group of its own (`agentcore.tools.shell`)."""
        check_timeout(timeout)
        directory = self._cwd if cwd is None else self.absolute_path(cwd)
        shell = self._find_shell()
        try:
            os.stat(os.path.join(directory, "."))
        except PermissionError as error:
            raise EnvironmentFileError(
                f"working directory may not be entered: {directory}; run the command elsewhere", code="spawn_error"
            ) from error
        except OSError as error:
            raise EnvironmentFileError(
                f"working directory does not exist: {directory}; make it, or run the command elsewhere", code="spawn_error"
            ) from error
        return run_process_group(
            [shell, "-c", command],
            on_output,
            cwd=directory,
            env=self.command_env(env, inherit_env=inherit_env),
            timeout=timeout,
            signal=signal,
            on_tick=on_tick,
        )

    def command_env(self, env: Mapping[str, str] | None = None, *, inherit_env: bool = True) -> dict[str, str]:
        """Return the variables that a command gets: those of this process that may be passed on, `self.env`, then `env`.

        Args:
            env: The command's own variables.
            inherit_env: False: they are all that it gets.
        """
        if not inherit_env:
            return dict(env or {})
        inherited = {name: value for name, value in os.environ.items() if self._is_passed_on(name)} if self.inherit_env else {}
        return {**inherited, **self.env, **(env or {})}

    def _is_passed_on(self, name: str) -> bool:
        if self.allowed_variables is not None:
            if name in self.allowed_variables:
                return True
            if not any(fnmatch.fnmatchcase(name, pattern) for pattern in self.allowed_variables):
                return False
        return self.pass_provider_keys or not is_provider_key_variable(name)

    def _find_shell(self) -> str:
        if os.name == "nt":
            raise EnvironmentFileError(
                "commands do not run on Windows: use WSL, or give the tools an environment of your own",
                code="shell_unavailable",
            )
        if self.shell_path is not None:
            if not os.path.exists(self.shell_path):
                raise EnvironmentFileError(
                    f"shell not found: {self.shell_path}; give the path of an existing one as shell_path",
                    code="shell_unavailable",
                )
            return self.shell_path
        found = "/bin/bash" if os.path.exists("/bin/bash") else shutil.which("bash") or shutil.which("sh")
        if found is None:
            raise EnvironmentFileError("no bash and no sh found: give the path of a shell as shell_path", code="shell_unavailable")
        return found

    def _begin(self, path: str, signal: AbortSignal | None) -> str:
        whole = self.absolute_path(path)
        if signal is not None and signal.aborted:
            raise EnvironmentFileError(f"aborted before anything was done with {whole}", code="aborted", path=whole)
        return whole


_CODES: dict[int, EnvironmentErrorCode] = {
    errno.ENOENT: "not_found",
    errno.EACCES: "permission_denied",
    errno.EPERM: "permission_denied",
    errno.EROFS: "permission_denied",
    errno.ENOTDIR: "not_directory",
    errno.EISDIR: "is_directory",
    errno.EINVAL: "invalid",
    errno.ENAMETOOLONG: "invalid",
    errno.ENOTSUP: "not_supported",
}

_REASONS: dict[str, str] = {
    "not_found": "there is no such file or directory, check the path",
    "permission_denied": "permission denied, use a path that this process may use",
    "not_directory": "it is a file, or leads through one, where a directory is needed",
    "is_directory": "it is a directory, name a file",
}


def file_error(error: OSError, path: str, doing: str) -> EnvironmentFileError:
    """Return the library's own error for one of the operating system: `cannot read /x: there is no such file …`."""
    code = _CODES.get(error.errno or 0, "unknown")
    reason = _REASONS.get(code) or (error.strerror or str(error)).lower()
    made = EnvironmentFileError(f"cannot {doing} {path}: {reason}", code=code, path=path)
    made.__cause__ = error
    return made


@contextlib.contextmanager
def file_errors(path: str, doing: str) -> Iterator[None]:
    """Translate the operating system's errors of the body; see `file_error`."""
    try:
        yield
    except OSError as error:
        raise file_error(error, path, doing) from error


def _describe(name: str, path: str, found: os.stat_result) -> FileInfo | None:
    kind: FileKind
    if stat.S_ISREG(found.st_mode):
        kind = "file"
    elif stat.S_ISDIR(found.st_mode):
        kind = "directory"
    elif stat.S_ISLNK(found.st_mode):
        kind = "symlink"
    else:
        return None
    return FileInfo(name, path, kind, found.st_size, found.st_mtime_ns // 1_000_000)


def _open_without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _to_bytes(content: str | bytes) -> bytes:
    # Half a surrogate pair has no UTF-8 form; it is written as "?".
    return content.encode("utf-8", "replace") if isinstance(content, str) else content
