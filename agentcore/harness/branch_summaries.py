"""What was found on a branch that the user leaves: which entries it has, and their summary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from agentcore.custom_messages import AgentMessage
from agentcore.errors import EntryNotFoundError, SessionCorruptError
from agentcore.harness.file_operations import FileOperations, format_file_operations
from agentcore.harness.summaries import BRANCH_INSTRUCTIONS, Summarizer, serialize_conversation, summary_prompt
from agentcore.harness.tokens import estimate_tokens
from agentcore.messages import ToolResultMessage, Usage, content_text
from agentcore.session.context import entry_messages
from agentcore.session.entries import BranchSummaryEntry, CompactionEntry, SessionTreeEntry
from agentcore.transcript import convert_to_llm

PREAMBLE = "The user explored a different conversation branch before returning here.\nSummary of that exploration:\n\n"
NOTHING_TO_SUMMARIZE = "No content to summarize"
MAX_SUMMARY_TOKENS = 2048
DEFAULT_RESERVE_TOKENS = 16384
DEFAULT_CONTEXT_WINDOW = 128_000
"""Taken where a model's window is not known."""


class EntrySource(Protocol):
    """What a branch is looked up in; a `Session` is one."""

    def get_entry(self, entry_id: str) -> SessionTreeEntry | None: ...


@dataclass
class CollectedBranch:
    """The entries between a common ancestor and an old leaf, the oldest first."""

    entries: list[SessionTreeEntry]
    common_ancestor_id: str | None


def collect_branch_entries(session: EntrySource, old_leaf_id: str | None, target_id: str) -> CollectedBranch:
    """Return what is left behind by a move from one entry to another: all of the old path that the new one has not.

    Raises:
        EntryNotFoundError: There is no such entry.
        SessionCorruptError: A parent on the way is missing.
    """
    if old_leaf_id is None:
        return CollectedBranch([], None)
    old_path = _path(session, old_leaf_id)
    kept = {entry.id for entry in _path(session, target_id)}
    left: list[SessionTreeEntry] = []
    for entry in old_path:
        if entry.id in kept:
            return CollectedBranch(left[::-1], entry.id)
        left.append(entry)
    return CollectedBranch(left[::-1], None)


def _path(session: EntrySource, entry_id: str) -> list[SessionTreeEntry]:
    """Return the entries from one up to the root."""
    path: list[SessionTreeEntry] = []
    seen: set[str] = set()
    next_id: str | None = entry_id
    while next_id is not None:
        entry = session.get_entry(next_id)
        if entry is None and not path:
            raise EntryNotFoundError(f"there is no entry {entry_id!r} in this session")
        if entry is None or next_id in seen:
            raise SessionCorruptError(f"the path to entry {entry_id!r} is broken at {next_id!r}", code="invalid_session")
        seen.add(next_id)
        path.append(entry)
        next_id = entry.parent_id
    return path


@dataclass
class BranchPreparation:
    """What of a branch is summarised: its newest messages, as many as the budget allows, and the files it touched."""

    messages: list[AgentMessage] = field(default_factory=list)
    file_ops: FileOperations = field(default_factory=FileOperations)
    total_tokens: int = 0


def prepare_branch_entries(entries: Sequence[SessionTreeEntry], token_budget: int | None = None) -> BranchPreparation:
    """Choose what of a branch to summarise. Tool results are left out: the calls say enough.

    Args:
        entries: The branch, the oldest first.
        token_budget: How much the messages may be; None and 0 mean all, less than 0 nothing. A summary that stands at the edge
            is taken though it is over the budget, unless nine tenths of it are used up.
    """
    made = BranchPreparation()
    for entry in entries:
        if isinstance(entry, BranchSummaryEntry) and not entry.from_hook:
            made.file_ops.add_details(entry.details)
    chosen: list[AgentMessage] = []
    for entry in reversed(entries):
        found = entry_messages(entry, has_tail=False)
        message = found[0] if found else None
        if message is None or isinstance(message, ToolResultMessage):
            continue
        made.file_ops.add_calls(message)
        tokens = estimate_tokens(message)
        if token_budget and made.total_tokens + tokens > token_budget:
            if isinstance(entry, (CompactionEntry, BranchSummaryEntry)) and made.total_tokens < token_budget * 0.9:
                chosen.append(message)
                made.total_tokens += tokens
            break
        chosen.append(message)
        made.total_tokens += tokens
    made.messages = chosen[::-1]
    return made


@dataclass
class BranchSummaryResult:
    """The summary of a branch, and what it took (None where no model was asked)."""

    summary: str
    usage: Usage | None = None
    read_files: list[str] = field(default_factory=list)
    modified_files: list[str] = field(default_factory=list)


def generate_branch_summary(
    entries: Sequence[SessionTreeEntry],
    summarizer: Summarizer,
    custom_instructions: str | None = None,
    *,
    replace_instructions: bool = False,
    reserve_tokens: int = DEFAULT_RESERVE_TOKENS,
) -> BranchSummaryResult:
    """Have the summary of a branch written. Blocks until the model has answered.

    Args:
        entries: The branch, the oldest first.
        summarizer: Whom to ask.
        custom_instructions: What to look at in particular or, with `replace_instructions`, all that is asked for.
        replace_instructions: Whether the custom instructions take the place of our own.
        reserve_tokens: The part of the model's window that the conversation may not fill; at most half of it.

    Raises:
        HarnessError: The request failed or gave nothing (`summarization_failed`), or was aborted (`aborted`).
    """
    window = summarizer.model.context_window or DEFAULT_CONTEXT_WINDOW
    # A reserve as large as the window would leave no room, or, taken for "no limit", send more than the model can read.
    budget = window - reserve_tokens if reserve_tokens < window else window // 2
    prepared = prepare_branch_entries(entries, budget)
    if not prepared.messages:
        return BranchSummaryResult(NOTHING_TO_SUMMARIZE)
    instructions, focus = BRANCH_INSTRUCTIONS, custom_instructions
    if replace_instructions and custom_instructions:
        instructions, focus = custom_instructions, None
    prompt = summary_prompt(serialize_conversation(convert_to_llm(prepared.messages)), instructions, additional_focus=focus)
    answer = summarizer.ask(prompt, MAX_SUMMARY_TOKENS, "the branch", is_thinking=False)
    read_files, modified_files = prepared.file_ops.lists()
    text = PREAMBLE + content_text(answer.content) + format_file_operations(read_files, modified_files)
    return BranchSummaryResult(text, answer.usage, read_files, modified_files)
