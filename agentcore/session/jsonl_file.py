"""The file of a session: read it, repair it, append to it so that nothing acknowledged is lost.

One line of JSON an entry, the header first; only a line feed ends a line. An entry is appended with one `write`, so a process that
is killed leaves at most one torn line, at the end. What is found there on the next opening is cut off and kept in a side file; what
was written onto such a rest by a program that did not look (a *glued* line) is taken apart; NULs that a crashed file system left
are passed over. A line in the middle from which no entry can be read is an error that names it: that is no torn write.

Reading takes a quarter of a megabyte at a time and parses the lines of such a block in one go, as one JSON list: the parser then
shares the keys between the entries, which is a third faster and a fifth smaller than line by line.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from agentcore.errors import SessionCorruptError, SessionError
from agentcore.session.bulk import collector_paused
from agentcore.session.entries import RawEntry, entry_fault, with_camel_case_keys
from agentcore.session.old_versions import header_version, upgrade_entries, upgrade_header
from agentcore.session.storage import Fsync, SessionMetadata

_BLOCK_BYTES = 1 << 18
_HEAD_BYTES = 4096
_BOM = b"\xef\xbb\xbf"


class SessionRepairWarning(UserWarning):
    """A session file was damaged, and what could be saved was saved. The text says what was left out, and where it is kept."""


@dataclass
class Damage:
    """A place of a file that has to go: the bytes from `start` to `end` become `replacement`, and `torn` is what was lost."""

    start: int
    end: int
    replacement: bytes
    torn: bytes


@dataclass
class FileContent:
    """What was read of a file: all of it, or what had come to it since `start`."""

    entries: list[RawEntry] = field(default_factory=list)
    header: RawEntry = field(default_factory=dict)
    version: int = 3
    size: int = 0
    identity: tuple[int, int] | None = None  # the file's, so that another one in its place is noticed
    line_count: int = 0
    ends_with_newline: bool = True
    damages: list[Damage] = field(default_factory=list)


# --- reading ---------------------------------------------------------------------------------------------------------


def read_session_file(path: str) -> FileContent:
    """Read a whole session file.

    Raises:
        SessionError: There is no file, or it cannot be read; `code` is `not_found` or `storage`.
        SessionCorruptError: It is no session file, or a line in it cannot be read.
    """
    content = FileContent()
    try:
        with open(path, "rb") as file, collector_paused():
            content.identity = identity_of(os.fstat(file.fileno()))
            _read_header(file, path, content)
            _read_lines(file, path, content)
    except OSError as error:
        raise cannot_read(path, error) from error
    return content


def read_added(path: str, known: FileContent) -> FileContent:
    """Read what has come to a file of version 3 since it was read the last time."""
    content = FileContent(header=known.header, size=known.size, identity=known.identity, line_count=known.line_count)
    with open(path, "rb") as file:
        file.seek(known.size)
        _read_lines(file, path, content)
    return content


def identity_of(status: os.stat_result) -> tuple[int, int]:
    """Return what tells a file from another one under the same name."""
    return status.st_dev, status.st_ino


def read_metadata(path: str) -> SessionMetadata:
    """Read what a session file says of itself; only its head is read.

    Raises:
        SessionError: As `read_session_file`.
    """
    content = FileContent()
    try:
        with open(path, "rb", buffering=_HEAD_BYTES) as file:
            _read_header(file, path, content)
    except OSError as error:
        raise cannot_read(path, error) from error
    return metadata_of(content.header, path)


def cannot_read(path: str, error: OSError) -> SessionError:
    """Return the error for a file that cannot be opened or read."""
    if isinstance(error, FileNotFoundError):
        return SessionError(f"there is no session file {path}; JsonlSessionStorage.create() makes one", code="not_found")
    return SessionError(f"session file {path} cannot be read: {error.strerror}", code="storage")


def _read_header(file: BinaryIO, path: str, content: FileContent) -> None:
    while True:
        line = file.readline(1 << 22)
        if not line:
            raise SessionCorruptError(f"{path} is no session file: it has no session header")
        content.size += len(line)
        content.line_count += 1
        text = line.removeprefix(_BOM).strip()
        if text:
            break
    content.ends_with_newline = line.endswith(b"\n")
    try:
        header = json.loads(text)
    except ValueError:
        header = None
    if not isinstance(header, dict) or header.get("type") != "session":
        raise SessionCorruptError(f"{path} is no session file: its first line is no session header")
    version = header_version(header)
    if version is None:
        said = header.get("version")
        raise SessionCorruptError(
            f"{path} is a session of version {said!r}; this library reads the versions 1 to 3, use a newer one for it"
        )
    content.version = version
    content.header = header if version == 3 else upgrade_header(header)
    _check_header(with_camel_case_keys(content.header), path)


def _check_header(header: RawEntry, path: str) -> None:
    fault = None
    if not isinstance(header.get("id"), str) or not header["id"]:
        fault = "has no id"
    elif not isinstance(header.get("timestamp"), str):
        fault = "has no timestamp"
    elif not isinstance(header.get("cwd"), str):
        fault = "has no cwd"
    elif not isinstance(header.get("parentSession", ""), str):
        fault = "has a parentSession that is no string"
    elif not isinstance(header.get("metadata", {}), dict):
        fault = "has metadata that is no object"
    if fault is not None:
        raise SessionCorruptError(f"{path} is no session file: its session header {fault}")


def metadata_of(header: RawEntry, path: str) -> SessionMetadata:
    """Return what a header says of its session."""
    header = with_camel_case_keys(header)
    return SessionMetadata(
        id=header["id"],
        created_at=header["timestamp"],
        cwd=header["cwd"],
        path=path,
        parent_session_path=header.get("parentSession"),
        metadata=header.get("metadata"),
    )


def _blocks(file: BinaryIO) -> Iterator[bytes]:
    """Give whole lines, as many as fit, and the rest of the file at the end."""
    parts: list[bytes] = []
    while True:
        piece = file.read(_BLOCK_BYTES)
        if not piece:
            break
        cut = piece.rfind(b"\n") + 1
        if cut == 0:
            parts.append(piece)  # a line longer than a block
            continue
        parts.append(piece[:cut])
        yield b"".join(parts)
        parts = [piece[cut:]]
    rest = b"".join(parts)
    if rest:
        yield rest


def _read_lines(file: BinaryIO, path: str, content: FileContent) -> None:
    for block in _blocks(file):
        count = block.count(b"\n")
        raws = _parse_block(block, count)
        if raws is None:
            raws, numbers = _parse_lines(block, path, content)
        else:
            numbers = None
        if content.version == 3:  # older ones get their ids when all are there
            _check_frames(raws, numbers, path, content)
        content.entries.extend(raws)
        content.line_count += count if block.endswith(b"\n") else count + 1
        content.size += len(block)
        content.ends_with_newline = block.endswith(b"\n")
    if content.version < 3:
        upgrade_entries(content.entries, content.version)
        _check_frames(content.entries, None, path, FileContent(line_count=1))


def _parse_block(block: bytes, count: int) -> list[Any] | None:
    """Parse whole lines in one go; None where that fails or does not give one value a line."""
    if not block.endswith(b"\n"):
        return None
    try:
        raws = json.loads("[" + block[:-1].decode("utf-8", "surrogatepass").replace("\n", ",") + "]")
    except (ValueError, RecursionError):
        return None
    return raws if len(raws) == count else None


def _check_frames(raws: list[Any], numbers: list[int] | None, path: str, content: FileContent) -> None:
    for place, raw in enumerate(raws):
        try:
            parent_id = raw["parentId"]
            if (
                (parent_id is None or type(parent_id) is str)
                and type(raw["type"]) is str
                and type(raw["timestamp"]) is str
                and raw["id"]
                and type(raw["id"]) is str
                and (raw["type"] != "leaf" or entry_fault(raw) is None)
            ):
                continue
        except (KeyError, TypeError):
            if isinstance(raw, dict) and "parent_id" in raw:
                raw = raws[place] = with_camel_case_keys(raw)
        fault = entry_fault(raw)
        if fault is not None:
            number = content.line_count + 1 + place if numbers is None else numbers[place]
            raise SessionCorruptError(f"{path}: line {number} {fault}; mend or remove that line", code="invalid_entry")


def _parse_lines(block: bytes, path: str, content: FileContent) -> tuple[list[Any], list[int]]:
    """Parse line by line, and note what is damaged. Returns the entries and the numbers of their lines."""
    raws: list[Any] = []
    numbers: list[int] = []
    start = content.size
    for number, line in enumerate(block.split(b"\n"), start=content.line_count + 1):
        end = start + len(line)
        text = line.strip()
        if text:
            found = _parse_line(text)
            if found is None:
                is_torn_end = end == content.size + len(block)  # without a line feed behind it
                found, damage = _salvage(line, start, is_torn_end)
                if damage is None:
                    raise SessionCorruptError(f"{path}: line {number} is not JSON; mend or remove that line", code="invalid_entry")
                content.damages.append(damage)
            raws.extend(found)
            numbers.extend([number] * len(found))
        start = end + 1
    return raws, numbers


def _parse_line(line: bytes) -> list[Any] | None:
    try:
        text = line.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        text = line.decode("utf-8", "replace")  # as the reference reads: one bad byte does not lose an entry
    try:
        return [parse_json(text)]
    except (ValueError, RecursionError):
        return None


def parse_json(text: str) -> Any:
    """Parse JSON text that may be nested as deeply as whoever wrote it could write, wherever on the stack we are now.

    Raises:
        ValueError: It is no JSON.
        RecursionError: It is nested more deeply than this Python can parse.
    """
    try:
        return json.loads(text)
    except RecursionError:
        # A new thread has the whole stack to itself.
        made: list[Any] = []
        failures: list[Exception] = []

        def parse() -> None:
            try:
                made.append(json.loads(text))
            except (ValueError, RecursionError) as error:
                failures.append(error)

        thread = threading.Thread(target=parse, name="agentcore-session-parse", daemon=True)
        thread.start()
        thread.join()
        if failures:
            raise failures[0] from None
        return made[0]


_ENTRY_START = re.compile(r'\{\s*"(?:type|id|parentId)"\s*:')


def _salvage(line: bytes, start: int, is_torn_end: bool) -> tuple[list[Any], Damage | None]:
    """Take whole entries out of a damaged line. The damage is None where there is nothing to be saved."""
    text = line.decode("utf-8", "surrogateescape")
    raws: list[Any] = []
    kept: list[str] = []
    torn: list[str] = []
    position = 0
    for match in _ENTRY_START.finditer(text):
        if match.start() < position:
            continue
        try:
            raw, end = json.JSONDecoder().raw_decode(text, match.start())
            text[match.start() : end].encode()  # no broken characters in it
        except (ValueError, RecursionError):
            continue
        if entry_fault(raw) is None:
            torn.append(text[position : match.start()])
            kept.append(text[match.start() : end])
            raws.append(raw)
            position = end
    torn.append(text[position:])
    lost = "".join(torn).encode("utf-8", "surrogateescape")
    if not raws and not is_torn_end and lost.strip(b"\0 \t\r"):
        return [], None
    return raws, Damage(start, start + len(line), "\n".join(kept).encode(), lost)


# --- repairing -------------------------------------------------------------------------------------------------------


def describe_damages(path: str, damages: list[Damage], side_path: str | None) -> str:
    """Return what a warning says of the damages of a file."""
    lost = sum(len(damage.torn) for damage in damages)
    parts = [f"session file {path} was damaged: {lost} bytes are no whole entry and are left out"]
    if any(damage.replacement for damage in damages):
        parts.append("the entries that stood on the same line are kept")
    if side_path is not None:
        parts.append(f"the bytes are kept in {side_path}")
    return "; ".join(parts)


def repair(path: str, damages: list[Damage]) -> str | None:
    """Take the damaged places out of a file. Returns the side file that keeps the bytes, None where nothing was lost.

    A rest at the end is cut off. Anything else means a new file, put in the old one's place in one step.
    """
    side_path = None
    if any(damage.torn for damage in damages):
        side_path = free_name(path + ".torn")
        with open(side_path, "xb") as side:
            _copy_mode(path, side_path)
            for damage in damages:
                rest = damage.torn.rstrip(b"\0")
                side.write(rest)
                side.seek(len(damage.torn) - len(rest), os.SEEK_CUR)  # NULs take no room
            side.truncate()
            sync(side.fileno())
    size = os.path.getsize(path)
    if len(damages) == 1 and damages[0].end == size and not damages[0].replacement:
        with open(path, "r+b") as file:
            file.truncate(damages[0].start)
            sync(file.fileno())
        return side_path

    def pieces() -> Iterator[bytes]:
        position = 0
        with open(path, "rb") as old:
            for damage in damages:
                yield old.read(damage.start - position)
                yield damage.replacement
                position = old.seek(damage.end)
            yield old.read()

    replace_file(path, pieces())
    return side_path


def replace_file(path: str, pieces: Iterator[bytes]) -> None:
    """Write a file anew: either the old or the new one is there, whole, whatever happens."""
    new_path = f"{path}.new-{os.getpid()}"
    try:
        with open(new_path, "wb") as new:
            _copy_mode(path, new_path)
            for piece in pieces:
                new.write(piece)
            new.flush()
            sync(new.fileno())
        os.replace(new_path, path)
    except BaseException:
        Path(new_path).unlink(missing_ok=True)
        raise
    sync_folder(path)


def _copy_mode(path: str, new_path: str) -> None:
    """Let nobody read what is written anew who could not read the file itself."""
    try:
        shutil.copymode(path, new_path)
    except OSError:
        pass  # the file system has none, or the file is somebody else's


def keep_copy(path: str, suffix: str) -> str:
    """Keep a file as it is now beside itself. Returns the name of the copy."""
    copy_path = free_name(path + suffix)
    try:
        os.link(path, copy_path)
    except OSError:  # a file system without links
        shutil.copy(path, copy_path)
    return copy_path


def free_name(path: str) -> str:
    """Return the path, with a number behind it where it is taken."""
    number = 1
    made = path
    while os.path.lexists(made):
        number += 1
        made = f"{path}-{number}"
    return made


# --- appending -------------------------------------------------------------------------------------------------------

if hasattr(os, "fdatasync"):
    sync = os.fdatasync
else:
    sync = os.fsync


def sync_folder(path: str) -> None:
    """See to it that a new name in a folder survives a power cut, where the system can do that."""
    if sys.platform == "win32":
        return
    fd = os.open(os.path.dirname(path) or ".", os.O_RDONLY)
    try:
        os.fsync(fd)
    except OSError:
        pass  # some file systems cannot
    finally:
        os.close(fd)


class AppendFile:
    """An open session file: whole lines go to its end.

    Threads: one at a time (the storage's lock).
    """

    def __init__(self, path: str, *, fsync: Fsync, is_new: bool = False) -> None:
        flags = os.O_WRONLY | os.O_APPEND | getattr(os, "O_BINARY", 0)
        self._fd = os.open(path, flags | os.O_CREAT | os.O_EXCL if is_new else flags, 0o644)
        self._fsync = fsync

    @property
    def is_open(self) -> bool:
        """Whether `close` was not called yet."""
        return self._fd >= 0

    def status(self) -> os.stat_result:
        """Return what the system knows of the file."""
        return os.fstat(self._fd)

    def append(self, line: bytes, size: int) -> None:
        """Write a line to the end of the file, which is `size` bytes long now. On an error nothing of it stays.

        Raises:
            OSError: As the system says it.
        """
        try:
            written = os.write(self._fd, line)
            while written < len(line):  # the disk is nearly full: the next one says so
                written += os.write(self._fd, line[written:])
            if self._fsync == "every":
                sync(self._fd)
        except OSError:
            try:
                os.ftruncate(self._fd, size)
            except OSError:
                pass  # the rest is seen and cut off before the next append, or at the next opening
            raise

    def close(self) -> None:
        """Close the file. A second call does nothing."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
