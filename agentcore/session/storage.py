"""What a session storage and its repo must do, and the half of it that all storages share.

A storage keeps raw entries in the order in which they were appended. Reading goes through its `EntryIndex`; writing is one method,
`append`, which returns when the entry is stored. So a new storage has to know three things: how to read its entries when it opens,
how to write one line, and how to close.
"""

from __future__ import annotations

import errno
import json
import logging
import ntpath
import os
import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, runtime_checkable

from agentcore.codec import OMIT_NONE, Json, dumps, encode
from agentcore.errors import EntryNotStoredError, SessionError
from agentcore.session.entries import (
    SESSION_VERSION,
    RawEntry,
    SessionTreeEntry,
    encode_entry,
    entry_fault,
    entry_name,
    new_entry_id,
    new_session_id,
    now_iso,
)

if TYPE_CHECKING:
    from agentcore.session.session import Session
    from agentcore.session.tree import EntryIndex

_log = logging.getLogger("agentcore.session")

Fsync = Literal["every", "never"]
"""When the operating system is told to write to the disk: after every entry, or when it likes."""

ForkPosition = Literal["before", "at"]
"""Where a fork ends: before a user message, so that it can be said again, or with the entry itself."""


def check_fsync(fsync: str) -> None:
    """Refuse what is no setting of `fsync`."""
    if fsync not in ("every", "never"):
        raise ValueError(f"fsync must be 'every' (each entry reaches the disk) or 'never', not {fsync!r}")


def whole_cwd(cwd: str | os.PathLike[str]) -> str:
    """Return a working directory as a whole path, since a relative one means nothing to the next process; "" stays.

    Raises:
        SessionError: It is relative, and the process's working directory was deleted.
    """
    name = os.fspath(cwd)
    if not name or ntpath.splitdrive(name)[0]:  # none, or one of Windows, also where this is another system
        return name
    try:
        return os.path.abspath(name)
    except FileNotFoundError as error:
        text = "the working directory of this process is gone: pass cwd= with a folder that is there"
        raise SessionError(text, code="storage") from error


def new_header(
    cwd: str | os.PathLike[str] | None, session_id: str | None, parent_session: str | None, metadata: Mapping[str, Any] | None
) -> RawEntry:
    """Return the header of a new session. A missing id or working directory is filled in."""
    header: RawEntry = {
        "type": "session",
        "version": SESSION_VERSION,
        "id": session_id or new_session_id(),
        "timestamp": now_iso(),
        "cwd": whole_cwd("." if cwd is None else cwd),
    }
    if parent_session is not None:
        header["parentSession"] = os.fspath(parent_session)
    if metadata is not None:
        header["metadata"] = dict(metadata)
    return header


@dataclass
class SessionMetadata(Json):
    """Which session this is. `path` is None for a session in memory; `created_at` is an ISO-8601 string."""

    id: str
    created_at: str
    cwd: str = ""
    path: str | None = field(default=None, metadata=OMIT_NONE)
    parent_session_path: str | None = field(default=None, metadata=OMIT_NONE)
    metadata: dict[str, Any] | None = field(default=None, metadata=OMIT_NONE)


@runtime_checkable
class SessionStorage(Protocol):
    """Where the entries of one session are kept."""

    @property
    def metadata(self) -> SessionMetadata:
        """Which session this is."""
        ...

    @property
    def index(self) -> EntryIndex:
        """The entries, in memory, for reading."""
        ...

    def append(self, entry: SessionTreeEntry | Mapping[str, Any]) -> str:
        """Store an entry and return its id. A missing id, parent (the leaf) or time is filled in.

        Raises:
            EntryNotStoredError: It could not be written. Nothing has changed.
            SessionLockedError: Another process is writing to the session. Nothing has changed.
            SessionError: The entry has no valid frame, or its id is taken.
        """
        ...

    def close(self) -> None:
        """Let go of files and locks. Reading goes on, appending does not."""
        ...


