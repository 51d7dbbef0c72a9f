"""One process writes to a session at a time; who reads is never kept waiting."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from agentcore.errors import SessionLockedError
from agentcore.messages import UserMessage
from agentcore.session import (
    EntryNotStoredError,
    JsonlSessionRepo,
    JsonlSessionStorage,
    Session,
    SessionRepairWarning,
    SqliteSessionStorage,
)

pytestmark = pytest.mark.pythons

KINDS: dict[str, Any] = {"jsonl": JsonlSessionStorage, "sqlite": SqliteSessionStorage}

HOLDER = """
import sys
from agentcore.messages import UserMessage
from agentcore.session import JsonlSessionStorage, Session, SqliteSessionStorage
session = Session({kind}.open(sys.argv[1]))
session.append_message(UserMessage("from the other process", timestamp=1))
print("open", flush=True)
sys.stdin.readline()
"""


@contextmanager
def other_process(path: Path, kind: str) -> Iterator[subprocess.Popen[str]]:
    """A process that has the session open for writing, until it gets a line."""
    script = HOLDER.format(kind=KINDS[kind].__name__)
    process = subprocess.Popen([sys.executable, "-c", script, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "open\n"
        yield process
    finally:
        process.kill()
        process.wait(timeout=30)
        process.stdin.close()
        process.stdout.close()


def texts(session: Session) -> list[str]:
    return [message.text for message in session.build_context().messages]  # type: ignore[union-attr]


@pytest.fixture(params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def path(tmp_path: Path, kind: str) -> Path:
    path = tmp_path / "notes"
    with Session(KINDS[kind].create(path, cwd="/w", session_id="s")) as session:
        session.append_message(UserMessage("first", timestamp=1))
    return path


def test_the_second_process_is_refused_until_the_first_dies(path: Path, kind: str) -> None:
    """The error names the first's process id and nothing is written; after `kill -9` of the first the append succeeds."""
    with other_process(path, kind) as process, Session(KINDS[kind].open(path)) as session:
        words = rf"notes.* is open for writing in process {process.pid}; close it there first"
        with pytest.raises(SessionLockedError, match=words) as caught:
            session.append_message(UserMessage("second", timestamp=1))
        assert (caught.value.pid, caught.value.code) == (process.pid, "locked")
        assert texts(session) == ["first", "from the other process"]
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=30)
        session.append_message(UserMessage("second", timestamp=1))
    with Session(KINDS[kind].open(path)) as session:
        assert texts(session) == ["first", "from the other process", "second"]


@pytest.mark.parametrize("read_only", [False, True])
def test_a_reader_is_never_kept_waiting(path: Path, kind: str, read_only: bool) -> None:
    """While another process writes, the session can be opened and read; `refresh` brings what has come since."""
    storage = KINDS[kind].open(path, read_only=read_only)
    with Session(storage) as session:
        assert texts(session) == ["first"]
        with other_process(path, kind):
            assert texts(session) == ["first"]
            storage.refresh()
            assert texts(session) == ["first", "from the other process"]
            with Session(KINDS[kind].open(path, read_only=read_only)) as another:
                assert texts(another) == ["first", "from the other process"]


def test_what_was_written_before_the_first_append_is_taken_in(path: Path, kind: str) -> None:
    """Another process wrote between our opening and our first append: the append comes after it."""
    with Session(KINDS[kind].open(path)) as session:
        with other_process(path, kind):
            pass
        session.append_message(UserMessage("ours", timestamp=1))
        assert texts(session) == ["first", "from the other process", "ours"]


