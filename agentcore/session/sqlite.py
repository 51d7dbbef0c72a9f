"""Sessions in a database of SQLite: one file, many sessions, for who would rather keep one file than a folder of them.

A row of `sessions` holds a header, a row of `entries` one entry, both as the JSON that a session file would have. The journal is a
write-ahead log, so readers and the writer do not wait for each other; an entry is one transaction.
"""

from __future__ import annotations

import errno
import json
import os
import re
import sqlite3
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from agentcore.codec import dumps
from agentcore.errors import SessionCorruptError, SessionError
from agentcore.session.bulk import collector_paused
from agentcore.session.entries import RawEntry, entry_fault
from agentcore.session.jsonl_file import metadata_of, parse_json
from agentcore.session.session import Session
from agentcore.session.storage import EntryStorage, ForkPosition, Fsync, SessionMetadata, check_fsync, new_header, whole_cwd
from agentcore.session.tree import EntryIndex, entries_for_fork
from agentcore.session.writer_lock import WriterLock

_SCHEMA = """
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS sessions (id TEXT PRIMARY KEY, created_at TEXT NOT NULL, cwd TEXT NOT NULL, header TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS entries (
    session TEXT NOT NULL, seq INTEGER NOT NULL, entry TEXT NOT NULL, PRIMARY KEY (session, seq)
) WITHOUT ROWID;
COMMIT;
"""
_TABLES = {"sessions", "entries"}
_PATIENCE = 30.0
_ROWS_AT_ONCE = 500


class _Hold:
    """What a storage holds of the system: the connection, and, once it has written, its share in the writer's lock."""

    def __init__(self, connection: sqlite3.Connection, *, is_snapshot: bool = False) -> None:
        self.connection = connection
        self.is_snapshot = is_snapshot  # it sees the database as it was when it was opened
        self.lock: WriterLock | None = None
        self.pid = os.getpid()

    def let_go(self) -> None:
        if self.pid == os.getpid():  # a forked child may not touch its parent's connection, not even to close it
            self.connection.close()
        if self.lock is not None:
            self.lock.release()


