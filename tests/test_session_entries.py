"""Entries of every kind, their ids and times, and the way through a file and back."""

from __future__ import annotations

import json
import re
import tempfile
import uuid
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentcore.codec import encode
from agentcore.messages import AssistantMessage, TextContent, ToolResultMessage, UserMessage
from agentcore.session import (
    ActiveToolsChangeEntry,
    BranchSummaryEntry,
    CompactionEntry,
    CustomEntry,
    CustomMessageEntry,
    JsonlSessionStorage,
    LabelEntry,
    LeafEntry,
    MessageEntry,
    ModelChangeEntry,
    Session,
    SessionInfoEntry,
    SessionTreeEntry,
    SqliteSessionStorage,
    ThinkingLevelChangeEntry,
    UnknownEntry,
)
from agentcore.session.entries import decode_entry, encode_entry, new_entry_id, new_session_id, now_iso

TIME = "2025-06-01T10:00:00.000Z"
ONE_OF_EACH: list[SessionTreeEntry] = [
    MessageEntry("1", None, TIME, UserMessage("x", timestamp=1)),
    ThinkingLevelChangeEntry("2", "1", TIME, "high"),
    ModelChangeEntry("3", "2", TIME, "p", "m"),
    ActiveToolsChangeEntry("4", "3", TIME, ["read"]),
    CompactionEntry("5", "4", TIME, "S", "1", 10, [UserMessage("x", timestamp=1)], {"files": []}, None, True),
    BranchSummaryEntry("6", "5", TIME, "1", "B"),
    CustomEntry("7", "6", TIME, "note", [1, None]),
    CustomMessageEntry("8", "7", TIME, "note", [TextContent("x")], False),
    LabelEntry("9", "8", TIME, "1", "start"),
    SessionInfoEntry("10", "9", TIME, "name"),
    LeafEntry("11", "10", TIME, None),
    UnknownEntry("12", None, TIME, {"where": 1}, "bookmark"),
]


@pytest.mark.parametrize("entry", ONE_OF_EACH, ids=lambda entry: entry.type)
def test_every_kind_has_a_json_form(entry: SessionTreeEntry) -> None:
    """The fast way and the public way agree, both ways; the keys come in the order in which pi writes them."""
    raw = encode_entry(entry)
    assert list(raw)[:4] == ["type", "id", "parentId", "timestamp"]
    assert decode_entry(raw) == entry
    assert entry.to_dict() == raw
    assert type(entry).from_dict(raw) == entry
    assert type(entry).from_json(entry.to_json()) == entry


def test_every_kind_comes_back_from_a_file(tmp_path: Path) -> None:
    """Entries that were stored are equal to those that are read."""
    for kind in (JsonlSessionStorage, SqliteSessionStorage):
        with Session(kind.create(tmp_path / kind.__name__, cwd="/w")) as session:
            for entry in ONE_OF_EACH:
                session.append_entry(entry)
            assert session.get_entries() == ONE_OF_EACH
        with Session(kind.open(tmp_path / kind.__name__)) as session:
            assert session.get_entries() == ONE_OF_EACH


