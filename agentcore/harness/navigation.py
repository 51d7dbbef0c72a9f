"""Going to another place of the session's tree, with a summary of the branch that is left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from agentcore.abort import AbortSignal
from agentcore.codec import OMIT_NONE, Json, nested
from agentcore.errors import HarnessError
from agentcore.harness.branch_summaries import (
    BranchSummaryResult,
    CollectedBranch,
    collect_branch_entries,
    generate_branch_summary,
)
from agentcore.harness.compacting import Compactor
from agentcore.harness.events import SessionBeforeTreeEvent, SessionTreeEvent, TreePreparation
from agentcore.harness.hooks import Hooks
from agentcore.messages import TextContent, UserMessage
from agentcore.session.entries import BranchSummary, BranchSummaryEntry, CustomMessageEntry, MessageEntry, SessionTreeEntry
from agentcore.session.session import Session


@dataclass
class NavigateTreeResult(Json):
    """What became of a move.

    `editor_text` is the text of the user's message that was gone to: the session stands before it, so that it can be said anew.
    """

    cancelled: bool
    editor_text: str | None = field(default=None, metadata=OMIT_NONE)
    summary_entry: BranchSummaryEntry | None = field(default=None, metadata=nested(BranchSummaryEntry, omit_none=True))


@dataclass
class TreeWish:
    """What a caller asked for. `target_id` None means the place before the first entry."""

    target_id: str | None
    wants_summary: bool = False
    custom_instructions: str | None = None
    replace_instructions: bool = False
    label: str | None = None


def navigate_tree(
    session: Session, wish: TreeWish, hooks: Hooks, compactor: Compactor, signal: AbortSignal
) -> tuple[NavigateTreeResult, SessionTreeEvent | None]:
    """Go to another entry.

    Returns:
        What became of it, and what is to be told; None where the session stands where it stood.

    Raises:
        HarnessError: There is no such entry (`invalid_argument`), a handler raised (`hook`), the summary failed (`branch_summary`).
            The session stands where it stood.
    """
    old_leaf_id = session.get_leaf_id()
    target = None if wish.target_id is None else session.get_entry(wish.target_id)
    if target is None and wish.target_id is not None:
        text = f"the session has no entry {wish.target_id!r}; session.get_entries() has those that there are"
        raise HarnessError(text, code="invalid_argument")
    if old_leaf_id == wish.target_id:
        return NavigateTreeResult(cancelled=False), None
    branch = _left_behind(session, old_leaf_id, wish.target_id)
    preparation = TreePreparation(
        target_id=wish.target_id,
        old_leaf_id=old_leaf_id,
        common_ancestor_id=branch.common_ancestor_id,
        entries_to_summarize=branch.entries,
        user_wants_summary=wish.wants_summary,
        custom_instructions=wish.custom_instructions,
        replace_instructions=wish.replace_instructions or None,
        label=wish.label,
    )
    try:
        event = hooks.session_before_tree(SessionBeforeTreeEvent(preparation, signal))
    except Exception as error:
        raise HarnessError(str(error), code="hook") from error
    if event.cancel:
        return NavigateTreeResult(cancelled=True), None
    summary = event.summary
    if summary is not None:
        summary = BranchSummary(summary.summary, summary.details, summary.usage, from_hook=True)
    elif wish.wants_summary and branch.entries:
        summary = _summarize(event.preparation, compactor, signal)
        if summary is None:
            return NavigateTreeResult(cancelled=True), None
    if signal.aborted:
        return NavigateTreeResult(cancelled=True), None
    return _move(session, target, summary, event.preparation)


def _left_behind(session: Session, old_leaf_id: str | None, target_id: str | None) -> CollectedBranch:
    if target_id is None:
        return CollectedBranch(session.get_path(), None)
    return collect_branch_entries(session, old_leaf_id, target_id)


def _summarize(preparation: TreePreparation, compactor: Compactor, signal: AbortSignal) -> BranchSummary | None:
    """Return the summary of a branch; None if it was aborted."""
    try:
        made: BranchSummaryResult = generate_branch_summary(
            preparation.entries_to_summarize,
            compactor.summarizer("branch_summary", signal),
            preparation.custom_instructions,
            replace_instructions=bool(preparation.replace_instructions),
        )
    except Exception as error:
        if isinstance(error, HarnessError) and error.code == "aborted":
            return None
        raise HarnessError(str(error), code="branch_summary") from error
    details = {"readFiles": made.read_files, "modifiedFiles": made.modified_files}
    return BranchSummary(made.summary, details, made.usage, from_hook=False)


def _move(
    session: Session, target: SessionTreeEntry | None, summary: BranchSummary | None, preparation: TreePreparation
) -> tuple[NavigateTreeResult, SessionTreeEvent]:
    new_leaf_id, editor_text = _place_of(target)
    summary_id = session.move_to(new_leaf_id, summary)
    summary_entry = session.get_entry(summary_id) if summary_id is not None else None
    assert summary_entry is None or isinstance(summary_entry, BranchSummaryEntry)
    labelled = summary_id or preparation.target_id
    if preparation.label is not None and labelled is not None:
        session.append_label(labelled, preparation.label)
    told = SessionTreeEvent(
        new_leaf_id=session.get_leaf_id(),
        old_leaf_id=preparation.old_leaf_id,
        from_hook=bool(summary is not None and summary.from_hook),
        summary_entry=summary_entry,
    )
    return NavigateTreeResult(cancelled=False, editor_text=editor_text, summary_entry=summary_entry), told


def _place_of(target: SessionTreeEntry | None) -> tuple[str | None, str | None]:
    """Return where the session stands after a move to an entry, and the text to say anew."""
    if isinstance(target, MessageEntry) and isinstance(target.message, UserMessage):
        return target.parent_id, _text(target.message.content)
    if isinstance(target, CustomMessageEntry):
        return target.parent_id, _text(target.content)
    return (None if target is None else target.id), None


def _text(content: Sequence[object]) -> str:
    return "".join(block.text for block in content if isinstance(block, TextContent))
