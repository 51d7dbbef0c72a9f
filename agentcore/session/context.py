"""From a path to what a model gets: messages, model, thinking level, tools.

Messages come from the part behind the boundary of the newest compaction, settings from the whole path: a model chosen before a
compaction still counts after it. Entries that are plain messages, nearly all, go from their raw form to the message with nothing in
between.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from agentcore.callbacks import fit_callback
from agentcore.codec import Json, decode_tagged, nested, tagged_list
from agentcore.custom_messages import (
    AgentMessage,
    create_branch_summary_message,
    create_compaction_summary_message,
    create_custom_message,
)
from agentcore.errors import SessionCorruptError
from agentcore.session.bulk import collector_paused
from agentcore.session.entries import (
    BranchSummaryEntry,
    CompactionEntry,
    CustomEntry,
    CustomMessageEntry,
    MessageEntry,
    RawEntry,
    SessionTreeEntry,
    decode_entry,
    entry_name,
)
from agentcore.session.tree import EntryIndex
from agentcore.transcript import pair_tool_results

EntryProjector = Callable[..., "AgentMessage | Sequence[AgentMessage] | None"]
"""`(entry, index, entries)`: what a custom entry is in a context. `index` is its place among the context's `entries`."""

EntryTransform = Callable[[list[SessionTreeEntry]], Sequence[SessionTreeEntry]]
"""Takes the entries of a context and returns those that messages are made of."""


@dataclass
class SessionModel(Json):
    """The model that the session was using."""

    provider: str
    model_id: str


@dataclass
class SessionContext(Json):
    """Where a session stands: what an agent needs to go on.

    `active_tool_names` is None where the session never chose; `model` likewise.
    """

    messages: list[AgentMessage] = field(default_factory=list, metadata=tagged_list())
    thinking_level: str = "off"
    model: SessionModel | None = field(default=None, metadata=nested(SessionModel))
    active_tool_names: list[str] | None = None


def build_context(
    index: EntryIndex,
    projectors: Mapping[str, EntryProjector] | None = None,
    transforms: Sequence[EntryTransform] = (),
) -> SessionContext:
    """Return the context of the leaf: every call has exactly one result, and there is no result without its call.

    Args:
        index: The session's entries.
        projectors: By custom type: what `CustomEntry`s become; without one they are left out.
        transforms: Applied in order to the entries of the context before messages are made of them.

    Raises:
        SessionCorruptError: An entry on the path is missing or cannot be read.
    """
    with collector_paused():
        branch = index.branch()
        context = _settings(branch, index)
        raws = context_entries(branch) if "compaction" in index.kinds else branch
        has_custom = "custom" in index.kinds and projectors and any(str(raw.get("customType")) in projectors for raw in raws)
        if not transforms and not has_custom:
            context.messages = pair_tool_results(_messages(raws))
            return context
        entries = [decode_entry(raw) for raw in raws]
    context.messages = pair_tool_results(_project(entries, projectors or {}, transforms))
    return context


def fit_projectors(projectors: Mapping[str, EntryProjector]) -> dict[str, EntryProjector]:
    """Return the projectors as functions of `(entry, index, entries)`; they may be written to take fewer.

    Raises:
        TypeError: One needs more arguments.
    """
    names = ("entry", "index", "entries")
    return {kind: fit_callback(projector, names, what=f"the projector of {kind!r}") for kind, projector in projectors.items()}


def context_entries(branch: Sequence[RawEntry]) -> list[RawEntry]:
    """Return the entries of a context as a model reads them: the newest compaction, what it kept, what follows."""
    for place in range(len(branch) - 1, -1, -1):
        compaction = branch[place]
        if compaction["type"] != "compaction":
            continue
        kept: Sequence[RawEntry] = ()
        if compaction.get("retainedTail") is None and branch[0]["id"] == compaction.get("firstKeptEntryId"):
            kept = branch[:place]
        return [compaction, *kept, *branch[place + 1 :]]
    return list(branch)


def _settings(branch: Sequence[RawEntry], index: EntryIndex) -> SessionContext:
    """Return the last settings on the path, looked for backwards, also before the boundary."""
    context = SessionContext()
    if not branch:
        return context
    level = None if "thinking_level_change" in index.kinds else "off"
    has_tools = "active_tools_change" in index.kinds
    for raw in chain(reversed(branch), index.before(branch[0])):
        kind = raw["type"]
        if kind == "message":
            if context.model is None:
                message = raw.get("message")
                if type(message) is dict and message.get("role") == "assistant":
                    context.model = _model(message.get("provider"), message.get("model"))
        elif kind == "thinking_level_change":
            said = raw.get("thinkingLevel")
            level = level or (said if isinstance(said, str) else None)
        elif kind == "model_change":
            context.model = context.model or _model(raw.get("provider"), raw.get("modelId"))
        elif kind == "active_tools_change" and context.active_tool_names is None:
            names = raw.get("activeToolNames")
            context.active_tool_names = list(names) if isinstance(names, list) else None
        if context.model is not None and level is not None and (context.active_tool_names is not None or not has_tools):
            break
    context.thinking_level = level or "off"
    return context


def _model(provider: object, model_id: object) -> SessionModel | None:
    return SessionModel(provider, model_id) if isinstance(provider, str) and isinstance(model_id, str) else None


def _messages(raws: Sequence[RawEntry]) -> list[AgentMessage]:
    messages: list[AgentMessage] = []
    for place, raw in enumerate(raws):
        kind = raw["type"]
        if kind == "message":
            try:
                messages.append(decode_tagged(raw["message"]))
            except (ValueError, TypeError, AttributeError, KeyError) as error:
                raise SessionCorruptError(f"{entry_name(raw)} cannot be read: {error}", code="invalid_entry") from error
        elif kind in ("compaction", "branch_summary", "custom_message"):
            messages.extend(entry_messages(decode_entry(raw), has_tail=place == 0))
    return messages


def _project(
    entries: list[SessionTreeEntry], projectors: Mapping[str, EntryProjector], transforms: Sequence[EntryTransform]
) -> list[AgentMessage]:
    for transform in transforms:
        entries = list(transform(entries))
    fitted = fit_projectors(projectors)
    messages: list[AgentMessage] = []
    for place, entry in enumerate(entries):
        if not isinstance(entry, CustomEntry):
            messages.extend(entry_messages(entry, has_tail=place == 0))
            continue
        projector = fitted.get(entry.custom_type)
        if projector is not None:
            made = projector(entry, place, entries)
            messages.extend(made if isinstance(made, Sequence) else [made] if made is not None else [])
    return messages


def entry_messages(entry: SessionTreeEntry, *, has_tail: bool = True) -> list[AgentMessage]:
    """Return the messages that an entry is in a context.

    `has_tail` says whether a compaction brings its retained tail: the newest does; of an older one, in the part that a newer kept,
    what it retained stands on the path itself.
    """
    if isinstance(entry, MessageEntry):
        return [entry.message]
    if isinstance(entry, CustomMessageEntry):
        return [create_custom_message(entry.custom_type, entry.content, entry.display, entry.details, entry.timestamp)]
    if isinstance(entry, BranchSummaryEntry) and entry.summary:
        return [create_branch_summary_message(entry.summary, entry.from_id, entry.timestamp)]
    if isinstance(entry, CompactionEntry):
        summary = create_compaction_summary_message(entry.summary, entry.tokens_before, entry.timestamp)
        return [summary, *(entry.retained_tail or ())] if has_tail else [summary]
    return []
