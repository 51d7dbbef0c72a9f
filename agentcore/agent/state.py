"""What an agent knows, and how each event of a run changes it."""

from __future__ import annotations

from collections.abc import Iterable

from agentcore.custom_messages import AgentMessage
from agentcore.events import (
    AgentEndEvent,
    AgentEvent,
    MessageEndEvent,
    MessageStartEvent,
    ToolExecutionEndEvent,
    ToolExecutionStartEvent,
    TurnEndEvent,
)
from agentcore.models import THINKING_LEVELS, Model, ThinkingLevel
from agentcore.tools.agent_tool import AgentTool
from agentcore.transcript import is_message

UNKNOWN_MODEL = Model(id="unknown", api="unknown", provider="unknown")
"""Stands where no model was given."""


def find_model(model: Model | str | None) -> Model:
    """Return a model that was given as such or as `"provider/id"`; the unknown one for None.

    Raises:
        ValueError: No such model is known.
        TypeError: It is neither.
    """
    if model is None:
        return UNKNOWN_MODEL
    if isinstance(model, Model):
        return model
    if isinstance(model, str):
        from agentcore.llm import get_model

        return get_model(model)
    raise TypeError(f"model must be a Model or a string 'provider/id', not {type(model).__name__}")


class AgentState:
    """What an agent knows: the settings of the next run, the transcript, and what is going on.

    `tools` and `messages` are copied when they are set. What is set during a run holds from the next run on: a run works on its own
    copy of the settings and of the transcript.

    Attributes:
        system_prompt, model, thinking_level, tools: The settings of the next run. `model` may be set to a string `"provider/id"`;
            it is the unknown one if none was given.
        messages: The transcript. A message is in it when its `message_end` is told.
        is_streaming: A run is going.
        streaming_message: The message that has begun and not ended; an answer is live: one object that grows.
        pending_tool_calls: Ids of the calls that have begun and not ended.
        error_message: Why the last answer failed; None when a run begins.

    Threads:
        Written to by the run thread during a run, read by any thread.
    """

    # So a misspelt name is refused when it is set.
    __slots__ = (
        *("_system_prompt", "_model", "_thinking_level", "_tools", "_messages"),
        *("is_streaming", "streaming_message", "pending_tool_calls", "error_message", "__weakref__"),
    )

    def __init__(
        self,
        *,
        system_prompt: str = "",
        model: Model | str | None = None,
        thinking_level: ThinkingLevel = "off",
        tools: Iterable[AgentTool] = (),
        messages: Iterable[AgentMessage] = (),
    ) -> None:
        self.system_prompt = system_prompt
        self._model = find_model(model)
        self.thinking_level = thinking_level
        self.tools = tools
        self.messages = messages
        self.is_streaming = False
        self.streaming_message: AgentMessage | None = None
        self.pending_tool_calls: frozenset[str] = frozenset()
        self.error_message: str | None = None

    @property
    def model(self) -> Model:
        return self._model

    @model.setter
    def model(self, model: Model | str | None) -> None:
        self._model = find_model(model)

    @property
    def system_prompt(self) -> str:
        return self._system_prompt

    @system_prompt.setter
    def system_prompt(self, text: str) -> None:
        if not isinstance(text, str):
            raise TypeError(f"system_prompt must be a text, not {type(text).__name__}: '' stands for none")
        self._system_prompt = text

    @property
    def thinking_level(self) -> ThinkingLevel:
        return self._thinking_level

    @thinking_level.setter
    def thinking_level(self, level: ThinkingLevel) -> None:
        if level not in THINKING_LEVELS:
            raise ValueError(f"unknown thinking level {level!r}: it is one of {', '.join(THINKING_LEVELS)}")
        self._thinking_level: ThinkingLevel = level

    @property
    def tools(self) -> list[AgentTool]:
        return self._tools

    @tools.setter
    def tools(self, tools: Iterable[AgentTool]) -> None:
        tools = [tools] if isinstance(tools, AgentTool) else list(tools)
        for tool in tools:
            if not isinstance(tool, AgentTool):
                raise TypeError(
                    f"tools must hold AgentTools, not {type(tool).__name__}: decorate a function with @tool, or make an AgentTool"
                )
        names = [tool.name for tool in tools]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"two tools are called {twice!r}: a model could not tell them apart; give one another name")
        self._tools = tools

    @property
    def messages(self) -> list[AgentMessage]:
        return self._messages

    @messages.setter
    def messages(self, messages: Iterable[AgentMessage]) -> None:
        messages = list(messages)
        for message in messages:
            if not is_message(message):
                raise TypeError(
                    f"messages must hold messages, not {type(message).__name__}: UserMessage(…) makes one of a text, load_messages "
                    "reads JSON"
                )
        self._messages = messages

    def __repr__(self) -> str:
        doing = "running" if self.is_streaming else "idle"
        return f"<AgentState {doing}, model {self.model.id}, {len(self._messages)} messages, {len(self._tools)} tools>"

    def begin(self) -> None:
        """A run begins."""
        self.is_streaming = True
        self.streaming_message = None
        self.error_message = None

    def settle(self) -> None:
        """A run has ended."""
        self.is_streaming = False
        self.streaming_message = None
        self.pending_tool_calls = frozenset()

    def clear(self) -> None:
        """Forget the transcript and the error; the settings stay."""
        self.messages = []
        self.error_message = None
        self.settle()

    def apply(self, event: AgentEvent) -> None:
        """Take over what an event says. Not `message_update`; and the transcript is written before `message_end` is told."""
        if isinstance(event, MessageStartEvent):
            self.streaming_message = event.message
        elif isinstance(event, MessageEndEvent):
            self.streaming_message = None
        elif isinstance(event, ToolExecutionStartEvent):
            self.pending_tool_calls = self.pending_tool_calls | {event.tool_call_id}
        elif isinstance(event, ToolExecutionEndEvent):
            self.pending_tool_calls = self.pending_tool_calls - {event.tool_call_id}
        elif isinstance(event, TurnEndEvent):
            if event.message.error_message:
                self.error_message = event.message.error_message
        elif isinstance(event, AgentEndEvent):
            self.streaming_message = None
