"""Compacting the session of a harness: when it was asked for, when the context is nearly full, and after an overflow.

It never goes round in a circle:

- usages from before the newest compaction do not count (`harness.tokens`);
- a context that a compaction has not made small enough is compacted again only when there is something new worth summarising;
- after a compaction that failed, none is tried by itself in the same run;
- an answer is asked for once more after an overflow, not twice (`loop.response`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol, cast

from agentcore.abort import AbortSignal
from agentcore.agent.agent import stream_of_agent
from agentcore.custom_messages import AgentMessage
from agentcore.errors import HarnessError, SessionError
from agentcore.events import RetryEvent
from agentcore.harness.compaction import (
    CompactionPreparation,
    CompactionResult,
    CompactionSettings,
    branch_messages,
    compact,
    prepare_compaction,
    should_compact,
)
from agentcore.harness.events import (
    AutoCompactionEndEvent,
    AutoCompactionStartEvent,
    CompactionReason,
    RetriedOperation,
    RetryAttemptStartEvent,
    RetryFinishedEvent,
    RetryScheduledEvent,
    SessionBeforeCompactEvent,
    SessionCompactEvent,
)
from agentcore.harness.hooks import Hooks
from agentcore.harness.ledger import Ledger
from agentcore.harness.settings import HarnessSettings
from agentcore.harness.summaries import RetryListener, Summarizer
from agentcore.harness.tokens import calculate_context_tokens, estimate_request_context_tokens, estimate_tokens
from agentcore.llm.request import Context
from agentcore.loop.config import AgentContext
from agentcore.messages import AssistantMessage
from agentcore.session.entries import CompactionEntry, SessionTreeEntry
from agentcore.transcript import is_message

_log = logging.getLogger("agentcore")

WORTHWHILE_SHARE = 0.05
"""What a compaction that nobody asked for must summarise, as a share of the model's window."""


class Tell(Protocol):
    """Tells an event to listeners."""

    def __call__(self, event: Any, /) -> None: ...


class Compactor:
    """Compacts the session.

    Args:
        reload: Called when the session has been compacted: the transcript is another one now.

    Threads: whoever has the harness to itself.
    """

    def __init__(self, ledger: Ledger, settings: HarnessSettings, hooks: Hooks, tell: Tell, reload: Callable[[], object]) -> None:
        self._ledger = ledger
        self._settings = settings
        self._hooks = hooks
        self._tell = tell
        self._reload = reload
        self._has_failed = False
        self._guess = _Guess()

    @property
    def limits(self) -> CompactionSettings:
        """The settings, fitted to the window of the model."""
        return self._settings.compaction.fit(self._settings.model.context_window)

    def summarizer(self, operation: RetriedOperation, signal: AbortSignal) -> Summarizer:
        """Return whom to ask for a summary: the harness's model, with the harness's options."""
        settings, tell = self._settings, self._tell

        def on_scheduled(event: RetryEvent) -> None:
            told = RetryScheduledEvent(operation, event.attempt, event.max_retries, event.delay, event.error_message)
            tell(told)

        return Summarizer(
            model=settings.model,
            stream_fn=settings.stream_fn or stream_of_agent,
            thinking_level=settings.thinking_level,
            options=settings.stream_options,
            get_api_key=settings.get_api_key,
            signal=signal,
            retry=settings.retry,
            listener=RetryListener(
                on_scheduled,
                lambda: tell(RetryAttemptStartEvent(operation)),
                lambda is_success, attempt, error_message: tell(RetryFinishedEvent(operation)),
            ),
        )

    def compact(
        self, custom_instructions: str | None, signal: AbortSignal, limits: CompactionSettings | None = None
    ) -> tuple[CompactionResult, CompactionEntry]:
        """Compact the session now.

        Args:
            limits: How much to keep, in place of the settings.

        Raises:
            HarnessError: There is nothing to compact, a handler cancelled it, the summary failed or was aborted (`compaction`), a
                handler raised (`hook`). Nothing has been stored then.
        """
        entries = self._ledger.session.get_branch()
        preparation = prepare_compaction(entries, limits or self.limits)
        if preparation is None:
            text = "nothing to compact: the session is empty, or was compacted just now; go on first"
            raise HarnessError(text, code="compaction")
        return self._compact(preparation, entries, custom_instructions, signal)

    def _compact(
        self,
        preparation: CompactionPreparation,
        entries: Sequence[SessionTreeEntry],
        custom_instructions: str | None,
        signal: AbortSignal,
    ) -> tuple[CompactionResult, CompactionEntry]:
        event = SessionBeforeCompactEvent(preparation, list(entries), custom_instructions, signal)
        try:
            event = self._hooks.session_before_compact(event)
        except Exception as error:
            raise HarnessError(str(error), code="hook") from error
        if event.cancel:
            raise HarnessError("the compaction was cancelled by a session_before_compact handler", code="compaction")
        result = event.compaction
        if result is not None:
            result = _checked(result, preparation, entries)
        else:
            try:
                result = compact(preparation, self.summarizer("compaction", signal), custom_instructions)
            except Exception as error:
                raise HarnessError(str(error), code="compaction") from error
        if signal.aborted:
            raise HarnessError("the compaction was aborted", code="compaction")
        return result, self._store(result, from_hook=event.compaction is not None)

    def _store(self, result: CompactionResult, *, from_hook: bool) -> CompactionEntry:
        session = self._ledger.session
        entry_id = session.append_compaction(
            result.summary,
            result.first_kept_entry_id,
            result.tokens_before,
            details=result.details,
            from_hook=from_hook,
            usage=result.usage,
            retained_tail=result.retained_tail,
        )
        entry = session.get_entry(entry_id)
        assert isinstance(entry, CompactionEntry)
        self._reload()
        self._tell(SessionCompactEvent(entry, from_hook))
        return entry

    # --- by itself -----------------------------------------------------------------------------------------------------

    def begin_run(self) -> None:
        """A run begins: what failed in the last one may be tried again."""
        self._has_failed = False

    def compact_if_full(self, context: AgentContext, signal: AbortSignal) -> bool:
        """Compact if the next request would reach into the reserve of the model's window; return whether it was done."""
        window = self._settings.model.context_window
        limits = self.limits
        if not limits.enabled or self._has_failed or not should_compact(self._rough_tokens(context), window, limits):
            return False
        if not should_compact(_tokens(context), window, limits):
            return False
        preparation = prepare_compaction(self._ledger.session.get_branch(), limits)
        if preparation is None or _summarised_tokens(preparation) < window * WORTHWHILE_SHARE:
            return False
        return self._compact_by_itself("threshold", limits, signal)

    def _rough_tokens(self, context: AgentContext) -> int:
        """Return a quick first guess that is too high rather than too low: the newest usage, and what came after it.

        It is looked for from the end, so that a turn costs no more in a long conversation. A usage that does not count any more is
        from before a compaction, when the context was larger.
        """
        trailing = 0
        for message in reversed(context.messages):
            if not isinstance(message, AssistantMessage):
                trailing += estimate_tokens(message)
            elif message.stop_reason not in ("error", "aborted"):
                counted = calculate_context_tokens(message.usage)
                if counted > 0:
                    return counted + trailing
                break  # this server counts nothing
        return self._guess.tokens(context.messages) + _tokens(AgentContext(context.system_prompt, [], context.tools))

    def plan_recovery(self, message: AssistantMessage, context: AgentContext) -> Callable[[AbortSignal], bool] | None:
        """Return what is to be done about an answer that failed, None where it is no overflow or nothing can be done."""
        settings = self._settings
        if not settings.compaction.enabled or self._has_failed or not _is_overflow(message):
            return None
        # The window is smaller than what was sent, whatever is known of it.
        sent = max(_tokens(context), 1)
        limits = settings.compaction.fit(min(settings.model.context_window or sent, sent))
        preparation = prepare_compaction(self._ledger.session.get_branch(), limits)
        if preparation is None or not preparation.has_work:
            return None
        return lambda signal: self._compact_by_itself("overflow", limits, signal)

    def _compact_by_itself(self, reason: CompactionReason, limits: CompactionSettings, signal: AbortSignal) -> bool:
        self._tell(AutoCompactionStartEvent(reason))
        try:
            _, entry = self.compact(None, signal, limits)
        except (HarnessError, SessionError) as error:
            _log.warning("the context could not be compacted: %s", error)
            self._has_failed = True
            self._tell(AutoCompactionEndEvent(reason, error_message=str(error)))
            return False
        self._tell(AutoCompactionEndEvent(reason, entry))
        return True


