"""What was acknowledged is there: after `kill -9`, with a full disk, with a file that goes away."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import pytest

from agentcore.errors import SessionError
from agentcore.messages import UserMessage
from agentcore.session import (
    EntryNotStoredError,
    JsonlSessionStorage,
    Session,
    SessionRepairWarning,
    SqliteSessionRepo,
    SqliteSessionStorage,
    jsonl,
    jsonl_file,
)


def start_writer(path: Path, kind: Any, number: int) -> tuple[int, int]:
    """Fork a process that appends without end; returns its id, and the pipe on which it says what it has acknowledged."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writer)
        return pid, reader
    try:
        session = Session(kind.open(path, fsync="never"))
        while True:
            size = (number * 7919) % 200_000 if number % 50 == 0 else 300
            made = session.append_message(UserMessage(f"{number} " + "é" * size, timestamp=1))
            os.write(writer, f"{made}\n".encode())
            number += 1
    finally:
        os._exit(1)


def kill_writers(path: Path, kind: Any, times: int, seed: int) -> None:
    """Kill a writer so many times, each after a random time, and look each time."""
    moments = random.Random(seed)
    acknowledged: list[str] = []
    for _ in range(times):
        pid, reader = start_writer(path, kind, len(acknowledged))
        with open(reader) as pipe:
            acknowledged.append(pipe.readline().strip())  # it is writing now
            timer = threading.Timer(moments.uniform(0, 0.05), os.kill, (pid, signal.SIGKILL))
            timer.start()
            acknowledged += [line.strip() for line in pipe if line.endswith("\n")]
            timer.join()
        assert os.waitpid(pid, 0)[1] == signal.SIGKILL, "it ended by itself"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SessionRepairWarning)
            with Session(kind.open(path, fsync="never")) as session:
                stored = [raw["id"] for raw in session.storage.index.raws]
                assert stored[: len(acknowledged)] == acknowledged
                assert len(session.storage.index.branch()) == len(stored)
                made = session.append_message(UserMessage("after the crash", timestamp=1))
        again = kind.open(path, read_only=True)
        assert again.index.leaf_id == made
        acknowledged = [raw["id"] for raw in again.index.raws]
        again.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("kind", [JsonlSessionStorage, SqliteSessionStorage])
def test_killed_writers_lose_nothing(tmp_path: Path, kind: Any) -> None:
    """Twenty times `kill -9` at a random moment: every acknowledged entry is there, in order, and the next append is readable."""
    path = tmp_path / "s"
    kind.create(path, cwd="/w").close()
    kill_writers(path, kind, 20, seed=6)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_killed_writers_lose_nothing_often(tmp_path: Path) -> None:
    """The same three hundred times."""
    for round_ in range(15):
        path = tmp_path / f"s{round_}"
        JsonlSessionStorage.create(path, cwd="/w").close()
        kill_writers(path, JsonlSessionStorage, 20, seed=round_)


@pytest.mark.skipif(sys.platform == "win32", reason="no limit on the size of files there")
def test_a_full_disk_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    """An entry for which there is no room is an error that names it; file and session are as before, and it fits later."""
    script = """
import resource, sys
from agentcore.messages import UserMessage
from agentcore.session import EntryNotStoredError, JsonlSessionStorage, Session
path = sys.argv[1]
session = Session(JsonlSessionStorage.create(path, cwd="/w"))
kept = session.append_message(UserMessage("kept", timestamp=1))
before = open(path, "rb").read()
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 1000, hard))
try:
    session.append_message(UserMessage("x" * 5000, timestamp=1))
    sys.exit("no error")
except EntryNotStoredError as error:
    entry = error.entry
    assert str(error) == (
        f"entry '{error.entry_id}' (message) is not stored in {path}: File too large; make room there and append it again"
    ), error
    assert error.code == "not_stored"
assert open(path, "rb").read() == before
assert [one.id for one in session.get_entries()] == [kept]
small = session.append_message(UserMessage("small", timestamp=1))
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
assert session.append_entry(entry) == entry["id"]
session.close()
again = Session(JsonlSessionStorage.open(path))
assert [one.id for one in again.get_branch()] == [kept, small, entry["id"]]
again.close()
"""
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path / "s")], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(sys.platform == "win32", reason="an open file cannot be removed there")
@pytest.mark.parametrize("kind", [JsonlSessionStorage, SqliteSessionStorage])
def test_a_session_that_was_deleted_meanwhile_takes_nothing(tmp_path: Path, kind: Any) -> None:
    """An entry is never acknowledged into a file that nobody will find again."""
    path = tmp_path / "s"
    with Session(kind.create(path, cwd="/w", session_id="s")) as session:
        if kind is JsonlSessionStorage:
            path.unlink()
            words = "is not stored in .*: the file was deleted while it was open; see to that and append it again"
        else:
            SqliteSessionRepo(path).delete("s")
            words = "the session was deleted while it was open; see to that and append it again"
        with pytest.raises(EntryNotStoredError, match=words):
            session.append_message(UserMessage("a", timestamp=1))
        assert session.get_entries() == []