@pytest.mark.filterwarnings("error")
def test_a_damaged_file_is_left_to_who_is_writing(tmp_path: Path) -> None:
    """A torn rest may be a line that is being written: only with the lock it is cut off."""
    path = tmp_path / "notes"
    JsonlSessionStorage.create(path, cwd="/w").close()
    with other_process(path, "jsonl"):
        with open(path, "a") as file:
            file.write('{"torn')
        session = Session(JsonlSessionStorage.open(path))  # without a warning
        assert texts(session) == ["from the other process"]
        assert path.read_text().endswith('{"torn')
    with pytest.warns(SessionRepairWarning, match="the bytes are kept in"):
        session.append_message(UserMessage("ours", timestamp=1))
    session.close()
    with Session(JsonlSessionStorage.open(path)) as session:
        assert texts(session) == ["from the other process", "ours"]


def test_closing_frees_the_lock_and_its_file(path: Path, kind: str) -> None:
    """After `close`, or when nobody holds the storage any more, the folder is as before and another process may write."""
    storage = KINDS[kind].open(path)
    assert list(path.parent.glob("*.lock")) == []
    storage.append({"type": "custom", "customType": "n"})
    assert len(list(path.parent.glob("*.lock"))) == 1
    storage.close()
    assert list(path.parent.glob("*.lock")) == []
    storage = KINDS[kind].open(path)
    storage.append({"type": "custom", "customType": "n"})
    del storage
    assert list(path.parent.glob("*.lock")) == []
    with other_process(path, kind):
        pass


def test_a_lock_file_that_was_left_is_no_lock(path: Path, kind: str) -> None:
    """The file of a process that died says nothing: only the system's lock counts."""
    name = f"{path}.lock" if kind == "jsonl" else f"{path}.s.lock"
    Path(name).write_text("1\n")
    with Session(KINDS[kind].open(path)) as session:
        session.append_message(UserMessage("on", timestamp=1))
        assert texts(session) == ["first", "on"]
        assert Path(name).read_text() == f"{os.getpid()}\n"


def test_two_storages_of_one_process_take_turns(path: Path, kind: str) -> None:
    """A session opened twice in one process (a notebook cell run again) is one: each appends behind what the other wrote."""
    with Session(KINDS[kind].open(path, fsync="never")) as one, Session(KINDS[kind].open(path, fsync="never")) as two:
        one.append_message(UserMessage("one", timestamp=1))
        two.append_message(UserMessage("two", timestamp=1))
        one.append_message(UserMessage("three", timestamp=1))
        assert texts(one) == ["first", "one", "two", "three"]
        one.close()
        start = threading.Barrier(2)

        def work(storage: Any) -> None:
            with Session(storage) as session:
                start.wait(timeout=10)
                for _ in range(50):
                    session.append_custom_entry("n")

        storages = [KINDS[kind].open(path, fsync="never") for _ in range(2)]
        threads = [threading.Thread(target=work, args=(storage,)) for storage in storages]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=60)
    with Session(KINDS[kind].open(path)) as session:
        assert len(session.get_path()) == 104


