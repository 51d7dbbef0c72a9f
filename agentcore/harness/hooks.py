"""The questions to handlers: who is asked, in which order, how the answers combine.

All handlers of a question are asked in the order of registration. Each gets the event as the one before it left it, and the last
event holds the outcome. What a handler raises ends the question: the later ones are not asked, and what was asked about fails (fail
closed). A handler may answer with the result class of the question, with a mapping of its fields, or with None for "as it is".
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, replace
from typing import Any, TypeVar

from agentcore.abort import AbortSignal
from agentcore.codec import decode
from agentcore.custom_messages import AgentMessage
from agentcore.harness.compaction import CompactionResult
from agentcore.harness.delivery import Delivery
from agentcore.harness.events import (
    BeforeAgentStartEvent,
    BeforeAgentStartResult,
    BeforeProviderPayloadEvent,
    BeforeProviderPayloadResult,
    BeforeProviderRequestEvent,
    BeforeProviderRequestResult,
    ContextEvent,
    ContextResult,
    SessionBeforeCompactEvent,
    SessionBeforeCompactResult,
    SessionBeforeTreeEvent,
    SessionBeforeTreeResult,
    ToolCallEvent,
    ToolResultEvent,
)
from agentcore.llm.request import StreamOptions
from agentcore.loop.config import AfterToolCallResult, BeforeToolCallResult
from agentcore.messages import ImageContent, TextContent, Usage
from agentcore.models import Model
from agentcore.session.entries import BranchSummary
from agentcore.transcript import is_message

_log = logging.getLogger("agentcore")

EventT = TypeVar("EventT")

_MERGED = ("headers", "metadata", "extra_body", "thinking_budgets")
"""Options of which a change may replace single keys."""


class Hooks:
    """Asks the handlers.

    Threads: the run thread, or the thread that compacts or moves in the tree.
    """

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery

    def has(self, event_type: str) -> bool:
        """Return whether anybody is to be asked."""
        return bool(self._delivery.handlers(event_type))

    def before_agent_start(self, event: BeforeAgentStartEvent, signal: AbortSignal) -> BeforeAgentStartEvent:
        """Ask what is to be added before a run begins."""

        def apply(event: BeforeAgentStartEvent, answer: BeforeAgentStartResult) -> BeforeAgentStartEvent:
            prompt = event.system_prompt if answer.system_prompt is None else answer.system_prompt
            return replace(event, messages=[*event.messages, *(answer.messages or ())], system_prompt=prompt)

        return self._ask(event, signal, BeforeAgentStartResult, apply)

    def context(self, messages: list[AgentMessage], signal: AbortSignal) -> list[AgentMessage]:
        """Ask what a request shall hold. Handlers get a list of their own; the messages in it are those of the transcript."""
        if not self.has("context"):
            return messages

        def apply(event: ContextEvent, answer: ContextResult) -> ContextEvent:
            return event if answer.messages is None else replace(event, messages=list(answer.messages))

        return self._ask(ContextEvent(list(messages)), signal, ContextResult, apply).messages

    def before_provider_request(
        self, model: Model, session_id: str, options: StreamOptions, signal: AbortSignal | None
    ) -> StreamOptions:
        """Ask how a request shall be made."""

        def apply(event: BeforeProviderRequestEvent, answer: BeforeProviderRequestResult) -> BeforeProviderRequestEvent:
            return replace(event, stream_options=patch_options(event.stream_options, answer.stream_options))

        event = BeforeProviderRequestEvent(model, session_id, _copy_options(options))
        return self._ask(event, signal, BeforeProviderRequestResult, apply).stream_options

    def before_provider_payload(self, model: Model, payload: Any, signal: AbortSignal | None) -> Any:
        """Ask what body shall be sent."""

        def apply(event: BeforeProviderPayloadEvent, answer: BeforeProviderPayloadResult) -> BeforeProviderPayloadEvent:
            return event if answer.payload is None else replace(event, payload=answer.payload)

        event = BeforeProviderPayloadEvent(model, payload)
        return self._ask(event, signal, BeforeProviderPayloadResult, apply).payload

    def tool_call(self, event: ToolCallEvent, signal: AbortSignal) -> BeforeToolCallResult | None:
        """Ask whether a tool may be run."""

        def apply(event: ToolCallEvent, answer: BeforeToolCallResult) -> ToolCallEvent:
            if answer.block is None:
                return event if answer.reason is None else replace(event, reason=answer.reason)
            return replace(event, block=answer.block, reason=answer.reason)

        event = self._ask(event, signal, BeforeToolCallResult, apply)
        return None if event.block is None else BeforeToolCallResult(event.block, event.reason)

    def tool_result(self, event: ToolResultEvent, signal: AbortSignal) -> AfterToolCallResult | None:
        """Ask what shall become of a tool's result."""
        if not self.has("tool_result"):
            return None

        def apply(event: ToolResultEvent, answer: AfterToolCallResult) -> ToolResultEvent:
            if answer.content is not None:
                answer = replace(answer, content=_to_blocks(answer.content))
            return _apply_given(event, answer)

        patched = self._ask(event, signal, AfterToolCallResult, apply)
        return AfterToolCallResult(
            content=_if_other(patched.content, event.content),
            details=_if_other(patched.details, event.details),
            is_error=_if_other(patched.is_error, event.is_error),
            usage=_if_other(patched.usage, event.usage),
            terminate=patched.terminate,
        )

    def session_before_compact(self, event: SessionBeforeCompactEvent) -> SessionBeforeCompactEvent:
        """Ask whether and how a session is compacted."""
        return self._ask(event, event.signal, SessionBeforeCompactResult, _apply_given)

    def session_before_tree(self, event: SessionBeforeTreeEvent) -> SessionBeforeTreeEvent:
        """Ask whether and how the session moves to another entry."""

        def apply(event: SessionBeforeTreeEvent, answer: SessionBeforeTreeResult) -> SessionBeforeTreeEvent:
            event = _apply_given(event, SessionBeforeTreeResult(cancel=answer.cancel, summary=answer.summary))
            said = SessionBeforeTreeResult(
                custom_instructions=answer.custom_instructions,
                replace_instructions=answer.replace_instructions,
                label=answer.label,
            )
            return replace(event, preparation=_apply_given(event.preparation, said))

        return self._ask(event, event.signal, SessionBeforeTreeResult, apply)

    def _ask(
        self, event: EventT, signal: AbortSignal | None, result_class: type[Any], apply: Callable[[EventT, Any], EventT]
    ) -> EventT:
        kind: str = event.type  # type: ignore[attr-defined]
        with self._delivery.turn():
            for handler in self._delivery.handlers(kind):
                if not handler.is_active:
                    continue
                try:
                    answer = _to_result(handler.call(event, signal), result_class, kind, handler.name)
                    if answer is not None:
                        event = apply(event, answer)
                except Exception:
                    _log.warning("the %s handler %s raised", kind, handler.name)
                    raise
        return event


