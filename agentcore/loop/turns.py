"""The story of a run, from its first turn to its last.

    agent_start, turn_start
      prompts                                     message_start, message_end for each
    ┌ turn_start (but for the first turn)
    │ steered or follow-up messages               message_start, message_end for each
    │ stream_assistant_response                   message_start, message_update …, message_end
    │   failed or aborted: turn_end, agent_end
    │ execute_tool_calls
    │ turn_end
    │ prepare_next_turn, should_stop_after_turn   true: agent_end
    │ steering is asked for
    └ again, while there are tool results or steered messages
      follow-ups are asked for; with any, again
    agent_end

- `run_agent_loop`, `run_agent_loop_continue` run on the thread that calls them, and raise what a hook or a listener raises.
- `agent_loop`, `agent_loop_continue` run on a thread of their own and are read as an iterator of events.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Sequence

from agentcore.abort import AbortSignal
from agentcore.custom_messages import AgentMessage
from agentcore.events import (
    AgentEndEvent,
    AgentStartEvent,
    MessageEndEvent,
    MessageStartEvent,
    TurnEndEvent,
    TurnStartEvent,
)
from agentcore.llm.request import StreamFn
from agentcore.loop.config import (
    AgentContext,
    AgentEventSink,
    AgentLoopConfig,
    AgentLoopTurnUpdate,
    PrepareNextTurnContext,
    QueueName,
    check_returned,
)
from agentcore.loop.event_stream import RunStream, start_stream
from agentcore.loop.response import stream_assistant_response
from agentcore.loop.tool_calls import ExecutedToolCallBatch, execute_tool_calls
from agentcore.loop.tool_workers import ToolWorkers
from agentcore.messages import AssistantMessage
from agentcore.transcript import PromptInput, normalize_prompt_input

_log = logging.getLogger("agentcore")


def agent_loop(
    prompts: PromptInput,
    context: AgentContext,
    config: AgentLoopConfig,
    signal: AbortSignal | None = None,
    stream_fn: StreamFn | None = None,
) -> RunStream:
    """Start a run with new messages on a thread of its own; read its events by iterating over what comes back.

    The prompts are a text, a message or a list of messages. The context stays as it is. The iteration ends when the run ends; if
    the loop raised, `result()` raises.

    Raises:
        TypeError: The prompts are none.

    Example:
        >>> for event in agent_loop("hello", AgentContext(), AgentLoopConfig(model=model)):
        ...     print(event.type)
    """
    messages = normalize_prompt_input(prompts)
    return start_stream(
        lambda run, emit: run_agent_loop(messages, context, config, emit, run.signal, stream_fn), signal, config.tool_grace
    )


def agent_loop_continue(
    context: AgentContext, config: AgentLoopConfig, signal: AbortSignal | None = None, stream_fn: StreamFn | None = None
) -> RunStream:
    """Start a run that goes on where the context ends, on a thread of its own. New messages are put into the context's list.

    Raises:
        ValueError: The context is empty, or ends in an answer that has neither failed nor been aborted.
    """
    _check_can_continue(context)
    return start_stream(
        lambda run, emit: run_agent_loop_continue(context, config, emit, run.signal, stream_fn), signal, config.tool_grace
    )


def run_agent_loop(
    prompts: PromptInput,
    context: AgentContext,
    config: AgentLoopConfig,
    emit: AgentEventSink,
    signal: AbortSignal | None = None,
    stream_fn: StreamFn | None = None,
) -> list[AgentMessage]:
    """Run with new messages on this thread. The context stays as it is.

    Returns:
        All messages that the run added, the prompts first.

    Raises:
        Exception: What a hook, a listener or the stream function raised. A failed request does not raise: it is an answer.
    """
    prompts = normalize_prompt_input(prompts)
    current = AgentContext(context.system_prompt, [*context.messages, *prompts], context.tools)
    return _Run(current, config, emit, signal, stream_fn).play(prompts)


def run_agent_loop_continue(
    context: AgentContext,
    config: AgentLoopConfig,
    emit: AgentEventSink,
    signal: AbortSignal | None = None,
    stream_fn: StreamFn | None = None,
) -> list[AgentMessage]:
    """Go on where the context ends, on this thread. New messages are put into the context's list.

    Returns:
        All messages that the run added.

    Raises:
        ValueError: The context is empty, or ends in an answer that has neither failed nor been aborted.
    """
    _check_can_continue(context)
    current = AgentContext(context.system_prompt, context.messages, context.tools)
    return _Run(current, config, emit, signal, stream_fn).play(())


def _check_can_continue(context: AgentContext) -> None:
    if not context.messages:
        raise ValueError("cannot continue: the context has no messages; start with a prompt")
    if not can_continue(context.messages):
        raise ValueError("cannot continue from an assistant message: add a user message or a tool result, or start with a prompt")


def can_continue(messages: Sequence[AgentMessage]) -> bool:
    """Return whether the model can be asked for more without a new message: the last one is to be answered.

    A failed or aborted answer at the end counts as none: no request shows it to a model, so it is asked for anew. (The reference
    refuses all answers.)
    """
    for message in reversed(messages):
        if not isinstance(message, AssistantMessage):
            return True
        if message.stop_reason not in ("error", "aborted"):
            # Calls that a failure left without results are answered in the request. Right at the end they are refused, as recorded.
            return message is not messages[-1] and bool(message.tool_calls)
    return False


class _Run:
    """A run under way. Belongs to the run thread."""

    def __init__(
        self,
        context: AgentContext,
        config: AgentLoopConfig,
        emit: AgentEventSink,
        signal: AbortSignal | None,
        stream_fn: StreamFn | None,
    ) -> None:
        self.context = context
        self.config = copy.copy(config)  # prepare_next_turn changes it for this run alone
        self.emit = emit
        self.signal = AbortSignal() if signal is None else signal
        self.stream_fn = stream_fn
        self.new_messages: list[AgentMessage] = []
        self.workers = ToolWorkers(self.signal, config.max_tool_workers, config.tool_grace)

    def play(self, prompts: Sequence[AgentMessage]) -> list[AgentMessage]:
        try:
            self._play(prompts)
        finally:
            self.workers.shut()
        return self.new_messages

    def _play(self, prompts: Sequence[AgentMessage]) -> None:
        emit, config, context = self.emit, self.config, self.context
        self.new_messages.extend(prompts)
        emit(AgentStartEvent())
        emit(TurnStartEvent())
        for prompt in prompts:
            self._deliver(prompt)
        is_first_turn = True
        waiting = self._ask_queue("steering")
        queue: QueueName = "steering"
        while True:
            has_tool_results = True
            while has_tool_results or waiting:
                self._begin_turn(is_first_turn, waiting, queue)
                is_first_turn = False

                message = stream_assistant_response(context, config, self.signal, emit, self.stream_fn)
                self.new_messages.append(message)
                if message.stop_reason in ("error", "aborted"):
                    emit(TurnEndEvent(message, []))
                    emit(AgentEndEvent(self.new_messages))
                    return

                batch = ExecutedToolCallBatch()
                has_tool_results = False
                if any(block.type == "tool" for block in message.content):
                    batch = execute_tool_calls(context, message, config, self.signal, emit, self.workers)
                    has_tool_results = not batch.terminate
                    context.messages.extend(batch.messages)
                    self.new_messages.extend(batch.messages)
                emit(TurnEndEvent(message, batch.messages))

                turn = PrepareNextTurnContext(message, batch.messages, context, self.new_messages)
                context = self._prepare_next_turn(turn)
                if config.should_stop_after_turn is not None:
                    turn = PrepareNextTurnContext(message, batch.messages, context, self.new_messages)
                    if config.should_stop_after_turn(turn):
                        emit(AgentEndEvent(self.new_messages))
                        return
                waiting, queue = self._ask_queue("steering"), "steering"
            # Steering before follow-ups: what was steered in the last turn must not wait for a turn that may never come.
            waiting, queue = self._ask_queue("follow_up"), "follow_up"
            if not waiting:
                break
        emit(AgentEndEvent(self.new_messages))

    def _deliver(self, message: AgentMessage) -> None:
        self.emit(MessageStartEvent(message))
        self.config.record(message)
        self.emit(MessageEndEvent(message))

    def _ask_queue(self, queue: QueueName) -> list[AgentMessage]:
        hook = self.config.get_steering_messages if queue == "steering" else self.config.get_follow_up_messages
        waiting = None if hook is None else hook()
        return normalize_prompt_input(waiting) if waiting else []

    def _begin_turn(self, is_first: bool, queued: list[AgentMessage], queue: QueueName) -> None:
        """Tell that a turn begins (the first one has been told), and deliver the messages that were taken from a queue for it."""
        count_recorded = 0
        try:
            if not is_first:
                self.emit(TurnStartEvent())
            for message in queued:
                self.emit(MessageStartEvent(message))
                self.config.record(message)
                count_recorded += 1
                self.emit(MessageEndEvent(message))
                self.context.messages.append(message)
                self.new_messages.append(message)
        except BaseException:
            # What was taken from a queue must not be lost because a listener raised.
            if self.config.put_back is not None and queued[count_recorded:]:
                self.config.put_back(queued[count_recorded:], queue)
            raise

    def _prepare_next_turn(self, turn: PrepareNextTurnContext) -> AgentContext:
        """Ask the hook, take over what it gives back, and return the context of the next turn."""
        config = self.config
        if config.prepare_next_turn is None:
            return self.context
        update = config.prepare_next_turn(turn, self.signal)
        check_returned("prepare_next_turn", update, AgentLoopTurnUpdate)
        if update is None:
            return self.context
        if update.context is not None:
            self.context = update.context
        if update.model is not None:
            config.model = update.model
        if update.thinking_level is not None:
            config.thinking_level = update.thinking_level
        if update.stream_options is not None:
            config.stream_options = update.stream_options
        if update.tool_context is not None:
            config.tool_context = update.tool_context
        return self.context
