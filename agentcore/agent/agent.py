"""The `Agent`: what a user holds in the hand."""

from __future__ import annotations

import copy
import functools
import logging
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeVar, Union, overload

from agentcore.abort import AbortSignal
from agentcore.agent.printing import print_events
from agentcore.agent.queues import PendingMessageQueue, QueueMode
from agentcore.agent.state import UNKNOWN_MODEL, AgentState
from agentcore.agent.state import find_model as find_model
from agentcore.callbacks import fit_callback
from agentcore.custom_messages import AgentMessage
from agentcore.errors import AgentBusyError
from agentcore.events import (
    AgentEndEvent,
    AgentEvent,
    AssistantMessageEvent,
    ErrorEvent,
    MessageEndEvent,
    MessageStartEvent,
    MessageUpdateEvent,
    TurnEndEvent,
)
from agentcore.llm.request import Context, StreamFn, StreamOptions
from agentcore.loop.config import (
    AgentContext,
    AgentEventSink,
    AgentLoopConfig,
    AgentLoopTurnUpdate,
    PrepareNextTurnContext,
    QueueName,
    RetryPolicy,
    check_returned,
    check_setting,
    error_text,
    fit_hook,
)
from agentcore.loop.event_stream import EventChannel, RunStream
from agentcore.loop.response import default_stream
from agentcore.loop.run import Run, check_timeout, total_usage
from agentcore.loop.turns import can_continue, run_agent_loop, run_agent_loop_continue
from agentcore.messages import AssistantMessage, ImageContent, TextContent, Usage
from agentcore.models import Model, ThinkingLevel
from agentcore.tools.agent_tool import AgentTool, ToolExecutionMode
from agentcore.transcript import PromptInput, normalize_prompt_input

ImageInput = Union[ImageContent, bytes, str, "os.PathLike[str]"]
"""An image for a prompt: a content block, the bytes of a file, or its path."""

Images = Union[ImageInput, Sequence[ImageInput]]
"""One image, or several."""

_log = logging.getLogger("agentcore")


InitT = TypeVar("InitT", bound=Callable[..., None])


class AgentSession(Protocol):
    """What an agent needs of a session: a place to store messages, and the conversation so far."""

    def append_message(self, message: Any) -> str:
        """Store a message; when this returns, it is stored."""

    def build_context(self) -> Any:
        """Return an object with `messages`, `thinking_level`, `model` and `active_tool_names` of the conversation.

        The last three are None (or `"off"`) where the conversation does not say. A session that can be moved also has
        `get_leaf_id()`, which returns the id of the entry where it stands.
        """


class _Hook:
    """A hook of the agent: fitted to the arguments that there are when it is set, and read back as it was given."""

    def __set_name__(self, owner: type[Agent], name: str) -> None:
        self._name = name

    def __get__(self, agent: Agent | None, owner: type[Agent]) -> Any:
        return self if agent is None else agent._hooks.get(self._name)

    def __set__(self, agent: Agent, hook: Callable[..., Any] | None) -> None:
        agent._config.set_hook(self._name, hook)
        agent._hooks[self._name] = hook


class _RunHook(_Hook):
    """A hook around a run, which is the agent's own and not the loop's."""

    _NAMES: ClassVar = {"before_run": ("prompts", "signal"), "after_run": ()}

    def __set__(self, agent: Agent, hook: Callable[..., Any] | None) -> None:
        agent._run_hooks[self._name] = hook if hook is None else fit_callback(hook, self._NAMES[self._name], what=self._name)
        agent._hooks[self._name] = hook


class _NextTurnHook(_Hook):
    """The two hooks after a turn share one of the loop's."""

    _NAMES: ClassVar = {"prepare_next_turn": ("signal",), "prepare_next_turn_with_context": ("context", "signal")}

    def __set__(self, agent: Agent, hook: Callable[..., Any] | None) -> None:
        fitted = hook if hook is None else fit_hook(self._name, hook, self._NAMES[self._name])
        agent._next_turn_hooks[self._name] = fitted
        agent._hooks[self._name] = hook
        is_set = any(fitted is not None for fitted in agent._next_turn_hooks.values())
        agent._config.prepare_next_turn = agent._prepare_next_turn if is_set else None


T = TypeVar("T")