def test_what_another_program_appends_is_taken_in(tmp_path: Path) -> None:
    """A program that does not know the lock may append: the next entry comes after it. Its torn rest is cut off and kept."""
    path = tmp_path / "s"
    with Session(JsonlSessionStorage.create(path, cwd="/w")) as session:
        first = session.append_message(UserMessage("a", timestamp=1))
        other = f'{{"type":"label","id":"other","parentId":"{first}","timestamp":"t","targetId":"{first}","label":"x"}}\n'
        with open(path, "a") as file:
            file.write(other)
        second = session.append_message(UserMessage("b", timestamp=1))
        assert [entry.id for entry in session.get_branch()] == [first, "other", second]
        assert session.get_label(first) == "x"
        with open(path, "a") as file:
            file.write('{"torn')
        with pytest.warns(SessionRepairWarning):
            third = session.append_message(UserMessage("c", timestamp=1))
        lines = path.read_text().splitlines()
        path.write_text("\n".join(lines[:-2]) + "\n")  # shortened behind our back
        fourth = session.append_message(UserMessage("d", timestamp=1))
        assert [entry.id for entry in session.get_branch()] == [first, "other", fourth]
        assert third not in {entry.id for entry in session.get_entries()}
    with Session(JsonlSessionStorage.open(path)) as session:
        assert [entry.id for entry in session.get_branch()] == [first, "other", fourth]


def test_a_file_that_an_editor_wrote_anew_goes_on(tmp_path: Path) -> None:
    """A file that was put in the place of ours is read anew, and the entry goes there; a file of another session gets nothing."""
    path = tmp_path / "s"
    with Session(JsonlSessionStorage.create(path, cwd="/w")) as session:
        session.append_message(UserMessage("a", timestamp=1))
        session.append_message(UserMessage("b", timestamp=1))
        (tmp_path / "new").write_text("\n".join(path.read_text().split("\n")[:2]) + "\n")
        os.replace(tmp_path / "new", path)
        session.append_message(UserMessage("c", timestamp=1))
        assert [message.text for message in session.build_context().messages] == ["a", "c"]  # type: ignore[union-attr]
        JsonlSessionStorage.create(tmp_path / "other", cwd="/w").close()
        os.replace(tmp_path / "other", path)
        with pytest.raises(EntryNotStoredError, match="the file was replaced by another session while it was open"):
            session.append_message(UserMessage("d", timestamp=1))
    assert JsonlSessionStorage.open(path).index.raws == []


def test_a_file_put_in_place_before_the_first_append(tmp_path: Path) -> None:
    """Another file under the name, longer than ours was: it is read anew, not only behind what we knew."""
    path = tmp_path / "s"
    JsonlSessionStorage.create(path, cwd="/w").close()
    with Session(JsonlSessionStorage.open(path)) as session:
        header = path.read_text()
        line = '{"type":"label","id":"%s","parentId":null,"timestamp":"t","targetId":"x"}\n'
        (tmp_path / "new").write_text(header.rstrip("\n") + " " * 60 + "\n" + line % "new")
        os.replace(tmp_path / "new", path)
        made = session.append_message(UserMessage("a", timestamp=1))
        assert [entry.id for entry in session.get_branch()] == ["new", made]


def test_an_end_that_cannot_be_mended_gets_no_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the torn rest cannot be cut off, the session can be read, and an append is refused: it would be glued to the rest."""
    path = tmp_path / "s"
    JsonlSessionStorage.create(path, cwd="/w").close()
    with open(path, "a") as file:
        file.write('{"torn')

    def refuse(path: str, damages: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(jsonl, "repair", refuse)
    with pytest.warns(SessionRepairWarning):
        session = Session(JsonlSessionStorage.open(path))
    with pytest.raises(EntryNotStoredError, match="Permission denied; make it writable and append it again"):
        session.append_message(UserMessage("a", timestamp=1))
    monkeypatch.undo()
    with pytest.warns(SessionRepairWarning):
        session.append_message(UserMessage("a", timestamp=1))
    session.close()
    assert len(JsonlSessionStorage.open(path).index.raws) == 1


def test_an_entry_is_one_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each entry reaches the system in one `write`, and the disk by one sync, or none with fsync='never'."""
    writes: list[int] = []
    syncs: list[int] = []
    real_write = os.write

    def write(fd: int, data: bytes) -> int:
        writes.append(len(data))
        return real_write(fd, data)

    def sync(fd: int) -> None:
        syncs.append(fd)

    for fsync, expected in (("every", 3), ("never", 0)):
        with Session(JsonlSessionStorage.create(tmp_path / fsync, cwd="/w", fsync=fsync)) as session:  # type: ignore[arg-type]
            monkeypatch.setattr(jsonl_file.os, "write", write)
            monkeypatch.setattr(jsonl_file, "sync", sync)
            writes.clear()
            syncs.clear()
            for size in (1, 100_000, 1_000_000):
                session.append_message(UserMessage("x" * size, timestamp=1))
            assert (len(writes), len(syncs)) == (3, expected)
            monkeypatch.undo()
    with pytest.raises(ValueError, match=r"fsync must be 'every' .* or 'never', not 'sometimes'"):
        JsonlSessionStorage.create(tmp_path / "x", fsync="sometimes")  # type: ignore[arg-type]


def test_a_file_that_exists_is_not_written_over(tmp_path: Path) -> None:
    """`create` refuses a file that is there, and says how to open it; one that cannot be made is an error too."""
    path = tmp_path / "deep" / "er" / "s.jsonl"
    JsonlSessionStorage.create(path).close()
    text = path.read_text()
    with pytest.raises(SessionError, match=r"s.jsonl exists already; JsonlSessionStorage.open\(\) opens it") as caught:
        JsonlSessionStorage.create(path)
    assert caught.value.code == "already_exists"
    assert path.read_text() == text
    with pytest.raises(SessionError, match=r"cannot be made: .* \(.*s.jsonl\)"):
        JsonlSessionStorage.create(path / "below")
    assert os.listdir(path.parent) == ["s.jsonl"]
