"""A session file that was damaged: torn, NUL-filled, glued together; and how lines are read."""

from __future__ import annotations

import json
import os
import tracemalloc
import warnings
from pathlib import Path
from typing import Any

import pytest

from agentcore.errors import SessionCorruptError, SessionError
from agentcore.messages import UserMessage
from agentcore.session import JsonlSessionRepo, JsonlSessionStorage, Session, SessionRepairWarning

pytestmark = pytest.mark.pythons

HEADER = '{"type":"session","version":3,"id":"S","timestamp":"2025-06-01T10:00:00.000Z","cwd":"/w"}\n'


def line(entry_id: str, parent_id: str | None, text: str = "t") -> str:
    message = {"role": "user", "content": text, "timestamp": 1}
    raw = {"type": "message", "id": entry_id, "parentId": parent_id, "timestamp": "2025-06-01T10:00:00.000Z", "message": message}
    return json.dumps(raw, ensure_ascii=False, separators=(",", ":")) + "\n"


GOOD = HEADER + line("a", None) + line("b", "a")


def write(folder: Path, content: str | bytes) -> Path:
    path = folder / "s.jsonl"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def ids(session: Session) -> list[str]:
    return [entry.id for entry in session.get_entries()]


def append_and_reopen(path: Path) -> list[str]:
    """Append one message, then read the file anew; returns the ids, the new one as `new`."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # what was mended stays mended
        with Session(JsonlSessionStorage.open(path)) as session:
            made = session.append_message(UserMessage("new", timestamp=1))
        again = Session(JsonlSessionStorage.open(path, read_only=True))
    assert again.get_branch()[-1].id == made
    return [entry_id if entry_id != made else "new" for entry_id in ids(again)]


def test_a_torn_last_line_is_cut_off_and_kept_beside(tmp_path: Path) -> None:
    """C077: only the torn entry is lost, a warning says so, its bytes are kept, and the next append is readable."""
    torn = '{"type":"message","id":"x1","par'
    path = write(tmp_path, GOOD + torn)
    size = len(torn)
    with pytest.warns(SessionRepairWarning, match=rf"damaged: {size} bytes are no whole entry and are left out; .* kept in"):
        with Session(JsonlSessionStorage.open(path)) as session:
            assert ids(session) == ["a", "b"]
            assert session.storage.repairs != []  # type: ignore[attr-defined]
    assert path.read_text() == GOOD
    assert (tmp_path / "s.jsonl.torn").read_text() == torn
    assert append_and_reopen(path) == ["a", "b", "new"]


def test_every_byte_of_the_last_three_entries_may_be_the_last(tmp_path: Path) -> None:
    """C077: cut at any byte of its last three lines, the file opens with every whole entry, and the next append is readable."""
    lines = [line("c", "b", "é 日本 😀"), line("d", "c", 'quote " and {"type":"message"}'), line("e", "d")]
    data = (GOOD + "".join(lines)).encode()
    ends = [len(GOOD.encode())]
    for one in lines:
        ends.append(ends[-1] + len(one.encode()))
    for cut in range(ends[0], len(data)):
        path = write(tmp_path, data[:cut])
        # A line that lacks nothing but its line feed is whole.
        whole = sum(end - 1 <= cut for end in ends[1:])
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with Session(JsonlSessionStorage.open(path, fsync="never")) as session:
                expected = ["a", "b", *["c", "d", "e"][:whole]]
                assert ids(session) == expected, cut
                session.append_message(UserMessage("new", timestamp=1))
        assert len(caught) == (0 if cut in ends or cut + 1 in ends[1:] else 1), cut
        again = Session(JsonlSessionStorage.open(path, read_only=True))
        assert ids(again)[:-1] == expected, cut
        assert len(again.get_branch()) == len(expected) + 1, cut
        for side in tmp_path.glob("*.torn*"):
            side.unlink()


@pytest.mark.parametrize("count", [1, 1700, 300_000])
def test_nul_bytes_at_the_end_are_cut_off(tmp_path: Path, count: int) -> None:
    """C079: the NULs that a crash left are no reason to lose the file, and the next append does not follow them."""
    path = write(tmp_path, GOOD.encode() + b"\0" * count)
    with pytest.warns(SessionRepairWarning, match=f"{count} bytes are no whole entry"):
        with Session(JsonlSessionStorage.open(path)) as session:
            assert ids(session) == ["a", "b"]
    assert path.read_bytes() == GOOD.encode()
    assert (tmp_path / "s.jsonl.torn").read_bytes() == b"\0" * count
    assert append_and_reopen(path) == ["a", "b", "new"]


def test_nul_bytes_in_the_middle_are_taken_out(tmp_path: Path) -> None:
    """NULs before an entry, as an append after a crash leaves them, go; the entry stays."""
    path = write(tmp_path, GOOD.encode() + b"\0" * 40 + line("c", "b").encode())
    with pytest.warns(SessionRepairWarning, match="the entries that stood on the same line are kept"):
        with Session(JsonlSessionStorage.open(path)) as session:
            assert ids(session) == ["a", "b", "c"]
    assert path.read_text() == GOOD + line("c", "b")
    assert append_and_reopen(path) == ["a", "b", "c", "new"]


@pytest.mark.parametrize("after", ["", "d"])
def test_an_entry_glued_to_a_torn_line_is_taken_apart(tmp_path: Path, after: str) -> None:
    """What a program that did not look appended to a torn line is an entry again, also when more followed."""
    torn = '{"type":"message","id":"x1","parentId":"b","message":{"role":"user","content":[{"type":"text","te'
    more = line("d", "c") if after else ""
    path = write(tmp_path, GOOD + torn + line("c", "b") + more)
    expected = ["a", "b", "c", *(["d"] if after else [])]
    with pytest.warns(SessionRepairWarning):
        with Session(JsonlSessionStorage.open(path)) as session:
            assert ids(session) == expected
    assert path.read_text() == GOOD + line("c", "b") + more
    assert (tmp_path / "s.jsonl.torn").read_text() == torn
    assert append_and_reopen(path) == [*expected, "new"]


def test_two_entries_on_one_line_are_two(tmp_path: Path) -> None:
    """Nothing is lost where two whole entries stand on a line; nothing is kept beside then."""
    path = write(tmp_path, GOOD + line("c", "b").rstrip("\n") + line("d", "c"))
    with pytest.warns(SessionRepairWarning, match="0 bytes are no whole entry"):
        with Session(JsonlSessionStorage.open(path)) as session:
            assert ids(session) == ["a", "b", "c", "d"]
    assert path.read_text() == GOOD + line("c", "b") + line("d", "c")
    assert not list(tmp_path.glob("*.torn*"))


def test_a_second_torn_tail_gets_a_side_file_of_its_own(tmp_path: Path) -> None:
    """Kept bytes are never written over."""
    for number in range(3):
        path = write(tmp_path, GOOD + f'{{"torn {number}')
        with pytest.warns(SessionRepairWarning):
            JsonlSessionStorage.open(path).close()
    names = ["s.jsonl.torn", "s.jsonl.torn-2", "s.jsonl.torn-3"]
    assert [(tmp_path / name).read_text() for name in names] == [f'{{"torn {number}' for number in range(3)]


def test_reading_only_changes_nothing(tmp_path: Path) -> None:
    """A reader passes over the torn rest, says so, and leaves the file and the folder as they are."""
    path = write(tmp_path, GOOD + '{"torn')
    with pytest.warns(SessionRepairWarning, match="are left out$"):
        session = Session(JsonlSessionStorage.open(path, read_only=True))
    assert ids(session) == ["a", "b"]
    assert path.read_text() == GOOD + '{"torn'
    assert os.listdir(tmp_path) == ["s.jsonl"]
    with pytest.raises(SessionError, match="was opened with read_only=True; open it without to append") as caught:
        session.append_message(UserMessage("x", timestamp=1))
    assert caught.value.code == "read_only"


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (GOOD + "{broken\n" + line("c", "b"), "line 4 is not JSON"),
        (GOOD + "\n\n{broken}\n", "line 6 is not JSON"),
        (GOOD + "5\n", "line 4 is no session entry"),
        (GOOD + '{"type":"label","id":"c","parentId":7,"timestamp":"t"}\n', "line 4 has no valid parentId"),
        (HEADER + "\n" + '{"type":"leaf","id":"c","parentId":null,"timestamp":"t"}\n', "line 3 has no valid targetId"),
        (HEADER + line("a", None) * 3000 + '{"id":"c","parentId":null,"timestamp":"t"}\n', "line 3002 has no entry type"),
    ],
)
def test_a_broken_line_inside_is_named(tmp_path: Path, content: str, fault: str) -> None:
    """A line from which no entry can be read is no torn write: the error names the file and the line as an editor counts it."""
    path = write(tmp_path, content)
    with pytest.raises(SessionCorruptError, match=f"s.jsonl: {fault}; mend or remove that line") as caught:
        JsonlSessionStorage.open(path)
    assert caught.value.code == "invalid_entry"
    assert path.read_text() == content
    assert os.listdir(tmp_path) == ["s.jsonl"]


def test_one_bad_byte_loses_no_entry(tmp_path: Path) -> None:
    """A line with a byte that is no UTF-8 is read with a mark in its place, as the reference does; the file stays as it is."""
    path = tmp_path / "s.jsonl"
    content = (
        (HEADER + line("a", None, "t-a") + line("b", "a", "cafe") + line("c", "b", "t-c")).encode().replace(b"cafe", b"caf\xe9")
    )
    assert b"\xe9" in content
    path.write_bytes(content)
    with Session(JsonlSessionStorage.open(path)) as session:
        assert [message.text for message in session.build_context().messages] == ["t-a", "caf\ufffd", "t-c"]  # type: ignore[union-attr]
        session.append_message(UserMessage("x", timestamp=1))
    assert path.read_bytes().startswith(content)


def test_only_a_line_feed_ends_a_line(tmp_path: Path) -> None:
    """C080: U+2028, U+2029, U+0085, form feeds and file separators, written unescaped, are part of a text."""
    text = "a\u2028b\u2029c\u0085d\u000be"
    path = write(tmp_path, HEADER + line("a", None, text))
    with Session(JsonlSessionStorage.open(path)) as session:
        session.append_message(UserMessage(text, timestamp=1))
    again = Session(JsonlSessionStorage.open(path, read_only=True))
    assert [message.text for message in again.build_context().messages] == [text, text]  # type: ignore[union-attr]
    assert len(path.read_bytes().split(b"\n")) == 4
    assert "\u2028".encode() in path.read_bytes().split(b"\n")[2]


def test_lines_of_any_length_and_ending_are_read(tmp_path: Path) -> None:
    """A line longer than what is read at a time, CRLF, blank lines, a byte order mark, no line feed at the end."""
    long = "x" * 700_000
    content = "\ufeff\n" + HEADER + line("a", None, long) + "\n  \n" + line("b", "a").replace("\n", "\r\n") + line("c", "b").strip()
    path = write(tmp_path, content)
    assert append_and_reopen(path) == ["a", "b", "c", "new"]
    assert path.read_bytes().startswith(f"{content}\n{{".encode())


def test_keys_in_snake_case_are_read(tmp_path: Path) -> None:
    """A file with `parent_id` and the like opens; what tools put in keeps its keys; appends are in camelCase."""
    usage = {"input": 1, "output": 2, "cache_read": 3, "cache_write": 4, "total_tokens": 10, "cost": {"total": 0.5}}
    content = [{"type": "toolCall", "id": "1", "name": "f", "arguments": {"some_key": 1}}]
    answer = {"role": "assistant", "content": content, "stop_reason": "toolUse", "provider": "p", "model": "m", "usage": usage}
    raws: list[Any] = [
        {"type": "message", "id": "a", "parent_id": None, "timestamp": "t", "message": {"role": "user", "content": "q"}},
        {"type": "message", "id": "b", "parent_id": "a", "timestamp": "t", "message": answer},
        {"type": "model_change", "id": "c", "parent_id": "b", "timestamp": "t", "provider": "p", "model_id": "m2"},
        {"type": "leaf", "id": "d", "parent_id": "c", "timestamp": "t", "target_id": "b"},
    ]
    path = write(tmp_path, HEADER + "".join(json.dumps(raw) + "\n" for raw in raws))
    with Session(JsonlSessionStorage.open(path)) as session:
        context = session.build_context()
        assert session.get_leaf_id() == "b"
        assert context.messages[1].content[0].arguments == {"some_key": 1}  # type: ignore[union-attr]
        assert context.messages[1].usage.cache_read == 3  # type: ignore[union-attr]
        assert session.get_session_stats().total_tokens == 10
        assert session.find_entries("model_change")[0].model_id == "m2"  # type: ignore[union-attr]
        session.append_label("b", "here")
    assert '"parentId":"b"' in path.read_text().split("\n")[-2]


def test_no_file_and_no_session(tmp_path: Path) -> None:
    """What is not there, is a folder, or is something else: one line that says so and what to do."""
    with pytest.raises(
        SessionError, match=r"there is no session file .*gone.jsonl; JsonlSessionStorage.create\(\) makes one"
    ) as caught:
        JsonlSessionStorage.open(tmp_path / "gone.jsonl")
    assert caught.value.code == "not_found"
    with pytest.raises(SessionError, match="cannot be read: Is a dir"):
        JsonlSessionStorage.open(tmp_path, read_only=True)
    path = write(tmp_path, "# Notes\n")
    with pytest.raises(SessionCorruptError, match=r"s\.jsonl is no session file: its first line is no session header"):
        JsonlSessionStorage.open(path)
    path = write(tmp_path, HEADER.replace("3", "4", 1))
    with pytest.raises(SessionCorruptError, match="is a session of version 4; this library reads the versions 1 to 3, use a newer"):
        JsonlSessionStorage.open(path)
    assert os.listdir(tmp_path) == ["s.jsonl"]


def test_big_files_are_listed_by_their_heads_and_opened_line_by_line(tmp_path: Path) -> None:
    """C095: two hundred files of 20 MB are listed without being read; one whose rest is empty opens with its entries."""
    folder = tmp_path / "--w--"
    folder.mkdir()
    for number in range(200):
        with open(folder / f"2025_s{number}.jsonl", "wb") as file:
            file.write((GOOD.replace('"S"', f'"s{number}"')).encode())
            file.truncate(20_000_000)  # sparse: takes no room on the disk
    before = os.times()
    listed = JsonlSessionRepo(tmp_path).list()
    spent = sum(os.times()[:2]) - sum(before[:2])
    assert len(listed) == 200
    assert spent < 1.0, "reading four gigabytes takes far longer"
    with pytest.warns(SessionRepairWarning):
        with Session(JsonlSessionStorage.open(listed[0].path or "")) as session:
            assert ids(session) == ["a", "b"]
    side = Path(f"{listed[0].path}.torn").stat()
    assert side.st_size == 20_000_000 - len(GOOD) - (len(str(listed[0].id)) - 1)
    assert side.st_blocks * 512 < 1_000_000, "NULs kept in a file take no room"


def test_opening_a_big_file_takes_little_more_than_its_entries(tmp_path: Path) -> None:
    """C095: a file of 20 MB is read piece by piece, never held as a whole beside its entries."""
    path = tmp_path / "s.jsonl"
    with open(path, "w") as file:
        file.write(HEADER)
        for number in range(20_000):
            file.write(line(f"e{number}", f"e{number - 1}" if number else None, "x" * 900))
    tracemalloc.start()
    try:
        storage = JsonlSessionStorage.open(path, read_only=True)
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(storage.index.raws) == 20_000
    assert peak - kept < 5_000_000
