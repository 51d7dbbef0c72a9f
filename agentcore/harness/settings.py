"""What a run is made with: model, thinking level, tools, resources, options; checked when they are set."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from agentcore.callbacks import fit_callback
from agentcore.errors import HarnessError
from agentcore.harness.compaction import CompactionSettings
from agentcore.harness.events import Resources
from agentcore.llm.request import StreamFn, StreamOptions
from agentcore.loop.config import RetryPolicy
from agentcore.models import THINKING_LEVELS, Model, ThinkingLevel
from agentcore.session.session import Session
from agentcore.tools.agent_tool import AgentTool
from agentcore.tools.environment import ExecutionEnvironment

DEFAULT_SYSTEM_PROMPT = "You are a helpful assistant."


@dataclass(frozen=True)
class SystemPromptContext:
    """What a system prompt can be made of: `system_prompt=lambda context: …`."""

    session: Session
    model: Model
    thinking_level: ThinkingLevel
    active_tools: list[AgentTool]
    resources: Resources
    environment: ExecutionEnvironment


class SystemPrompt:
    """A text, or a function of a `SystemPromptContext` that is asked before each turn."""

    def __init__(self, given: str | Callable[..., str] | None) -> None:
        given = DEFAULT_SYSTEM_PROMPT if given is None else given
        self._text = given if isinstance(given, str) else ""
        self._function = None if isinstance(given, str) else fit_callback(given, ("context",), what="system_prompt")

    def make(self, make_context: Callable[[], SystemPromptContext]) -> str:
        """Return the text of a turn."""
        if self._function is None:
            return self._text
        made = self._function(make_context())
        if not isinstance(made, str):
            raise TypeError(f"system_prompt returned a value of type {type(made).__name__}: it must return a text")
        return made


@dataclass
class HarnessSettings:
    """The settings of the next turn. They may be changed at any time; a turn takes a snapshot.

    Threads: any writes while it holds `lock`, the run thread reads single fields without it. So tools and their active names are
    one field.
    """

    model: Model
    thinking_level: ThinkingLevel = "off"
    tool_set: tuple[list[AgentTool], list[str]] = field(default_factory=lambda: ([], []))
    resources: Resources = field(default_factory=Resources)
    stream_options: StreamOptions | None = None
    system_prompt: SystemPrompt = field(default_factory=lambda: SystemPrompt(None))
    tool_context: Any = None
    compaction: CompactionSettings = field(default_factory=CompactionSettings)
    retry: RetryPolicy | None = None
    stream_fn: StreamFn | None = None
    get_api_key: Callable[..., str | None] | None = None
    # Held from a change of a setting until it is written to the session, or waits to be: the two must not come in different orders.
    # No listener is told while it is held.
    lock: threading.RLock = field(default_factory=threading.RLock, repr=False, compare=False)

    @property
    def tools(self) -> list[AgentTool]:
        """All tools."""
        return self.tool_set[0]

    @property
    def active_tool_names(self) -> list[str]:
        """The names of the tools that the model is offered."""
        return self.tool_set[1]

    @property
    def active_tools(self) -> list[AgentTool]:
        """The tools that the model is offered, in the order of their active names."""
        tools, active = self.tool_set
        by_name = {tool.name: tool for tool in tools}
        return [by_name[name] for name in active]

    def set_tools(self, tools: Iterable[AgentTool], active_tool_names: Sequence[str]) -> None:
        """Set the tools and which of them are active.

        Raises:
            HarnessError: A name is there twice, or an active one is no tool (`invalid_argument`). Nothing has changed.
        """
        new_tools = as_tools(tools)
        if isinstance(active_tool_names, str):
            raise TypeError(f"active_tool_names must be a list of names, not the text {active_tool_names!r}")
        for tool in new_tools:
            if not isinstance(tool, AgentTool):
                raise TypeError(
                    f"tools must hold AgentTools, not {type(tool).__name__}: decorate a function with @tool, or make an AgentTool"
                )
        names = [tool.name for tool in new_tools]
        active = list(active_tool_names)
        _refuse(_twice(names), "two tools have the same name", "rename one")
        _refuse(_twice(active), "an active tool is named twice", "name it once")
        _refuse([name for name in active if name not in names], "no such tool", f"there are {', '.join(names) or 'none'}")
        self.tool_set = (new_tools, active)


def as_tools(tools: Iterable[AgentTool]) -> list[AgentTool]:
    """Return tools as a list; a single one will do."""
    return [tools] if isinstance(tools, AgentTool) else list(tools)


def check_setting(name: str, value: object, wanted: type | tuple[type, ...], way: str) -> None:
    """Refuse a setting of another type; None is always allowed.

    Raises:
        TypeError: It is one.
    """
    if value is not None and not isinstance(value, wanted):
        raise TypeError(f"{name} must not be of type {type(value).__name__}: {way}")


def check_stream_options(options: StreamOptions | None) -> StreamOptions | None:
    """Return options that are such.

    Raises:
        TypeError: They are none.
    """
    check_setting("stream_options", options, StreamOptions, "pass StreamOptions(temperature=…, …)")
    return options


def _twice(names: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(name for index, name in enumerate(names) if name in names[:index]))


def _refuse(names: Sequence[str], what: str, way: str) -> None:
    if names:
        raise HarnessError(f"{what}: {', '.join(names)}; {way}", code="invalid_argument")


def check_thinking_level(level: str) -> Literal["off", "minimal", "low", "medium", "high", "xhigh", "max"]:
    """Return a thinking level that is one.

    Raises:
        HarnessError: It is none (`invalid_argument`).
    """
    for known in THINKING_LEVELS:
        if level == known:
            return known
    text = f"unknown thinking level {level!r}: it is one of {', '.join(THINKING_LEVELS)}"
    raise HarnessError(text, code="invalid_argument")
