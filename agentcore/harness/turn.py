"""What a harness does in the runs of its agent: the snapshot of each turn, the save points, the hooks.

run thread
before_run         settings, system prompt, tool context; waiting next-turn messages; before_agent_start
┌ before_request   compacts, if the context is nearly full
│ context, before_provider_request, before_provider_payload, after_provider_response
│ recover          compacts after an overflow
│ tool_call, tool_result
│ turn_end, then what waits is stored: save_point
└ prepare_next_turn   what a save_point listener changed is stored; the snapshot of the next turn
agent_end, settled
after_run          lets go of the harness
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agentcore.abort import AbortSignal
from agentcore.agent.agent import Agent, stream_of_agent
from agentcore.agent.queues import PendingMessageQueue, QueueMode
from agentcore.callbacks import fit_callback
from agentcore.custom_messages import AgentMessage
from agentcore.errors import AgentCoreError, HarnessError
from agentcore.events import AgentEvent, AssistantMessageEvent
from agentcore.harness.compacting import Compactor
from agentcore.harness.events import (
    AfterProviderResponseEvent,
    BeforeAgentStartEvent,
    QueueUpdateEvent,
    SavePointEvent,
    SettledEvent,
    ToolCallEvent,
    ToolResultEvent,
)
from agentcore.harness.hooks import Hooks
from agentcore.harness.ledger import Claim, Ledger
from agentcore.harness.settings import HarnessSettings, SystemPromptContext
from agentcore.llm.request import Context, ProviderResponse, StreamOptions
from agentcore.loop.config import (
    AfterToolCallContext,
    AfterToolCallResult,
    AgentContext,
    AgentLoopTurnUpdate,
    BeforeToolCallContext,
    BeforeToolCallResult,
    PrepareNextTurnContext,
)
from agentcore.messages import AssistantMessage, ImageContent, TextContent, UserMessage
from agentcore.models import Model, ThinkingLevel
from agentcore.tools.agent_tool import AgentTool
from agentcore.tools.environment import ExecutionEnvironment

_log = logging.getLogger("agentcore")


class AnnouncedQueue(PendingMessageQueue):
    """A queue of which it is said when the run takes messages from it."""

    def __init__(self, mode: QueueMode, announce: Callable[[], object]) -> None:
        super().__init__(mode)
        self._announce = announce

    def drain(self) -> list[AgentMessage]:
        """Take the messages for one turn and say so; if a listener raises they go back."""
        messages = super().drain()
        if messages:
            try:
                self._announce()
            except BaseException:
                self.put_back(messages)
                raise
        return messages

    def take_all(self) -> list[AgentMessage]:
        """Take all messages, whatever the mode."""
        messages: list[AgentMessage] = []
        while self.has_items():
            messages.extend(super().drain())
        return messages


class Queues:
    """The messages that wait: for the next turn of the run, for when it would stop, for the next prompt."""

    def __init__(self, steering_mode: QueueMode, follow_up_mode: QueueMode, announce: Callable[[], object]) -> None:
        self.steer = AnnouncedQueue(steering_mode, announce)
        self.follow_up = AnnouncedQueue(follow_up_mode, announce)
        self.next_turn = AnnouncedQueue("all", announce)

    def show(self) -> QueueUpdateEvent:
        """Return what waits now."""
        return QueueUpdateEvent(self.steer.messages(), self.follow_up.messages(), self.next_turn.messages())


@dataclass(frozen=True)
class TurnSnapshot:
    """What one turn is made with. Changes of the settings come with the next one."""

    model: Model
    thinking_level: ThinkingLevel
    tools: list[AgentTool]
    stream_options: StreamOptions
    system_prompt: str
    tool_context: Any


class TurnDriver:
    """Drives an agent through the turns of a harness. Belongs to the run thread, but for `started`.

    Args:
        tell: Tells an event of the run to listeners.
    """

    def __init__(
        self,
        agent: Agent,
        ledger: Ledger,
        settings: HarnessSettings,
        queues: Queues,
        hooks: Hooks,
        compactor: Compactor,
        environment: Callable[[], ExecutionEnvironment],
        tell: Callable[[Any], object],
    ) -> None:
        self._agent = agent
        self._ledger = ledger
        self._settings = settings
        self._queues = queues
        self._hooks = hooks
        self._compactor = compactor
        self._environment = environment
        self._tell = tell
        self._claim: Claim | None = None
        self._run_prompt: str | None = None  # what a handler made of the system prompt, for this run
        self._taken: list[AgentMessage] = []  # next-turn messages that are not in the transcript yet
        self._appended: list[AgentMessage] = []  # stored at save points, not in the context of the run yet
        agent.steering_queue = queues.steer
        agent.follow_up_queue = queues.follow_up
        agent.before_run = self.before_run
        agent.after_run = self.after_run
        agent.before_request = self.before_request
        agent.recover = self.recover
        agent.transform_context = self._hooks.context
        agent.before_tool_call = self.before_tool_call
        agent.after_tool_call = self.after_tool_call
        agent.prepare_next_turn_with_context = self.prepare_next_turn
        agent.stream_fn = self.stream
        agent.subscribe(self.on_agent_event)

    def started(self, claim: Claim) -> None:
        """Say that a run begins, which lets go of `claim` at its end."""
        self._claim = claim

    # --- around the run ------------------------------------------------------------------------------------------------

    def before_run(self, prompts: list[AgentMessage] | None, signal: AbortSignal) -> list[AgentMessage] | None:
        """Make everything ready; what is raised here comes out of the run, in which nothing has happened."""
        self._run_prompt = None
        self._appended = []
        self._compactor.begin_run()
        try:
            if not self._ledger.is_in_step:
                self.reload()
            snapshot = self._take_snapshot()
            if prompts is not None:
                prompts = self._ask_before_start(prompts, snapshot, signal)
                # Once more, for what handlers have changed: a tool that one of them added is offered at once.
                prompt = snapshot.system_prompt if self._run_prompt is None else self._run_prompt
                snapshot = self._snapshot_with(prompt, snapshot.tool_context)
        except AgentCoreError:
            raise
        except Exception as error:
            raise HarnessError(str(error), code="hook") from error
        agent = self._agent
        agent.state.model = snapshot.model
        agent.state.thinking_level = snapshot.thinking_level
        agent.state.tools = snapshot.tools
        agent.state.system_prompt = snapshot.system_prompt
        agent.stream_options = snapshot.stream_options
        agent.tool_context = snapshot.tool_context
        return prompts

    def _ask_before_start(self, prompts: list[AgentMessage], snapshot: TurnSnapshot, signal: AbortSignal) -> list[AgentMessage]:
        taken = self._queues.next_turn.drain()
        self._taken = list(taken)
        text, images = _text_and_images(prompts)
        event = BeforeAgentStartEvent(text, images, snapshot.system_prompt, self._settings.resources)
        event = self._hooks.before_agent_start(event, signal)
        if event.system_prompt != snapshot.system_prompt:
            self._run_prompt = event.system_prompt
        return [*taken, *prompts, *event.messages]

    def after_run(self) -> None:
        """Let go of the harness. Next-turn messages that have not been delivered wait again."""
        taken, self._taken = self._taken, []
        claim, self._claim = self._claim, None
        try:
            if taken:
                self._queues.next_turn.put_back(taken)
                self._tell(self._queues.show())
        finally:
            if claim is not None:
                self._ledger.release(claim)

    def append_message(self, message: AgentMessage) -> str:
        """Store a message of the run."""
        if self._taken:
            self._taken = [one for one in self._taken if one is not message]
        return self._ledger.append_message(message)

    def build_context(self) -> Any:
        """Return the session's context."""
        return self._ledger.build_context()

    def on_agent_event(self, event: AgentEvent, signal: AbortSignal) -> None:
        """Pass an event on; at the end of a turn, store what waits, and at the end of the run let others write."""
        kind = event.type
        if kind == "agent_end":
            self._ledger.become_idle()
            self._tell(event)
            self._tell(SettledEvent(len(self._queues.next_turn)))
            return
        self._tell(event)
        if kind == "turn_end":
            has_waiting = self._ledger.has_waiting
            self._appended += self._ledger.flush()
            self._tell(SavePointEvent(has_waiting))

    # --- turns ---------------------------------------------------------------------------------------------------------

    def _take_snapshot(self) -> TurnSnapshot:
        tool_context = self._settings.tool_context
        if callable(tool_context):
            tool_context = tool_context()
        if self._run_prompt is not None:
            return self._snapshot_with(self._run_prompt, tool_context)
        bare = self._snapshot_with("", tool_context)
        prompt = self._settings.system_prompt.make(lambda: self._prompt_context(bare))
        return replace(bare, system_prompt=prompt)

    def _snapshot_with(self, system_prompt: str, tool_context: Any) -> TurnSnapshot:
        settings = self._settings
        options = settings.stream_options or StreamOptions()
        return TurnSnapshot(settings.model, settings.thinking_level, settings.active_tools, options, system_prompt, tool_context)

    def _prompt_context(self, snapshot: TurnSnapshot) -> SystemPromptContext:
        return SystemPromptContext(
            session=self._ledger.session,
            model=snapshot.model,
            thinking_level=snapshot.thinking_level,
            active_tools=snapshot.tools,
            resources=self._settings.resources,
            environment=self._environment(),
        )

    def prepare_next_turn(self, turn: PrepareNextTurnContext, signal: AbortSignal) -> AgentLoopTurnUpdate:
        """Store what waits, and give the loop the snapshot of the next turn."""
        self._appended += self._ledger.flush()
        snapshot = self._take_snapshot()
        appended, self._appended = self._appended, []
        messages = turn.context.messages  # the run's own list: a copy of it would cost more with every turn
        messages += appended
        if not self._ledger.is_in_step:
            self.reload()
            messages = list(self._agent.state.messages)
        return AgentLoopTurnUpdate(
            context=AgentContext(snapshot.system_prompt, messages, snapshot.tools),
            model=snapshot.model,
            thinking_level=snapshot.thinking_level,
            stream_options=snapshot.stream_options,
            tool_context=snapshot.tool_context,
        )

    def reload(self) -> None:
        """Take the transcript from the session, which was compacted, moved in or written to."""
        self._agent.state.messages = self._ledger.build_context().messages

    def before_request(self, context: AgentContext, signal: AbortSignal) -> None:
        """Compact if the context is nearly full."""
        if self._compactor.compact_if_full(context, signal):
            context.messages = list(self._agent.state.messages)

    def recover(self, message: AssistantMessage, context: AgentContext) -> Callable[[AbortSignal], bool] | None:
        """Compact after an overflow."""
        compact = self._compactor.plan_recovery(message, context)
        if compact is None:
            return None

        def recover(signal: AbortSignal) -> bool:
            is_done = compact(signal)
            if is_done:
                context.messages = list(self._agent.state.messages)
            return is_done

        return recover

    # --- hooks ---------------------------------------------------------------------------------------------------------

    def before_tool_call(self, context: BeforeToolCallContext, signal: AbortSignal) -> BeforeToolCallResult | None:
        """Ask the `tool_call` handlers."""
        call = context.tool_call
        return self._hooks.tool_call(ToolCallEvent(call.id, call.name, context.args), signal)

    def after_tool_call(self, context: AfterToolCallContext, signal: AbortSignal) -> AfterToolCallResult | None:
        """Ask the `tool_result` handlers."""
        call, result = context.tool_call, context.result
        event = ToolResultEvent(call.id, call.name, context.args, result.content, result.details, context.is_error, result.usage)
        return self._hooks.tool_result(event, signal)

    def stream(self, model: Model, context: Context, options: StreamOptions) -> Iterable[AssistantMessageEvent]:
        """Make a request, with the hooks around it."""
        hooks, signal = self._hooks, options.signal
        options = copy.copy(options)
        if hooks.has("before_provider_request"):
            options = hooks.before_provider_request(model, self._ledger.session.id, options, signal)
        if hooks.has("before_provider_payload"):
            own_payload = options.on_payload and fit_callback(options.on_payload, ("payload", "model"), what="on_payload")

            def on_payload(payload: Any, model: Model) -> Any:
                if own_payload is not None:
                    changed = own_payload(payload, model)
                    payload = payload if changed is None else changed
                return hooks.before_provider_payload(model, payload, signal)

            options.on_payload = on_payload
        own_response = options.on_response and fit_callback(options.on_response, ("response", "model"), what="on_response")

        def on_response(response: ProviderResponse, model: Model) -> None:
            if own_response is not None:
                own_response(response, model)
            self._tell(AfterProviderResponseEvent(response.status, response.headers))

        options.on_response = on_response
        return (self._settings.stream_fn or stream_of_agent)(model, context, options)


def _text_and_images(messages: Sequence[AgentMessage]) -> tuple[str, list[ImageContent]]:
    texts: list[str] = []
    images: list[ImageContent] = []
    for message in messages:
        if isinstance(message, UserMessage):
            texts += [block.text for block in message.content if isinstance(block, TextContent)]
            images += [block for block in message.content if isinstance(block, ImageContent)]
    return "\n".join(texts), images
