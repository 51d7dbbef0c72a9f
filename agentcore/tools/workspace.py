"""Where a tool for files works: an environment, and a root that no path may leave."""

from __future__ import annotations

import contextlib
import os
import posixpath
import shlex
from collections.abc import Callable, Iterator

from agentcore.abort import AbortSignal
from agentcore.errors import AgentAbortedError, EnvironmentFileError
from agentcore.tools.environment import ExecutionEnvironment, LocalEnvironment
from agentcore.tools.files import Arrival, clean_path, lock_for, path_inside
from agentcore.tools.truncate import format_size

ABORTED = "Operation aborted"
MAX_FILE_BYTES = 200_000_000
"""A larger file is refused: it would be taken into memory as a whole."""


class Workspace:
    """What the file tools share.

    Args:
        environment: Files and processes; by default this machine's.
        cwd: What relative paths belong to; by default `root`, else the current directory. Not together with `environment`, which
            has its own.
        root: A directory that no path may leave: not by `..`, not by a link, not by being absolute. This keeps a model inside,
            not a program: commands (bash) go where they like, and a link that is changed between the check and the use is not
            noticed.

    Raises:
        ValueError: `cwd` and `environment` are both given.

    Threads:
        Any.
    """

    def __init__(
        self,
        environment: ExecutionEnvironment | None = None,
        cwd: str | os.PathLike[str] | None = None,
        root: str | os.PathLike[str] | None = None,
    ) -> None:
        if environment is not None and cwd is not None:
            raise ValueError("give either environment or cwd: an environment has a working directory of its own")
        if root is not None:
            root = os.path.abspath(os.path.expanduser(root)) if environment is None else environment.absolute_path(os.fspath(root))
        self.environment = environment or LocalEnvironment(root if cwd is None else cwd)
        self.root = root

    def resolve(self, path: str) -> str:
        """Return the absolute path that a model's `path` names; with a root, the real one, all links followed.

        Raises:
            EnvironmentFileError: It leaves the root (`permission_denied`), or is no path (`invalid`).
        """
        return self.check(self.environment.absolute_path(clean_path(path)), shown=path)

    @property
    def top(self) -> str:
        """The real path of the working directory: ignore files above it do not count."""
        return self.environment.canonical_path(self.environment.cwd)

    def shortener(self) -> Callable[[str], str]:
        """Return a function that gives a path as a model is to see and use it: relative to the working directory if below it."""
        prefixes = [folder.rstrip("/") + "/" for folder in (self.environment.cwd, self.top)]

        def shorten(whole: str) -> str:
            for prefix in prefixes:
                if whole.startswith(prefix):
                    return whole[len(prefix) :]
            return whole

        return shorten

    def check(self, whole: str, *, shown: str | None = None) -> str:
        """Return an absolute path; with a root, the real one, if it lies inside. `shown` is how an error names it."""
        if self.root is None:
            return whole
        if isinstance(self.environment, LocalEnvironment):
            return path_inside(whole, self.root, shown=shown)
        real_root = self.environment.canonical_path(self.root)
        real = self._real_path(whole)
        if real == real_root or real.startswith(real_root.rstrip("/") + "/"):
            return real
        raise EnvironmentFileError(
            f"{shown or whole} leads out of {self.root}: only paths inside it may be used", code="permission_denied", path=whole
        )

    def _real_path(self, whole: str) -> str:
        """Return the path with all links followed, as far as there is anything."""
        try:
            return self.environment.canonical_path(whole)
        except EnvironmentFileError as error:
            if error.code != "not_found" or posixpath.dirname(whole) == whole:
                raise
        if self.environment.exists(whole):
            raise EnvironmentFileError(
                f"{whole} is a link to nothing, so it cannot be told whether it stays inside {self.root}: use another path",
                code="permission_denied",
                path=whole,
            )
        return posixpath.join(self._real_path(posixpath.dirname(whole)), posixpath.basename(whole))

    def read(self, whole: str, signal: AbortSignal | None) -> bytes:
        """Return the content of a file.

        What the name leads to is looked at first: to read from a pipe could take for ever, and a device has no end.

        Raises:
            EnvironmentFileError: There is no file (`not_found`, `is_directory`, `invalid`), it is too large (`invalid`), …
        """
        if signal is None or not signal.aborted:
            size = self.environment.file_info(self.environment.canonical_path(whole)).size_bytes
            if size > MAX_FILE_BYTES:
                raise EnvironmentFileError(
                    f"{whole} has {format_size(size)}, more than {format_size(MAX_FILE_BYTES)}: use bash on a part of it, such as "
                    f"head -c 51200 {shlex.quote(whole)}",
                    code="invalid",
                    path=whole,
                )
        return self.environment.read_binary_file(whole, signal=signal)

    @contextlib.contextmanager
    def changing(self, path: str) -> Iterator[str]:
        """Resolve a model's path and hold the lock of its file while the body runs; gives the absolute path.

        Raises:
            EnvironmentFileError: As in `resolve`; or the path leads through a file (`not_directory`).
        """
        with Arrival() as arrival:
            whole = self.resolve(path)
            self.environment.exists(whole)
            if isinstance(self.environment, LocalEnvironment):
                key = os.path.realpath(whole)
            else:
                key = f"{id(self.environment)}:{self._lock_path(whole)}"
            with lock_for(key, arrival):
                yield whole

    def _lock_path(self, whole: str) -> str:
        with contextlib.suppress(EnvironmentFileError):
            return self.environment.canonical_path(whole)
        return whole


def raise_if_aborted(signal: AbortSignal | None) -> None:
    """Raise what the model reads of a call that was aborted."""
    if signal is not None and signal.aborted:
        raise AgentAbortedError(ABORTED, reason=signal.reason)
