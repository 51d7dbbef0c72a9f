"""Sessions that live and die with the process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentcore.errors import SessionError
from agentcore.session.entries import new_session_id, now_iso
from agentcore.session.session import Session
from agentcore.session.storage import EntryStorage, ForkPosition, SessionMetadata
from agentcore.session.tree import EntryIndex, entries_for_fork


class MemorySessionStorage(EntryStorage):
    """Keeps the entries of one session in memory.

    Threads: any, as `EntryStorage` says.
    """

    def __init__(
        self,
        *,
        cwd: str = "",
        session_id: str | None = None,
        parent_session: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        made = SessionMetadata(
            id=session_id or new_session_id(),
            created_at=now_iso(),
            cwd=cwd,
            parent_session_path=parent_session,
            metadata=None if metadata is None else dict(metadata),
        )
        super().__init__(made, EntryIndex())

    def _write(self, line: str) -> None:
        pass


class MemorySessionRepo:
    """Keeps sessions in memory, by their ids."""

    def __init__(self) -> None:
        self._sessions: dict[str, Session] = {}

    def create(
        self,
        *,
        cwd: str | None = None,
        session_id: str | None = None,
        parent_session: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Session:
        """Make a session.

        Raises:
            SessionError: There is one of that id.
        """
        storage = MemorySessionStorage(cwd=cwd or "", session_id=session_id, parent_session=parent_session, metadata=metadata)
        made = storage.metadata.id
        if made in self._sessions:
            raise SessionError(f"there is a session {made!r} already; open() opens it", code="already_exists")
        session = self._sessions[made] = Session(storage)
        return session

    def open(self, session: SessionMetadata | str) -> Session:
        """Return a session, by what `list` says of it or by its id.

        Raises:
            SessionError: There is none; `code` is `not_found`.
        """
        session_id = session.id if isinstance(session, SessionMetadata) else session
        found = self._sessions.get(session_id)
        if found is None:
            raise SessionError(f"there is no session {session_id!r}; list() has those that there are", code="not_found")
        return found

    def list(self, cwd: str | None = None) -> list[SessionMetadata]:
        """Return the sessions, those of one working directory or all; the newest first."""
        found = [session.metadata for session in reversed(self._sessions.values())]
        found.sort(key=lambda metadata: metadata.created_at, reverse=True)
        return [metadata for metadata in found if cwd is None or metadata.cwd == cwd]

    def delete(self, session: SessionMetadata | str) -> None:
        """Delete a session for good.

        Raises:
            SessionError: There is none; `code` is `not_found`.
        """
        found = self.open(session)
        del self._sessions[found.metadata.id]
        found.close()

    def fork(
        self,
        source: Session | SessionMetadata | str,
        *,
        entry_id: str | None = None,
        position: ForkPosition = "before",
        session_id: str | None = None,
        cwd: str | None = None,
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
        session = self.create(
            cwd=told.cwd if cwd is None else cwd,
            session_id=session_id,
            parent_session=parent_session or told.path or told.id,
            metadata=told.metadata if metadata is None else metadata,
        )
        session.storage.index.add_all(raws)
        return session
