"""Sessions in files: one file a session, one line an entry, readable by pi and the other way round."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from agentcore.codec import dumps
from agentcore.errors import SessionCorruptError, SessionError, SessionLockedError
from agentcore.session.entries import SESSION_VERSION, RawEntry
from agentcore.session.jsonl_file import (
    AppendFile,
    Damage,
    FileContent,
    SessionRepairWarning,
    cannot_read,
    describe_damages,
    identity_of,
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
from agentcore.session.storage import EntryStorage, ForkPosition, Fsync, SessionMetadata, check_fsync, new_header, whole_cwd
from agentcore.session.tree import EntryIndex, entries_for_fork
from agentcore.session.writer_lock import WriterLock

_log = logging.getLogger("agentcore.session")

_FOLDER_BYTES = 200


class _Hold:
    """What a writing storage holds of the system: its share in the writer's lock, and the open file."""

    def __init__(self, path: str) -> None:
        self.lock = WriterLock(path)  # not taken yet
        self.file: AppendFile | None = None

    def let_go(self) -> None:
        if self.file is not None:
            self.file.close()
        self.lock.release()


class JsonlSessionStorage(EntryStorage):
    """Keeps one session in a file. Made by `create` and `open`.

    With the first append it takes the writer's lock and keeps it; `close`, the end of a `with`, the garbage collector and the end
    of the process free it. Whoever only reads takes none. Two storages of one process may write to one file: each first takes in
    what the other has appended.

    Threads: any, as `EntryStorage` says.
    """

    def __init__(
        self, path: str | os.PathLike[str], content: FileContent | None = None, *, fsync: Fsync = "every", read_only: bool = False
    ) -> None:
        if content is None:
            raise TypeError(
                "JsonlSessionStorage.create(path, cwd=…) makes a session file, JsonlSessionStorage.open(path) opens one; "
                "use one of them in place of JsonlSessionStorage(path)"
            )
        path = os.fspath(path)
        super().__init__(metadata_of(content.header, path), EntryIndex())
        self.path = path
        self.read_only = read_only
        self.repairs: list[str] = []
        """What was damaged when the file was read, in words."""
        self._fsync: Fsync = fsync
        self._hold: _Hold | None = None
        self._let_go: Callable[[], object] = _nothing
        self._content: FileContent
        self._set_content(content)

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
        """Make a session file, and the folders above it, and take the writer's lock.

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
        lines = "".join(dumps(raw) + "\n" for raw in (header, *raws)).encode()
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
        except OSError as error:
            text = f"session file {path} cannot be made: {error.strerror} ({error.filename})"
            raise SessionError(text, code="storage") from error
        hold = _Hold(path)
        try:
            hold.lock.take()
            hold.file = AppendFile(path, fsync=fsync, is_new=True)
            try:
                hold.file.append(lines, 0)
                identity = identity_of(hold.file.status())
                if fsync == "every":
                    sync_folder(path)
            except BaseException:
                os.unlink(path)
                raise
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
        content = FileContent(list(raws), header, size=len(lines), identity=identity, line_count=len(raws) + 1)
        storage = cls(path, content, fsync=fsync)
        storage._keep(hold)
        return storage

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, fsync: Fsync = "every", read_only: bool = False) -> JsonlSessionStorage:
        """Open a session file. Another process may be writing to it; the first append finds that out.

        A damaged file is mended, unless another process is writing to it: a torn rest at its end goes into a side file (`….torn`),
        with a `SessionRepairWarning`. A file of version 1 or 2 is brought to version 3 with the first append; the old file stays
        beside it (`….v1`).

        Args:
            path: The file.
            fsync: Whether each entry is forced onto the disk, so that it survives a power cut too.
            read_only: Change nothing, whatever is found, and refuse to append.

        Raises:
            SessionError: There is no such file (`code` is `not_found`), or it cannot be read (`storage`).
            SessionCorruptError: It is no session file, or a line inside it cannot be read; the text names the line.
        """
        check_fsync(fsync)
        name = os.path.abspath(path)
        damaged = content = read_session_file(name)
        side_path: str | None = None
        if content.damages and not read_only:
            try:
                damaged, content, side_path = _mend(name)
            except SessionLockedError:
                damaged = FileContent()  # most likely a line that is being written this moment: nothing to warn of
            except OSError:
                pass  # the damage waits for the next append
        storage = cls(name, content, fsync=fsync, read_only=read_only)
        storage._warn_of(damaged.damages, side_path)
        return storage

    def refresh(self) -> None:
        """Take in what others have appended since the file was read.

        Raises:
            SessionError: As `open`.
        """
        with self._lock:
            try:
                size = os.path.getsize(self.path)
                if size != self._content.size and not self._take_in_added(size):
                    self._read_anew()
            except OSError as error:
                raise cannot_read(self.path, error) from error
            except (KeyboardInterrupt, SystemExit):
                self._catch_up()
                raise

    def close(self) -> None:
        """Close the file and free the lock. Reading goes on, appending does not."""
        with self._lock:
            self._is_closed = True
            self._let_go()

    def _turn(self) -> AbstractContextManager[object]:
        if self.read_only:
            text = f"session file {self.path} was opened with read_only=True; open it without to append"
            raise SessionError(text, code="read_only")
        if self._hold is None or self._hold.lock.is_lost:  # the first append, or a forked child's first
            self._keep(_Hold(self.path))
        assert self._hold is not None
        if not self._hold.lock.is_held:
            self._hold.lock.take()
        return self._hold.lock.turn

    def _keep(self, hold: _Hold) -> None:
        self._hold = hold
        self._let_go = weakref.finalize(self, hold.let_go)

    def _prepare_append(self) -> None:
        hold = self._hold
        assert hold is not None
        if hold.file is None:
            hold.file = AppendFile(self.path, fsync=self._fsync)
        status = hold.file.status()
        # Another file is there now, or none.
        is_replaced = status.st_nlink == 0 or identity_of(status) != self._content.identity
        has_changed = is_replaced or status.st_size != self._content.size or self._content.damages
        if has_changed and (is_replaced or not self._take_in_added(status.st_size)):
            self._reload(hold)
        if self._content.version < SESSION_VERSION:
            self._bring_up_to_date(hold)

    def _take_in_added(self, size: int) -> bool:
        """Read what was appended to the file by somebody else; false where it takes more than that."""
        known = self._content
        if size < known.size or known.version < SESSION_VERSION or known.damages or not known.ends_with_newline:
            return False
        try:
            content = read_added(self.path, known)
        except SessionCorruptError:
            return False
        if content.damages:
            return False
        self._index.add_all(content.entries)
        content.entries = []
        self._content = content
        return True

    def _reload(self, hold: _Hold) -> None:
        """Read the file anew, and mend it."""
        try:
            content = read_session_file(self.path)
        except SessionError as error:
            what = "deleted" if error.code == "not_found" else "damaged"
            raise OSError(None, f"the file was {what} while it was open") from error
        if content.header["id"] != self.metadata.id:
            raise OSError(None, "the file was replaced by another session while it was open")
        if content.damages:
            damaged, content, side_path = _mend(self.path)
            self._warn_of(damaged.damages, side_path)
        self._set_content(content)
        self._reopen(hold)

    def _read_anew(self) -> None:
        self._set_content(read_session_file(self.path))
        self._is_behind = False

    def _set_content(self, content: FileContent) -> None:
        index = EntryIndex()
        index.add_all(content.entries)
        content.entries = []  # the index has them
        self._index, self._content = index, content

    def _bring_up_to_date(self, hold: _Hold) -> None:
        """Write a file of an old version as version 3, and keep the old one beside it."""
        path = os.path.realpath(self.path)  # a link to the file stays a link
        kept = keep_copy(path, f".v{self._content.version}")
        lines = (dumps(raw).encode() + b"\n" for raw in (self._content.header, *self._index.raws))
        try:
            replace_file(path, lines)
        except BaseException:
            os.unlink(kept)  # the file is as it was
            raise
        file = self._reopen(hold)
        status = file.status()
        self._content = FileContent(
            header=self._content.header,
            size=status.st_size,
            identity=identity_of(status),
            line_count=len(self._index.raws) + 1,
        )
        _log.info("session file %s is of version %d now; the old file is %s", self.path, SESSION_VERSION, kept)

    def _reopen(self, hold: _Hold) -> AppendFile:
        if hold.file is not None:
            hold.file.close()
        hold.file = AppendFile(self.path, fsync=self._fsync)
        return hold.file

    def _write(self, line: str) -> None:
        assert self._hold is not None
        assert self._hold.file is not None
        content = self._content
        # In one write with the entry: a line break of its own could be lost alone.
        text = f"{line}\n" if content.ends_with_newline else f"\n{line}\n"
        written = text.encode()
        self._hold.file.append(written, content.size)
        content.size += len(written)
        content.line_count += 1
        content.ends_with_newline = True

    def _warn_of(self, damages: list[Damage], side_path: str | None) -> None:
        if damages:
            text = describe_damages(self.path, damages, side_path)
            self.repairs.append(text)
            warnings.warn(text, SessionRepairWarning, stacklevel=3)


def _nothing() -> None:
    """Let go of nothing."""


def _mend(path: str) -> tuple[FileContent, FileContent, str | None]:
    """Mend a damaged file. Returns what it held, what it holds now, and the side file with the bytes that were taken out.

    Raises:
        SessionLockedError: Another process is writing.
        OSError: The file or its folder cannot be written to.
    """
    lock = WriterLock(path)
    try:
        lock.take()
        with lock.turn:
            damaged = read_session_file(path)  # now nobody writes, neither another process nor another storage of this one
            side_path = repair(os.path.realpath(path), damaged.damages) if damaged.damages else None
            return damaged, read_session_file(path), side_path
    finally:
        lock.release()


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
        if not isinstance(header["id"], str) or not re.fullmatch(r"[^/\\\0]{1,200}", header["id"]):
            raise ValueError(
                f"a session id is part of a file name, and {header['id']!r} cannot be: take a short text without slashes"
            )
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
            if cwd is None or whole_cwd(metadata.cwd) == whole_cwd(cwd):
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
        try:
            lock = WriterLock(path)
            try:
                lock.take()
                os.unlink(path)
            finally:
                lock.release()
        except OSError as error:
            raise SessionError(f"session file {path} cannot be deleted: {error.strerror}", code="storage") from error

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
        if len(os.fsencode(name)) > _FOLDER_BYTES:  # longer than a file system takes
            digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:16]
            name = f"{os.fsencode(name)[: _FOLDER_BYTES - 17].decode('utf-8', 'ignore')}-{digest}"
        return os.path.join(self.root, f"--{name}--")

    def _files(self, cwd: str | os.PathLike[str] | None) -> Iterator[str]:
        folders = [self.root]
        if cwd is not None:
            # As this library names the folder, and as a program may have that keeps the name as it is given.
            folders.extend(dict.fromkeys(self._folder(name) for name in (whole_cwd(cwd), os.fspath(cwd))))
        else:
            folders.extend(entry.path for entry in _scan(self.root) if entry.is_dir())
        for folder in folders:
            # Regular files alone: opening a pipe would wait for its other end.
            yield from (entry.path for entry in _scan(folder) if entry.name.endswith(".jsonl") and entry.is_file())

    def _path(self, session: SessionMetadata | str | os.PathLike[str]) -> str:
        if isinstance(session, SessionMetadata):
            if session.path is None:
                raise SessionError(f"session {session.id} is in memory; it has no file to open", code="not_found")
            return session.path
        name = os.fspath(session)
        if os.path.isfile(name) or name.endswith(".jsonl"):
            return os.path.abspath(name)
        for path in self._files(None):
            if os.path.basename(path).partition("_")[2] == f"{name}.jsonl":
                return path
        raise SessionError(f"there is no session {name!r} in {self.root}; list() has those that there are", code="not_found")


def _scan(folder: str) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            yield from sorted(entries, key=lambda entry: entry.name)
    except FileNotFoundError:
        return
    except PermissionError as error:
        _log.debug("passed over: %s", error)
    except NotADirectoryError as error:
        raise SessionError(f"{folder} is no folder: sessions are kept in one", code="storage") from error