def _apply_given(event: EventT, answer: Any) -> EventT:
    given = {name: value for name, value in vars(answer).items() if value is not None}
    return replace(event, **given) if given else event  # type: ignore[type-var]


def _to_blocks(content: str | Sequence[Any]) -> list[TextContent | ImageContent]:
    """Return a handler's content as the next handler gets it: texts are blocks."""
    return [TextContent(one) if isinstance(one, str) else one for one in ([content] if isinstance(content, str) else content)]


def _if_other(value: Any, before: Any) -> Any:
    return None if value is before else value


def _to_result(answer: Any, result_class: type[Any], kind: str, handler: str) -> Any:
    if answer is None:
        return None
    if not isinstance(answer, result_class):
        answer = _result_of(answer, result_class, kind, handler)
    for name, value in vars(answer).items():
        is_right, wanted = _FIELDS.get(name, _ANYTHING)
        if value is not None and not is_right(value):
            raise TypeError(
                f"the {kind} handler {handler} returned {name} of type {type(value).__name__}: {name} must be {wanted}, or None"
            )
    return answer


def _result_of(answer: Any, result_class: type[Any], kind: str, handler: str) -> Any:
    if result_class is ContextResult and isinstance(answer, list):
        return ContextResult(answer)
    names = [item.name for item in fields(result_class)]
    if not isinstance(answer, Mapping):
        raise TypeError(
            f"the {kind} handler {handler} returned a value of type {type(answer).__name__}: "
            f"it must return a {result_class.__name__}, a mapping with {', '.join(names)}, or None"
        )
    unknown = [str(name) for name in answer if name not in names]
    if unknown:
        raise TypeError(
            f"the {kind} handler {handler} returned unknown keys ({', '.join(unknown)}): a {result_class.__name__} has "
            f"{', '.join(names)}"
        )
    made = dict(answer)
    for name, cls in (("compaction", CompactionResult), ("summary", BranchSummary)):
        if isinstance(made.get(name), Mapping):
            made[name] = decode(cls, made[name])
    if isinstance(made.get("summary"), str):
        made["summary"] = BranchSummary(made["summary"])
    return result_class(**made)


