"""A session: what was said, in a tree of entries, and where it stands."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from typing import Any, TypeVar

from agentcore.codec import decode_tagged, encode
from agentcore.custom_messages import AgentMessage
from agentcore.messages import ImageContent, TextContent, Usage
from agentcore.session.bulk import collector_paused
from agentcore.session.context import (
    EntryProjector,
    EntryTransform,
    SessionContext,
    build_context,
    context_entries,
    fit_projectors,
)
from agentcore.session.drawing import draw_tree
from agentcore.session.entries import BranchSummary, RawEntry, SessionTreeEntry, show_entry
from agentcore.session.storage import SessionMetadata, SessionStorage
from agentcore.session.tree import SessionStats

SessionT = TypeVar("SessionT", bound="Session")


class Session:
    """A conversation that is stored as it happens, can branch, and can be gone back to.

    Every `append_…` stores an entry below the leaf, which becomes the new leaf, and returns its id when it is stored. Nothing is
    ever changed or removed: going back is an entry too. With `with Session(…) as session` the storage is closed at the end.

    Args:
        storage: Where the entries are.
        projectors: By custom type: what a `CustomEntry` is in a context, `(entry, index, entries)` → message, messages or None.
        transforms: Each takes the entries of a context and returns those that messages are made of.

    Threads: any. What two threads append is stored one after the other.

    Example:
        >>> session = Session(JsonlSessionStorage.create("notes.jsonl", cwd="."))
        >>> hello = session.append_message(UserMessage("hello"))
        >>> session.append_label(hello, "start")
        >>> session.build_context().messages
    """

    def __init__(
        self,
        storage: SessionStorage,
        *,
        projectors: Mapping[str, EntryProjector] | None = None,
        transforms: Sequence[EntryTransform] = (),
    ) -> None:
        if not isinstance(storage, SessionStorage):
            raise TypeError(
                f"a session needs a storage, not {type(storage).__name__}: JsonlSessionStorage.create(path, cwd=…) makes one, "
                "JsonlSessionStorage.open(path) opens one"
            )
        self.storage = storage
        self.projectors = fit_projectors(projectors or {})
        self.transforms = list(transforms)

    def __repr__(self) -> str:
        place = self.metadata.path
        where = "in memory" if place is None else f"in {place}"
        return f"<Session {self.id} {where}, {len(self.storage.index.by_id)} entries>"

    # --- which session -----------------------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """The session's id."""
        return self.storage.metadata.id

    @property
    def metadata(self) -> SessionMetadata:
        """The session's id, time, working directory, path, parent and further facts."""
        return self.storage.metadata

    def get_metadata(self) -> SessionMetadata:
        """Return the session's id, time, working directory, path, parent and further facts."""
        return self.storage.metadata

    def close(self) -> None:
        """Let go of files and locks. Reading goes on, appending does not."""
        self.storage.close()

    def __enter__(self: SessionT) -> SessionT:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- appending ---------------------------------------------------------------------------------------------------

    def append_message(self, message: AgentMessage | Mapping[str, Any]) -> str:
        """Store a message and return the entry's id. A mapping is the message's JSON form, and is stored as it is.

        Raises:
            ValueError: The mapping is no message that could be read again.
            EntryNotStoredError: The entry could not be written; it says which. The session is as it was before.
            SessionLockedError: This is a forked child, and its parent has the session.
        """
        role = message.get("role") if isinstance(message, Mapping) else getattr(message, "role", None)
        if not isinstance(role, str):
            raise TypeError(f"append_message takes a message, not {type(message).__name__}: UserMessage(…) makes one of a text")
        if isinstance(message, Mapping):
            _check_message(message)
        elif not is_dataclass(message):
            raise TypeError(f"a message of class {type(message).__name__} has no JSON form: make it a dataclass, or pass a mapping")
        return self.storage.append({"type": "message", "message": message})

    def append_thinking_level_change(self, thinking_level: str) -> str:
        """Store that the model thinks this much from here on."""
        _check_text("a thinking level", thinking_level, "'high', for example")
        return self.storage.append({"type": "thinking_level_change", "thinkingLevel": thinking_level})

    def append_model_change(self, provider: str, model_id: str) -> str:
        """Store that another model answers from here on."""
        _check_text("a provider", provider, "model.provider")
        _check_text("a model id", model_id, "model.id")
        return self.storage.append({"type": "model_change", "provider": provider, "modelId": model_id})

    def append_active_tools_change(self, active_tool_names: Sequence[str]) -> str:
        """Store that the model is offered these tools from here on."""
        if isinstance(active_tool_names, str) or not all(isinstance(name, str) for name in active_tool_names):
            raise TypeError("active tools are a list of their names: [tool.name for tool in tools]")
        return self.storage.append({"type": "active_tools_change", "activeToolNames": list(active_tool_names)})

    def append_compaction(
        self,
        summary: str,
        first_kept_entry_id: str | None = None,
        tokens_before: int = 0,
        *,
        details: Any = None,
        from_hook: bool | None = None,
        usage: Usage | Mapping[str, Any] | None = None,
        retained_tail: Sequence[AgentMessage | Mapping[str, Any]] | None = None,
    ) -> str:
        """Store a summary of what lies before the kept part.

        Args:
            summary: Stands for all that is not kept.
            first_kept_entry_id: From here on the path is kept; None keeps nothing.
            tokens_before: The size of the context before, in tokens.
            details: For the program.
            from_hook: A hook made the summary.
            usage: What making it took.
            retained_tail: The kept messages themselves, in place of `first_kept_entry_id`; an empty list keeps nothing.
        """
        _check_text("a summary", summary, "what compact() returns has one")
        return self.storage.append(
            _without_none(
                {
                    "type": "compaction",
                    "summary": summary,
                    "firstKeptEntryId": first_kept_entry_id,
                    "tokensBefore": tokens_before,
                    "retainedTail": None if retained_tail is None else list(retained_tail),
                    "details": details,
                    "usage": usage,
                    "fromHook": from_hook,
                }
            )
        )

    def append_custom_entry(self, custom_type: str, data: Any = None) -> str:
        """Store something for an extension. No model sees it, unless a projector makes messages of it."""
        return self.storage.append(_without_none({"type": "custom", "customType": custom_type, "data": data}))

    def append_custom_message_entry(
        self,
        custom_type: str,
        content: str | Sequence[TextContent | ImageContent | Mapping[str, Any]],
        display: bool = True,
        details: Any = None,
    ) -> str:
        """Store a message of an extension; a model reads it as a user message."""
        return self.storage.append(
            _without_none(
                {
                    "type": "custom_message",
                    "customType": custom_type,
                    "content": content if isinstance(content, str) else list(content),
                    "display": display,
                    "details": details,
                }
            )
        )

    def append_label(self, target_id: str, label: str | None = None) -> str:
        """Name an entry; None or blanks take its name away. The label is an entry of its own and becomes the leaf.

        Raises:
            EntryNotFoundError: There is no entry `target_id`.
        """
        self.storage.index.require(target_id)
        return self.storage.append(_without_none({"type": "label", "targetId": target_id, "label": label}))

    def append_session_name(self, name: str) -> str:
        """Name the session; an empty name takes it away. Line breaks become blanks."""
        _check_text("a session's name", name, "'' takes it away")
        return self.storage.append({"type": "session_info", "name": re.sub(r"[\r\n]+", " ", name).strip()})

    def append_entry(self, entry: SessionTreeEntry | Mapping[str, Any]) -> str:
        """Store any entry, also one of a kind of your own. A missing id, parent or time is filled in."""
        return self.storage.append(entry)

    def move_to(self, entry_id: str | None, summary: str | Mapping[str, Any] | BranchSummary | None = None) -> str | None:
        """Go to an entry (None: before the first one); what is appended next becomes its child.

        An `Agent` of this session goes on from there with its next run.

        Args:
            entry_id: Where to go. The entries that are left stay in the session.
            summary: What the branch that is left has brought: a text, a `BranchSummary`, or a mapping with its keys.

        Returns:
            The id of the summary's entry, which is the leaf then; None without a summary.

        Raises:
            EntryNotFoundError: There is no such entry. Nothing has changed.
        """
        if entry_id is not None:
            self.storage.index.require(entry_id)
        told = _summary_keys(summary)
        self.storage.append({"type": "leaf", "targetId": entry_id})
        if told is None:
            return None
        return self.storage.append({"type": "branch_summary", "parentId": entry_id, "fromId": entry_id or "root", **told})

    # --- reading -----------------------------------------------------------------------------------------------------

    def get_leaf_id(self) -> str | None:
        """Return the id of the entry where the session stands; None before the first.

        Raises:
            SessionCorruptError: The session stands at an entry that it does not have; `move_to` mends that.
        """
        return self.storage.index.valid_leaf_id()

    def get_entry(self, entry_id: str) -> SessionTreeEntry | None:
        """Return an entry, None where there is none of that id. It is made for the caller, who may change it."""
        raw = self.storage.index.by_id.get(entry_id)
        return None if raw is None else show_entry(raw)

    def get_entries(self, after_entry_seq: int | None = None, limit: int | None = None) -> list[SessionTreeEntry]:
        """Return the entries in the order of storing, those of left branches too.

        Args:
            after_entry_seq: Pass over so many at the start.
            limit: Return at most so many.
        """
        start = max(after_entry_seq or 0, 0)
        raws = self.storage.index.raws
        return _show(raws[start:] if limit is None else raws[start : start + max(limit, 0)])

    def find_entries(self, type: str) -> list[SessionTreeEntry]:
        """Return the entries of one kind, in the order of storing."""
        return _show([raw for raw in self.storage.index.raws if raw["type"] == type])

    def get_branch(self, from_id: str | None = None) -> list[SessionTreeEntry]:
        """Return the path to an entry (default: the leaf), from the boundary of its newest compaction on; see `get_path`.

        Raises:
            EntryNotFoundError: There is no such entry.
            SessionCorruptError: A parent on the way is missing.
        """
        return _show(self.storage.index.branch(from_id))

    def get_path(self, from_id: str | None = None) -> list[SessionTreeEntry]:
        """Return the path to an entry (default: the leaf) from the root on, across compactions.

        Raises:
            EntryNotFoundError: There is no such entry.
            SessionCorruptError: A parent on the way is missing.
        """
        return _show(self.storage.index.whole_path(from_id))

    def get_label(self, entry_id: str) -> str | None:
        """Return the label of an entry, None where it has none."""
        return self.storage.index.labels.get(entry_id)

    def get_session_name(self) -> str | None:
        """Return the session's name, None where it has none."""
        return self.storage.index.name

    def get_session_stats(self) -> SessionStats:
        """Return what the session took, the branches that were left included."""
        return self.storage.index.stats

    def build_context_entries(self) -> list[SessionTreeEntry]:
        """Return the entries of the context in the order in which a model reads them."""
        return _show(context_entries(self.storage.index.branch()))

    def build_context(
        self,
        projectors: Mapping[str, EntryProjector] | None = None,
        transforms: Sequence[EntryTransform] | None = None,
    ) -> SessionContext:
        """Return what an agent needs to go on from the leaf: messages, thinking level, model, tools.

        The messages are made for the caller, who may change them. Every call has exactly one result: where a run was cut off, the
        missing ones say `Operation aborted`.

        Args:
            projectors: In place of the session's own.
            transforms: In place of the session's own.

        Raises:
            SessionCorruptError: An entry on the path is missing or cannot be read.
        """
        return build_context(
            self.storage.index,
            self.projectors if projectors is None else projectors,
            self.transforms if transforms is None else transforms,
        )

    def tree(self, width: int = 100) -> str:
        """Return the session as a drawing in text: branches, labels, and where it stands. Lines are at most `width` characters."""
        return draw_tree(self.storage.index, width)


