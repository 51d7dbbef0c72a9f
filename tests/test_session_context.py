"""What a model gets of a session: messages, settings, projectors, transforms."""

from __future__ import annotations

from typing import Any

import pytest

from agentcore.custom_messages import BranchSummaryMessage, CompactionSummaryMessage, CustomMessage
from agentcore.errors import SessionCorruptError
from agentcore.messages import AssistantMessage, TextContent, ToolCall, ToolResultMessage, UserMessage
from agentcore.session import CompactionEntry, MemorySessionStorage, Session, SessionContext, SessionModel


@pytest.fixture
def session() -> Session:
    return Session(MemorySessionStorage(cwd="/w"))


def say(session: Session, *said: str) -> list[str]:
    return [session.append_message(UserMessage(text, timestamp=1)) for text in said]


def shown(session: Session, **kwargs: Any) -> list[str]:
    return [getattr(message, "summary", None) or message.text for message in session.build_context(**kwargs).messages]  # type: ignore[union-attr]


def test_an_empty_session_has_an_empty_context(session: Session) -> None:
    """No messages, no model, thinking off, no choice of tools."""
    assert session.build_context() == SessionContext([], "off", None, None)
    assert session.build_context_entries() == []


def test_settings_from_before_a_compaction_count(session: Session) -> None:
    """Level, model and tools are looked for on the whole path, also behind a retained tail; a later change wins."""
    session.append_thinking_level_change("high")
    session.append_active_tools_change(["read"])
    session.append_message(AssistantMessage([TextContent("x")], provider="p", model="m", timestamp=1))
    session.append_compaction("S", tokens_before=5, retained_tail=[UserMessage("kept", timestamp=1)])
    context = session.build_context()
    assert (context.thinking_level, context.model, context.active_tool_names) == ("high", SessionModel("p", "m"), ["read"])
    session.append_model_change("p2", "m2")
    session.append_thinking_level_change("off")
    session.append_active_tools_change([])
    context = session.build_context()
    assert (context.thinking_level, context.model, context.active_tool_names) == ("off", SessionModel("p2", "m2"), [])


def test_the_newest_compaction_decides(session: Session) -> None:
    """A compaction that keeps from before an older one shows all that it kept; what the older retained is not shown twice."""
    a, b, _ = say(session, "a", "b", "c")
    session.append_compaction("S1", tokens_before=1, retained_tail=[UserMessage("c", timestamp=1)])
    say(session, "d")
    session.append_compaction("S2", b, 2)
    say(session, "e")
    assert shown(session) == ["S2", "b", "c", "S1", "d", "e"]
    session.append_compaction("S3", a, 3)
    assert shown(session) == ["S3", "a", "b", "c", "S1", "d", "S2", "e"]
    session.append_compaction("S4")
    assert shown(session) == ["S4"]


def test_no_result_without_its_call_in_a_compacted_context(session: Session) -> None:
    """A cut between a call and its result leaves neither a result without a call nor a call without a result."""
    say(session, "go")
    session.append_message(AssistantMessage([ToolCall("1", "read")], stop_reason="toolUse", timestamp=1))
    result = session.append_message(ToolResultMessage("1", "read", [TextContent("text")], timestamp=1))
    session.append_compaction("S", result, 1)
    assert [type(message) for message in session.build_context().messages] == [CompactionSummaryMessage]
    session.append_compaction("S", tokens_before=1, retained_tail=[AssistantMessage([ToolCall("2", "read")], timestamp=1)])
    assert [type(message) for message in session.build_context().messages][1:] == [AssistantMessage, ToolResultMessage]


def test_custom_messages_and_summaries_take_the_time_of_their_entry(session: Session) -> None:
    """What is made of an entry has the entry's time, in milliseconds."""
    time = "2025-06-01T12:00:00.250+02:00"
    session.append_entry({"type": "custom_message", "timestamp": time, "customType": "t", "content": "c", "display": False})
    session.append_entry({"type": "branch_summary", "timestamp": time, "fromId": "root", "summary": "B"})
    session.append_entry({"type": "branch_summary", "timestamp": "whenever", "fromId": "root", "summary": "B"})
    session.append_entry({"type": "branch_summary", "timestamp": time, "fromId": "root", "summary": ""})
    assert session.build_context().messages == [
        CustomMessage("t", "c", False, timestamp=1748772000250),
        BranchSummaryMessage("B", "root", timestamp=1748772000250),
        BranchSummaryMessage("B", "root", timestamp=0),
    ]