def in_child(work: Callable[[], str]) -> str:
    """Do something in a forked child and return what it gave."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(writer, work().encode())
        except BaseException as error:
            os.write(writer, f"{type(error).__name__}: {error}".encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader) as file:
        text = file.read()
    os.waitpid(pid, 0)
    return text


@pytest.mark.filterwarnings("error")
def test_opening_leaves_alone_what_is_being_written(tmp_path: Path) -> None:
    """Opened again and again while another thread writes long entries, a file is never mended under the writer's hands."""
    path = tmp_path / "s.jsonl"
    is_done = threading.Event()
    counts: list[int] = []
    failures: list[BaseException] = []

    def open_again() -> None:
        try:
            while not is_done.is_set():
                counts.append(len(JsonlSessionStorage.open(path).index.raws))
        except BaseException as error:
            failures.append(error)

    with Session(JsonlSessionStorage.create(path, cwd="/w", fsync="never")) as session:
        opener = threading.Thread(target=open_again)
        opener.start()
        ids = [session.append_message(UserMessage("x" * 500_000, timestamp=1)) for _ in range(60)]
        is_done.set()
        opener.join(timeout=30)
    assert failures == []
    assert counts == sorted(counts)
    assert [entry.id for entry in Session(JsonlSessionStorage.open(path)).get_entries()] == ids
    assert os.listdir(tmp_path) == ["s.jsonl"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_does_not_share_the_lock(path: Path, kind: str) -> None:
    """The child is refused while its parent writes, with the parent's id; the parent goes on, and its lock with it."""
    with Session(KINDS[kind].open(path)) as session:
        session.append_custom_entry("n")

        def append() -> str:
            return session.append_message(UserMessage("from the child", timestamp=1))

        said = in_child(append)
        assert said.startswith("SessionLockedError")
        assert f"in process {os.getpid()}" in said
        session.append_message(UserMessage("from the parent", timestamp=1))
        with pytest.raises(SessionLockedError):
            _open_elsewhere(path, kind)
    assert list(path.parent.glob("*.lock")) == []

    def append_alone() -> str:
        with Session(KINDS[kind].open(path)) as own:
            return own.append_message(UserMessage("from the child", timestamp=1))

    assert len(in_child(append_alone)) == 8
    with Session(KINDS[kind].open(path)) as session:
        assert texts(session) == ["first", "from the parent", "from the child"]


def _open_elsewhere(path: Path, kind: str) -> None:
    script = f"""
import sys
from agentcore.errors import SessionLockedError
from agentcore.session import {KINDS[kind].__name__}
try:
    {KINDS[kind].__name__}.open(sys.argv[1]).append({{"type": "custom", "customType": "n"}})
except SessionLockedError:
    sys.exit(7)
"""
    if subprocess.run([sys.executable, "-c", script, str(path)], timeout=60).returncode == 7:
        raise SessionLockedError("refused")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_lock_dies_with_the_parent_though_a_child_lives(path: Path, kind: str) -> None:
    """A child that outlives the writer does not keep the session locked."""
    script = f"""
import os, sys, time
from agentcore.session import JsonlSessionStorage, SqliteSessionStorage
storage = {KINDS[kind].__name__}.open(sys.argv[1])
storage.append({{"type": "custom", "customType": "n"}})
pid = os.fork()
if pid == 0:
    os.close(1)
    time.sleep(60)
    os._exit(0)
print(pid, flush=True)
os.kill(os.getpid(), 9)
"""
    done = subprocess.run([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, text=True, timeout=60)
    child = int(done.stdout)
    try:
        os.kill(child, 0)
        with Session(KINDS[kind].open(path)) as session:
            session.append_message(UserMessage("on", timestamp=1))
    finally:
        os.kill(child, signal.SIGKILL)


def test_deleting_what_another_process_writes_is_refused(tmp_path: Path) -> None:
    """A repo does not take a session away from the process that writes to it."""
    repo = JsonlSessionRepo(tmp_path)
    with repo.create(cwd="/w") as session:
        path = Path(session.metadata.path or "")
    with other_process(path, "jsonl"):
        with pytest.raises(SessionLockedError):
            repo.delete(path)
    repo.delete(path)
    assert not path.exists()


def test_a_folder_that_cannot_be_written_to(tmp_path: Path) -> None:
    """Where the lock cannot be taken, the session can be read, and an append says which entry is not stored and why."""
    path = tmp_path / "s.jsonl"
    JsonlSessionStorage.create(path, cwd="/w").close()
    (tmp_path / "s.jsonl.lock").mkdir()
    with Session(JsonlSessionStorage.open(path)) as session:
        words = r"entry '\w{8}' \(message\) is not stored in .*s.jsonl: Is a directory; see to that and append it again"
        with pytest.raises(EntryNotStoredError, match=words) as caught:
            session.append_message(UserMessage("a", timestamp=1))
        assert session.get_entries() == []
        (tmp_path / "s.jsonl.lock").rmdir()
        assert session.append_entry(caught.value.entry) == caught.value.entry_id
        assert texts(session) == ["a"]
