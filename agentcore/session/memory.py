"""Sessions that live and die with the process."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import Any

from agentcore.errors import SessionError
from agentcore.session.entries import new_session_id, now_iso
from agentcore.session.session import Session
from agentcore.session.storage import EntryStorage, ForkPosition, SessionMetadata, whole_cwd
from agentcore.session.tree import EntryIndex, entries_for_fork


class MemorySessionStorage(EntryStorage):
    """Keeps the entries of one session in memory.

    Threads: any, as `EntryStorage` says.
    """

    def __init__(
        self,
        *,
        cwd: str | os.PathLike[str] = "",
        session_id: str | None = None,
        parent_session: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        made = SessionMetadata(
            id=session_id or new_session_id(),
            created_at=now_iso(),
            cwd=whole_cwd(cwd),
            parent_session_path=None if parent_session is None else os.fspath(parent_session),
            metadata=None if metadata is None else dict(metadata),
        )
        super().__init__(made, EntryIndex())

    def reopened(self) -> MemorySessionStorage:
        """Return an open storage of the same entries: this one, or another in its place once it is closed."""
        if not self._is_closed:
            return self
        made = object.__new__(MemorySessionStorage)
        EntryStorage.__init__(made, self._metadata, self._index)
        return made

    def _write(self, line: str) -> None:
        pass

    def _read_anew(self) -> None:
        index = EntryIndex()
        index.add_all(list(self._index.raws))
        self._index = index
        self._is_behind = False


class MemorySessionRepo:
    """Keeps sessions in memory, by their ids.

    Threads: any.
    """

    def __init__(self) -> None:
        # _lock guards _sessions; nothing but the table is touched while it is held.
        self._lock = threading.Lock()
        self._sessions: dict[str, Session] = {}

    def create(
        self,
        *,
        cwd: str | os.PathLike[str] | None = None,
        session_id: str | None = None,
        parent_session: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Session:
        """Make a session. A missing working directory is the process's.

        Raises:
            SessionError: There is one of that id.
        """
        storage = MemorySessionStorage(
            cwd="." if cwd is None else cwd, session_id=session_id, parent_session=parent_session, metadata=metadata
        )
        return self._keep(Session(storage))

    def _keep(self, session: Session) -> Session:
        with self._lock:
            if session.id in self._sessions:
                raise SessionError(f"there is a session {session.id!r} already; open() opens it", code="already_exists")
            self._sessions[session.id] = session
        return session

    def open(self, session: SessionMetadata | str) -> Session:
        """Return a session, by what `list` says of it or by its id. One that was closed goes on in a new `Session`.

        Raises:
            SessionError: There is none; `code` is `not_found`.
        """
        session_id = session.id if isinstance(session, SessionMetadata) else session
        with self._lock:
            found = self._sessions.get(session_id)
            if found is None:
                raise SessionError(f"there is no session {session_id!r}; list() has those that there are", code="not_found")
            assert isinstance(found.storage, MemorySessionStorage)
            storage = found.storage.reopened()
            if storage is not found.storage:
                found = self._sessions[session_id] = Session(storage)
        return found

    def list(self, cwd: str | os.PathLike[str] | None = None) -> list[SessionMetadata]:
        """Return the sessions, those of one working directory or all; the newest first."""
        with self._lock:
            found = [session.metadata for session in reversed(self._sessions.values())]
        found.sort(key=lambda metadata: metadata.created_at, reverse=True)
        return [metadata for metadata in found if cwd is None or metadata.cwd == whole_cwd(cwd)]

    def delete(self, session: SessionMetadata | str) -> None:
        """Delete a session for good.

        Raises:
            SessionError: There is none; `code` is `not_found`.
        """
        found = self.open(session)
        with self._lock:
            self._sessions.pop(found.id, None)
        found.close()

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
        """Copy a session, or its path up to an entry, into a new one.

        Raises:
            SessionError: There is no such session or entry, or the entry cannot be forked before.
        """
        parent = source if isinstance(source, Session) else self.open(source)
        raws = entries_for_fork(parent.storage.index, entry_id, position)
        told = parent.metadata
        storage = MemorySessionStorage(
            cwd=told.cwd if cwd is None else cwd,
            session_id=session_id,
            parent_session=parent_session or told.path or told.id,
            metadata=told.metadata if metadata is None else metadata,
        )
        storage.index.add_all(raws)
        return self._keep(Session(storage))