def _are_messages(value: object) -> bool:
    return isinstance(value, (list, tuple)) and all(map(is_message, value))


def _is_content(value: object) -> bool:
    return isinstance(value, (str, list, tuple)) and all(isinstance(one, (str, TextContent, ImageContent)) for one in value)


def _is_a(*wanted: type) -> Callable[[object], bool]:
    return lambda value: isinstance(value, wanted)


_ANYTHING: tuple[Callable[[Any], bool], str] = (lambda value: True, "")
_TRUTH = (_is_a(bool), "True or False")
_TEXT = (_is_a(str), "a text")
_FIELDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "messages": (_are_messages, "a list of messages"),
    "system_prompt": _TEXT,
    "stream_options": (_is_a(StreamOptions, Mapping), "StreamOptions(…) or a mapping of changes"),
    "block": _TRUTH,
    "reason": _TEXT,
    "content": (_is_content, "a list of TextContent and ImageContent"),
    "is_error": _TRUTH,
    "usage": (_is_a(Usage), "a Usage"),
    "terminate": _TRUTH,
    "cancel": _TRUTH,
    "compaction": (_is_a(CompactionResult), "a CompactionResult"),
    "summary": (_is_a(BranchSummary), "a BranchSummary or a text"),
    "custom_instructions": _TEXT,
    "replace_instructions": _TRUTH,
    "label": _TEXT,
}
"""What the fields of answers must be. What is wrong is told to whoever answered, before it gets into a session."""


# --- options ---------------------------------------------------------------------------------------------------------


def _copy_options(options: StreamOptions) -> StreamOptions:
    made = copy.copy(options)
    for name in _MERGED:
        value = getattr(made, name)
        if value is not None:
            setattr(made, name, dict(value))
    return made


def patch_options(options: StreamOptions, changes: StreamOptions | Mapping[str, Any] | None) -> StreamOptions:
    """Return options with changes, see `BeforeProviderRequestResult`.

    Raises:
        TypeError: There is no such option.
    """
    if changes is None:
        return options
    if isinstance(changes, StreamOptions):
        return changes
    defaults = {item.name: None if item.default is MISSING else item.default for item in fields(StreamOptions)}
    made = _copy_options(options)
    for name, value in changes.items():
        if name not in defaults:
            raise TypeError(f"there is no stream option {name!r}: StreamOptions has {', '.join(defaults)}")
        if value is None:
            setattr(made, name, defaults[name])
        elif name in _MERGED:
            merged = {**(getattr(made, name) or {}), **value}
            setattr(made, name, {key: one for key, one in merged.items() if one is not None} or None)
        else:
            setattr(made, name, value)
    return made