def test_a_projector_makes_messages_of_custom_entries() -> None:
    """It gets the entry, its place and the entries, as many of them as it takes, and gives a message, messages or nothing."""
    session = Session(
        MemorySessionStorage(),
        projectors={
            "one": lambda entry: UserMessage(f"one {entry.data}", timestamp=1),
            "two": lambda entry, index, entries: [UserMessage(f"{index} of {len(entries)}", timestamp=1)] * 2,
            "none": lambda: None,
        },
    )
    say(session, "a")
    for kind in ("one", "two", "none", "other"):
        session.append_custom_entry(kind, {"n": 1})
    assert shown(session) == ["a", "one {'n': 1}", "2 of 5", "2 of 5"]
    assert shown(session, projectors={}) == ["a"]
    with pytest.raises(TypeError, match="the projector of 'x' gets at most 3 arguments"):
        Session(MemorySessionStorage(), projectors={"x": lambda a, b, c, d: None})


def test_transforms_change_the_entries_of_a_context() -> None:
    """They run in order, over the entries as a model reads them; the session itself stays as it is."""
    seen: list[list[str]] = []

    def look(entries: list[Any]) -> list[Any]:
        seen.append([entry.type for entry in entries])
        return entries[1:]

    def reverse(entries: list[Any]) -> list[Any]:
        return entries[::-1]

    session = Session(MemorySessionStorage(), transforms=[look, reverse])
    _, b, _ = say(session, "a", "b", "c")
    session.append_compaction("S", b, 1)
    assert shown(session) == ["c", "b"]
    assert seen == [["compaction", "message", "message"]]
    assert shown(session, transforms=[]) == ["S", "b", "c"]
    assert isinstance(session.build_context_entries()[0], CompactionEntry)


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("hello", "an object with a role or type was expected, not str"),
        ({"role": 5, "content": []}, "role must be a string, not int"),
        ({"role": "assistant", "content": [], "usage": "much"}, "the JSON of Usage must be an object, not str"),
        ({"role": "user", "content": [{"type": "text"}]}, "the JSON of TextContent has no key 'text'"),
    ],
)
def test_a_message_of_another_shape_is_no_message(session: Session, message: Any, words: str) -> None:
    """What a foreign program wrote in place of a message is an error that names the entry, not an object that breaks later."""
    session.append_entry({"type": "message", "id": "odd", "message": message})
    with pytest.raises(SessionCorruptError, match=rf"entry 'odd' \(message\) cannot be read: {words}"):
        session.build_context()
    assert [type(entry).__name__ for entry in session.get_entries()] == ["UnknownEntry"]
    assert "odd" in session.tree()


def test_an_entry_that_cannot_be_read_is_named(session: Session) -> None:
    """A message entry without a message fails the context with its id; the session can still be looked at."""
    say(session, "a")
    session.append_entry({"type": "message", "id": "bad"})
    with pytest.raises(SessionCorruptError, match=r"entry 'bad' \(message\) cannot be read") as caught:
        session.build_context()
    assert caught.value.code == "invalid_entry"
    assert [entry.id for entry in session.get_branch()][1] == "bad"
    session.append_entry({"type": "compaction", "id": "worse", "parentId": None})
    with pytest.raises(SessionCorruptError, match=r"entry 'worse' \(compaction\) cannot be read"):
        session.build_context()


def test_a_branch_of_a_file_without_its_beginning(session: Session) -> None:
    """The reference's forks lack what was before the boundary: context and whole path are what there is."""
    session.append_entry(
        {"type": "message", "id": "kept", "parentId": "gone", "message": {"role": "user", "content": "k", "timestamp": 1}}
    )
    session.append_compaction("S", "kept", 1)
    assert shown(session) == ["S", "k"]
    assert session.get_path()[0].id == "kept"
    session.move_to("kept")
    with pytest.raises(SessionCorruptError, match=r"entry 'kept' \(message\) comes after entry 'gone', which the session does not"):
        session.build_context()