class _Setting(Generic[T]):
    """A setting that is kept elsewhere: read there, and set there."""

    def __init__(self, home: Literal["_state", "_config"], doc: str) -> None:
        self._home = home
        self.__doc__ = doc

    def __set_name__(self, owner: type[Agent], name: str) -> None:
        self._name = name

    @overload
    def __get__(self, agent: None, owner: type[Agent]) -> _Setting[T]: ...

    @overload
    def __get__(self, agent: Agent, owner: type[Agent]) -> T: ...

    def __get__(self, agent: Agent | None, owner: type[Agent]) -> Any:
        return self if agent is None else getattr(getattr(agent, self._home), self._name)

    def __set__(self, agent: Agent, value: Any) -> None:
        if self._home == "_config":
            value = check_setting(self._name, value)
        setattr(getattr(agent, self._home), self._name, value)


def _by_keyword_alone(init: InitT) -> InitT:
    """Say what to do where settings are given without their names."""

    @functools.wraps(init)
    def checked(agent: Agent, *given: object, **settings: Any) -> None:
        if given:
            example = "Agent(**settings)" if isinstance(given[0], dict) else "Agent(model='provider/id', tools=[…])"
            raise TypeError(f"an Agent takes keyword arguments alone, not a {type(given[0]).__name__} as such: {example}")
        init(agent, **settings)

    return checked  # type: ignore[return-value]


class _Subscription:
    __slots__ = ("call", "is_active")

    def __init__(self, call: Callable[[AgentEvent, AbortSignal], Any]) -> None:
        self.call = call
        self.is_active = True


