"""Session files of the versions 1 and 2, and real ones."""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from agentcore.codec import decode_tagged, encode
from agentcore.custom_messages import CompactionSummaryMessage, CustomMessage
from agentcore.errors import SessionError
from agentcore.messages import UserMessage
from agentcore.session import CompactionEntry, JsonlSessionRepo, JsonlSessionStorage, Session
from agentcore.transcript import pair_tool_results


def user(text: str) -> dict[str, Any]:
    return {
        "type": "message",
        "timestamp": "2025-01-01T00:00:00.000Z",
        "message": {"role": "user", "content": text, "timestamp": 1},
    }


VERSION_1 = [
    {"type": "session", "id": "S", "timestamp": "2025-01-01T00:00:00.000Z", "cwd": "/w", "provider": "p", "branchedFrom": "/up"},
    user("a"),
    {"type": "thinking_level_change", "timestamp": "2025-01-01T00:00:00.000Z", "thinkingLevel": "high"},
    user("b"),
    {
        "type": "compaction", "timestamp": "2025-01-01T00:00:01.000Z", "summary": "S", "firstKeptEntryIndex": 3, "tokensBefore": 9,
        "extra": {"kept": None},
    },
    user("c"),
]  # fmt: skip


def write(path: Path, raws: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(raw) + "\n" for raw in raws))
    return path


def texts(session: Session) -> list[str]:
    return [message.text for message in session.build_context().messages if isinstance(message, UserMessage)]


def test_version_1_gets_ids_and_parents(tmp_path: Path) -> None:
    """One line of descent, the compaction keeps what it kept, the header's parent is found; all readers make the same ids."""
    path = write(tmp_path / "s.jsonl", VERSION_1)
    before = path.read_bytes()
    with Session(JsonlSessionStorage.open(path)) as session:
        assert session.metadata.parent_session_path == "/up"
        path_entries = session.get_path()
        assert [entry.type for entry in path_entries] == [
            "message", "thinking_level_change", "message", "compaction", "message",
        ]  # fmt: skip
        compaction = path_entries[3]
        assert isinstance(compaction, CompactionEntry)
        assert compaction.first_kept_entry_id == path_entries[2].id
        context = session.build_context()
        assert isinstance(context.messages[0], CompactionSummaryMessage)
        assert (texts(session), context.thinking_level) == (["b", "c"], "high")
        again = JsonlSessionStorage.open(path, read_only=True)
        assert again.index.raws == session.storage.index.raws
    assert path.read_bytes() == before, "nothing was appended, so nothing is written"
    assert os.listdir(tmp_path) == ["s.jsonl"]


def test_the_first_append_writes_version_3_and_keeps_the_old_file(tmp_path: Path) -> None:
    """The file is whole in version 3 then, with the header's further keys, and reads the same; the old one stays beside it."""
    path = write(tmp_path / "s.jsonl", VERSION_1)
    before = path.read_bytes()
    with Session(JsonlSessionStorage.open(path)) as session:
        entries = session.get_entries()
        made = session.append_message(UserMessage("d", timestamp=1))
        session.append_message(UserMessage("e", timestamp=1))
        assert texts(session) == ["b", "c", "d", "e"]
    assert (tmp_path / "s.jsonl.v1").read_bytes() == before
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines[0] == {
        "type": "session", "version": 3, "id": "S", "timestamp": "2025-01-01T00:00:00.000Z", "cwd": "/w", "provider": "p",
        "parentSession": "/up",
    }  # fmt: skip
    assert list(lines[1]) == ["type", "id", "parentId", "timestamp", "message"]
    assert lines[4]["extra"] == {"kept": None}
    with Session(JsonlSessionStorage.open(path)) as session:
        assert session.get_entries()[: len(entries)] == entries
        assert session.get_path()[-2].id == made
        assert texts(session) == ["b", "c", "d", "e"]
    assert sorted(os.listdir(tmp_path)) == ["s.jsonl", "s.jsonl.v1"]