class SessionRepo(Protocol):
    """Where sessions are kept, made, found and copied."""

    def create(
        self,
        *,
        cwd: str | os.PathLike[str] | None = None,
        session_id: str | None = None,
        parent_session: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Session:
        """Make a session."""
        ...

    def open(self, session: SessionMetadata | str) -> Session:
        """Open a session for writing, by what `list` says of it or by its path or id."""
        ...

    def list(self, cwd: str | os.PathLike[str] | None = None) -> Sequence[SessionMetadata]:
        """Return the sessions, those of one working directory or all; the newest first."""
        ...

    def delete(self, session: SessionMetadata | str) -> None:
        """Delete a session for good."""
        ...

    def fork(
        self,
        source: Session | SessionMetadata | str,
        *,
        entry_id: str | None = None,
        position: ForkPosition = "before",
        session_id: str | None = None,
        cwd: str | os.PathLike[str] | None = None,
        metadata: Mapping[str, Any] | None = None,
        parent_session: str | None = None,
    ) -> Session:
        """Copy a session, or its path up to an entry, into a new one."""
        ...


StorageT = TypeVar("StorageT", bound="EntryStorage")


class EntryStorage:
    """The base of the library's storages: completes an entry, has it written, then shows it to readers.

    Threads: `append` may be called from any thread; entries are stored one after the other, each a child of the leaf that the one
    before left. Reading while another thread appends sees the session before or after it.
    """

    def __init__(self, metadata: SessionMetadata, index: EntryIndex) -> None:
        self._metadata = metadata
        self._index = index
        # _lock guards the step from "written" to "seen in the index", and with it the order of the lines. It is held while a
        # line is written, on purpose: two entries must never have the same leaf as parent by accident.
        self._lock = threading.RLock()
        self._is_closed = False
        self._is_behind = False  # an append was interrupted, and the index may not be what is stored

    @property
    def metadata(self) -> SessionMetadata:
        """Which session this is."""
        return self._metadata

    @property
    def index(self) -> EntryIndex:
        """The entries, in memory, for reading."""
        return self._index

    def append(self, entry: SessionTreeEntry | Mapping[str, Any]) -> str:
        """Store an entry and return its id. A missing id, parent (the leaf) or time is filled in.

        Raises:
            EntryNotStoredError: It could not be written. Nothing has changed.
            SessionLockedError: Another process is writing to the session. Nothing has changed.
            SessionError: The entry has no valid frame, or its id is taken.
        """
        given = encode_entry(entry)
        with self._lock:
            if self._is_closed:
                raise SessionError(f"session {self._metadata.id} is closed; open it again to append to it", code="closed")
            if "id" not in given:
                given["id"] = new_entry_id(self._index.by_id)
            is_writing = False
            try:
                with self._turn():
                    if self._is_behind:
                        self._read_anew()
                    self._prepare_append()
                    line = dumps(self._complete(given))
                    # Read back from its own line, so that what is in memory is what a reader of the file will see: NaN is null
                    # there. And before it is written, so that a line that cannot be read is never written.
                    shown = json.loads(line)
                    is_writing = True
                    self._write(line)
                    self._index.add(shown)
            except OSError as error:
                raise EntryNotStoredError(self._not_stored_text(given, error), entry=encode(given)) from error
            except BaseException as error:
                if is_writing or not isinstance(error, Exception):
                    self._catch_up()
                raise
        made: str = shown["id"]
        return made

    def _catch_up(self) -> None:
        """Make the index what is stored, after an interrupt (Ctrl-C) between the two. Holding the lock."""
        self._is_behind = True
        try:
            self._read_anew()
        except Exception:  # the next append tries again, and says what is wrong
            _log.debug("session %s could not be read after an interrupt", self._metadata.id, exc_info=True)

    def __enter__(self: StorageT) -> StorageT:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of files and locks. Reading goes on, appending does not."""
        with self._lock:
            self._is_closed = True

    def _complete(self, given: RawEntry) -> RawEntry:
        """Return the entry with all that was left out, in the order in which pi writes the keys."""
        index = self._index
        raw: RawEntry = {"type": given.get("type"), "id": given["id"]}
        if "parentId" in given:
            raw["parentId"] = given["parentId"]
        else:
            raw["parentId"] = index.leaf_id if given.get("type") == "leaf" else index.valid_leaf_id()
        raw["timestamp"] = given["timestamp"] if "timestamp" in given else now_iso()
        raw.update(given)
        fault = entry_fault(raw)
        if fault is not None:
            raise SessionError(f"the entry {fault}; it is not stored", code="invalid_entry")
        if raw["id"] in index.by_id:
            raise SessionError(
                f"the session has an entry {raw['id']!r} already; leave the id out for a new one", code="invalid_entry"
            )
        return raw

    def _not_stored_text(self, raw: RawEntry, error: OSError) -> str:
        where = self._metadata.path or f"session {self._metadata.id}"
        if error.errno in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT):
            way_out = "make room there"
        elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            way_out = "make it writable"
        else:
            way_out = "see to that"
        return f"{entry_name(raw)} is not stored in {where}: {error.strerror or error}; {way_out} and append it again"

    def _turn(self) -> AbstractContextManager[object]:
        """Return what keeps other storages of the same session from writing meanwhile."""
        return nullcontext()

    def _read_anew(self) -> None:
        """Make the index anew of what is stored, and set `_is_behind` back."""
        raise NotImplementedError

    def _prepare_append(self) -> None:
        """Bring the index up to date with what is stored."""

    def _write(self, line: str) -> None:
        """Store one line. Raises OSError, and leaves nothing behind then."""
        raise NotImplementedError
