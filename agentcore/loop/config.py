"""What a run is given: the context, the settings, and the hooks with what they get and give back.

All hooks run on the run thread, one at a time. They may take fewer arguments than there are (`agentcore.callbacks`); that is looked
up once, when the config is made. What a hook raises ends the run, but for `before_tool_call` and `after_tool_call`: there it makes
an error result of the one call. The logger `agentcore` says at `WARNING` which hook raised what.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any, Literal

from agentcore.abort import AbortSignal
from agentcore.callbacks import fit_callback
from agentcore.custom_messages import AgentMessage
from agentcore.errors import AgentAbortedError
from agentcore.events import AgentEvent
from agentcore.lazy_dataclasses import dataclass
from agentcore.llm.request import StreamOptions
from agentcore.messages import (
    AgentToolResult,
    AssistantMessage,
    ImageContent,
    Message,
    TextContent,
    ToolCall,
    ToolResultMessage,
    Usage,
)
from agentcore.models import Model, ThinkingLevel
from agentcore.tools.agent_tool import AgentTool, ToolExecutionMode
from agentcore.transcript import PromptInput

_log = logging.getLogger("agentcore")

AgentEventSink = Callable[[AgentEvent], object]
"""Is told everything, in order, on the run thread; the run goes on when it has returned. What it raises ends the run."""


@dataclass
class AgentContext:
    """What a run works on: the system prompt, the transcript, and the tools (None: no list was given)."""

    system_prompt: str = ""
    messages: list[AgentMessage] = field(default_factory=list)
    tools: Sequence[AgentTool] | None = None


@dataclass
class RetryPolicy:
    """How often an answer that broke off is asked for again, and after which pauses.

    Args:
        max_retries: Tries after the first one; 0 turns it off.
        base_delay: Seconds before the first new try. Each pause is twice the one before, less up to a quarter at random.
    """

    max_retries: int = 3
    base_delay: float = 1.0

    def __post_init__(self) -> None:
        if self.max_retries < 0:
            raise ValueError(f"max_retries must be 0 or more, not {self.max_retries}: 0 turns the retry off")
        if self.base_delay < 0:
            raise ValueError(f"base_delay is in seconds and must be 0 or more, not {self.base_delay}")

    def pause(self, attempt: int) -> float:
        """Return the seconds to wait before new try number `attempt`, counted from 1."""
        import random

        return self.base_delay * 2.0 ** min(attempt - 1, 30) * (1.0 - 0.25 * random.random())


# --- what hooks get and give back ------------------------------------------------------------------------------------


@dataclass
class BeforeToolCallContext:
    """What `before_tool_call` gets. `args` have been validated; changing them in place changes what the tool gets."""

    assistant_message: AssistantMessage
    tool_call: ToolCall
    args: Any
    context: AgentContext


@dataclass
class BeforeToolCallResult:
    """What `before_tool_call` may give back. `block` keeps the call from being run; the model reads `reason`."""

    block: bool | None = None
    reason: str | None = None


@dataclass
class AfterToolCallContext:
    """What `after_tool_call` gets: the call, the arguments that it was run with, and what came of it."""

    assistant_message: AssistantMessage
    tool_call: ToolCall
    args: Any
    result: AgentToolResult
    is_error: bool
    context: AgentContext


@dataclass
class AfterToolCallResult:
    """What `after_tool_call` may give back: each field that is not None replaces that of the result."""

    content: str | Sequence[TextContent | ImageContent] | None = None
    details: Any = None
    is_error: bool | None = None
    usage: Usage | None = None
    terminate: bool | None = None


@dataclass
class PrepareNextTurnContext:
    """What the hooks after a turn get: its answer, its tool results, the context, and all messages new in this run."""

    message: AssistantMessage
    tool_results: list[ToolResultMessage]
    context: AgentContext
    new_messages: list[AgentMessage]


ShouldStopAfterTurnContext = PrepareNextTurnContext


@dataclass
class AgentLoopTurnUpdate:
    """What `prepare_next_turn` may give back: each field that is not None holds for the rest of the run."""

    context: AgentContext | None = None
    model: Model | None = None
    thinking_level: ThinkingLevel | None = None
    stream_options: StreamOptions | None = None
    tool_context: Any = None


class WatchedHook:
    """A hook that is named in the log if it raises: the exception alone does not tell, and some are read by the model only."""

    __slots__ = ("_hook", "_name")

    def __init__(self, name: str, hook: Callable[..., Any]) -> None:
        self._name, self._hook = name, hook

    def __call__(self, *values: Any) -> Any:
        try:
            return self._hook(*values)
        except AgentAbortedError:  # of `signal.raise_if_aborted()`: as it should be
            raise
        except Exception as error:
            log_raised(self._name, error)
            raise


def fit_hook(name: str, hook: Callable[..., Any], arguments: Sequence[str]) -> Callable[..., Any]:
    """Return a hook that takes the arguments that there are, and is named in the log if it raises.

    Raises:
        TypeError: It needs more arguments than there are.
    """
    return hook if isinstance(hook, WatchedHook) else WatchedHook(name, fit_callback(hook, arguments, what=name))


def log_raised(what: str, error: BaseException) -> None:
    """Say in the log what raised which exception; the way there at `DEBUG`."""
    text = error_text(error)
    kind = type(error).__name__
    _log.warning("%s raised %s", what, text if text.startswith(kind) else f"{kind}: {text}")
    _log.debug("the way there", exc_info=error)


def error_text(error: BaseException) -> str:
    """Return what an exception says, with the name of its class where that would be nothing or a bare key."""
    text = str(error)
    if isinstance(error, KeyError) and type(error).__str__ is KeyError.__str__:
        return f"{type(error).__name__}: {text}"
    return text if text.strip() else type(error).__name__


def check_returned(hook: str, value: Any, expected: type) -> None:
    """Raise if a hook gave back what nobody can use: a bool, a dict, a coroutine, …

    Raises:
        TypeError: The value is neither None nor of the class that is expected.
    """
    if value is not None and not isinstance(value, expected):
        wanted = "a text" if expected is str else f"{expected.__name__}(…)"
        raise TypeError(f"{hook} returned a value of type {type(value).__name__}: it must return {wanted} or None")


def check_setting(name: str, value: Any) -> Any:
    """Return a value for a field of `AgentLoopConfig`, as it is kept there.

    Raises:
        TypeError: It is of another kind.
        ValueError: It is none of those that there are.
    """
    if name == "tool_execution" and not isinstance(value, ToolExecutionMode):
        choices = [mode.value for mode in ToolExecutionMode]
        if value not in choices:
            raise ValueError(f"tool_execution must be {' or '.join(map(repr, choices))}, not {value!r}")
        return ToolExecutionMode(value)
    if name == "max_tool_workers":
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"max_tool_workers must be 1 or more, not {value!r}")
    elif name == "tool_grace":
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
            raise ValueError(f"tool_grace is in seconds and must be 0 or more, not {value!r}")
    elif name == "retry" and value is not None and not isinstance(value, RetryPolicy):
        raise TypeError(f"retry must be a RetryPolicy(…), or None for no new try, not {type(value).__name__}")
    elif name == "stream_options" and value is not None and not isinstance(value, StreamOptions):
        raise TypeError(f"stream_options must be StreamOptions(…) or None, not {type(value).__name__}")
    return value


QueueName = Literal["steering", "follow_up"]

_HOOKS: dict[str, tuple[str, ...]] = {
    "convert_to_llm": ("messages",),
    "transform_context": ("messages", "signal"),
    "get_api_key": ("provider",),
    "before_request": ("context", "signal"),
    "recover": ("message", "context"),
    "before_tool_call": ("context", "signal"),
    "after_tool_call": ("context", "signal"),
    "prepare_next_turn": ("context", "signal"),
    "should_stop_after_turn": ("context",),
    "get_steering_messages": (),
    "get_follow_up_messages": (),
}


@dataclass
class AgentLoopConfig:
    """The settings of a run.

    Args:
        model: Who is asked.
        thinking_level: How much it thinks; None and `"off"` send nothing.
        convert_to_llm: `(messages)`: what the model gets of the transcript. Default: `agentcore.transcript.convert_to_llm`.
        transform_context: `(messages, signal)`: before that, for one request: may prune or add messages. The transcript stays.
        get_api_key: `(provider)`: asked before every request; None or an empty string leave `api_key` as it is.
        before_request: `(context, signal)`: once a turn, when all messages of the turn are in the context, which it may change in
            place.
        recover: `(message, context)`: asked once for an answer that failed for good. May return a function of `(signal)`: the
            failed answer then leaves the transcript, the function changes the context in place, and if it returns true the answer
            is asked for again.
        before_tool_call: `(context, signal)` → `BeforeToolCallResult` or None.
        after_tool_call: `(context, signal)` → `AfterToolCallResult` or None.
        prepare_next_turn: `(context, signal)` → `AgentLoopTurnUpdate` or None. After each turn, the last one too, but for a
            failed or an aborted one.
        should_stop_after_turn: `(context)`: true ends the run, before the queues are asked.
        get_steering_messages: Asked at the start and after each turn. `get_follow_up_messages`: asked when the run would stop. Both
            return what a prompt may be, or None.
        put_back: `(messages, queue)`: gets messages that were taken from a queue and could not be delivered.
        record_message: `(message)`: called for each message that stays in the transcript, before its `message_end` is told
            to anybody. A failed answer that will be tried again is not among them.
        has_listeners: Whether somebody hears what is emitted; where nobody does, no updates are made.
        tool_execution: Whether the calls of an answer run at the same time.
        tool_context: What `execute` gets as `context`.
        max_tool_workers: How many calls run at the same time at most.
        tool_grace: Seconds that a tool has to return after an abort; then the run goes on without it.
        retry: When to ask again for an answer that broke off; None never.
        stream_options: How requests are made. `api_key`, `session_id`, `thinking_budgets`, `transport` and
            `max_retry_delay_ms`, where they are not None, go before those of the options.

    Raises:
        TypeError: A hook needs more arguments than there are.
    """

    model: Model
    thinking_level: ThinkingLevel | None = None
    convert_to_llm: Callable[..., list[Message]] | None = None
    transform_context: Callable[..., list[AgentMessage]] | None = None
    get_api_key: Callable[..., str | None] | None = None
    before_request: Callable[..., object] | None = None
    recover: Callable[..., Callable[[AbortSignal], bool] | None] | None = None
    before_tool_call: Callable[..., BeforeToolCallResult | None] | None = None
    after_tool_call: Callable[..., AfterToolCallResult | None] | None = None
    prepare_next_turn: Callable[..., AgentLoopTurnUpdate | None] | None = None
    should_stop_after_turn: Callable[..., bool | None] | None = None
    get_steering_messages: Callable[..., PromptInput | None] | None = None
    get_follow_up_messages: Callable[..., PromptInput | None] | None = None
    put_back: Callable[[list[AgentMessage], QueueName], object] | None = None
    record_message: Callable[[AgentMessage], object] | None = None
    has_listeners: Callable[[], bool] | None = None
    tool_execution: ToolExecutionMode = ToolExecutionMode.PARALLEL
    tool_context: Any = None
    max_tool_workers: int = 32
    tool_grace: float = 2.0
    retry: RetryPolicy | None = None
    api_key: str | None = field(default=None, repr=False)
    session_id: str | None = None
    thinking_budgets: dict[str, int] | None = None
    transport: str | None = None
    max_retry_delay_ms: int | None = None
    stream_options: StreamOptions | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.model, Model):
            raise TypeError(
                f"model must be a Model, not {type(self.model).__name__}: get_model('provider/id') finds one by its name"
            )
        self.tool_execution = check_setting("tool_execution", self.tool_execution)
        for name in ("max_tool_workers", "tool_grace", "retry", "stream_options"):
            check_setting(name, getattr(self, name))
        for name in _HOOKS:
            self.set_hook(name, getattr(self, name))

    def set_hook(self, name: str, hook: Callable[..., Any] | None) -> None:
        """Set a hook, fitted to the arguments that there are.

        Raises:
            TypeError: It needs more arguments than there are.
        """
        setattr(self, name, hook if hook is None else fit_hook(name, hook, _HOOKS[name]))

    def make_options(self, signal: AbortSignal) -> StreamOptions:
        """Return the options of the next request, without asking `get_api_key`."""
        options = copy.copy(self.stream_options) if self.stream_options is not None else StreamOptions()
        options.signal = signal
        if self.thinking_level is not None:
            options.reasoning = None if self.thinking_level == "off" else self.thinking_level
        if self.api_key is not None:
            options.api_key = self.api_key
        if self.session_id is not None:
            options.session_id = self.session_id
        if self.thinking_budgets is not None:
            options.thinking_budgets = self.thinking_budgets
        if self.transport is not None:
            options.transport = self.transport
        if self.max_retry_delay_ms is not None:
            options.max_retry_delay_ms = self.max_retry_delay_ms
        return options

    def is_heard(self) -> bool:
        """Return whether somebody hears what is emitted."""
        return self.has_listeners is None or self.has_listeners()

    def record(self, message: AgentMessage) -> None:
        """Say that a message is now part of the transcript."""
        if self.record_message is not None:
            self.record_message(message)
