"""The index of a session's entries: path to the root, labels, name, figures. All storages share it.

Entries form a tree by their parents' ids. The *leaf* is where the session stands: the entry appended last, or where the last leaf
entry points. Everything that is asked for often is brought up to date as an entry comes in, so it costs the same however many
branches were left behind; a path costs its own length.

    root ── a ── b ── c            abandoned
                 └── d ── e        leaf

A path has a *boundary* where it was compacted: what lies before is summarised and no part of the context. The boundary of the
newest compaction counts: the compaction itself if it has a retained tail, else its first kept entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from agentcore.codec import Json
from agentcore.errors import EntryNotFoundError, SessionCorruptError, SessionError
from agentcore.session.entries import RawEntry, entry_name


@dataclass
class SessionStats(Json):
    """What the whole session took, the branches that were left included.

    Counted are the usages of answers, compactions and branch summaries. `uncached_tokens` are input and cache writes,
    `cached_tokens` are cache reads; `cost_total` is in US dollars.
    """

    message_count: int = 0
    cached_tokens: int = 0
    uncached_tokens: int = 0
    total_tokens: int = 0
    cost_total: float = 0


class EntryIndex:
    """The raw entries of a session, in order, and what can be said of them without walking all.

    Threads: one thread adds at a time (the storage's lock); any may read.
    """

    def __init__(self) -> None:
        self.raws: list[RawEntry] = []
        self.by_id: dict[str, RawEntry] = {}  # of two entries with one id, the later
        self.leaf_id: str | None = None
        self.name: str | None = None
        self.labels: dict[str, str] = {}
        self.kinds: set[str] = set()  # of all entries but messages: what a session never had need not be looked for
        self._stats = SessionStats()

    def add(self, raw: RawEntry) -> None:
        """Take in one entry."""
        self.add_all((raw,))

    def add_all(self, raws: Iterable[RawEntry]) -> None:
        """Take in entries whose frames are in order."""
        by_id = self.by_id
        append = self.raws.append
        stats = self._stats
        leaf_id = self.leaf_id
        for raw in raws:
            append(raw)
            leaf_id = raw["id"]
            by_id[leaf_id] = raw
            kind = raw["type"]
            if kind == "message":
                stats.message_count += 1
                message = raw.get("message")
                if type(message) is dict and message.get("role") == "assistant":
                    self._count(message.get("usage"))
                continue
            self.kinds.add(kind)
            if kind == "leaf":
                leaf_id = raw["targetId"]
            elif kind == "label":
                self._set_label(raw)
            elif kind == "session_info":
                name = raw.get("name")
                self.name = (name.strip() or None) if isinstance(name, str) else None
            elif kind in ("compaction", "branch_summary"):
                self._count(raw.get("usage"))
        self.leaf_id = leaf_id

    def _set_label(self, raw: RawEntry) -> None:
        label = raw.get("label")
        label = label.strip() if isinstance(label, str) else ""
        target = raw.get("targetId")
        if not isinstance(target, str):
            return
        if label:
            self.labels[target] = label
        else:
            self.labels.pop(target, None)

    def _count(self, usage: Any) -> None:
        try:
            read, write = usage["cacheRead"], usage["cacheWrite"]
            sent, received, total = usage["input"], usage["output"], usage["totalTokens"]
            cost = usage["cost"]["total"]
            if not all(type(value) in (int, float) for value in (read, write, sent, received, total, cost)):
                return
        except (KeyError, TypeError):
            return  # incomplete figures are left out altogether
        stats = self._stats
        stats.cached_tokens += read
        stats.uncached_tokens += sent + write
        stats.total_tokens += total
        stats.cost_total += cost

    @property
    def stats(self) -> SessionStats:
        """What the session took so far."""
        return SessionStats(**vars(self._stats))

    def valid_leaf_id(self) -> str | None:
        """Return the leaf's id.

        Raises:
            SessionCorruptError: A leaf entry points to an entry that is not there. Moving to another entry repairs that.
        """
        if self.leaf_id is not None and self.leaf_id not in self.by_id:
            raise SessionCorruptError(f"the session stands at entry {self.leaf_id!r}, which it does not have; use move_to() first")
        return self.leaf_id

    def require(self, entry_id: str) -> RawEntry:
        """Return the entry of that id.

        Raises:
            EntryNotFoundError: There is none.
        """
        raw = self.by_id.get(entry_id)
        if raw is None:
            raise EntryNotFoundError(f"the session has no entry {entry_id!r}; get_entries() has those that there are")
        return raw

    def branch(self, from_id: str | None = None) -> list[RawEntry]:
        """Return the path to an entry (default: the leaf), from the boundary of its newest compaction on.

        Raises:
            EntryNotFoundError: There is no entry of that id.
            SessionCorruptError: A parent on the way is missing, or the parents go round in a circle.
        """
        path: list[RawEntry] = []
        self._walk(from_id, path)
        path.reverse()
        return path

    def whole_path(self, from_id: str | None = None) -> list[RawEntry]:
        """Return the path to an entry (default: the leaf) from the root on.

        A file may hold no more than the part behind a boundary (the reference forks so); then the path begins there.

        Raises:
            EntryNotFoundError: There is no entry of that id.
            SessionCorruptError: A parent that the context needs is missing, or the parents go round in a circle.
        """
        path: list[RawEntry] = []
        self._walk(from_id, path)
        if path:
            path.extend(self.before(path[-1]))
        path.reverse()
        return path

    def before(self, raw: Mapping[str, Any]) -> Iterable[RawEntry]:
        """Give the entries before one, backwards, as far as there are any."""
        seen = 0
        parent = self.by_id.get(raw["parentId"] or "")
        while parent is not None and seen <= len(self.by_id):
            yield parent
            seen += 1
            parent = self.by_id.get(parent["parentId"] or "")

    def _walk(self, from_id: str | None, path: list[RawEntry]) -> None:
        """Append the entries from one back to its boundary or the root."""
        if from_id is None:
            from_id = self.valid_leaf_id()
            if from_id is None:
                return
        by_id = self.by_id
        raw = self.require(from_id)
        boundary: str | None = None
        is_compacted = False
        limit = len(by_id)
        while True:
            path.append(raw)
            if raw["id"] == boundary:
                return
            if raw["type"] == "compaction" and not is_compacted:
                is_compacted = True
                if raw.get("retainedTail") is not None:
                    return
                boundary = raw.get("firstKeptEntryId")
            parent_id = raw["parentId"]
            if not parent_id:
                return
            parent = by_id.get(parent_id)
            if parent is None:
                raise SessionCorruptError(f"{entry_name(raw)} comes after entry {parent_id!r}, which the session does not have")
            if len(path) > limit:
                raise SessionCorruptError(f"the parents of {entry_name(raw)} go round in a circle")
            raw = parent


def entries_for_fork(index: EntryIndex, entry_id: str | None, position: str) -> list[RawEntry]:
    """Return what a fork copies: all entries, or the whole path up to an entry; of a leaf entry, up to where it points.

    Raises:
        SessionError: The entry is not there, or position `before` was asked for at something else than a user message; `code` is
            `invalid_fork_target`.
    """
    if entry_id is None:
        return list(index.raws)
    raw = index.by_id.get(entry_id)
    if raw is None:
        raise SessionError(f"cannot fork at entry {entry_id!r}: the session does not have it", code="invalid_fork_target")
    if position == "at":
        if raw["type"] == "leaf":  # the fork would stand at an entry that it does not have
            return index.whole_path(raw["targetId"]) if raw["targetId"] else []
        return index.whole_path(entry_id)
    if position != "before":
        raise ValueError(f"position must be 'before' or 'at', not {position!r}")
    message = raw.get("message")
    if raw["type"] != "message" or not isinstance(message, dict) or message.get("role") != "user":
        raise SessionError(
            f"cannot fork before {entry_name(raw)}: it is no user message; position='at' forks with any entry",
            code="invalid_fork_target",
        )
    return index.whole_path(raw["parentId"]) if raw["parentId"] else []
