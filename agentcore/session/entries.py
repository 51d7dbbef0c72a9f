"""What a session is made of: entries, each with an id and the id of its parent, one line of JSON each.

The JSON is that of pi's session format, version 3. A storage keeps every entry as it was read or written (the *raw* entry, a
mapping), so that kinds and keys that the library does not know survive; the dataclasses here are made from it when somebody asks.
`LeafEntry` and `LabelEntry` are about other entries: a leaf entry says where the session stands, a label names an entry.
"""

from __future__ import annotations

import os
import time
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Union

from agentcore.codec import OMIT_NONE, Json, camel_case, decode, encode, nested, tagged, tagged_blocks, tagged_list
from agentcore.custom_messages import AgentMessage
from agentcore.errors import SessionCorruptError
from agentcore.messages import ImageContent, TextContent, Usage

RawEntry = dict[str, Any]
"""An entry as it stands in a file."""

SESSION_VERSION = 3


# --- ids and times ---------------------------------------------------------------------------------------------------


def new_entry_id(taken: Container[str]) -> str:
    """Return eight random hex digits that are not among the ids in `taken`."""
    while True:
        # The system's random numbers: a forked child would repeat those of `random`.
        made = os.urandom(4).hex()
        if made not in taken:
            return made


def new_session_id() -> str:
    """Return a UUID of version 7: ids sort by the time at which they were made."""
    value = (time.time_ns() // 1_000_000) << 80 | int.from_bytes(os.urandom(10), "big")
    value = value & ~(0xF << 76) & ~(0x3 << 62) | 0x7 << 76 | 0x2 << 62
    digits = f"{value:032x}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def now_iso() -> str:
    """Return the time as an ISO-8601 string in UTC, with milliseconds and `Z`."""
    seconds, nanoseconds = divmod(time.time_ns(), 1_000_000_000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{nanoseconds // 1_000_000:03d}Z"


# --- the kinds of entries --------------------------------------------------------------------------------------------


@dataclass
class MessageEntry(Json):
    """A message of the conversation."""

    id: str
    parent_id: str | None
    timestamp: str
    message: AgentMessage = field(metadata=tagged())
    type: Literal["message"] = "message"

    @property
    def agent_message(self) -> AgentMessage:
        """The message, under the seeds' name."""
        return self.message


@dataclass
class ThinkingLevelChangeEntry(Json):
    """From here on the model thinks this much. The level is kept as it was written."""

    id: str
    parent_id: str | None
    timestamp: str
    thinking_level: str
    type: Literal["thinking_level_change"] = "thinking_level_change"


@dataclass
class ModelChangeEntry(Json):
    """From here on another model answers."""

    id: str
    parent_id: str | None
    timestamp: str
    provider: str
    model_id: str
    type: Literal["model_change"] = "model_change"


@dataclass
class ActiveToolsChangeEntry(Json):
    """From here on the model is offered these tools."""

    id: str
    parent_id: str | None
    timestamp: str
    active_tool_names: list[str]
    type: Literal["active_tools_change"] = "active_tools_change"


@dataclass
class CompactionEntry(Json):
    """Stands for what lies before the kept part of its path.

    What is kept are the entries from `first_kept_entry_id` on or, where `retained_tail` is given (an empty list too), the
    messages of that list. `tokens_before` is the size of the context before the compaction.
    """

    id: str
    parent_id: str | None
    timestamp: str
    summary: str
    first_kept_entry_id: str | None = field(default=None, metadata=OMIT_NONE)
    tokens_before: int = 0
    retained_tail: list[AgentMessage] | None = field(
        default=None, metadata={"dataclasses_json": {**tagged_list()["dataclasses_json"], **OMIT_NONE["dataclasses_json"]}}
    )
    details: Any = field(default=None, metadata=OMIT_NONE)
    usage: Usage | None = field(default=None, metadata=nested(Usage, omit_none=True))
    from_hook: bool | None = field(default=None, metadata=OMIT_NONE)
    type: Literal["compaction"] = "compaction"


@dataclass
class BranchSummaryEntry(Json):
    """Stands for a branch that was left. `from_id` is the entry at which the session went on, or `root`."""

    id: str
    parent_id: str | None
    timestamp: str
    from_id: str
    summary: str
    details: Any = field(default=None, metadata=OMIT_NONE)
    usage: Usage | None = field(default=None, metadata=nested(Usage, omit_none=True))
    from_hook: bool | None = field(default=None, metadata=OMIT_NONE)
    type: Literal["branch_summary"] = "branch_summary"


@dataclass
class CustomEntry(Json):
    """Something that an extension remembers. No model sees it, unless a projector makes messages of it."""

    id: str
    parent_id: str | None
    timestamp: str
    custom_type: str
    data: Any = field(default=None, metadata=OMIT_NONE)
    type: Literal["custom"] = "custom"


@dataclass
class CustomMessageEntry(Json):
    """A message of an extension; in a context it is a `CustomMessage`."""

    id: str
    parent_id: str | None
    timestamp: str
    custom_type: str
    content: list[TextContent | ImageContent] = field(metadata=tagged_blocks())
    display: bool = True
    details: Any = field(default=None, metadata=OMIT_NONE)
    type: Literal["custom_message"] = "custom_message"


@dataclass
class LabelEntry(Json):
    """Names the entry `target_id`; without a label it takes the name away. Labels belong to the whole session."""

    id: str
    parent_id: str | None
    timestamp: str
    target_id: str
    label: str | None = field(default=None, metadata=OMIT_NONE)
    type: Literal["label"] = "label"


@dataclass
class SessionInfoEntry(Json):
    """Names the session; the last one counts, and an empty name takes it away."""

    id: str
    parent_id: str | None
    timestamp: str
    name: str | None = field(default=None, metadata=OMIT_NONE)
    type: Literal["session_info"] = "session_info"


@dataclass
class LeafEntry(Json):
    """Says that the session went to `target_id`, or before the first entry where that is None."""

    id: str
    parent_id: str | None
    timestamp: str
    target_id: str | None
    type: Literal["leaf"] = "leaf"


@dataclass(init=False)
class UnknownEntry(Json):
    """An entry of a kind that the library does not know. `fields` is all but its id, parent, time and type, as it was.

    `type` may be any word; a type checker is told that it is none of the known ones, so that `entry.type == "message"` tells
    entries apart. To compare it with a word of your own, write `str(entry.type)`.
    """

    id: str
    parent_id: str | None
    timestamp: str
    fields: dict[str, Any]
    type: Literal["*"]

    def __init__(self, id: str, parent_id: str | None, timestamp: str, fields: Mapping[str, Any], type: str) -> None:
        self.id = id
        self.parent_id = parent_id
        self.timestamp = timestamp
        self.fields = dict(fields)
        self.type = type  # type: ignore[assignment]

    def _encode(self) -> RawEntry:
        base = {"type": self.type, "id": self.id, "parentId": self.parent_id, "timestamp": self.timestamp}
        return {**base, **self.fields}

    @classmethod
    def _decode(cls, raw: Mapping[str, Any]) -> UnknownEntry:
        fields = {key: value for key, value in raw.items() if key not in ("type", "id", "parentId", "timestamp")}
        return cls(raw["id"], raw["parentId"], raw["timestamp"], fields, raw["type"])

    def to_dict(self) -> RawEntry:
        """Return the JSON form."""
        return self._encode()

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> UnknownEntry:
        """Make an entry from its JSON form."""
        return cls._decode(raw)


SessionTreeEntry = Union[
    MessageEntry,
    ThinkingLevelChangeEntry,
    ModelChangeEntry,
    ActiveToolsChangeEntry,
    CompactionEntry,
    BranchSummaryEntry,
    CustomEntry,
    CustomMessageEntry,
    LabelEntry,
    SessionInfoEntry,
    LeafEntry,
    UnknownEntry,
]
"""All that a session may hold."""

_CLASSES: dict[str, type[Json]] = {
    "message": MessageEntry,
    "thinking_level_change": ThinkingLevelChangeEntry,
    "model_change": ModelChangeEntry,
    "active_tools_change": ActiveToolsChangeEntry,
    "compaction": CompactionEntry,
    "branch_summary": BranchSummaryEntry,
    "custom": CustomEntry,
    "custom_message": CustomMessageEntry,
    "label": LabelEntry,
    "session_info": SessionInfoEntry,
    "leaf": LeafEntry,
}


@dataclass
class BranchSummary(Json):
    """What `Session.move_to` writes down of the branch that is left. `from_hook` says that a hook made it."""

    summary: str
    details: Any = field(default=None, metadata=OMIT_NONE)
    usage: Usage | None = field(default=None, metadata=nested(Usage, omit_none=True))
    from_hook: bool | None = field(default=None, metadata=OMIT_NONE)


# --- raw entries and dataclasses -------------------------------------------------------------------------------------


def decode_entry(raw: Mapping[str, Any]) -> SessionTreeEntry:
    """Make the dataclass of a raw entry.

    Raises:
        SessionCorruptError: A key is missing or holds something else than its kind allows. The text names the entry.
    """
    cls = _CLASSES.get(raw["type"], UnknownEntry)
    try:
        made: Any = decode(cls, raw)
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise SessionCorruptError(f"{entry_name(raw)} cannot be read: {error}", code="invalid_entry") from error
    entry: SessionTreeEntry = made
    return entry


def encode_entry(entry: SessionTreeEntry | Mapping[str, Any]) -> RawEntry:
    """Return the raw form of an entry, the keys in the order in which pi writes them.

    Of a mapping a copy is returned, in which the objects of the library are still objects: writing it as JSON encodes them.
    """
    if isinstance(entry, Mapping):
        return dict(entry)
    raw = encode(entry)
    return {"type": raw.pop("type"), **raw}


def show_entry(raw: Mapping[str, Any]) -> SessionTreeEntry:
    """Make the dataclass of a raw entry; one that cannot be read as its kind is an `UnknownEntry`, so that it can be looked at."""
    try:
        return decode_entry(raw)
    except SessionCorruptError:
        return UnknownEntry.from_dict(raw)


def entry_name(raw: Mapping[str, Any]) -> str:
    """Return how an error speaks of an entry."""
    return f"entry {raw.get('id')!r} ({raw.get('type')})"


def entry_fault(raw: Any) -> str | None:
    """Return what is wrong with the frame of a raw entry, None where it can be taken."""
    if isinstance(raw, list):
        return "has no entry type"
    if not isinstance(raw, dict):
        return "is no session entry"
    if not isinstance(raw.get("type"), str):
        return "has no entry type"
    if not isinstance(raw.get("id"), str) or not raw["id"]:
        return "has no entry id"
    if not isinstance(raw.get("parentId", 0), (str, type(None))):
        return "has no valid parentId"
    if not isinstance(raw.get("timestamp"), str):
        return "has no timestamp"
    if raw["type"] == "leaf" and not isinstance(raw.get("targetId", 0), (str, type(None))):
        return "has no valid targetId"
    return None


def with_camel_case_keys(raw: RawEntry) -> RawEntry:
    """Return a raw entry whose own keys and those of its message and usages are camelCase; what a tool or user put in stays."""
    made = {camel_case(key) if "_" in key else key: value for key, value in raw.items()}
    for key in ("message", "usage", "cost"):
        if isinstance(made.get(key), dict):
            made[key] = with_camel_case_keys(made[key])
    return made
