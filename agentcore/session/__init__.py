"""The session room: conversations that are stored as they happen, branch, and survive everything.

May import the words, and nothing else of the library. A `Session` appends to and reads from a storage; a repo makes, lists, opens,
forks and deletes sessions. `entries.py` has the entries, `jsonl_file.py` what is known of the file.
"""

from typing import TYPE_CHECKING, Any

from agentcore.errors import EntryNotStoredError
from agentcore.session.context import EntryProjector, EntryTransform, SessionContext, SessionModel
from agentcore.session.entries import (
    ActiveToolsChangeEntry,
    BranchSummary,
    BranchSummaryEntry,
    CompactionEntry,
    CustomEntry,
    CustomMessageEntry,
    LabelEntry,
    LeafEntry,
    MessageEntry,
    ModelChangeEntry,
    SessionInfoEntry,
    SessionTreeEntry,
    ThinkingLevelChangeEntry,
    UnknownEntry,
)
from agentcore.session.jsonl import JsonlSessionRepo, JsonlSessionStorage
from agentcore.session.jsonl_file import SessionRepairWarning
from agentcore.session.memory import MemorySessionRepo, MemorySessionStorage
from agentcore.session.session import Session
from agentcore.session.storage import SessionMetadata, SessionRepo, SessionStorage
from agentcore.session.tree import SessionStats

if TYPE_CHECKING:
    from agentcore.session.sqlite import SqliteSessionRepo as SqliteSessionRepo
    from agentcore.session.sqlite import SqliteSessionStorage as SqliteSessionStorage
else:

    def __getattr__(name: str) -> Any:
        # Not every Python has SQLite, and files need none.
        if name in ("SqliteSessionRepo", "SqliteSessionStorage"):
            from agentcore.session import sqlite

            return getattr(sqlite, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "ActiveToolsChangeEntry",
    "BranchSummary",
    "BranchSummaryEntry",
    "CompactionEntry",
    "CustomEntry",
    "CustomMessageEntry",
    "EntryNotStoredError",
    "EntryProjector",
    "EntryTransform",
    "JsonlSessionRepo",
    "JsonlSessionStorage",
    "LabelEntry",
    "LeafEntry",
    "MemorySessionRepo",
    "MemorySessionStorage",
    "MessageEntry",
    "ModelChangeEntry",
    "Session",
    "SessionContext",
    "SessionInfoEntry",
    "SessionMetadata",
    "SessionModel",
    "SessionRepairWarning",
    "SessionRepo",
    "SessionStats",
    "SessionStorage",
    "SessionTreeEntry",
    "SqliteSessionRepo",
    "SqliteSessionStorage",
    "ThinkingLevelChangeEntry",
    "UnknownEntry",
]
