"""One answer of the model: the request is made, its events are told, and it is asked for again if it broke off.

    before_request → transform_context → convert_to_llm → get_api_key → stream function → StartEvent … DoneEvent | ErrorEvent
                          ▲                                                  ▲                               │ failed
                          │                                                  └───── pause ◄── may be tried again: RetryEvent
                          └────────────────────────────────────────────────────── recover ◄── once, if it knows what to do

The stream is read in step: the next event is asked for when all listeners have had the last one.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from agentcore.abort import AbortSignal
from agentcore.events import AssistantMessageEvent, MessageEndEvent, MessageStartEvent, MessageUpdateEvent, RetryEvent
from agentcore.lazy_dataclasses import dataclass
from agentcore.llm.request import Context, StreamFn, StreamOptions
from agentcore.loop.config import AgentContext, AgentEventSink, AgentLoopConfig, RetryPolicy, check_returned
from agentcore.messages import AssistantMessage
from agentcore.models import Model

ABORTED = "Request was aborted"
"""The error message of an aborted answer."""

_log = logging.getLogger("agentcore")

_UPDATES = frozenset(
    (
        "text_start", "text_delta", "text_end",
        "thinking_start", "thinking_delta", "thinking_end",
        "toolcall_start", "toolcall_delta", "toolcall_end",
    )
)  # fmt: skip


def default_stream(model: Model, context: Context, options: StreamOptions) -> Iterable[AssistantMessageEvent]:
    """Ask by the wire format that `model.api` names: the stream function where none was given."""
    from agentcore.llm import stream

    return stream(model, context, options)


def stream_assistant_response(
    context: AgentContext,
    config: AgentLoopConfig,
    signal: AbortSignal,
    emit: AgentEventSink,
    stream_fn: StreamFn | None = None,
) -> AssistantMessage:
    """Ask the model, tell what it answers as it comes, and put the answer into the context.

    Returns:
        The answer. A failed request does not raise: it is an answer whose `stop_reason` is `"error"` or `"aborted"`.

    Raises:
        Exception: A hook, the stream function or whoever is told raised; it comes as it is.
    """
    if config.before_request is not None:
        config.before_request(context, signal)
    request = _make_request(context, config, signal, stream_fn)
    attempt = 1
    may_recover = True
    while True:
        answer = _read_answer(request, config, signal, emit)
        message = answer.message
        delay = _delay_before_next_try(answer, attempt, config.retry, signal)
        recover = _find_recovery(message, context, config, signal) if delay is None and may_recover else None
        _finish(answer, config, emit, is_kept=delay is None and recover is None)
        if recover is not None:
            may_recover = False
            if recover(signal):
                request = _make_request(context, config, signal, stream_fn)
                attempt = 1
                continue
            message = aborted_message(config.model) if signal.aborted else copy.copy(message)
            _finish(_Answer(message, has_begun=False), config, emit, is_kept=True)
            break
        if delay is None:
            break
        emit(_retry_event(message, attempt, delay, config.retry))
        if signal.wait(delay):
            message = aborted_message(config.model)
            _finish(_Answer(message, has_begun=False), config, emit, is_kept=True)
            break
        attempt += 1
    context.messages.append(message)
    return message


def _make_request(context: AgentContext, config: AgentLoopConfig, signal: AbortSignal, stream_fn: StreamFn | None) -> _Request:
    from agentcore.transcript import convert_to_llm

    messages = context.messages
    if config.transform_context is not None:
        messages = _messages_of("transform_context", config.transform_context(messages, signal))
    if config.convert_to_llm is None:
        llm_messages = convert_to_llm(messages)
    else:
        llm_messages = _messages_of("convert_to_llm", config.convert_to_llm(messages))
    options = config.make_options(signal)
    request = _Request(
        stream_fn or default_stream, config.model, Context(context.system_prompt, llm_messages, context.tools), options
    )
    if config.get_api_key is not None:
        key = config.get_api_key(config.model.provider)
        check_returned("get_api_key", key, str)
        options.api_key = key or options.api_key
    return request


@dataclass
class _Request:
    """What is asked, the same for every try."""

    stream_fn: StreamFn
    model: Model
    context: Context
    options: StreamOptions

    def send(self) -> Iterable[AssistantMessageEvent]:
        if _log.isEnabledFor(logging.DEBUG):
            tools = len(self.context.tools or ())
            _log.debug("request to %s: %d messages, %d tools", self.model.id, len(self.context.messages), tools)
        return self.stream_fn(self.model, self.context, self.options)


@dataclass
class _Answer:
    message: AssistantMessage
    has_begun: bool  # its message_start has been told


def _read_answer(request: _Request, config: AgentLoopConfig, signal: AbortSignal, emit: AgentEventSink) -> _Answer:
    stream = request.send()
    if not isinstance(stream, Iterable):
        raise TypeError(
            f"the stream function returned a value of type {type(stream).__name__}: it must return an iterable of "
            "AssistantMessageEvents, as a generator does"
        )
    iterator = iter(stream)
    partial: AssistantMessage | None = None
    try:
        for event in iterator:
            try:
                kind = event.type
            except AttributeError:
                raise _wrong_event(event) from None
            if kind in _UPDATES:
                # Updates without a start are not told, as recorded. Where nobody listens, an update is told only when
                # the partial is another object than before, because the state shows it.
                if partial is not None and (config.is_heard() or event.partial is not partial):  # type: ignore[union-attr]
                    partial = event.partial  # type: ignore[union-attr]
                    emit(_update_event(partial, event))
            elif kind == "start":
                partial = event.partial  # type: ignore[union-attr]
                emit(MessageStartEvent(partial))
            elif kind == "done" or kind == "error":
                return _Answer(event.message, partial is not None)  # type: ignore[union-attr]
            elif kind == "retry":
                emit(event)  # type: ignore[arg-type]
            else:
                raise _wrong_event(event)
    finally:
        # Also when a listener raised: a socket must not wait for the garbage collector.
        _close(iterator, stream)
    result = getattr(stream, "result", None)
    if callable(result):
        return _Answer(result(), partial is not None)
    return _Answer(_cut_off(request.model, partial, signal), partial is not None)


def _update_event(partial: AssistantMessage, event: AssistantMessageEvent) -> MessageUpdateEvent:
    """Make the event of one delta: in a third of the time that the constructor of a frozen dataclass takes."""
    update = object.__new__(MessageUpdateEvent)
    attributes = update.__dict__
    attributes["message"] = partial
    attributes["assistant_message_event"] = event
    attributes["type"] = "message_update"
    return update


def _messages_of(hook: str, value: Any) -> Any:
    if not isinstance(value, (list, tuple)):
        raise TypeError(f"{hook} returned a value of type {type(value).__name__}: it must return the list of messages")
    return value


def _close(iterator: Iterator[Any], stream: Iterable[Any]) -> None:
    close = getattr(iterator, "close", None) or getattr(stream, "close", None)
    if callable(close):
        close()


def _wrong_event(event: object) -> TypeError:
    return TypeError(
        f"the stream function yielded a value of type {type(event).__name__}: "
        "it must yield AssistantMessageEvents (StartEvent, TextDeltaEvent, …, DoneEvent or ErrorEvent)"
    )


def _cut_off(model: Model, partial: AssistantMessage | None, signal: AbortSignal) -> AssistantMessage:
    """Return the answer that a stream left behind which ended without its last event."""
    if signal.aborted:
        message = aborted_message(model)
    else:
        message = AssistantMessage(api=model.api, provider=model.provider, model=model.id, stop_reason="error")
        message.error_message = "the stream ended without a DoneEvent or an ErrorEvent: the answer may be incomplete"
        message.error_kind = "protocol"
        message.error_retryable = True
    if partial is not None:
        message.content = partial.content
        message.usage = partial.usage
    return message


def aborted_message(model: Model) -> AssistantMessage:
    """Return the answer that stands for one that was aborted before it began."""
    return AssistantMessage(api=model.api, provider=model.provider, model=model.id, stop_reason="aborted", error_message=ABORTED)


def _finish(answer: _Answer, config: AgentLoopConfig, emit: AgentEventSink, *, is_kept: bool) -> None:
    message = answer.message
    if not answer.has_begun:
        emit(MessageStartEvent(message))
    if is_kept:
        config.record(message)
    emit(MessageEndEvent(message))


def _find_recovery(
    message: AssistantMessage, context: AgentContext, config: AgentLoopConfig, signal: AbortSignal
) -> Callable[[AbortSignal], bool] | None:
    if message.stop_reason != "error" or config.recover is None or signal.aborted:
        return None
    return config.recover(message, context)


def _delay_before_next_try(answer: _Answer, attempt: int, policy: RetryPolicy | None, signal: AbortSignal) -> float | None:
    """Return how long to wait before the next try, None where there is none.

    A failure before the answer has begun is final here: the stream function has made its own tries until then.
    """
    message = answer.message
    if message.stop_reason != "error" or policy is None or attempt > policy.max_retries:
        return None
    if not answer.has_begun or signal.aborted:
        return None
    from agentcore.llm.failures import is_retryable

    if not is_retryable(message):
        return None
    return policy.pause(attempt)


def _retry_event(message: AssistantMessage, attempt: int, delay: float, policy: RetryPolicy | None) -> RetryEvent:
    return RetryEvent(
        attempt=attempt,
        max_retries=policy.max_retries if policy is not None else 0,
        delay=delay,
        error_message=message.error_message or "the answer broke off",
        kind=message.error_kind or "unknown",
        source="answer",
    )
