"""Sessions in files: one file a session, one line an entry, readable by pi and the other way round."""

from __future__ import annotations

import logging
import os
import re
import warnings
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agentcore.codec import dumps
from agentcore.errors import SessionError
from agentcore.session.entries import SESSION_VERSION, RawEntry, SessionTreeEntry
from agentcore.session.jsonl_file import (
    AppendFile,
    FileContent,
    SessionRepairWarning,
    cannot_read,
    describe_damages,
    keep_copy,
    metadata_of,
    read_added,
    read_metadata,
    read_session_file,
    repair,
    replace_file,
    sync_folder,
)
from agentcore.session.session import Session
from agentcore.session.storage import EntryStorage, ForkPosition, Fsync, SessionMetadata, check_fsync, new_header
from agentcore.session.tree import EntryIndex, entries_for_fork
from agentcore.session.writer_lock import WriterLock

_log = logging.getLogger("agentcore.session")


class _Hold:
    """What a storage holds of the system: the open file and the share in the writer's lock."""

    def __init__(self, lock: WriterLock) -> None:
        self.lock = lock
        self.file: AppendFile | None = None

    def let_go(self) -> None:
        if self.file is not None:
            self.file.close()
        self.lock.release()


class JsonlSessionStorage(EntryStorage):
    """Keeps one session in a file. Made by `create` and `open`.

    Open for writing it holds the writer's lock; `close`, the end of a `with`, the garbage collector and the end of the process free
    it. Two storages of one process may write to one file: each first takes in what the other has appended.

    Threads: any, as `EntryStorage` says.
    """

    def __init__(self, path: str, content: FileContent, hold: _Hold | None, fsync: Fsync) -> None:
        super().__init__(metadata_of(content.header, path), EntryIndex())
        self.path = path
        self.repairs: list[str] = []
        """What was mended when the file was opened, in words."""
        self._content = content
        self._hold = hold
        self._fsync: Fsync = fsync
        self._is_gone = False
        self._index.add_all(content.entries)
        content.entries = []
        self._let_go = None if hold is None else weakref.finalize(self, hold.let_go)

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
    ) -> JsonlSessionStorage:
        """Make a session file, and the folders above it, and open it for writing.

        Args:
            path: Where; there must be no file yet.
            cwd: The working directory that the session is about (default: the process's).
            session_id: Default: a new UUID.
            parent_session: The path of the session that this one was forked from.
            metadata: Further facts, kept in the header.
            fsync: Whether each entry is forced onto the disk, so that it survives a power cut too.

        Raises:
            SessionError: There is such a file already (`code` is `already_exists`), or it cannot be made (`storage`).
            SessionLockedError: Another process is making it.
        """
        header = new_header(cwd, session_id, parent_session, metadata)
        return cls._create(os.path.abspath(path), header, (), fsync)

    @classmethod
    def _create(cls, path: str, header: RawEntry, raws: Sequence[RawEntry], fsync: Fsync) -> JsonlSessionStorage:
        check_fsync(fsync)
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
        except OSError as error:
            raise SessionError(
                f"session file {path} cannot be made: {error.strerror} ({error.filename})", code="storage"
            ) from error
        hold = _Hold(WriterLock(path))
        try:
            hold.file = AppendFile(path, fsync=fsync, is_new=True)
            try:
                lines = "".join(dumps(raw) + "\n" for raw in (header, *raws)).encode()
                hold.file.append(lines, 0)
            except BaseException:
                os.unlink(path)
                raise
            if fsync == "every":
                sync_folder(path)
        except FileExistsError as error:
            hold.let_go()
            text = f"session file {path} exists already; JsonlSessionStorage.open() opens it"
            raise SessionError(text, code="already_exists") from error
        except OSError as error:
            hold.let_go()
            raise SessionError(f"session file {path} cannot be made: {error.strerror}", code="storage") from error
        except BaseException:
            hold.let_go()
            raise
        return cls(path, FileContent(list(raws), header, size=len(lines)), hold, fsync)

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, fsync: Fsync = "every", read_only: bool = False) -> JsonlSessionStorage:
        """Open a session file.

        Opened for writing, a damaged file is mended: a torn rest at its end goes into a side file (`….torn`), with a
        `SessionRepairWarning`. A file of version 1 or 2 is brought to version 3 with the first append; the old file stays beside it
        (`….v1`).

        Args:
            path: The file.
            fsync: Whether each entry is forced onto the disk, so that it survives a power cut too.
            read_only: Take no lock and change nothing; another process may be writing. `refresh` reads what has come.

        Raises:
            SessionError: There is no such file (`code` is `not_found`), or it cannot be read or written (`storage`).
            SessionCorruptError: It is no session file, or a line inside it cannot be read; the text names the line.
            SessionLockedError: Another process has it open for writing.
        """
        check_fsync(fsync)
        name = os.path.abspath(path)
        if read_only:
            content = read_session_file(name)
            storage = cls(name, content, None, fsync)
            storage._warn_of(content, None)
            return storage
        if not os.path.exists(name):
            raise cannot_read(name, FileNotFoundError())
        hold = _Hold(WriterLock(name))
        try:
            content = read_session_file(name)
            damaged, side_path = content, None
            if content.damages:
                side_path = repair(name, content.damages)
                content = read_session_file(name)
            hold.file = AppendFile(name, fsync=fsync)
            storage = cls(name, content, hold, fsync)
        except OSError as error:
            hold.let_go()
            way_out = "read_only=True opens it for reading"
            raise SessionError(
                f"session file {name} cannot be opened for writing: {error.strerror}; {way_out}", code="storage"
            ) from error
        except BaseException:
            hold.let_go()
            raise
        storage._warn_of(damaged, side_path)
        return storage

    @property
    def read_only(self) -> bool:
        """Whether the storage was opened for reading only."""
        return self._hold is None

    def append(self, entry: SessionTreeEntry | Mapping[str, Any]) -> str:
        """Store an entry and return its id. A missing id, parent (the leaf) or time is filled in.

        Raises:
            EntryNotStoredError: It could not be written. Nothing has changed.
            SessionLockedError: This is a forked child, and its parent has the session.
            SessionError: The entry has no valid frame, or its id is taken; the storage is closed or for reading only.
        """
        hold = self._hold
        if hold is None:
            raise SessionError(
                f"session file {self.path} was opened with read_only=True; open it without to append", code="read_only"
            )
        with self._lock:
            if not self._is_closed and not hold.lock.is_held:  # a forked child
                hold.lock = WriterLock(self.path)
        if self._is_closed:
            return super().append(entry)
        with hold.lock.turn:
            return super().append(entry)

    def refresh(self) -> None:
        """Take in what others have appended since the file was read.

        Raises:
            SessionError: As `open`.
        """
        with self._lock:
            try:
                size = os.path.getsize(self.path)
            except OSError as error:
                raise cannot_read(self.path, error) from error
            if size != self._content.size:
                self._take_in(size)

    def close(self) -> None:
        """Close the file and free the lock. Reading goes on, appending does not."""
        with self._lock:
            self._is_closed = True
            if self._let_go is not None:
                self._let_go()

    def _warn_of(self, content: FileContent, side_path: str | None) -> None:
        if not content.damages:
            return
        text = describe_damages(self.path, content.damages, side_path)
        self.repairs.append(text)
        _log.info(text)
        warnings.warn(text, SessionRepairWarning, stacklevel=3)

    def _prepare_append(self) -> None:
        hold = self._hold
        if hold is None:
            raise SessionError(
                f"session file {self.path} was opened with read_only=True; open it without to append", code="read_only"
            )
        if not hold.lock.is_held:  # a forked child
            hold.lock = WriterLock(self.path)
        assert hold.file is not None
        status = hold.file.status()
        self._is_gone = status.st_nlink == 0
        if self._is_gone:
            return
        if status.st_size != self._content.size:
            self._take_in(status.st_size)
        if self._content.version < SESSION_VERSION:
            self._bring_up_to_date(hold)

    def _take_in(self, size: int) -> None:
        """Bring the index up to date with a file that somebody else wrote to."""
        known = self._content
        if size > known.size and known.version == SESSION_VERSION and known.ends_with_newline:
            content = read_added(self.path, known)
            if not content.damages:
                self._index.add_all(content.entries)
                content.entries = []
                content.header = known.header
                self._content = content
                return
        content = read_session_file(self.path)
        if content.damages and self._hold is not None:
            side_path = repair(self.path, content.damages)
            self._warn_of(content, side_path)
            self._reopen(self._hold)
            content = read_session_file(self.path)
        index = EntryIndex()
        index.add_all(content.entries)
        content.entries = []
        self._index, self._content = index, content

    def _bring_up_to_date(self, hold: _Hold) -> None:
        """Write a file of an old version as version 3, and keep the old one beside it."""
        kept = keep_copy(self.path, f".v{self._content.version}")
        lines = (dumps(raw).encode() + b"\n" for raw in (self._content.header, *self._index.raws))
        replace_file(self.path, lines)
        self._reopen(hold)
        assert hold.file is not None
        header = self._content.header
        self._content = FileContent(header=header, size=hold.file.status().st_size, line_count=len(self._index.raws) + 1)
        _log.info("session file %s is of version %d now; the old file is %s", self.path, SESSION_VERSION, kept)

    def _reopen(self, hold: _Hold) -> None:
        if hold.file is not None:
            hold.file.close()
        hold.file = AppendFile(self.path, fsync=self._fsync)

    def _write(self, line: str) -> None:
        assert self._hold is not None
        assert self._hold.file is not None
        if self._is_gone:
            raise OSError(None, "the file was deleted or replaced while it was open; open it anew")
        content = self._content
        # In one write with the entry: a line break of its own could be lost alone.
        text = f"{line}\n" if content.ends_with_newline else f"\n{line}\n"
        written = text.encode()
        self._hold.file.append(written, content.size)
        content.size += len(written)
        content.line_count += 1
        content.ends_with_newline = True


