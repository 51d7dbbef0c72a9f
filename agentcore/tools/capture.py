"""What a command prints, in constant memory: the tail, the totals, and a file with the whole once it is too long.

    bytes of a pipe → text (U+FFFD for what is no UTF-8) → without carriage returns and control characters
                    ├─► the tail: the last pieces, no more of them than the limit takes
                    ├─► counts of lines and bytes
                    └─► the file, from the moment on at which a limit is passed

Where the file cannot be written (a full disk) the command goes on: the file is removed, the tail is kept, `unsaved_because`
says why.

Each stream is decoded by itself, so a character that comes in two pieces is whole also if the other stream speaks in between.
"""

from __future__ import annotations

import codecs
import contextlib
import io
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from agentcore.abort import AbortSignal
from agentcore.errors import EnvironmentErrorCode, EnvironmentFileError
from agentcore.tools.environment import ExecutionEnvironment, LocalEnvironment, OutputStream, file_errors
from agentcore.tools.truncate import DEFAULT_MAX_BYTES, DEFAULT_MAX_LINES, TruncationResult, truncate_tail

_REMOVED = bytes(number for number in range(32) if number not in b"\t\n")
_PLAIN = bytes(number for number in range(256) if number not in _REMOVED and number != 0x0A)
_ANNOTATIONS = (b"\xef\xbf\xb9", b"\xef\xbf\xba", b"\xef\xbf\xbb")  # U+FFF9 to U+FFFB
_FILE_PIECE_BYTES = 1 << 20