class Agent:
    """A conversation with a model that may call tools.

    Args:
        model: A `Model`, or a string `"provider/id"`. None is allowed; then the first request fails and says so.
        system_prompt: Tells the model who it is.
        tools: `AgentTool`s; `@tool` makes one out of a function.
        messages: The conversation so far.
        thinking_level: How much a reasoning model thinks.
        stream_fn: Asks the model; default: `agentcore.llm.stream`.
        convert_to_llm, transform_context, get_api_key, before_tool_call, after_tool_call, should_stop_after_turn: Hooks, see
            `AgentLoopConfig`. `prepare_next_turn(signal)` and `prepare_next_turn_with_context(context, signal)` are asked after
            each turn; where both are set, the second one's fields go before the first one's.
        tool_execution: Whether the calls of one answer run at the same time.
        steering_mode, follow_up_mode: How many waiting messages go into one turn: `"one-at-a-time"` or `"all"`.
        max_tool_workers: How many calls run at the same time at most.
        tool_grace: Seconds that a tool has to return after an abort; then the run goes on without it.
        tool_context: What tools get as `context`.
        retry: When an answer that broke off is asked for again; None never.
        session: Stores each message before any listener hears of it. The agent starts with the session's conversation, its model
            and thinking level unless others are given, and with those of the tools that are active in it, if it says which.
            What is set later is not stored: `AgentHarness` does that. When a run begins and the session stands elsewhere than
            where this agent left it (`move_to`, an entry of somebody else), the transcript is taken from it anew.
        session_id, thinking_budgets, transport, max_retry_delay_ms: See `StreamOptions`.
        stream_options: How requests are made.

    The settings may be changed later as attributes of the same name, and hold from the next run on: `agent.model = …`. A name that
    an agent does not have is refused; a subclass may have attributes of its own.

    Four more hooks, for what is built on top of an agent, are attributes alone: `before_request` and `recover`, see
    `AgentLoopConfig`; `before_run(prompts, signal)`, on the run thread before anything is told: it may change the settings and the
    transcript, and returns the messages to begin with (None: as they are); what it raises is raised by the run, in which nothing
    has happened then; `after_run()`, when the agent is idle again, before anybody who waits for the run is told.

    Raises:
        TypeError: A hook needs more arguments than there are, a tool is none, …
        AttributeError: What is set is no attribute of an agent.

    Threads:
        Every method may be called from any thread; those that wait not from inside the agent's own run. An idle agent owns none.

    Example:
        >>> with Agent(model="openai/gpt-5-mini", system_prompt="Be brief.") as agent:
        ...     print(agent.run("What is the capital of France?").text)
        Paris.
    """

    convert_to_llm = _Hook()
    transform_context = _Hook()
    get_api_key = _Hook()
    before_tool_call = _Hook()
    after_tool_call = _Hook()
    should_stop_after_turn = _Hook()
    before_request = _Hook()
    recover = _Hook()
    before_run = _RunHook()
    after_run = _RunHook()
    prepare_next_turn = _NextTurnHook()
    prepare_next_turn_with_context = _NextTurnHook()

    model = _Setting[Model]("_state", "Who is asked; may be set to a string `provider/id`. Kept in `state`, as are the next four.")
    system_prompt = _Setting[str]("_state", "Tells the model who it is.")
    thinking_level = _Setting[ThinkingLevel]("_state", "How much a reasoning model thinks.")
    tools = _Setting[list[AgentTool]]("_state", "The tools. A copy is made when they are set.")
    messages = _Setting[list[AgentMessage]]("_state", "The transcript. A copy is made when it is set.")
    tool_execution = _Setting[ToolExecutionMode]("_config", "Whether the calls of one answer run at the same time.")
    max_tool_workers = _Setting[int]("_config", "How many calls run at the same time at most.")
    tool_grace = _Setting[float]("_config", "Seconds that a tool has to return after an abort.")
    tool_context = _Setting[Any]("_config", "What tools get as `context`.")
    retry = _Setting[Union[RetryPolicy, None]]("_config", "When an answer that broke off is asked for again.")
    stream_options = _Setting[Union[StreamOptions, None]]("_config", "How requests are made; the next four go before its fields.")
    session_id = _Setting[Union[str, None]]("_config", "See `StreamOptions`.")
    thinking_budgets = _Setting[Union[dict[str, int], None]]("_config", "See `StreamOptions`.")
    transport = _Setting[Union[str, None]]("_config", "See `StreamOptions`.")
    max_retry_delay_ms = _Setting[Union[int, None]]("_config", "See `StreamOptions`.")

    @_by_keyword_alone
    def __init__(
        self,
        *,
        model: Model | str | None = None,
        system_prompt: str = "",
        tools: Iterable[AgentTool] = (),
        messages: Iterable[AgentMessage] = (),
        thinking_level: ThinkingLevel = "off",
        stream_fn: StreamFn | None = None,
        convert_to_llm: Callable[..., Any] | None = None,
        transform_context: Callable[..., Any] | None = None,
        get_api_key: Callable[..., str | None] | None = None,
        before_tool_call: Callable[..., Any] | None = None,
        after_tool_call: Callable[..., Any] | None = None,
        prepare_next_turn: Callable[..., Any] | None = None,
        prepare_next_turn_with_context: Callable[..., Any] | None = None,
        should_stop_after_turn: Callable[..., Any] | None = None,
        tool_execution: ToolExecutionMode | Literal["sequential", "parallel"] = ToolExecutionMode.PARALLEL,
        steering_mode: QueueMode = "one-at-a-time",
        follow_up_mode: QueueMode = "one-at-a-time",
        max_tool_workers: int = 32,
        tool_grace: float = 2.0,
        tool_context: Any = None,
        retry: RetryPolicy | None = RetryPolicy(),  # noqa: B008 (never changed)
        session: AgentSession | None = None,
        session_id: str | None = None,
        thinking_budgets: dict[str, int] | None = None,
        transport: str | None = None,
        max_retry_delay_ms: int | None = None,
        stream_options: StreamOptions | None = None,
    ) -> None:
        messages = list(messages)
        if session is not None:
            if not hasattr(session, "append_message") or not hasattr(session, "build_context"):
                raise TypeError(
                    f"session must be a Session, not {type(session).__name__}: resume(path) opens a file, "
                    "Session(JsonlSessionStorage.create(path, cwd=…)) begins one"
                )
            if messages:
                raise ValueError("pass messages or a session, not both: a session brings its own conversation")
            stored = session.build_context()
            messages = list(stored.messages)
            if model is None and stored.model is not None:
                model = _stored_model(stored.model)
            if thinking_level == "off" and stored.thinking_level:
                thinking_level = stored.thinking_level
            active = getattr(stored, "active_tool_names", None)
            if active is not None:
                tools = [tool for tool in tools if not isinstance(tool, AgentTool) or tool.name in active]
        self._state = AgentState(
            system_prompt=system_prompt,
            model=model,
            thinking_level=thinking_level,
            tools=tools,
            messages=messages,
        )
        self._config = AgentLoopConfig(
            model=UNKNOWN_MODEL,
            tool_execution=check_setting("tool_execution", tool_execution),
            tool_context=tool_context,
            max_tool_workers=max_tool_workers,
            tool_grace=tool_grace,
            retry=retry,
            session_id=session_id,
            thinking_budgets=thinking_budgets,
            transport=transport,
            max_retry_delay_ms=max_retry_delay_ms,
            stream_options=stream_options,
        )
        self._hooks: dict[str, Callable[..., Any] | None] = {}
        self._next_turn_hooks: dict[str, Callable[..., Any] | None] = {}
        self._run_hooks: dict[str, Callable[..., Any] | None] = {}
        self.convert_to_llm = convert_to_llm
        self.transform_context = transform_context
        self.get_api_key = get_api_key
        self.before_tool_call = before_tool_call
        self.after_tool_call = after_tool_call
        self.should_stop_after_turn = should_stop_after_turn
        self.prepare_next_turn = prepare_next_turn
        self.prepare_next_turn_with_context = prepare_next_turn_with_context
        if stream_fn is not None and not callable(stream_fn):
            raise TypeError(
                f"stream_fn must be callable, not {type(stream_fn).__name__}: pass a function of (model, context, options)"
            )
        self.stream_fn = stream_fn
        self.session = session
        self.steering_queue = PendingMessageQueue(steering_mode)
        self.follow_up_queue = PendingMessageQueue(follow_up_mode)
        # _lock guards _run and the steps "idle → busy" and "busy → idle", changes of _listeners, and _joining. Nobody's code runs
        # while it is held. While the run thread goes over the list of listeners, it alone appends to it: what other threads change
        # waits for the next event, or a thread that keeps subscribing would keep one event going for ever.
        self._lock = threading.Lock()
        self._run: Run | None = None
        self._listeners: list[_Subscription] = []
        self._joining: list[_Subscription] = []
        self._has_changes = False

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in _OWN_NAMES and type(self) is Agent and not hasattr(Agent, name):
            raise AttributeError(_unknown_name_text(name))
        object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        doing = "running" if self._run is not None else "idle"
        return f"<Agent {doing}, model {self._state.model.id}, {len(self._state.messages)} messages>"

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(
            "an Agent cannot be copied or pickled, since it owns threads and queues: make a new one with the messages, "
            "Agent(messages=agent.state.messages, …); dump_messages() and load_messages() carry them through JSON"
        )

    # --- what it knows -----------------------------------------------------------------------------------------------

    @property
    def state(self) -> AgentState:
        """The settings of the next run, the transcript, and what is going on. Live: it shows the moment."""
        return self._state

    def get_state(self) -> AgentState:
        """Return `state`."""
        return self._state

    @property
    def session(self) -> AgentSession | None:
        """Stores each message. When another one is set the transcript stays: the conversation of that session is not read."""
        return self._session

    @session.setter
    def session(self, session: AgentSession | None) -> None:
        self._session = session
        self._leaf_id = _leaf_of(session)

    @property
    def active_run(self) -> Run | None:
        """The run that is going; None when the agent is idle."""
        return self._run

    @property
    def signal(self) -> AbortSignal | None:
        """The signal of the run that is going; None when the agent is idle."""
        run = self._run
        return None if run is None else run.signal

    @property
    def usage(self) -> Usage:
        """What all answers and tool results of the transcript took, added up. `Run.usage` has that of one run."""
        return total_usage(list(self._state.messages))

    @property
    def context_tokens(self) -> int:
        """How many tokens the context had after the last good answer, as the provider counted; 0 where there is none."""
        for message in reversed(list(self._state.messages)):
            if isinstance(message, AssistantMessage) and message.stop_reason not in ("error", "aborted"):
                return message.usage.total_tokens
        return 0

    @property
    def steering_mode(self) -> QueueMode:
        """How many steered messages go into one turn."""
        return self.steering_queue.mode

    @steering_mode.setter
    def steering_mode(self, mode: QueueMode) -> None:
        self.steering_queue.mode = mode

    @property
    def follow_up_mode(self) -> QueueMode:
        """How many follow-ups go into one turn."""
        return self.follow_up_queue.mode

    @follow_up_mode.setter
    def follow_up_mode(self, mode: QueueMode) -> None:
        self.follow_up_queue.mode = mode

    # --- runs --------------------------------------------------------------------------------------------------------

    def prompt(self, prompt: PromptInput, images: Images = (), *, detached: bool = False) -> Run:
        """Start a run with a text, a message or a list of messages; returns at once.

        Args:
            images: Behind the text: `ImageContent`, paths, or the bytes of files.
            detached: In a tool: do not let an abort of the outer run abort this one.

        Raises:
            AgentBusyError: A run is going.
            TypeError: The prompt is neither a text nor made of messages.

        Threads:
            Any, a tool included: an abort of the tool's run then aborts this one.
        """
        return self._start(self._to_messages(prompt, images), is_detached=detached)

    def run_prompt_messages(self, messages: Sequence[AgentMessage], *, skip_initial_steering: bool = False) -> Run:
        """Start a run with messages that are there as such; `skip_initial_steering` leaves steered messages for its second turn."""
        return self._start(normalize_prompt_input(messages), skips_steering=skip_initial_steering)

    def continue_(self, *, detached: bool = False) -> Run:
        """Start a run that goes on where the transcript ends.

        Behind an answer, it begins with what is queued: steered messages, else follow-ups. Behind an answer that failed or was
        aborted, with nothing queued, that answer is asked for anew; the failed one stays in the transcript, and no request shows
        it to a model.

        Raises:
            AgentBusyError: A run is going.
            ValueError: The transcript is empty, or ends in an answer and nothing is queued.

        Threads:
            As `prompt`.
        """
        if self._run is not None:
            raise AgentBusyError("a run is active: wait_for_idle() before continue_()")
        moved = self._read_moved_session()
        messages = self._state.messages if moved is None else moved[0]
        if not messages:
            raise ValueError("there are no messages to continue from: start with prompt()")
        if messages[-1].role != "assistant":
            return self._start(None, is_detached=detached)
        for queue in (self.steering_queue, self.follow_up_queue):
            queued = queue.drain()
            if queued:
                try:
                    return self._start(queued, skips_steering=queue is self.steering_queue, is_detached=detached)
                except (AgentBusyError, RuntimeError):  # not with Ctrl-C, which may come when they are on their way
                    queue.put_back(queued)
                    raise
        if can_continue(messages):
            return self._start(None, is_detached=detached)
        raise ValueError(
            "cannot continue from an assistant message with nothing queued: use prompt(), or steer() or follow_up() first"
        )

    def run(self, prompt: PromptInput, images: Images = (), timeout: float | None = None) -> AssistantMessage:
        """Prompt, wait, and return the last answer.

        Args:
            timeout: Seconds; when they are over the run is aborted, and `TimeoutError` is raised when it has settled.

        Raises:
            AgentRunError: The run failed.
            AgentAbortedError: It was aborted by somebody else.
            TimeoutError: The time was up.
            KeyboardInterrupt: Ctrl-C; the run has been aborted.
        """
        return wait_for_answer(lambda: self.prompt(prompt, images), lambda: self._run, timeout)

    def stream(self, prompt: PromptInput, images: Images = (), *, detached: bool = False) -> RunStream:
        """Start a run and return an iterator over its events, read in step; leaving it early aborts the run.

        The iteration ends without an exception where the run failed or was aborted, too: `stream.run.result()` raises it.

        Raises:
            AgentBusyError: A run is going.
        """
        channel = EventChannel()
        run = self._make_run(self._to_messages(prompt, images), False, channel)
        stream = RunStream(run, channel)  # before the start: whatever comes between, the stream is left and the run aborted
        try:
            self._begin(run, detached)
        except BaseException:
            stream.discard()
            raise
        return stream

    def abort(self, reason: object = None) -> None:
        """Ask the run to stop, if one is going; returns at once.

        Threads:
            Any, a listener or a tool included.
        """
        run = self._run
        if run is not None:
            run.abort(reason)

    def wait_for_idle(self, timeout: float | None = None) -> bool:
        """Block until the active run and its listeners have finished.

        Args:
            timeout: Seconds to wait; None waits without limit. When they are over the run goes on.

        Returns:
            True when the agent is idle, False when the time was up first.

        Raises:
            RuntimeError: Called on the run thread or on a tool worker of this run, also through an inner agent: it would wait
                for itself.
            KeyboardInterrupt: Ctrl-C; the run has been aborted.

        Threads:
            Any but those of the run itself.

        Example:
            >>> agent.wait_for_idle(timeout=30)
            True
        """
        run = self._run
        return True if run is None else run.wait(timeout)

    def reset(self) -> None:
        """Forget the transcript, the error and all queued messages; the settings stay.

        A session keeps what it has, and would go on with it: set `agent.session` to another one for another conversation.

        Raises:
            AgentBusyError: A run is going.
        """
        with self._lock:
            if self._run is not None:
                raise AgentBusyError("a run is active: abort() it or wait_for_idle() before reset()")
            self._state.clear()
        self.clear_all_queues()

    def __enter__(self) -> Agent:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if error is None:
            self.wait_for_idle()
            return
        run = self._run
        if run is not None:
            run.abort(f"left by {kind.__name__}" if kind is not None else None)
            run.refuse_waiting_inside()
            run.settle()

    # --- queues ------------------------------------------------------------------------------------------------------

    def steer(self, message: PromptInput, images: Images = ()) -> None:
        """Queue a message for the next turn of the run; without a run, for the first turn of the next one.

        Threads:
            Any, a listener or a tool included.
        """
        for item in self._to_messages(message, images):
            self.steering_queue.put(item)

    def follow_up(self, message: PromptInput, images: Images = ()) -> None:
        """Queue a message for when the run would stop.

        Threads:
            Any, a listener or a tool included.
        """
        for item in self._to_messages(message, images):
            self.follow_up_queue.put(item)

    def clear_steering_queue(self) -> None:
        """Drop the steered messages that wait."""
        self.steering_queue.clear()

    def clear_follow_up_queue(self) -> None:
        """Drop the follow-ups that wait."""
        self.follow_up_queue.clear()

    def clear_all_queues(self) -> None:
        """Drop all messages that wait."""
        self.steering_queue.clear()
        self.follow_up_queue.clear()

    def has_queued_messages(self) -> bool:
        """Return whether a message waits."""
        return self.steering_queue.has_items() or self.follow_up_queue.has_items()

    # --- listeners ---------------------------------------------------------------------------------------------------

    def subscribe(self, listener: Callable[..., Any]) -> Callable[[], None]:
        """Tell `listener(event, signal)` everything.

        Returns:
            A function that ends this; calling it twice is harmless.

        Raises:
            TypeError: It needs more arguments than there are.

        Threads:
            The listener runs on the run thread, for each event, in the order of subscription; the run waits for it. What it raises
            fails the run. One that another listener adds during an event gets that event too; one that it removes gets it no more.
            What other threads change takes hold with the next event.
        """
        if listener is print_events:
            raise TypeError("print_events makes a listener, it is none: subscribe(print_events()), with the parentheses")
        subscription = _Subscription(fit_callback(listener, ("event", "signal"), what="a listener", is_listener=True))
        with self._lock:
            if self._run is None or self._run.is_on_run_thread():
                self._listeners.append(subscription)
            else:
                self._joining.append(subscription)
                self._has_changes = True

        def unsubscribe() -> None:
            subscription.is_active = False
            with self._lock:
                self._has_changes = True
                if self._run is None:  # else the run thread may be going over the list, and does this before the next event
                    self._update_listeners()

        return unsubscribe

    def _update_listeners(self) -> None:
        """Take in and drop listeners. Called with the lock held, by whoever may change the list."""
        self._listeners[:] = [listener for listener in (*self._listeners, *self._joining) if listener.is_active]
        self._joining.clear()
        self._has_changes = False

    # --- the run -----------------------------------------------------------------------------------------------------

    def _to_messages(self, prompt: PromptInput, images: Images) -> list[AgentMessage]:
        if isinstance(images, (ImageContent, bytes, bytearray, str, os.PathLike)):
            images = [images]
        if not isinstance(images, Iterable):
            raise TypeError(f"images must be an ImageContent, a path, bytes or a list of those, not {type(images).__name__}")
        return normalize_prompt_input(prompt, [to_image(image) for image in images] if images else ())

    def _start(self, prompts: list[AgentMessage] | None, *, skips_steering: bool = False, is_detached: bool = False) -> Run:
        run = self._make_run(prompts, skips_steering, None)
        self._begin(run, is_detached)
        return run

    def _make_run(self, prompts: list[AgentMessage] | None, skips_steering: bool, channel: EventChannel | None) -> Run:
        run = Run(
            lambda run: self._play(run, prompts, skips_steering, channel),
            grace=self._config.tool_grace,
            on_settled=self._on_settled,
            on_lost=self._on_lost,
        )
        if channel is not None:
            run.attach_reader(channel.release, channel.end)
        return run

    def _begin(self, run: Run, is_detached: bool) -> None:
        try:
            with self._lock:
                if self._run is not None:
                    raise AgentBusyError("a run is active: use steer() or follow_up() to add a message, or wait_for_idle() first")
                self._run = run
                self._state.begin()
            run.start(is_detached=is_detached)
        except BaseException as error:  # busy, no thread to be had, or Ctrl-C
            if self._run is run:
                run.withdraw(error)
            raise

    def _on_lost(self) -> None:
        """In a forked child: the run thread is not there, and another thread may have held the lock."""
        self._lock = threading.Lock()
        self._on_settled()

    def _on_settled(self) -> None:
        with self._lock:
            self._run = None
            self._state.settle()
            self._update_listeners()
        after_run = self._run_hooks.get("after_run")
        if after_run is not None:
            try:
                after_run()
            except Exception:
                _log.exception("a hook after a run raised")

    def _play(
        self, run: Run, prompts: list[AgentMessage] | None, skips_steering: bool, channel: EventChannel | None
    ) -> list[AgentMessage]:
        """Run the loop; a failure becomes a message. Runs on the run thread."""
        moved = self._read_moved_session()
        if moved is not None:
            self._state.messages, self._leaf_id = moved
        before_run = self._run_hooks.get("before_run")
        if before_run is not None:
            changed = before_run(prompts, run.signal)
            prompts = prompts if changed is None else changed
        emit = self._make_emit(run.signal, channel)
        state = self._state
        config = self._make_config(run, skips_steering, channel is not None)
        context = AgentContext(state.system_prompt, list(state.messages), list(state.tools))
        stream_fn = self.stream_fn or stream_of_agent
        _log.debug("run begins: model %s, %d messages", config.model.id, len(context.messages))
        try:
            if prompts is None:
                messages = run_agent_loop_continue(context, config, emit, run.signal, stream_fn)
            else:
                messages = run_agent_loop(prompts, context, config, emit, run.signal, stream_fn)
        except BaseException as error:  # a hook's, a listener's, a stream function's: the transcript says so
            _log.debug("run failed", exc_info=True)
            run.cause = error
            self._report_failure(error, run, config, emit)
            messages = run.messages
        _log.debug("run ends: %d new messages", len(messages))
        return messages

    def _read_moved_session(self) -> tuple[list[AgentMessage], str | None] | None:
        """Return the session's messages and where it stands, if that is not where this agent has left it."""
        leaf_id = _leaf_of(self._session)
        if self._session is None or leaf_id == self._leaf_id or not hasattr(self._session, "get_leaf_id"):
            return None
        return list(self._session.build_context().messages), leaf_id

    def _make_emit(self, signal: AbortSignal, channel: EventChannel | None) -> AgentEventSink:
        state, listeners = self._state, self._listeners
        tell_reader = None if channel is None else channel.put

        def emit(event: AgentEvent) -> None:
            if isinstance(event, MessageUpdateEvent):
                state.streaming_message = event.message
            else:
                state.apply(event)
            if self._has_changes:
                with self._lock:
                    self._update_listeners()
            for listener in listeners:
                if listener.is_active:
                    listener.call(event, signal)
            if tell_reader is not None:
                tell_reader(event)

        return emit

    def _make_config(self, run: Run, skips_steering: bool, has_reader: bool) -> AgentLoopConfig:
        state, listeners, session = self._state, self._listeners, self.session
        get_leaf_id = getattr(session, "get_leaf_id", None)

        def record(message: AgentMessage) -> None:
            if session is not None:
                is_in_step = get_leaf_id is None or get_leaf_id() == self._leaf_id
                entry_id = session.append_message(message)
                if self._session is session:  # else another one was set during the run
                    # The id of no entry: what came in between is read when the next run begins.
                    self._leaf_id = entry_id if is_in_step else ""
            state.messages.append(message)
            run.add_message(message)

        def drain_steering() -> list[AgentMessage]:
            nonlocal skips_steering
            if skips_steering:
                skips_steering = False
                return []
            return self.steering_queue.drain()

        def put_back(messages: list[AgentMessage], queue: QueueName) -> None:
            (self.steering_queue if queue == "steering" else self.follow_up_queue).put_back(messages)

        config = copy.copy(self._config)
        config.model = state.model
        config.thinking_level = state.thinking_level
        config.record_message = record
        config.has_listeners = (lambda: True) if has_reader else (lambda: bool(listeners) or self._has_changes)
        config.get_steering_messages = drain_steering
        config.get_follow_up_messages = self.follow_up_queue.drain
        config.put_back = put_back
        return config

    def _prepare_next_turn(self, context: PrepareNextTurnContext, signal: AbortSignal) -> AgentLoopTurnUpdate | None:
        update: AgentLoopTurnUpdate | None = None
        plain = self._next_turn_hooks.get("prepare_next_turn")
        if plain is not None:
            update = plain(signal)
            check_returned("prepare_next_turn", update, AgentLoopTurnUpdate)
        with_context = self._next_turn_hooks.get("prepare_next_turn_with_context")
        if with_context is None:
            return update
        over: AgentLoopTurnUpdate | None = with_context(context, signal)
        check_returned("prepare_next_turn_with_context", over, AgentLoopTurnUpdate)
        if update is None or over is None:
            return over or update
        for name, value in vars(over).items():
            if value is not None:
                setattr(update, name, value)
        return update

    def _report_failure(self, error: BaseException, run: Run, config: AgentLoopConfig, emit: AgentEventSink) -> None:
        """Say in the transcript that the run failed. What is raised here comes out of the run as it is."""
        message = AssistantMessage(
            content=[TextContent("")],
            api=config.model.api,
            provider=config.model.provider,
            model=config.model.id,
            stop_reason="aborted" if run.signal.aborted else "error",
            error_message=error_text(error),
            error_kind="hook",
            error_retryable=False,
        )
        emit(MessageStartEvent(message))
        config.record(message)
        emit(MessageEndEvent(message))
        emit(TurnEndEvent(message, []))
        emit(AgentEndEvent([message]))


