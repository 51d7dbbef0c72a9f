"""Where repos keep sessions: folders, ids, working directories, links, and what may not be read or written."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentcore.errors import SessionCorruptError, SessionError
from agentcore.messages import UserMessage
from agentcore.session import (
    JsonlSessionRepo,
    JsonlSessionStorage,
    MemorySessionRepo,
    Session,
    SessionRepairWarning,
    SqliteSessionRepo,
    SqliteSessionStorage,
)

pytestmark = pytest.mark.pythons

REPOS: dict[str, Callable[[Path], Any]] = {
    "memory": lambda folder: MemorySessionRepo(),
    "jsonl": lambda folder: JsonlSessionRepo(folder / "sessions", fsync="never"),
    "sqlite": lambda folder: SqliteSessionRepo(folder / "sessions.db", fsync="never"),
}


@pytest.fixture(params=list(REPOS))
def repo(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return REPOS[request.param](tmp_path)


def hello() -> UserMessage:
    return UserMessage("hello", timestamp=1)


# --- working directories and ids -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "cwd", ["", "/", "/a b/ü/😀", "/a:b", "C:\\work\\notes", "/line\nbreak", "/bytes\udce4", "/" + "long/" * 100]
)
def test_any_working_directory(repo: Any, cwd: str) -> None:
    """A working directory may have any name, of any length; it comes back as it was and finds its sessions."""
    with repo.create(cwd=cwd) as session:
        session.append_message(hello())
    assert [metadata.id for metadata in repo.list(cwd)] == [session.id]
    with repo.open(session.id) as again:
        assert again.metadata.cwd == (cwd if cwd in ("", "/") else cwd.rstrip("/"))
        assert again.build_context().messages == [hello()]


def test_working_directories_are_whole_paths(repo: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`.`, a `Path`, a trailing slash: all name the folder that they mean, and by default it is the process's."""
    monkeypatch.chdir(tmp_path)
    ids = []
    for cwd in (".", tmp_path, f"{tmp_path}/", None):
        with repo.create(cwd=cwd) as session:
            ids.append(session.id)
            assert session.metadata.cwd == str(tmp_path)
    for cwd in (".", tmp_path, f"{tmp_path}/"):
        assert {metadata.id for metadata in repo.list(cwd)} == set(ids)
    assert repo.list("/elsewhere") == []


@pytest.mark.skipif(sys.platform == "win32", reason="a working directory cannot be deleted there")
def test_a_working_directory_that_is_gone(repo: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the process's own folder was deleted, the error says that one has to be named; then it works."""
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    with pytest.raises(SessionError, match="the working directory of this process is gone: pass cwd="):
        repo.create()
    with repo.create(cwd="/w") as session:
        session.append_message(hello())


@pytest.mark.parametrize("session_id", ["1", "..", "a b", "ü😀", "x_1", "x" * 200])
def test_any_session_id(repo: Any, session_id: str) -> None:
    """A session is found by exactly its id, also where another one's ends with it."""
    with repo.create(cwd="/w", session_id=f"other_{session_id}"[:200]), repo.create(cwd="/w", session_id=session_id) as session:
        session.append_message(hello())
    with repo.open(session_id) as again:
        assert again.id == session_id
        assert again.build_context().messages == [hello()]


@pytest.mark.parametrize("session_id", ["a/b", "a\\b", "a\0b", "x" * 201, 5])
def test_ids_that_can_be_no_file_name_are_refused(tmp_path: Path, session_id: Any) -> None:
    """The id is part of a file name: a clear error, and nothing is made."""
    for repo in (REPOS["jsonl"](tmp_path), REPOS["sqlite"](tmp_path)):
        with pytest.raises(ValueError, match=r"a session id is part of .*: take a short text without slashes"):
            repo.create(cwd="/w", session_id=session_id)
    assert list(tmp_path.iterdir()) == []


def test_a_part_of_an_id_is_no_id(repo: Any) -> None:
    """The end of an id finds nothing."""
    repo.create(cwd="/w", session_id="a_1").close()
    with pytest.raises(SessionError, match="there is no session '1'"):
        repo.open("1")


def test_a_closed_session_is_opened_again(repo: Any) -> None:
    """What `with` has closed, `open` opens for writing, as often as one likes."""
    with repo.create(cwd="/w") as session:
        session.append_message(UserMessage("0", timestamp=1))
    for number in (1, 2):
        with repo.open(session.id) as again:
            again.append_message(UserMessage(str(number), timestamp=1))
    assert [message.text for message in repo.open(session.metadata).build_context().messages] == ["0", "1", "2"]
    with pytest.raises(SessionError, match="is closed; open it again"):
        session.append_message(hello())


# --- links, modes, and what is no session ----------------------------------------------------------------------------

HEADER = '{"type":"session",%s"id":"s","timestamp":"2025-06-01T10:00:00.000Z","cwd":"/w"}\n'
ENTRY = '{"type":"message",%s"timestamp":"2025-06-01T10:00:00.000Z","message":{"role":"user","content":"a","timestamp":1}}\n'


@pytest.mark.skipif(sys.platform == "win32", reason="links and modes of Unix")
@pytest.mark.parametrize("kind", ["damaged", "version 1"])
def test_a_file_written_anew_keeps_its_links_and_its_mode(tmp_path: Path, kind: str) -> None:
    """A link to a session stays a link, and what is written beside the file can be read by no more people than the file."""
    real, link = tmp_path / "real" / "s.jsonl", tmp_path / "link.jsonl"
    real.parent.mkdir()
    if kind == "damaged":
        real.write_text(HEADER % '"version":3,' + "\0\0" + ENTRY % '"id":"a","parentId":null,')
    else:
        real.write_text(HEADER % "" + ENTRY % "")
    real.chmod(0o600)
    link.symlink_to(real)
    if kind == "damaged":
        with pytest.warns(SessionRepairWarning):
            storage = JsonlSessionStorage.open(link)
    else:
        storage = JsonlSessionStorage.open(link)
    with Session(storage) as session:
        session.append_message(UserMessage("b", timestamp=1))
    assert link.is_symlink()
    assert len(real.read_bytes().splitlines()) == 3
    assert {path.name: oct(path.stat().st_mode & 0o777) for path in real.parent.iterdir()} == {
        "s.jsonl": "0o600",
        "s.jsonl.torn" if kind == "damaged" else "s.jsonl.v1": "0o600",
    }
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.jsonl", "real"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes of Unix")
def test_a_list_opens_files_alone(tmp_path: Path) -> None:
    """A pipe, a folder or a dead link that is called like a session is passed over, and keeps nobody waiting."""
    folder = tmp_path / "sessions"
    repo = JsonlSessionRepo(folder)
    repo.create(cwd="/w", session_id="s").close()
    os.mkfifo(folder / "pipe.jsonl")
    (folder / "folder.jsonl").mkdir()
    (folder / "dead.jsonl").symlink_to(tmp_path / "nowhere")
    assert [metadata.id for metadata in repo.list()] == ["s"]