class SqliteSessionStorage(EntryStorage):
    """Keeps one session in a database. Made by `create` and `open`.

    With the first append it takes the writer's lock of its session (`DATABASE.SESSION-ID.lock`) and keeps it; other sessions of the
    database may be written to meanwhile. `close`, the end of a `with`, the garbage collector and the end of the process free it.

    Threads: any, as `EntryStorage` says.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        header: RawEntry | None = None,
        hold: _Hold | None = None,
        *,
        fsync: Fsync = "every",
        read_only: bool = False,
    ) -> None:
        if header is None or hold is None:
            raise TypeError(
                "SqliteSessionStorage.create(path, cwd=…) makes a session, SqliteSessionStorage.open(path, session_id) opens one; "
                "use one of them in place of SqliteSessionStorage(path)"
            )
        path = os.fspath(path)
        super().__init__(metadata_of(header, path), EntryIndex())
        self.path = path
        self.read_only = read_only
        self._fsync: Fsync = fsync
        self._count = 0
        self._keep(hold)
        self._take_in()

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        *,
        cwd: str | os.PathLike[str] | None = None,
        session_id: str | None = None,
        parent_session: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        fsync: Fsync = "every",
    ) -> SqliteSessionStorage:
        """Make a session in a database, which is made too where there is none, and open it for writing.

        Arguments are those of `JsonlSessionStorage.create`, `path` being the database.

        Raises:
            SessionError: The database has such a session (`code` is `already_exists`), or cannot be written (`storage`).
            SessionLockedError: Another process is making it.
        """
        return cls._create(os.path.abspath(path), new_header(cwd, session_id, parent_session, metadata), (), fsync)

    @classmethod
    def _create(cls, path: str, header: RawEntry, raws: Sequence[RawEntry], fsync: Fsync) -> SqliteSessionStorage:
        check_fsync(fsync)
        session_id = header["id"]
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
        except OSError as error:
            raise SessionError(f"session database {path} cannot be made: {error.strerror}", code="storage") from error
        lock_path = _lock_path(path, session_id)
        with _translated(path):
            hold = _connect(path, fsync, is_new=True)
        try:
            with _translated(path):
                hold.lock = WriterLock(lock_path)
                hold.lock.take()
                with _transaction(hold.connection):
                    hold.connection.execute(
                        "INSERT INTO sessions VALUES (?, ?, ?, ?)",
                        (session_id, header["timestamp"], _storable(header["cwd"]), dumps(header)),
                    )
                    rows = ((session_id, place, dumps(raw)) for place, raw in enumerate(raws))
                    hold.connection.executemany("INSERT INTO entries VALUES (?, ?, ?)", rows)
            return cls(path, header, hold, fsync=fsync)
        except BaseException:
            hold.let_go()
            raise

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], session_id: str | None = None, *, fsync: Fsync = "every", read_only: bool = False
    ) -> SqliteSessionStorage:
        """Open a session of a database. Another process may be writing to it; the first append finds that out.

        Args:
            path: The database.
            session_id: Which session; may be left out where the database has only one.
            fsync: Whether each entry is forced onto the disk, so that it survives a power cut too.
            read_only: Refuse to append.

        Raises:
            SessionError: There is no such database or session (`code` is `not_found`), or it cannot be opened (`storage`).
            SessionCorruptError: It is no database of sessions, or an entry cannot be read.
        """
        check_fsync(fsync)
        name = os.path.abspath(path)
        if session_id is None:
            ids = [metadata.id for metadata in _list(name)]
            if not os.path.exists(name):
                raise SessionError(
                    f"there is no session database {name}; SqliteSessionStorage.create() makes one", code="not_found"
                )
            if len(ids) != 1:
                raise SessionError(f"session database {name} has {len(ids)} sessions; say which by session_id=", code="not_found")
            session_id = ids[0]
        if not os.path.exists(name):
            raise _not_found(name, session_id)
        with _translated(name):
            hold = _connect(name, fsync)
        try:
            with _translated(name):
                row = hold.connection.execute("SELECT header FROM sessions WHERE id = ?", (session_id,)).fetchone()
            if row is None:
                raise _not_found(name, session_id)
            return cls(name, json.loads(row[0]), hold, fsync=fsync, read_only=read_only)
        except BaseException:
            hold.let_go()
            raise

    def refresh(self) -> None:
        """Take in what others have appended since the session was read."""
        with self._lock:
            if self._is_closed:
                raise SessionError(f"session {self.metadata.id} is closed; open it again to read on", code="closed")
            try:
                self._take_in()
            except (KeyboardInterrupt, SystemExit):
                self._catch_up()
                raise

    def close(self) -> None:
        """Close the database and free the lock. Reading goes on, appending does not."""
        with self._lock:
            self._is_closed = True
            self._let_go()

    def _turn(self) -> AbstractContextManager[object]:
        if self.read_only:
            text = f"session {self.metadata.id} was opened with read_only=True; open it without to append"
            raise SessionError(text, code="read_only")
        self._leave_parents_connection()
        if self._hold.lock is None:
            self._hold.lock = WriterLock(_lock_path(self.path, self.metadata.id))
        if not self._hold.lock.is_held:
            self._hold.lock.take()
        return self._hold.lock.turn

    def _leave_parents_connection(self) -> None:
        """Give a forked child a connection of its own, and a reader who cannot lock the database a new look at it."""
        if self._hold.is_snapshot:
            self._let_go()
        if self._hold.pid != os.getpid() or self._hold.is_snapshot:
            with _translated(self.path):
                self._keep(_connect(self.path, self._fsync))

    def _keep(self, hold: _Hold) -> None:
        self._hold = hold
        self._let_go = weakref.finalize(self, hold.let_go)

    def _prepare_append(self) -> None:
        self._take_in()

    def _read_anew(self) -> None:
        before = self._index, self._count
        self._index, self._count = EntryIndex(), 0
        try:
            self._take_in()
        except BaseException:
            self._index, self._count = before
            raise
        self._is_behind = False

    def _take_in(self) -> None:
        """Read the entries that are not in the index yet."""
        self._leave_parents_connection()
        with _translated(self.path), collector_paused():
            cursor = self._hold.connection.execute(
                "SELECT entry FROM entries WHERE session = ? AND seq >= ? ORDER BY seq", (self.metadata.id, self._count)
            )
            while True:
                rows = cursor.fetchmany(_ROWS_AT_ONCE)
                if not rows:
                    return
                self._index.add_all(self._parse([row[0] for row in rows]))
                self._count += len(rows)

    def _parse(self, texts: list[str]) -> list[RawEntry]:
        try:
            raws: list[Any] = json.loads(f"[{','.join(texts)}]")
        except (ValueError, RecursionError):
            raws = self._parse_singly(texts)
        for place, raw in enumerate(raws):
            fault = entry_fault(raw)
            if fault is not None:
                raise SessionCorruptError(f"{self.path}: entry {self._count + place} {fault}; mend it", code="invalid_entry")
        if len(raws) != len(texts):
            raise SessionCorruptError(
                f"{self.path}: an entry of session {self.metadata.id} is not JSON; mend it", code="invalid_entry"
            )
        return raws

    def _parse_singly(self, texts: list[str]) -> list[Any]:
        try:
            return [parse_json(text) for text in texts]
        except (ValueError, RecursionError):
            return []

    def _write(self, line: str) -> None:
        session_id = self.metadata.id
        try:
            stored = self._hold.connection.execute(
                "INSERT INTO entries SELECT ?, ?, ? WHERE EXISTS (SELECT 1 FROM sessions WHERE id = ?)",
                (session_id, self._count, line, session_id),
            )
        except sqlite3.Error as error:
            raise OSError(_errno(error), str(error)) from error
        if stored.rowcount != 1:
            raise OSError(None, "the session was deleted while it was open")
        self._count += 1


def _errno(error: sqlite3.Error) -> int | None:
    text = str(error)
    if "full" in text:
        return errno.ENOSPC
    return errno.EROFS if "readonly" in text else None


def _not_found(path: str, session_id: str) -> SessionError:
    return SessionError(f"there is no session {session_id!r} in {path}; SqliteSessionStorage.create() makes one", code="not_found")


def _lock_path(path: str, session_id: str) -> str:
    if not isinstance(session_id, str) or not re.fullmatch(r"[^/\\\0\ud800-\udfff]{1,200}", session_id):
        raise ValueError(
            f"a session id is part of the name of a lock file, and {session_id!r} cannot be: take a short text without slashes"
        )
    return f"{path}.{session_id}"


def _storable(text: str) -> str:
    """Return a text that SQLite takes: a path may have bytes that are no characters."""
    return text.encode("utf-8", "backslashreplace").decode()


def _connect(path: str, fsync: Fsync, *, is_new: bool = False) -> _Hold:
    # Any thread may append, one at a time; transactions are begun by hand.
    connection = sqlite3.connect(path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False)
    is_snapshot = False
    try:
        if is_new:  # and nowhere else: what is opened may be another program's database
            _make_tables(connection)
        elif _needs_snapshot(connection, path):
            connection.close()
            is_snapshot = True
            connection = sqlite3.connect(
                f"{Path(path).as_uri()}?immutable=1", uri=True, isolation_level=None, check_same_thread=False
            )
        names = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
        if not names.issuperset(_TABLES):
            raise sqlite3.DatabaseError("it has no tables of sessions")
        connection.execute(f"PRAGMA synchronous = {'FULL' if fsync == 'every' else 'OFF'}")
    except BaseException:
        connection.close()
        raise
    return _Hold(connection, is_snapshot=is_snapshot)


def _needs_snapshot(connection: sqlite3.Connection, path: str) -> bool:
    """Return whether this is a database in a folder where we may not write, so that SQLite could not keep its log there."""
    try:
        connection.execute("SELECT 1 FROM sqlite_master LIMIT 1")
        return False
    except sqlite3.OperationalError:
        if os.path.exists(f"{path}-wal") or (os.access(path, os.W_OK) and os.access(os.path.dirname(path), os.W_OK)):
            raise
        return True


def _make_tables(connection: sqlite3.Connection) -> None:
    give_up = time.monotonic() + _PATIENCE
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            break
        except sqlite3.OperationalError as error:  # SQLite itself does not wait here while another process does the same
            if "locked" not in str(error) or time.monotonic() > give_up:
                raise
            time.sleep(0.01)
    connection.executescript(_SCHEMA)


@contextmanager
def _translated(path: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.IntegrityError as error:
        raise SessionError(f"{path} has a session of that id already; open() opens it", code="already_exists") from error
    except sqlite3.OperationalError as error:
        raise SessionError(f"session database {path} cannot be used: {error}", code="storage") from error
    except sqlite3.DatabaseError as error:
        raise SessionCorruptError(f"{path} is no database of sessions: {error}") from error
    except OSError as error:
        raise SessionError(f"session database {path} cannot be used: {error.strerror}", code="storage") from error


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _list(path: str) -> list[SessionMetadata]:
    if not os.path.exists(path) or os.path.getsize(path) == 0:  # an empty one is being made this moment
        return []
    with _translated(path):
        hold = _connect(path, "never")
        try:
            rows = hold.connection.execute("SELECT header FROM sessions ORDER BY created_at DESC, rowid DESC").fetchall()
        finally:
            hold.let_go()
    return [metadata_of(json.loads(row[0]), path) for row in rows]


class SqliteSessionRepo:
    """Keeps sessions in one database.

    Args:
        path: The database; it is made when it is needed.
        fsync: As for `SqliteSessionStorage`.

    Threads: any.
    """

    def __init__(self, path: str | os.PathLike[str], *, fsync: Fsync = "every") -> None:
        check_fsync(fsync)
        self.path = os.path.abspath(path)
        self._fsync: Fsync = fsync

    def create(
        self,
        *,
        cwd: str | os.PathLike[str] | None = None,
        session_id: str | None = None,
        parent_session: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Session:
        """Make a session, open for writing. Arguments and errors are those of `SqliteSessionStorage.create`."""
        header = new_header(cwd, session_id, parent_session, metadata)
        return Session(SqliteSessionStorage._create(self.path, header, (), self._fsync))

    def open(self, session: SessionMetadata | str, *, read_only: bool = False) -> Session:
        """Open a session, by what `list` says of it or by its id. Errors are those of `SqliteSessionStorage.open`."""
        return Session(SqliteSessionStorage.open(self.path, _id(session), fsync=self._fsync, read_only=read_only))

    def list(self, cwd: str | os.PathLike[str] | None = None) -> list[SessionMetadata]:
        """Return the sessions, those of one working directory or all; the newest first. No entry is read."""
        return [metadata for metadata in _list(self.path) if cwd is None or whole_cwd(metadata.cwd) == whole_cwd(cwd)]

    def delete(self, session: SessionMetadata | str) -> None:
        """Delete a session for good.

        Raises:
            SessionError: There is no such session; `code` is `not_found`.
            SessionLockedError: Another process has it open for writing.
        """
        session_id = _id(session)
        if all(metadata.id != session_id for metadata in _list(self.path)):
            raise _not_found(self.path, session_id)
        with _translated(self.path):
            hold = _connect(self.path, self._fsync)
            try:
                hold.lock = WriterLock(_lock_path(self.path, session_id))
                hold.lock.take()
                with _transaction(hold.connection):
                    hold.connection.execute("DELETE FROM entries WHERE session = ?", (session_id,))
                    hold.connection.execute("DELETE FROM sessions WHERE id = ?", (session_id,))
            finally:
                hold.let_go()

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
        """Copy a session, or its path up to an entry, into a new one. Arguments and errors are those of `JsonlSessionRepo.fork`.

        `parent_session` is by default the source's id, since all sessions have one path.
        """
        parent = source if isinstance(source, Session) else self.open(source, read_only=True)
        try:
            raws = entries_for_fork(parent.storage.index, entry_id, position)
        finally:
            if parent is not source:
                parent.close()
        told = parent.metadata
        header = new_header(
            told.cwd if cwd is None else cwd,
            session_id,
            parent_session or told.id,
            told.metadata if metadata is None else metadata,
        )
        return Session(SqliteSessionStorage._create(self.path, header, raws, self._fsync))


def _id(session: SessionMetadata | str) -> str:
    return session.id if isinstance(session, SessionMetadata) else session
