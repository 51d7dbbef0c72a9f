"""When to compact, where to cut, and the compaction itself.

    path:    user  assistant  result  assistant │ user  assistant  result  assistant
             └────── summarised ──────────────┘ │ └────────── kept ──────────────┘

The cut falls before an entry that a context may begin with; never between a call and its result. If it falls inside a turn, the
beginning of that turn is summarised on its own (a *split turn*). What an earlier compaction kept is summarised together with what
came after it, and its summary is brought up to date: nothing gets lost from one compaction to the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from agentcore.codec import Json, anything, nested, tagged_list
from agentcore.custom_messages import AgentMessage
from agentcore.errors import HarnessError
from agentcore.harness.file_operations import FileOperations, format_file_operations
from agentcore.harness.summaries import (
    INITIAL_INSTRUCTIONS,
    TURN_PREFIX_INSTRUCTIONS,
    UPDATE_INSTRUCTIONS,
    Summarizer,
    serialize_conversation,
    summary_prompt,
)
from agentcore.harness.tokens import estimate_context_tokens, estimate_tokens
from agentcore.messages import AssistantMessage, ToolResultMessage, Usage, content_text
from agentcore.session.context import entry_messages
from agentcore.session.entries import (
    BranchSummaryEntry,
    CompactionEntry,
    CustomMessageEntry,
    MessageEntry,
    SessionTreeEntry,
)
from agentcore.transcript import convert_to_llm

NO_HISTORY = "No prior history."
TURN_CONTEXT = "\n\n---\n\n**Turn Context (split turn):**\n\n"


@dataclass
class CompactionSettings(Json):
    """When and how much to compact, in tokens.

    Args:
        enabled: Whether to compact without being asked.
        reserve_tokens: The room to leave in the model's window: a context that reaches into it is compacted. Summaries may be
            four fifths as long.
        keep_recent_tokens: How much of the end of the conversation to keep word for word, at least.
    """

    enabled: bool = True
    reserve_tokens: int = 16384
    keep_recent_tokens: int = 20000

    def fit(self, context_window: int) -> CompactionSettings:
        """Return the settings for a window of this size: in a small one, at most half is reserved and a quarter kept."""
        if context_window <= 0:
            return self
        reserve = min(self.reserve_tokens, context_window // 2)
        return replace(self, reserve_tokens=reserve, keep_recent_tokens=min(self.keep_recent_tokens, context_window // 4))


def should_compact(context_tokens: int, context_window: int, settings: CompactionSettings) -> bool:
    """Return whether a context of this size reaches into the reserve; never where the window is not known (0)."""
    if not settings.enabled or context_window <= 0:
        return False
    return context_tokens > context_window - settings.reserve_tokens


# --- where to cut ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CutPoint:
    """Where a path is cut, as indexes into its entries.

    What is kept begins at `first_kept_entry_index`. If that is inside a turn (`is_split_turn`), the turn begins at
    `turn_start_index`; -1 where no turn begins before the cut.
    """

    first_kept_entry_index: int
    turn_start_index: int = -1
    is_split_turn: bool = False


def find_cut_point(
    entries: Sequence[SessionTreeEntry], keep_recent_tokens: int, start: int = 0, end: int | None = None
) -> CutPoint:
    """Return where to cut a path so that at least `keep_recent_tokens` of its end are kept, and little more.

    Settings that stand before the first kept message are kept with it. Where the end is so large that no cut is possible behind
    that point, the last possible one before it is taken.
    """
    end = len(entries) if end is None else end
    possible = _possible_cuts(entries, start, end)
    if not possible:
        return CutPoint(start)
    cut = possible[0]
    size = 0
    for index in range(end - 1, start - 1, -1):
        entry = entries[index]
        if not isinstance(entry, MessageEntry):
            continue
        size += estimate_tokens(entry.message)
        if size >= keep_recent_tokens:
            cut = next((place for place in possible if place >= index), possible[-1])
            break
    while cut > start and not isinstance(entries[cut - 1], (MessageEntry, CompactionEntry)):
        cut -= 1
    first = entries[cut]
    if isinstance(first, MessageEntry) and first.message.role == "user":
        return CutPoint(cut)
    turn = find_turn_start_index(entries, cut, start)
    return CutPoint(cut, turn, turn != -1)


def _possible_cuts(entries: Sequence[SessionTreeEntry], start: int, end: int) -> list[int]:
    """Return the indexes of the entries that a context may begin with: no tool result, and none between a call and its result."""
    made: dict[str, int] = {}  # call id → index of the answer that made it
    inside = [0] * (end + 1)  # +1 behind an answer, -1 behind the last result of it
    for index in range(start, end):
        entry = entries[index]
        if not isinstance(entry, MessageEntry):
            continue
        message = entry.message
        if isinstance(message, AssistantMessage):
            made.update((call.id, index) for call in message.tool_calls)
        elif isinstance(message, ToolResultMessage) and message.tool_call_id in made:
            inside[made[message.tool_call_id] + 1] += 1
            inside[index + 1] -= 1
    possible: list[int] = []
    open_calls = 0
    for index in range(start, end):
        open_calls += inside[index]
        entry = entries[index]
        is_begin = isinstance(entry, (BranchSummaryEntry, CustomMessageEntry))
        is_begin = is_begin or (isinstance(entry, MessageEntry) and not isinstance(entry.message, ToolResultMessage))
        if is_begin and open_calls == 0:
            possible.append(index)
    return possible


def find_turn_start_index(entries: Sequence[SessionTreeEntry], index: int, start: int = 0) -> int:
    """Return the index at which the turn of an entry begins, not before `start`; -1 where none begins there."""
    for place in range(index, start - 1, -1):
        entry = entries[place]
        if isinstance(entry, (BranchSummaryEntry, CustomMessageEntry)):
            return place
        if isinstance(entry, MessageEntry) and entry.message.role in ("user", "bashExecution"):
            return place
    return -1


# --- what a compaction will do ---------------------------------------------------------------------------------------


@dataclass
class CompactionPreparation:
    """What a compaction will summarise and keep.

    `messages_to_summarize` is the history; `turn_prefix_messages` the beginning of the turn that is split. `retained_tail` is
    kept word for word; it begins with the entry `first_kept_entry_id`. `tokens_before` is the size of the context.
    """

    first_kept_entry_id: str
    messages_to_summarize: list[AgentMessage]
    turn_prefix_messages: list[AgentMessage]
    retained_tail: list[AgentMessage]
    is_split_turn: bool
    tokens_before: int
    previous_summary: str | None = None
    file_ops: FileOperations = field(default_factory=FileOperations)
    settings: CompactionSettings = field(default_factory=CompactionSettings)

    @property
    def has_work(self) -> bool:
        """Whether there is something to summarise."""
        return bool(self.messages_to_summarize or self.turn_prefix_messages)


def prepare_compaction(
    entries: Sequence[SessionTreeEntry], settings: CompactionSettings | None = None
) -> CompactionPreparation | None:
    """Decide what a compaction of a path will do.

    Args:
        entries: The path to the leaf, as `Session.get_branch` returns it (`Session.get_path` will do).
        settings: How much to keep.

    Returns:
        None where there is nothing to do: the path is empty, or ends with a compaction.
    """
    settings = settings or CompactionSettings()
    if not entries or isinstance(entries[-1], CompactionEntry):
        return None
    place, earlier = _last_compaction(entries)
    start = place + 1 if earlier is not None else 0
    tail: list[AgentMessage] = []
    if earlier is not None and earlier.retained_tail is not None:
        tail = list(earlier.retained_tail)
    elif earlier is not None:
        kept = (index for index in range(place) if entries[index].id == earlier.first_kept_entry_id)
        start = next(kept, start)
    cut = find_cut_point(entries, settings.keep_recent_tokens, start)
    first = cut.first_kept_entry_index
    history_end = cut.turn_start_index if cut.is_split_turn else first
    to_summarize = [*tail, *branch_messages(entries, start, history_end)]
    prefix = branch_messages(entries, cut.turn_start_index, first) if cut.is_split_turn else []
    file_ops = FileOperations()
    if earlier is not None and not earlier.from_hook:
        file_ops.add_details(earlier.details)
    for message in (*to_summarize, *prefix):
        file_ops.add_calls(message)
    context = [*(entry_messages(earlier, has_tail=False) if earlier is not None else ()), *tail, *branch_messages(entries, start)]
    return CompactionPreparation(
        first_kept_entry_id=entries[first].id,
        messages_to_summarize=to_summarize,
        turn_prefix_messages=prefix,
        retained_tail=branch_messages(entries, first),
        is_split_turn=cut.is_split_turn,
        tokens_before=estimate_context_tokens(context).tokens,
        previous_summary=earlier.summary if earlier is not None else None,
        file_ops=file_ops,
        settings=settings,
    )


def _last_compaction(entries: Sequence[SessionTreeEntry]) -> tuple[int, CompactionEntry | None]:
    for index in range(len(entries) - 1, -1, -1):
        entry = entries[index]
        if isinstance(entry, CompactionEntry):
            return index, entry
    return -1, None


def branch_messages(entries: Sequence[SessionTreeEntry], start: int, end: int | None = None) -> list[AgentMessage]:
    """Return the messages of a part of a path; an earlier compaction is none of them, its summary goes its own way."""
    part = entries[start:end]
    return [message for entry in part if not isinstance(entry, CompactionEntry) for message in entry_messages(entry)]


# --- the compaction --------------------------------------------------------------------------------------------------


@dataclass
class CompactionResult(Json):
    """What a compaction gives: all that its session entry holds. `usage` is what the summaries took."""

    summary: str
    first_kept_entry_id: str
    tokens_before: int
    usage: Usage | None = field(default=None, metadata=nested(Usage, omit_none=True))
    retained_tail: list[AgentMessage] = field(default_factory=list, metadata=tagged_list())
    details: dict[str, list[str]] = field(default_factory=dict, metadata=anything())


def compact(preparation: CompactionPreparation, summarizer: Summarizer, custom_instructions: str | None = None) -> CompactionResult:
    """Have the summary written and return what is to be stored. Blocks until the model has answered.

    Args:
        preparation: What to summarise and what to keep.
        summarizer: Whom to ask.
        custom_instructions: What the summary of the history should look at in particular.

    Raises:
        HarnessError: There is nothing to summarise (`nothing_to_compact`), a request failed or gave nothing
            (`summarization_failed`), or it was aborted (`aborted`). Nothing has been changed then.
    """
    if not preparation.has_work:
        keep = preparation.settings.keep_recent_tokens
        text = (
            f"nothing to compact: all of the conversation is within the last {keep} tokens; lower keep_recent_tokens to keep less"
        )
        raise HarnessError(text, code="nothing_to_compact")
    reserve = preparation.settings.reserve_tokens
    answers: list[AssistantMessage] = []
    if preparation.messages_to_summarize:
        instructions = UPDATE_INSTRUCTIONS if preparation.previous_summary else INITIAL_INSTRUCTIONS
        prompt = summary_prompt(
            serialize_conversation(convert_to_llm(preparation.messages_to_summarize)),
            instructions,
            previous_summary=preparation.previous_summary,
            additional_focus=custom_instructions,
        )
        answers.append(summarizer.ask(prompt, reserve * 4 // 5, "the conversation"))
        summary = content_text(answers[-1].content)
    else:
        summary = preparation.previous_summary or NO_HISTORY
    if preparation.turn_prefix_messages:
        prompt = summary_prompt(serialize_conversation(convert_to_llm(preparation.turn_prefix_messages)), TURN_PREFIX_INSTRUCTIONS)
        answers.append(summarizer.ask(prompt, reserve // 2, "the beginning of the turn"))
        summary += TURN_CONTEXT + content_text(answers[-1].content)
    read_files, modified_files = preparation.file_ops.lists()
    return CompactionResult(
        summary=summary + format_file_operations(read_files, modified_files),
        first_kept_entry_id=preparation.first_kept_entry_id,
        tokens_before=preparation.tokens_before,
        usage=sum((answer.usage for answer in answers[1:]), answers[0].usage) if answers else None,
        retained_tail=preparation.retained_tail,
        details={"readFiles": read_files, "modifiedFiles": modified_files},
    )