def _show(raws: Sequence[RawEntry]) -> list[SessionTreeEntry]:
    with collector_paused():
        return [show_entry(raw) for raw in raws]


def _check_message(message: Mapping[str, Any]) -> None:
    try:
        decode_tagged(message)
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise ValueError(f"this is no message that could be read again: {error}; UserMessage(…) makes one of a text") from error


def _check_text(what: str, value: object, hint: str) -> None:
    if not isinstance(value, str):
        raise TypeError(f"{what} is a text, not {type(value).__name__}: {hint}")


def _without_none(raw: RawEntry) -> RawEntry:
    return {key: value for key, value in raw.items() if value is not None}


def _summary_keys(summary: str | Mapping[str, Any] | BranchSummary | None) -> RawEntry | None:
    if summary is None:
        return None
    if isinstance(summary, str):
        return {"summary": summary}
    if not isinstance(summary, (BranchSummary, Mapping)):
        raise TypeError(f"a branch summary is a text, a mapping or a BranchSummary, not {type(summary).__name__}")
    told = dict(summary) if isinstance(summary, Mapping) else encode(summary)
    if not isinstance(told.get("summary"), str):
        raise ValueError(
            f"a branch summary needs its text under the key 'summary'; it has {', '.join(map(str, told)) or 'no keys'}"
        )
    if "from_hook" in told:
        told["fromHook"] = told.pop("from_hook")
    return _without_none({key: told.get(key) for key in ("summary", "details", "usage", "fromHook")})
