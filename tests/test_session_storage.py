"""What every session storage and its repo do alike: in memory, in a file, in a database."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agentcore.custom_messages import OtherMessage
from agentcore.errors import EntryNotFoundError, SessionCorruptError, SessionError
from agentcore.messages import AssistantMessage, TextContent, ToolCall, ToolResultMessage, Usage, UserMessage
from agentcore.models import Model
from agentcore.session import (
    BranchSummary,
    CustomEntry,
    JsonlSessionRepo,
    LabelEntry,
    MemorySessionRepo,
    MessageEntry,
    Session,
    SessionStorage,
    SqliteSessionRepo,
    UnknownEntry,
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


@pytest.fixture
def session(repo: Any) -> Iterator[Session]:
    with repo.create(cwd="/project") as session:
        yield session


def texts(session: Session) -> list[str]:
    return [message.text for message in session.build_context().messages]  # type: ignore[union-attr]


def test_a_storage_is_what_the_protocol_says(session: Session) -> None:
    """Each storage fits `SessionStorage`, and a session refuses what does not, with the way out."""
    assert isinstance(session.storage, SessionStorage)
    with pytest.raises(TypeError, match=r"a session needs a storage, not str: JsonlSessionStorage.create\(path, cwd=…\) makes one"):
        Session("notes.jsonl")  # type: ignore[arg-type]


def test_messages_come_back_as_they_went_in(session: Session) -> None:
    """What was appended is what the entries and the context have, with the parent links of one line."""
    messages = [
        UserMessage("read it", timestamp=1),
        AssistantMessage([TextContent("now"), ToolCall("1", "read", {"path": "a"})], stop_reason="toolUse", timestamp=2),
        ToolResultMessage("1", "read", [TextContent("text")], details={"lines": None}, timestamp=3),
    ]
    ids = [session.append_message(message) for message in messages]
    entries = session.get_entries()
    assert [entry.id for entry in entries] == ids
    assert [entry.parent_id for entry in entries] == [None, *ids[:-1]]
    assert [entry.message for entry in entries if isinstance(entry, MessageEntry)] == messages
    assert [entry.agent_message for entry in entries if isinstance(entry, MessageEntry)] == messages
    assert session.build_context().messages == messages
    assert session.get_leaf_id() == ids[-1]


def test_a_later_change_of_a_message_changes_nothing_stored(session: Session) -> None:
    """The stored entry is a copy: neither the caller's message nor one that was given out is the session's own."""
    message = UserMessage("as said", timestamp=1)
    entry_id = session.append_message(message)
    message.content.append(TextContent(" and more"))
    given_out = session.get_entry(entry_id)
    assert isinstance(given_out, MessageEntry)
    given_out.message.content.clear()  # type: ignore[union-attr]
    assert texts(session) == ["as said"]


def test_branches_and_labels(session: Session) -> None:
    """Going back starts a branch; labels and the name belong to the whole session; the summary of a branch is a message."""
    first = session.append_message(UserMessage("a", timestamp=1))
    left = session.append_message(UserMessage("b", timestamp=1))
    session.append_label(left, " tried ")
    session.append_session_name("two\nlines")
    assert session.move_to(first) is None
    assert session.get_leaf_id() == first
    session.append_message(UserMessage("c", timestamp=1))
    assert texts(session) == ["a", "c"]
    assert (session.get_label(left), session.get_session_name()) == ("tried", "two lines")

    for summary in ("S", {"summary": "S"}, BranchSummary("S")):
        summary_id = session.move_to(first, summary)  # type: ignore[arg-type]
        assert session.get_leaf_id() == summary_id
        entry = session.get_entry(summary_id or "")
        assert (entry.summary, entry.from_id, entry.parent_id) == ("S", first, first)  # type: ignore[union-attr]
    session.move_to(None)
    assert session.build_context().messages == []


def test_a_branch_summary_without_text_is_refused(session: Session) -> None:
    """A mapping without the text, or something else, is refused before the session moves."""
    first = session.append_message(UserMessage("a", timestamp=1))
    with pytest.raises(ValueError, match="a branch summary needs its text under the key 'summary'; it has text"):
        session.move_to(None, {"text": "S"})
    with pytest.raises(TypeError, match="a branch summary is a text, a mapping or a BranchSummary, not int"):
        session.move_to(None, 5)  # type: ignore[arg-type]
    assert session.get_leaf_id() == first


def test_unknown_entries_are_refused(session: Session) -> None:
    """An id that the session does not have is an error that says so, and nothing is written."""
    session.append_message(UserMessage("a", timestamp=1))
    for call in (lambda: session.move_to("nope"), lambda: session.append_label("nope", "x"), lambda: session.get_branch("nope")):
        with pytest.raises(EntryNotFoundError, match=r"the session has no entry 'nope'; get_entries\(\) has those that there are"):
            call()
    assert len(session.get_entries()) == 1
    assert session.get_entry("nope") is None


def test_entries_of_any_kind_survive(session: Session) -> None:
    """A kind or a key that the library does not know is stored and given back."""
    known = session.append_entry({"type": "label", "targetId": "x", "label": "y", "future": {"deep": [1, None]}})
    unknown = session.append_entry({"type": "bookmark", "where": {"line": 3}})
    assert isinstance(session.get_entry(known), LabelEntry)
    entry = session.get_entry(unknown)
    assert isinstance(entry, UnknownEntry)
    assert (entry.type, entry.fields) == ("bookmark", {"where": {"line": 3}})
    assert session.storage.index.by_id[known]["future"] == {"deep": [1, None]}
    assert [found.id for found in session.find_entries("bookmark")] == [unknown]


def test_a_given_entry_keeps_its_frame(session: Session) -> None:
    """An entry with an id, a parent and a time of its own is stored with them; the same id a second time is refused."""
    entry = CustomEntry("c1", None, "2025-06-01T10:00:00.000Z", "note", {"n": 1})
    assert session.append_entry(entry) == "c1"
    assert session.get_entry("c1") == entry
    with pytest.raises(SessionError, match="the session has an entry 'c1' already; leave the id out for a new one"):
        session.append_entry(entry)
    with pytest.raises(SessionError, match="the entry has no entry type; it is not stored"):
        session.append_entry({"id": "c2"})
    assert len(session.get_entries()) == 1


def test_what_is_no_message_is_refused(session: Session) -> None:
    """`append_message` names what it got and what makes a message."""
    with pytest.raises(TypeError, match=r"append_message takes a message, not str: UserMessage\(…\) makes one of a text"):
        session.append_message("hello")  # type: ignore[arg-type]

    class Note:
        role = "note"

    with pytest.raises(TypeError, match="a message of class Note has no JSON form: make it a dataclass, or pass a mapping"):
        session.append_message(Note())  # type: ignore[arg-type]
    assert session.get_entries() == []


@dataclass
class Bookmark:
    page_number: int
    role: str = "bookmark"


@pytest.mark.parametrize(
    ("append", "error", "words"),
    [
        (lambda s: s.append_message({"role": "user"}), ValueError, "no message that could be read again: .* no key 'content'"),
        (lambda s: s.append_message({"role": "toolResult", "content": []}), ValueError, "no key 'toolCallId'"),
        (lambda s: s.append_thinking_level_change(3), TypeError, "a thinking level is a text, not int: 'high', for example"),
        (lambda s: s.append_model_change(Model("m", provider="p"), "m"), TypeError, "a provider is a text, not Model: model.prov"),
        (lambda s: s.append_model_change("p", Model("m")), TypeError, "a model id is a text, not Model: model.id"),
        (lambda s: s.append_active_tools_change("read"), TypeError, "a list of their names"),
        (lambda s: s.append_active_tools_change([read]), TypeError, "a list of their names"),
        (lambda s: s.append_compaction(UserMessage("S")), TypeError, "a summary is a text, not UserMessage"),
        (lambda s: s.append_session_name(None), TypeError, "a session's name is a text, not NoneType: '' takes it away"),
        (lambda s: s.append_custom_entry("deep", deep()), ValueError, "nested too deeply to be written as JSON: make it flatter"),
        (lambda s: s.append_custom_entry("ring", ring()), ValueError, "the value holds itself"),
    ],
)  # fmt: skip
def test_what_could_not_be_read_again_is_not_stored(session: Session, append: Any, error: Any, words: str) -> None:
    """A wrong argument is one clear line, and nothing is stored that would spoil the session."""
    with pytest.raises(error, match=words):
        append(session)
    assert session.get_entries() == []
    session.append_message(UserMessage("a", timestamp=1))
    assert texts(session) == ["a"]


def read() -> None:
    """Stand for a tool."""


def deep() -> Any:
    value: Any = None
    for _ in range(100_000):
        value = [value]
    return value


def ring() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


def test_what_is_nested_deeply_comes_back(repo: Any) -> None:
    """Whatever could be stored can be opened again, also from deeper in the stack than it was stored from."""
    depths = []
    with repo.create(cwd="/w") as session:
        session.append_message(UserMessage("a", timestamp=1))
        for depth in range(100, 1000, 20):
            value: Any = None
            for _ in range(depth):
                value = [value]
            try:
                session.append_custom_entry("deep", value)
                depths.append(depth)
            except (ValueError, RecursionError):
                break

    def open_below(frames: int) -> list[Any]:
        if frames:
            return open_below(frames - 1)
        with repo.open(session.id) as again:
            return [entry.type for entry in again.get_entries()]

    assert len(depths) > 10
    assert open_below(200) == ["message", *["custom"] * len(depths)]


def test_messages_of_ones_own_are_stored(session: Session) -> None:
    """A dataclass with a role, and a mapping with a role, are messages: stored with all they hold, given back as `OtherMessage`."""
    session.append_message(Bookmark(7))  # type: ignore[arg-type]
    session.append_message({"role": "bookmark", "pageNumber": 8, "timestamp": 1})
    messages = session.build_context().messages
    assert [(message.role, message.fields) for message in messages if isinstance(message, OtherMessage)] == [
        ("bookmark", {"pageNumber": 7}),
        ("bookmark", {"pageNumber": 8}),
    ]


def test_figures_count_all_branches(session: Session) -> None:
    """Messages, tokens and cost of the whole session, the branch that was left included; incomplete usage is left out."""
    first = session.append_message(UserMessage("a", timestamp=1))
    usage = Usage(input=100, output=50, cache_read=30, cache_write=20, total_tokens=200)
    usage.cost.total = 0.25
    session.append_message(AssistantMessage([TextContent("b")], usage=usage, timestamp=2))
    session.append_message({"role": "assistant", "content": [], "usage": {"input": 7}, "timestamp": 2})
    session.move_to(first, BranchSummary("B", usage=usage))
    stats = session.get_session_stats()
    assert (stats.message_count, stats.cached_tokens, stats.uncached_tokens, stats.total_tokens) == (3, 60, 240, 400)
    assert stats.cost_total == 0.5


def test_a_torn_turn_gives_a_well_formed_context(session: Session) -> None:
    """A call whose result never came is answered with an error in the context; the entries stay as they are."""
    session.append_message(UserMessage("go", timestamp=1))
    session.append_message(AssistantMessage([ToolCall("1", "read"), ToolCall("2", "read")], stop_reason="toolUse", timestamp=2))
    session.append_message(ToolResultMessage("2", "read", [TextContent("two")], timestamp=3))
    messages = session.build_context().messages
    results = [
        (message.tool_call_id, message.is_error, message.text) for message in messages if isinstance(message, ToolResultMessage)
    ]
    assert results == [("1", True, "Operation aborted"), ("2", False, "two")]
    assert len(session.get_entries()) == 3


def test_reopening_gives_the_same_session(repo: Any) -> None:
    """After closing and opening again entries, leaf, labels, name, figures and context are the same, and it goes on."""
    session = repo.create(cwd="/project", metadata={"k": 1})
    first = session.append_message(UserMessage("a", timestamp=1))
    session.append_message(AssistantMessage([TextContent("b")], provider="p", model="m", timestamp=2))
    session.append_label(first, "start")
    session.append_session_name("name")
    session.append_thinking_level_change("high")
    session.append_active_tools_change(["read"])
    session.move_to(first)
    if isinstance(repo, MemorySessionRepo):
        again = repo.open(session.metadata)
    else:
        session.close()
        again = repo.open(session.metadata)
    with again:
        assert again.metadata == session.metadata
        assert again.get_entries() == session.get_entries()
        assert again.build_context() == session.build_context()
        assert again.get_session_stats() == session.get_session_stats()
        assert (again.get_leaf_id(), again.get_label(first), again.get_session_name()) == (first, "start", "name")
        again.append_message(UserMessage("c", timestamp=3))
        assert texts(again) == ["a", "c"]


def test_a_closed_session_reads_but_does_not_append(repo: Any) -> None:
    """Closing twice is harmless; appending afterwards is an error that says what to do."""
    session = repo.create(cwd="/project")
    session.append_message(UserMessage("a", timestamp=1))
    session.close()
    session.close()
    assert texts(session) == ["a"]
    with pytest.raises(SessionError, match="is closed; open it again to append to it") as caught:
        session.append_message(UserMessage("b", timestamp=1))
    assert caught.value.code == "closed"
    assert len(session.get_entries()) == 1


def test_many_entries_have_ids_of_their_own(session: Session) -> None:
    """C092: ten thousand entries in a loop, all ids unique."""
    ids = [session.append_custom_entry("n") for _ in range(10_000)]
    assert len(set(ids)) == 10_000
    assert all(len(entry_id) == 8 for entry_id in ids)


def test_threads_append_one_after_the_other(session: Session) -> None:
    """Eight threads append at once: nothing is lost, and the path from the leaf has every entry once."""
    start = threading.Barrier(8)

    def work() -> None:
        start.wait(timeout=10)
        for _ in range(10):
            session.append_custom_entry("n")

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    path = session.get_path()
    assert len(path) == 80
    assert {entry.id for entry in path} == {entry.id for entry in session.get_entries()}


def test_reading_goes_on_while_others_append(session: Session) -> None:
    """Contexts, drawings, figures and branches may be asked for at any moment while two threads append and move about."""
    is_done = threading.Event()
    failures: list[BaseException] = []

    def append() -> None:
        try:
            for number in range(100):
                made = session.append_message(AssistantMessage([ToolCall("1", "read")], usage=Usage(1), timestamp=1))
                session.append_message(ToolResultMessage("1", "read", [TextContent("text")], timestamp=2))
                if number % 20 == 19:
                    session.append_label(made, str(number))
                    session.append_compaction("S", made, 5)
                    session.move_to(made, "left")
        except BaseException as error:
            failures.append(error)

    def look() -> None:
        try:
            while not is_done.is_set():
                pending: list[str] = []
                for message in session.build_context().messages:
                    if isinstance(message, ToolResultMessage):
                        assert message.tool_call_id == pending.pop()
                    elif isinstance(message, AssistantMessage):
                        assert pending == []
                        pending = [call.id for call in message.tool_calls]
                assert pending == []
                assert session.tree().count("◄ leaf") <= 1
                assert len(session.get_branch()) <= len(session.get_entries())
                assert session.get_session_stats().message_count <= 400
        except BaseException as error:
            failures.append(error)

    writers = [threading.Thread(target=append) for _ in range(2)]
    readers = [threading.Thread(target=look) for _ in range(2)]
    for thread in (*writers, *readers):
        thread.start()
    for thread in writers:
        thread.join(timeout=60)
    is_done.set()
    for thread in readers:
        thread.join(timeout=60)
    assert failures == []
    assert session.get_session_stats().message_count == 400


def test_list_gives_the_newest_first(repo: Any) -> None:
    """All sessions or those of one working directory, by the time of their making."""
    assert repo.list() == []
    made = []
    for place in range(3):
        with repo.create(cwd=f"/p{place % 2}", session_id=f"s{place}") as session:
            made.append(session.metadata)
            threading.Event().wait(0.002)  # the next millisecond
    assert repo.list() == made[::-1]
    assert [metadata.id for metadata in repo.list("/p0")] == ["s2", "s0"]
    assert repo.list("/nowhere") == []


def test_delete_is_for_good(repo: Any) -> None:
    """A deleted session is not listed and cannot be opened or deleted again."""
    with repo.create(cwd="/project", session_id="s") as session:
        session.append_message(UserMessage("a", timestamp=1))
    repo.delete(session.metadata)
    assert repo.list() == []
    for call in (repo.open, repo.delete):
        with pytest.raises(SessionError, match="there is no session") as caught:
            call(session.metadata)
        assert caught.value.code == "not_found"


def test_a_second_session_of_one_id_is_refused(repo: Any) -> None:
    """Two sessions of a repo never share an id, where the repo knows them by it."""
    with repo.create(cwd="/project", session_id="s"):
        if isinstance(repo, JsonlSessionRepo):
            return  # files are told apart by the time of their making too
        with pytest.raises(SessionError, match=r"already; open\(\) opens it") as caught:
            repo.create(cwd="/project", session_id="s")
    assert caught.value.code == "already_exists"


def conversation(session: Session) -> list[str]:
    return [
        session.append_message(message)
        for message in (
            UserMessage("a", timestamp=1),
            AssistantMessage([TextContent("b")], timestamp=2),
            UserMessage("c", timestamp=3),
            AssistantMessage([TextContent("d")], timestamp=4),
        )
    ]


def test_fork_copies_and_leaves_the_parent_alone(repo: Any, session: Session) -> None:
    """C082: a fork before a message ends before it, a fork at it with it; what is appended goes to the fork alone."""
    ids = conversation(session)
    before = session.get_entries()
    with repo.fork(session, entry_id=ids[2]) as fork:
        assert texts(fork) == ["a", "b"]
        fork.append_message(UserMessage("other", timestamp=5))
        assert texts(fork) == ["a", "b", "other"]
    with repo.fork(session, entry_id=ids[0]) as fork:
        assert fork.get_entries() == []
    with repo.fork(session, entry_id=ids[1], position="at") as fork:
        assert texts(fork) == ["a", "b"]
    with repo.fork(session.metadata) as fork:
        assert fork.get_entries() == before
        assert fork.id != session.id
    assert session.get_entries() == before


def test_fork_at_a_move_goes_where_it_went(repo: Any, session: Session) -> None:
    """A fork at the entry that says where the session went ends there itself, and can be gone on with."""
    ids = conversation(session)
    session.move_to(ids[1])
    session.move_to(None)
    moved, to_start = [entry.id for entry in session.find_entries("leaf")]
    with repo.fork(session, entry_id=moved, position="at") as fork:
        assert texts(fork) == ["a", "b"]
        fork.append_message(UserMessage("e", timestamp=5))
        assert texts(fork) == ["a", "b", "e"]
    with repo.fork(session, entry_id=to_start, position="at") as fork:
        assert texts(fork) == []


def test_fork_refuses_what_it_cannot_do(repo: Any, session: Session) -> None:
    """Before an answer, at an unknown entry, with another word for the place: an error, and no session is left behind."""
    ids = conversation(session)
    with pytest.raises(SessionError, match="it is no user message; position='at' forks with any entry") as caught:
        repo.fork(session, entry_id=ids[1])
    assert caught.value.code == "invalid_fork_target"
    with pytest.raises(SessionError, match="cannot fork at entry 'nope': the session does not have it"):
        repo.fork(session, entry_id="nope")
    with pytest.raises(ValueError, match="position must be 'before' or 'at', not 'after'"):
        repo.fork(session, entry_id=ids[1], position="after")
    assert len(repo.list()) == 1


@pytest.mark.parametrize("entry", [None, "leaf"])
def test_fork_of_a_compacted_session_has_the_same_context(repo: Any, session: Session, entry: str | None) -> None:
    """C083: the fork of a compacted session, whole or at its leaf, has its parent's context, and can go back behind it."""
    session.append_message(UserMessage("old", timestamp=1))
    kept = session.append_message(UserMessage("read", timestamp=1))
    session.append_message(AssistantMessage([ToolCall("1", "read")], stop_reason="toolUse", timestamp=2))
    session.append_message(ToolResultMessage("1", "read", [TextContent("text")], timestamp=3))
    session.append_compaction("S", kept, 1000)
    session.append_message(UserMessage("go on", timestamp=4))
    leaf = session.append_message(AssistantMessage([TextContent("yes")], timestamp=5))
    with repo.fork(session, entry_id=leaf if entry else None, position="at") as fork:
        assert fork.build_context() == session.build_context()
        assert [type(message).__name__ for message in fork.build_context().messages] == [
            "CompactionSummaryMessage", "UserMessage", "AssistantMessage", "ToolResultMessage", "UserMessage", "AssistantMessage",
        ]  # fmt: skip
        fork.move_to(kept)
        assert texts(fork) == ["old", "read"]


def test_parents_in_a_circle_are_an_error(session: Session) -> None:
    """Entries whose parents go round are named, not followed for ever."""
    session.append_entry({"type": "custom", "id": "a", "parentId": "b", "customType": "n"})
    session.append_entry({"type": "custom", "id": "b", "parentId": "a", "customType": "n"})
    with pytest.raises(SessionCorruptError, match="go round in a circle"):
        session.get_branch()