_OWN_NAMES = frozenset(
    {
        "stream_fn",
        "steering_queue",
        "follow_up_queue",
        *("_state", "_config", "_hooks", "_next_turn_hooks", "_run_hooks", "_session", "_leaf_id"),
        *("_lock", "_run", "_listeners", "_joining", "_has_changes"),
    }
)
"""The attributes of an agent that its class does not have."""


def _unknown_name_text(name: str) -> str:
    from difflib import get_close_matches

    names = {known for known in (*vars(Agent), *_OWN_NAMES) if not known.startswith("_")}
    near = get_close_matches(name, names)
    way_out = f"did you mean {' or '.join(near)}?" if near else "make a subclass for attributes of your own"
    return f"an Agent has no attribute {name!r} to set: {way_out}"


def _leaf_of(session: AgentSession | None) -> str | None:
    """Return where a session stands; None before its first entry, and where it does not say."""
    get_leaf_id = getattr(session, "get_leaf_id", None)
    leaf_id: str | None = None if get_leaf_id is None else get_leaf_id()
    return leaf_id


def wait_for_answer(start: Callable[[], Run], active_run: Callable[[], Run | None], timeout: float | None) -> AssistantMessage:
    """Start a run, wait, and return its last answer; what is raised is said at `Agent.run`."""
    check_timeout(timeout)
    run: Run | None = None
    try:
        run = start()
        if not run.wait(timeout):
            run.abort(f"not done within {timeout:g} s")
            run.settle()
            raise TimeoutError(f"the run was not done within {timeout:g} s and was aborted: give it a longer timeout")
    except KeyboardInterrupt:
        run = run or active_run()
        if run is not None and not run.signal.aborted:  # the interrupt came between the two calls
            run.settle_interrupted()
        raise
    run.result()
    message = run.message
    assert message is not None  # a run without an answer has raised
    return message