class JsonlSessionRepo:
    """Keeps sessions as files: `ROOT/--WORKING-DIRECTORY--/TIME_ID.jsonl`.

    Args:
        root: The folder; it is made when it is needed.
        fsync: As for `JsonlSessionStorage`.

    Threads: any.
    """

    def __init__(self, root: str | os.PathLike[str], *, fsync: Fsync = "every") -> None:
        check_fsync(fsync)
        self.root = os.path.abspath(root)
        self._fsync: Fsync = fsync

    def create(
        self,
        *,
        cwd: str | os.PathLike[str] | None = None,
        session_id: str | None = None,
        parent_session: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Session:
        """Make a session, open for writing. Arguments and errors are those of `JsonlSessionStorage.create`."""
        return self._create(new_header(cwd, session_id, parent_session, metadata), ())

    def _create(self, header: RawEntry, raws: Sequence[RawEntry]) -> Session:
        if not re.fullmatch(r"[^/\\\0]+", header["id"]):
            raise ValueError(f"a session id is part of a file name, and {header['id']!r} cannot be: leave out slashes")
        time = header["timestamp"].replace(":", "-").replace(".", "-")
        path = os.path.join(self._folder(header["cwd"]), f"{time}_{header['id']}.jsonl")
        return Session(JsonlSessionStorage._create(path, header, raws, self._fsync))

    def open(self, session: SessionMetadata | str | os.PathLike[str], *, read_only: bool = False) -> Session:
        """Open a session, by what `list` says of it or by its path or id. Errors are those of `JsonlSessionStorage.open`."""
        return Session(JsonlSessionStorage.open(self._path(session), fsync=self._fsync, read_only=read_only))

    def list(self, cwd: str | os.PathLike[str] | None = None) -> list[SessionMetadata]:
        """Return the sessions, those of one working directory or all; the newest first. Only the heads of the files are read.

        Files that are no sessions are passed over.
        """
        found: list[SessionMetadata] = []
        for path in self._files(cwd):
            try:
                metadata = read_metadata(path)
            except SessionError as error:
                _log.debug("passed over: %s", error)
                continue
            if cwd is None or metadata.cwd == os.fspath(cwd):
                found.append(metadata)
        found.sort(key=lambda metadata: metadata.created_at, reverse=True)
        return found

    def delete(self, session: SessionMetadata | str | os.PathLike[str]) -> None:
        """Delete a session for good. What was kept beside it (torn bytes, old versions) stays.

        Raises:
            SessionError: There is no such session (`code` is `not_found`), or it cannot be deleted (`storage`).
            SessionLockedError: Another process has it open for writing.
        """
        path = self._path(session)
        if not os.path.exists(path):
            raise SessionError(f"there is no session file {path}; list() has those that there are", code="not_found")
        lock = WriterLock(path)
        try:
            os.unlink(path)
        except OSError as error:
            raise SessionError(f"session file {path} cannot be deleted: {error.strerror}", code="storage") from error
        finally:
            lock.release()

    def fork(
        self,
        source: Session | SessionMetadata | str | os.PathLike[str],
        *,
        entry_id: str | None = None,
        position: ForkPosition = "before",
        session_id: str | None = None,
        cwd: str | os.PathLike[str] | None = None,
        metadata: Mapping[str, Any] | None = None,
        parent_session: str | None = None,
    ) -> Session:
        """Copy a session, or its path up to an entry, into a new file, open for writing. The source is not changed.

        Args:
            source: The session, what `list` says of it, its path or its id.
            entry_id: Copy the path up to this entry, from the root on, across compactions; None copies everything.
            position: `"before"`: without the entry, which is a user message that can then be said anew; `"at"`: with it.
            session_id: Default: a new UUID.
            cwd: Default: that of the source; `metadata` likewise.
            metadata: Further facts, in place of those of the source.
            parent_session: Default: the path of the source.

        Raises:
            SessionError: There is no such entry, or it cannot be forked before; `code` is `invalid_fork_target`.
        """
        parent = source if isinstance(source, Session) else self.open(source, read_only=True)
        raws = entries_for_fork(parent.storage.index, entry_id, position)
        told = parent.metadata
        header = new_header(
            told.cwd if cwd is None else cwd,
            session_id,
            parent_session or told.path,
            told.metadata if metadata is None else metadata,
        )
        return self._create(header, raws)

    def _folder(self, cwd: str) -> str:
        name = re.sub(r"[/\\:]", "-", cwd[1:] if cwd[:1] in ("/", "\\") else cwd)
        return os.path.join(self.root, f"--{name}--")

    def _files(self, cwd: str | os.PathLike[str] | None) -> Iterator[str]:
        folders = [self.root]
        if cwd is not None:
            folders.append(self._folder(os.fspath(cwd)))
        else:
            folders.extend(entry.path for entry in _scan(self.root) if entry.is_dir())
        for folder in folders:
            yield from (entry.path for entry in _scan(folder) if entry.name.endswith(".jsonl"))

    def _path(self, session: SessionMetadata | str | os.PathLike[str]) -> str:
        if isinstance(session, SessionMetadata):
            if session.path is None:
                raise SessionError(f"session {session.id} is in memory; it has no file to open", code="not_found")
            return session.path
        name = os.fspath(session)
        if os.path.exists(name) or name.endswith(".jsonl"):
            return os.path.abspath(name)
        for path in self._files(None):
            if path.endswith(f"_{name}.jsonl"):
                return path
        raise SessionError(f"there is no session {name!r} in {self.root}; list() has those that there are", code="not_found")


def _scan(folder: str) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            yield from sorted(entries, key=lambda entry: entry.name)
    except FileNotFoundError:
        return
    except NotADirectoryError as error:
        raise SessionError(f"{folder} is no folder: sessions are kept in one", code="storage") from error