def _checked(result: CompactionResult, preparation: CompactionPreparation, entries: Sequence[SessionTreeEntry]) -> CompactionResult:
    """Return what a handler wrote, with the messages that are kept, if it gave none.

    Raises:
        HarnessError: The session could not be read with it (`hook`).
    """
    first, tail = result.first_kept_entry_id, result.retained_tail
    if not isinstance(result.summary, str) or not isinstance(result.tokens_before, int) or not all(map(is_message, tail or ())):
        text = (
            "a session_before_compact handler returned a CompactionResult that cannot be stored: summary must be a text, "
            "tokens_before a number, retained_tail a list of messages"
        )
        raise HarnessError(text, code="hook")
    place = next((index for index, entry in enumerate(entries) if entry.id == first), None)
    if place is None:
        text = (
            f"a session_before_compact handler returned first_kept_entry_id {first!r}, which is no entry of the branch: "
            "event.branch_entries has those that there are, event.preparation.first_kept_entry_id is a good choice"
        )
        raise HarnessError(text, code="hook")
    if tail:
        return result
    if first == preparation.first_kept_entry_id:
        return replace(result, retained_tail=preparation.retained_tail)
    return replace(result, retained_tail=branch_messages(entries, place))


class _Guess:
    """The guessed size of a list of messages that grows at its end: what was guessed before is not guessed again."""

    def __init__(self) -> None:
        self._first: AgentMessage | None = None
        self._last: AgentMessage | None = None
        self._count = 0
        self._tokens = 0

    def tokens(self, messages: Sequence[AgentMessage]) -> int:
        """Return the size of the messages."""
        count = self._count
        if not (0 < count <= len(messages) and messages[0] is self._first and messages[count - 1] is self._last):
            self._count = self._tokens = count = 0
        for message in messages[count:]:
            self._tokens += estimate_tokens(message)
        self._count = len(messages)
        if messages:
            self._first, self._last = messages[0], messages[-1]
        return self._tokens


def _tokens(context: AgentContext) -> int:
    return estimate_request_context_tokens(Context(context.system_prompt, cast(Any, context.messages), context.tools)).tokens


def _summarised_tokens(preparation: CompactionPreparation) -> int:
    messages = (*preparation.messages_to_summarize, *preparation.turn_prefix_messages)
    return sum(estimate_tokens(message) for message in messages)


def _is_overflow(message: AssistantMessage) -> bool:
    from agentcore.llm.failures import kind_of

    return kind_of(message) == "overflow"