def _stored_model(stored: Any) -> Model:
    if isinstance(stored, Model):
        return stored
    provider, model_id = (
        (stored["provider"], stored["model_id"]) if isinstance(stored, dict) else (stored.provider, stored.model_id)
    )
    if (provider, model_id) == (UNKNOWN_MODEL.provider, UNKNOWN_MODEL.id):
        return UNKNOWN_MODEL  # it was made without a model, with a stream function of its own
    try:
        return find_model(f"{provider}/{model_id}")
    except ValueError:  # a server of one's own, say: the first request says that there is no model
        _log.warning("the model %s/%s of the session is not known: set agent.state.model", provider, model_id)
        return UNKNOWN_MODEL


def to_image(image: ImageInput) -> ImageContent:
    """Return an image for a prompt as a content block.

    Raises:
        ValueError: The bytes are no image that models take.
        OSError: The file cannot be read.
    """
    if isinstance(image, ImageContent):
        return image
    from base64 import b64encode

    if isinstance(image, (bytes, bytearray)):
        content, name = bytes(image), "the bytes"
    elif isinstance(image, (str, os.PathLike)):
        name = os.fspath(image)
        with open(name, "rb") as file:
            content = file.read()
    else:
        raise TypeError(f"an image is an ImageContent, a path or bytes, not {type(image).__name__}")
    from agentcore.tools.images import detect_image_type

    mime_type = detect_image_type(content)
    if mime_type not in ("image/png", "image/jpeg", "image/gif", "image/webp"):
        raise ValueError(f"{name} is no image that a model takes: it must be PNG, JPEG, GIF or WebP")
    return ImageContent(b64encode(content).decode("ascii"), mime_type)


def stream_of_agent(model: Model, context: Context, options: StreamOptions) -> Iterable[AssistantMessageEvent]:
    """The default stream function, which needs a model."""
    if model is not UNKNOWN_MODEL:
        return default_stream(model, context, options)
    message = AssistantMessage(
        api=model.api,
        provider=model.provider,
        model=model.id,
        stop_reason="error",
        error_message=(
            "no model: pass Agent(model='provider/id') or a Model such as openai_compatible(base_url, model_id), "
            "or set agent.state.model"
        ),
        error_kind="setup",
        error_retryable=False,
    )
    return [ErrorEvent(message)]