READ_ONLY = """
import os, sys, urllib.parse  # what is imported later may lie where only root can read
from agentcore import JsonlSessionRepo, SqliteSessionRepo, UserMessage
os.setgid(65534)
os.setuid(65534)
folder = sys.argv[1]
for repo in (JsonlSessionRepo(f"{folder}/sessions"), SqliteSessionRepo(f"{folder}/database/sessions.db")):
    (metadata,) = repo.list()
    for _ in range(2):
        with repo.open(metadata) as session:
            print([message.text for message in session.build_context().messages])
            try:
                session.append_message(UserMessage("b"))
            except Exception as error:
                print(type(error).__name__, "Permission denied; make it writable and append it again" in str(error))
    for change in (lambda: repo.create(cwd="/x"), lambda: repo.delete(metadata)):
        try:
            change()
        except Exception as error:
            print(type(error).__name__)
"""


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can become somebody who may only read")
def test_who_may_only_read_can_read(tmp_path: Path) -> None:
    """Sessions in folders that may not be written to are listed and opened, those that may not be read passed over."""
    for repo in (JsonlSessionRepo(tmp_path / "sessions"), SqliteSessionRepo(tmp_path / "database" / "sessions.db")):
        with repo.create(cwd="/w") as session:  # type: ignore[attr-defined]
            session.append_message(UserMessage("a"))
    secret = tmp_path / "sessions" / "secret"
    secret.mkdir(mode=0)
    for path in (tmp_path, *tmp_path.rglob("*")):
        if path != secret:
            path.chmod(0o555 if path.is_dir() else 0o444)
    above = [path for path in tmp_path.parents if path.stat().st_uid == os.getuid() and not path.stat().st_mode & 0o001]
    for path in above:
        path.chmod(path.stat().st_mode | 0o001)
    done = subprocess.run([sys.executable, "-c", READ_ONLY, str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    one = ["['a']", "EntryNotStoredError True"]
    assert done.stdout.splitlines() == [*one, *one, "SessionError", "SessionError"] * 2


def test_another_programs_database_is_left_alone(tmp_path: Path) -> None:
    """A database without sessions is refused, and not a byte of it changes; so is an empty file and one that is not there."""
    path = tmp_path / "other.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE sessions (name)")
    connection.commit()
    connection.close()
    before = path.read_bytes()
    for opened in (
        lambda: SqliteSessionStorage.open(path),
        lambda: SqliteSessionStorage.open(path, "s"),
        SqliteSessionRepo(path).list,
    ):
        with pytest.raises(SessionCorruptError, match="is no database of sessions: it has no tables of sessions"):
            opened()
    assert path.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["other.db"]
    with pytest.raises(SessionError, match=r"there is no session database .*nothing.db; SqliteSessionStorage.create\(\) makes one"):
        SqliteSessionStorage.open(tmp_path / "nothing.db")


MAKER = """
import sys
from agentcore import SqliteSessionRepo, UserMessage
sys.stdin.readline()
with SqliteSessionRepo(sys.argv[1]).create(cwd="/w") as session:
    for number in range(10):
        session.append_message(UserMessage(str(number)))
"""


def test_processes_that_make_a_database_at_once(tmp_path: Path) -> None:
    """Several processes make their sessions in a database that is not there yet: each has its own, whole."""
    path = tmp_path / "sessions.db"
    makers = [subprocess.Popen([sys.executable, "-c", MAKER, str(path)], stdin=subprocess.PIPE, text=True) for _ in range(4)]
    for maker in makers:
        assert maker.stdin is not None
        maker.stdin.write("go\n")
        maker.stdin.close()
    assert [maker.wait(timeout=60) for maker in makers] == [0] * 4
    repo = SqliteSessionRepo(path)
    assert [len(repo.open(metadata).get_entries()) for metadata in repo.list()] == [10] * 4


@pytest.mark.parametrize("kind", [JsonlSessionStorage, SqliteSessionStorage])
def test_a_storage_made_by_its_name_alone(kind: Any, tmp_path: Path) -> None:
    """`JsonlSessionStorage(path)` is a natural first try: the error says what makes and what opens a session."""
    with pytest.raises(TypeError, match=rf"{kind.__name__}.create\(path, cwd=…\) makes .*{kind.__name__}.open\(path"):
        kind(tmp_path / "s")