def test_version_2_has_other_words_for_messages_of_extensions(tmp_path: Path) -> None:
    """`hookMessage` is `custom`; the rest stays as it is."""
    message = {"role": "hookMessage", "customType": "note", "content": "x", "display": True, "timestamp": 1}
    raws = [
        {"type": "session", "version": 2, "id": "S", "timestamp": "t", "cwd": "/w"},
        {"type": "message", "id": "abc", "parentId": None, "timestamp": "t", "message": message},
    ]
    path = write(tmp_path / "s.jsonl", raws)
    with Session(JsonlSessionStorage.open(path)) as session:
        assert session.build_context().messages == [CustomMessage("note", "x", timestamp=1)]
        session.append_label("abc", "x")
    assert (tmp_path / "s.jsonl.v2").exists()
    assert json.loads(path.read_text().splitlines()[1])["message"]["role"] == "custom"


@pytest.mark.filterwarnings("ignore::agentcore.session.SessionRepairWarning")
def test_a_torn_file_of_version_1_opens_too(tmp_path: Path) -> None:
    """The torn rest goes, what is whole stays."""
    path = write(tmp_path / "s.jsonl", VERSION_1)
    with open(path, "a") as file:
        file.write('{"type":"message","mess')
    with Session(JsonlSessionStorage.open(path)) as session:
        assert texts(session) == ["b", "c"]
        session.append_message(UserMessage("d", timestamp=1))
    with Session(JsonlSessionStorage.open(path)) as session:
        assert texts(session) == ["b", "c", "d"]


# --- real sessions ---------------------------------------------------------------------------------------------------

WIRE = Path(os.environ.get("AGENTCORE_WIRE") or Path(__file__).parents[2] / "shared" / "wire")


def real_sessions() -> list[Any]:
    files = sorted((WIRE / "sessions").glob("*.jsonl")) if WIRE.is_dir() else []
    sessions = [path for path in files if '"type":"session"' in path.open(encoding="utf-8").readline().replace(" ", "")]
    return [pytest.param(path, id=path.name) for path in sessions] or [
        pytest.param(None, marks=pytest.mark.skip(f"no wire data: {WIRE} is not there"), id="none")
    ]


@pytest.mark.parametrize("source", real_sessions())
def test_real_sessions_open_and_go_on(source: Path, tmp_path: Path) -> None:
    """A real session shows every message that its file has, goes on, and loads again the same from a file of ours."""
    raws = [json.loads(line) for line in source.read_text("utf-8").split("\n") if line.strip()]
    in_file = [raw["message"] for raw in raws if raw.get("type") == "message"]
    path = tmp_path / "s.jsonl"
    shutil.copy(source, path)
    path.chmod(0o644)
    try:
        storage = JsonlSessionStorage.open(path)
    except SessionError as error:  # a log of events begins like a session, and is none
        assert any(raw.get("type") == "agent_start" for raw in raws), error
        return
    with Session(storage) as session:
        assert [raw["message"] for raw in session.storage.index.raws if raw["type"] == "message"] == in_file
        assert len(session.get_entries()) == len(raws) - 1
        if not any(raw["type"] in ("compaction", "leaf") for raw in session.storage.index.raws):
            expected = pair_tool_results([decode_tagged(message) for message in in_file])
            assert [encode(message) for message in session.build_context().messages] == [encode(message) for message in expected]
        entries, stats, context = session.get_entries(), session.get_session_stats(), session.build_context()
        made = session.append_message(UserMessage("going on", timestamp=1))
        assert session.build_context().messages[:-1] == context.messages
    with Session(JsonlSessionStorage.open(path)) as again:
        assert again.get_entries()[:-1] == entries
        assert again.get_leaf_id() == made
        assert again.get_session_stats().total_tokens == stats.total_tokens
        with JsonlSessionRepo(tmp_path / "repo", fsync="never").fork(again) as fork:
            assert fork.get_entries() == again.get_entries()
            assert fork.build_context() == again.build_context()
            chosen = random.Random(1).choice(fork.get_path())
            fork.move_to(chosen.id)
            assert fork.get_path()[-1] == chosen