class OutputCapture:
    """Collects the cleaned output of one command.

    Args:
        environment: Where the file with the whole output is made, if it comes to that.
        prefix: How the name of that file begins.

    Threads:
        One at a time.
    """

    def __init__(
        self,
        environment: ExecutionEnvironment,
        *,
        prefix: str = "bash-",
        max_lines: int = DEFAULT_MAX_LINES,
        max_bytes: int = DEFAULT_MAX_BYTES,
    ) -> None:
        self._environment = environment
        self._prefix = prefix
        self._max_lines = max_lines
        self._max_bytes = max_bytes
        # One byte more than the limit shows that the line before the kept ones does not fit; another is for a final line feed.
        self._keep_bytes = max_bytes + 2
        # Whole characters each. They are joined when somebody looks: with every piece it would halve the throughput.
        self._tail: deque[bytes] = deque()
        self._tail_bytes = 0
        self._unfinished: dict[OutputStream, bytes] = {"stdout": b"", "stderr": b""}
        self._total_bytes = 0
        self._line_feeds = 0
        self._finished_line_bytes = 0
        self._file: _OutputFile | None = None
        self.last_line_bytes = 0
        """The bytes after the last line feed."""
        self.full_output_path: str | None = None
        """The file with the whole output; None as long as it is within the limits. Complete after `finish`."""
        self.unsaved_because: EnvironmentFileError | None = None
        """Why there is no such file, although the output passed a limit."""

    @property
    def size_of_last_line(self) -> int:
        """The bytes of the last line, whether a line feed ends it or not."""
        return self.last_line_bytes or self._finished_line_bytes

    @property
    def total_lines(self) -> int:
        """How many lines there were, the unfinished one included."""
        return self._line_feeds + (self.last_line_bytes > 0)

    def add(self, stream: OutputStream, data: bytes) -> bytes:
        """Take in what came on a stream and return what is new of the cleaned text, as UTF-8."""
        cleaned, line_feeds = self._clean(stream, data, is_last=False)
        self._keep(cleaned, line_feeds)
        return cleaned

    def finish(self) -> bytes:
        """Take in the rest of characters that were cut off, complete the file, and return what is new of the text."""
        rest = b""
        for stream in self._unfinished:
            cleaned, line_feeds = self._clean(stream, b"", is_last=True)
            self._keep(cleaned, line_feeds)
            rest += cleaned
        self.close()
        return rest

    def close(self) -> None:
        """Complete the file with the whole output. Calling it twice is harmless."""
        if self._file is not None:
            try:
                self._file.close()
            except EnvironmentFileError as error:
                self._give_up_saving(error)

    def result(self) -> TruncationResult:
        """Return the tail as it is now, with the totals of all that came."""
        result = truncate_tail(b"".join(self._tail).decode("utf-8"), max_lines=self._max_lines, max_bytes=self._max_bytes)
        result.total_lines, result.total_bytes = self.total_lines, self._total_bytes
        return result

    def _clean(self, stream: OutputStream, data: bytes, *, is_last: bool) -> tuple[bytes, int]:
        """Return the cleaned text as UTF-8, and how many line feeds are in it.

        One pass over the bytes finds all line feeds and control characters: a search for either alone costs as much.
        """
        is_ascii = data.isascii() and not self._unfinished[stream]
        if not is_ascii:
            data = self._unfinished[stream] + data
            text, used = codecs.utf_8_decode(data, "replace", is_last)
            self._unfinished[stream] = data[used:]
            data = text.encode("utf-8") if "\ufffd" in text else data[:used]
            if b"\xef\xbf" in data:
                for annotation in _ANNOTATIONS:
                    data = data.replace(annotation, b"")
        special = data.translate(None, _PLAIN)
        if special == b"\n" * len(special):
            return data, len(special)
        return data.translate(None, _REMOVED), special.count(b"\n")

    def _keep(self, cleaned: bytes, line_feeds: int) -> None:
        if not cleaned:
            return
        self._total_bytes += len(cleaned)
        self._line_feeds += line_feeds
        self._measure_last_lines(cleaned)
        self._tail.append(cleaned)
        self._tail_bytes += len(cleaned)
        if self.unsaved_because is None:
            try:
                self._save(cleaned)
            except EnvironmentFileError as error:
                self._give_up_saving(error)
        while self._tail_bytes - len(self._tail[0]) >= self._keep_bytes:
            self._tail_bytes -= len(self._tail.popleft())

    def _save(self, cleaned: bytes) -> None:
        if self._file is not None:
            self._file.write(cleaned)
        elif self._total_bytes > self._max_bytes or self.total_lines > self._max_lines:
            self.full_output_path = self._environment.create_temp_file(prefix=self._prefix, suffix=".log")
            self._file = _OutputFile(self._environment, self.full_output_path)
            self._file.write(b"".join(self._tail))

    def _give_up_saving(self, error: EnvironmentFileError) -> None:
        self.unsaved_because = error
        path, file = self.full_output_path, self._file
        self.full_output_path = self._file = None
        with contextlib.suppress(EnvironmentFileError):
            if file is not None:
                file.abandon()
            if path is not None:  # a part of the output that looks like the whole is worse than none, and the disk is full
                self._environment.remove(path, force=True)

    def _measure_last_lines(self, cleaned: bytes) -> None:
        last = cleaned.rfind(b"\n")
        if last < 0:
            self.last_line_bytes += len(cleaned)
            return
        before = cleaned.rfind(b"\n", 0, last)
        self._finished_line_bytes = last - before - 1 + (self.last_line_bytes if before < 0 else 0)
        self.last_line_bytes = len(cleaned) - last - 1


class _OutputFile:
    """The file with the whole output. On this machine it stays open and takes each piece at once; elsewhere in megabytes."""

    def __init__(self, environment: ExecutionEnvironment, path: str) -> None:
        self._environment = environment
        self._path = path
        self._pieces: list[bytes] = []
        self._pieces_bytes = 0
        self._local: io.FileIO | None = None
        if isinstance(environment, LocalEnvironment):
            with file_errors(path, "write"):
                self._local = io.FileIO(path, "ab")

    def write(self, piece: bytes) -> None:
        if self._local is not None:
            with file_errors(self._path, "write"):
                written = self._local.write(piece)
                while written < len(piece):
                    written += self._local.write(piece[written:])
            return
        self._pieces.append(piece)
        self._pieces_bytes += len(piece)
        if self._pieces_bytes >= _FILE_PIECE_BYTES:
            self._append()

    def close(self) -> None:
        if self._local is not None:
            self._local.close()
        elif self._pieces:
            self._append()

    def abandon(self) -> None:
        """Close the file without what has not been written yet."""
        self._pieces.clear()
        if self._local is not None:
            self._local.close()

    def _append(self) -> None:
        pieces, self._pieces, self._pieces_bytes = self._pieces, [], 0
        self._environment.append_file(self._path, b"".join(pieces))


@dataclass(frozen=True)
class CommandResult:
    """What a command printed on each stream, as it came, and its exit code."""

    stdout: str
    stderr: str
    exit_code: int