texts = st.text(st.characters(exclude_categories=()), max_size=20) | st.sampled_from(
    ["\ud83d", "\udc00x", "a\u2028b\u2029c\u0085", "\0\x1f\x7f", "\ud83d\ude00", "😀", "x" * 1_000_000, '"\\/\n\r']
)
keys = st.text(max_size=8) | st.sampled_from(["parent_id", "id2", "future"])
scalars = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=True, allow_infinity=True) | texts
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3), max_leaves=8)
unknown = st.dictionaries(keys.map(lambda key: f"x{key}"), values, max_size=3)
messages = st.one_of(
    st.builds(UserMessage, texts, timestamp=st.integers(0, 2**53)),
    st.builds(lambda text, stamp: AssistantMessage([TextContent(text)], timestamp=stamp), texts, st.integers(0, 2**53)),
    st.builds(lambda text, details: ToolResultMessage("1", "f", [TextContent(text)], details, timestamp=1), texts, values),
).map(encode)
bodies = st.one_of(
    st.fixed_dictionaries({"type": st.just("message"), "message": st.builds(lambda a, b: {**b, **a}, messages, unknown)}),
    st.fixed_dictionaries({"type": st.just("thinking_level_change"), "thinkingLevel": texts}),
    st.fixed_dictionaries({"type": st.just("model_change"), "provider": texts, "modelId": texts}),
    st.fixed_dictionaries({"type": st.just("active_tools_change"), "activeToolNames": st.lists(texts, max_size=3)}),
    st.fixed_dictionaries(
        {"type": st.just("compaction"), "summary": texts, "tokensBefore": st.integers(0), "details": values},
        optional={"retainedTail": st.lists(messages, max_size=2), "firstKeptEntryId": texts, "fromHook": st.booleans()},
    ),
    st.fixed_dictionaries({"type": st.just("branch_summary"), "fromId": texts, "summary": texts, "details": values}),
    st.fixed_dictionaries({"type": st.just("custom"), "customType": texts, "data": values}),
    st.fixed_dictionaries({"type": st.just("custom_message"), "customType": texts, "content": texts, "display": st.booleans()}),
    st.fixed_dictionaries({"type": st.just("label"), "targetId": texts}, optional={"label": texts}),
    st.fixed_dictionaries({"type": st.just("session_info"), "name": texts}),
    st.fixed_dictionaries({"type": st.just("leaf"), "targetId": st.none() | texts}),
    st.fixed_dictionaries({"type": st.text(min_size=1, max_size=5).map(lambda word: f"x-{word}"), "data": values}),
)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.tuples(bodies, unknown), min_size=1, max_size=6))
def test_any_entry_comes_back_from_a_file(made: list[tuple[dict[str, Any], dict[str, Any]]]) -> None:
    """C094: every kind, unknown keys, halves of surrogate pairs, NaN (stored as null), U+2028, a megabyte: it comes back equal."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "s.jsonl"
        with Session(JsonlSessionStorage.create(path, cwd="/w", fsync="never")) as session:
            for body, extra in made:
                session.append_entry({"parentId": None, **extra, **body})
            entries = session.get_entries()
            raws = list(session.storage.index.raws)
            stats = session.get_session_stats()
            name, labels = session.get_session_name(), dict(session.storage.index.labels)
        data = path.read_bytes()
        again = Session(JsonlSessionStorage.open(path, read_only=True))
        assert again.storage.index.raws == raws
        assert again.get_entries() == entries
        assert (again.get_session_stats(), again.get_session_name(), again.storage.index.labels) == (stats, name, labels)
    lines = data.decode("utf-8").split("\n")
    assert len(lines) == len(made) + 2

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    for (body, extra), line in zip(made, lines[1:], strict=False):
        assert set(json.loads(line, parse_constant=refuse)) >= {*body, *extra}


def test_half_a_surrogate_pair_and_nan_are_stored(tmp_path: Path) -> None:
    """C094: what a tool gives back is stored as valid UTF-8 and JSON, whatever it is."""
    path = tmp_path / "s.jsonl"
    details = {"value": float("nan"), 5: {1, 2}, "path": Path("/x"), "bytes": b"\xff"}
    with Session(JsonlSessionStorage.create(path, cwd="/w")) as session:
        session.append_message(ToolResultMessage("1", "f", [TextContent("\ud83d")], details, timestamp=1))
        live = session.get_entries()
    text = path.read_bytes().decode("utf-8")
    assert "NaN" not in text
    assert "\\ud83d" in text
    again = Session(JsonlSessionStorage.open(path, read_only=True))
    assert again.get_entries() == live
    message = again.get_entries()[0].message  # type: ignore[union-attr]
    assert message.text == "\ud83d"
    assert message.details == {"value": None, "5": [1, 2], "path": "/x", "bytes": "\ufffd"}


def test_ids_and_times() -> None:
    """Entry ids are eight hex digits and never one that is taken; session ids are UUIDs of version 7, in the order of making."""
    taken: set[str] = set()
    for _ in range(1000):
        taken.add(new_entry_id(taken))
    assert len(taken) == 1000
    assert all(re.fullmatch("[0-9a-f]{8}", made) for made in taken)

    class AllButOne:
        asked = 0

        def __contains__(self, made: object) -> bool:
            self.asked += 1
            return self.asked < 5

    picky = AllButOne()
    new_entry_id(picky)
    assert picky.asked == 5
    made = uuid.UUID(new_session_id())
    assert (made.version, made.variant) == (7, uuid.RFC_4122)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", now_iso())