@dataclass(frozen=True)
class ShellCapture:
    """What a command printed, cleaned and cut to its tail.

    `exit_code` is None if the command did not come to its own end: `cancelled` says that it was aborted, `execution_error` why
    else it failed. `full_output_path` names the file with the whole output, where `truncated`; None if it could not be written.
    """

    output: str
    truncation: TruncationResult
    last_line_bytes: int
    exit_code: int | None
    cancelled: bool
    truncated: bool
    full_output_path: str | None
    execution_error: EnvironmentFileError | None


def execute_shell(
    environment: ExecutionEnvironment,
    command: str,
    *,
    on_stdout: Callable[[str], object] | None = None,
    on_stderr: Callable[[str], object] | None = None,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
    inherit_env: bool = True,
    timeout: float | None = None,
    signal: AbortSignal | None = None,
) -> CommandResult:
    """Run a command and return all that it printed, uncleaned; for output that is known to be short.

    Args:
        on_stdout: Gets the text of the standard output as it comes; `on_stderr` that of the standard error.

    Raises:
        EnvironmentFileError: As `ExecutionEnvironment.run_command`.
    """
    decoders = {stream: codecs.getincrementaldecoder("utf-8")("replace") for stream in ("stdout", "stderr")}
    texts: dict[str, list[str]] = {"stdout": [], "stderr": []}
    callbacks = {"stdout": on_stdout, "stderr": on_stderr}

    def take(stream: str, data: bytes, is_last: bool = False) -> None:
        text = decoders[stream].decode(data, is_last)
        callback = callbacks[stream]
        if text:
            texts[stream].append(text)
            if callback is not None:
                callback(text)

    exit_code = environment.run_command(command, take, cwd=cwd, env=env, inherit_env=inherit_env, timeout=timeout, signal=signal)
    for stream in decoders:
        take(stream, b"", True)
    return CommandResult("".join(texts["stdout"]), "".join(texts["stderr"]), exit_code)


def execute_shell_with_capture(
    environment: ExecutionEnvironment,
    command: str,
    *,
    on_output: Callable[[str], object] | None = None,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
    inherit_env: bool = True,
    timeout: float | None = None,
    signal: AbortSignal | None = None,
    return_execution_errors: bool = False,
    max_lines: int = DEFAULT_MAX_LINES,
    max_bytes: int = DEFAULT_MAX_BYTES,
) -> ShellCapture:
    """Run a command and return the tail of what it printed on both streams, cleaned.

    Args:
        on_output: Gets the cleaned text as it comes. If it raises, the command still runs to its end.
        return_execution_errors: Put a timeout, or a command that cannot be started, into the result instead of raising it.

    Returns:
        The result; an abort is one too (`cancelled`).

    Raises:
        EnvironmentFileError: As `ExecutionEnvironment.run_command`, apart from `aborted`; `unknown` if `on_output` raised.
    """
    capture = OutputCapture(environment, max_lines=max_lines, max_bytes=max_bytes)
    failures: list[Exception] = []

    def report(cleaned: bytes) -> None:
        if cleaned and on_output is not None and not failures:
            try:
                on_output(cleaned.decode("utf-8"))
            except Exception as error:  # the caller's code: told to the caller, once the command has ended
                failures.append(error)

    exit_code: int | None = None
    ended_by: EnvironmentErrorCode | None = None
    execution_error: EnvironmentFileError | None = None
    try:
        exit_code = environment.run_command(
            command,
            lambda stream, data: report(capture.add(stream, data)),
            cwd=cwd,
            env=env,
            inherit_env=inherit_env,
            timeout=timeout,
            signal=signal,
        )
    except EnvironmentFileError as error:
        ended_by = error.code
        if ended_by != "aborted":
            if not return_execution_errors:
                raise
            execution_error = error
    finally:
        report(capture.finish())
    if failures:
        raise EnvironmentFileError(str(failures[0]), code="unknown") from failures[0]
    result = capture.result()
    return ShellCapture(
        output=result.content,
        truncation=result,
        last_line_bytes=capture.last_line_bytes,
        exit_code=exit_code,
        cancelled=ended_by == "aborted",
        truncated=result.truncated,
        full_output_path=capture.full_output_path,
        execution_error=execution_error,
    )
