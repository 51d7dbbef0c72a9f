"""The `AgentHarness`: an agent with a session, resources, hooks and extensions.

A `HarnessError` says by its `code` what was wrong: `busy` (something is going on), `invalid_state` (nothing is),
`invalid_argument`, `hook` (a listener or a handler raised), `compaction`, `branch_summary`, `extension`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Literal, TypeVar

from agentcore.agent.agent import Agent, Images, find_model, to_image, wait_for_answer
from agentcore.agent.queues import QueueMode
from agentcore.agent.state import UNKNOWN_MODEL
from agentcore.codec import Json, dumps, tagged_list
from agentcore.custom_messages import AgentMessage
from agentcore.errors import AgentCoreError, HarnessError
from agentcore.harness.compacting import Compactor
from agentcore.harness.compaction import CompactionResult, CompactionSettings
from agentcore.harness.delivery import Delivery
from agentcore.harness.events import (
    AbortEvent,
    ModelUpdateEvent,
    QueueUpdateEvent,
    Resources,
    ResourcesUpdateEvent,
    ThinkingLevelUpdateEvent,
    ToolsUpdateEvent,
)
from agentcore.harness.extensions import extension_name, note_removal, register_extension
from agentcore.harness.hooks import Hooks
from agentcore.harness.ledger import Claim, HarnessPhase, Ledger
from agentcore.harness.navigation import NavigateTreeResult, TreeWish, navigate_tree
from agentcore.harness.settings import (
    HarnessSettings,
    SystemPrompt,
    as_tools,
    check_setting,
    check_stream_options,
    check_thinking_level,
)
from agentcore.harness.skills import Skill, format_skill_invocation
from agentcore.harness.templates import PromptTemplate, format_prompt_template_invocation, parse_command_args
from agentcore.harness.turn import Queues, TurnDriver
from agentcore.llm.request import StreamFn, StreamOptions
from agentcore.loop.config import RetryPolicy
from agentcore.loop.event_stream import RunStream
from agentcore.loop.run import Run, current_runs
from agentcore.messages import AssistantMessage, ImageContent
from agentcore.models import Model, ThinkingLevel
from agentcore.session.memory import MemorySessionStorage
from agentcore.session.session import Session
from agentcore.tools.agent_tool import AgentTool, ToolExecutionMode
from agentcore.tools.environment import ExecutionEnvironment, LocalEnvironment
from agentcore.transcript import PromptInput, normalize_prompt_input

ResultT = TypeVar("ResultT")
OneT = TypeVar("OneT")
RunT = TypeVar("RunT", Run, RunStream)

_log = logging.getLogger("agentcore")

ResourcesInput = Resources | Mapping[str, Any] | None
"""`Resources`, or a mapping with `skills` and `prompt_templates`."""


@dataclass
class AbortResult(Json):
    """What `abort()` cleared: messages that no model will see."""

    cleared_steer: list[AgentMessage] = field(default_factory=list, metadata=tagged_list())
    cleared_follow_up: list[AgentMessage] = field(default_factory=list, metadata=tagged_list())


class AgentHarness:
    """An agent with a session: everything is stored as it happens, and what happened can be gone back to, compacted, extended.

    Args:
        session: Where all is stored. It brings its conversation and, where they are not given, its model and thinking level.
            Without one, a session in memory is made. The harness does not close it.
        model: A `Model`, or a string `"provider/id"`.
        system_prompt: A text, or `(context)` → text, asked before each turn with a `SystemPromptContext`.
        thinking_level: How much the model thinks.
        tools: What the model may call; `active_tool_names` are those that it is offered, all by default. Which were active when a
            session was left, `session.build_context().active_tool_names` says.
        steering_mode, follow_up_mode: How many waiting messages go into one turn: `"one-at-a-time"` or `"all"`.
        stream_options: How requests are made, those for summaries too.
        retry: When an answer or a summary that broke off is asked for again; None never.
        resources: Skills and prompt templates, a `Resources` or a mapping with `skills` and `prompt_templates`.
        tool_context: What tools get as `context`: a value, or a function without arguments, asked before each turn.
        stream_fn: Asks the model; default: `agentcore.llm.stream`.
        get_api_key: `(provider)`, asked before every request.
        environment: Where extensions find files and run commands; default: this machine, in the directory `cwd`.
        compaction: When the session is compacted by itself, and how much is kept; False turns the former off.
        tool_execution, max_tool_workers, tool_grace: See `Agent`.
        extensions: Used in this order. One that fails is reported in `extension_errors` and in the log; the others are used.

    Raises:
        HarnessError: Two tools have the same name, or an active one is no tool (`invalid_argument`).

    Threads:
        Every method may be called from any thread, those that wait (`run`, `compact`, `navigate_tree`, `wait_for_idle`) not from
        inside the harness's own run. Listeners and handlers run one at a time: on the run thread, or, for what a call has brought
        about, on the thread that calls.

    Example:
        >>> session = Session(JsonlSessionStorage.create("chat.jsonl", cwd="."))
        >>> with AgentHarness(session=session, model="openai/gpt-5-mini") as harness:
        ...     print(harness.run("What is the capital of France?").text)
        Paris.
    """

    def __init__(
        self,
        *,
        session: Session | None = None,
        model: Model | str | None = None,
        system_prompt: str | Callable[..., str] | None = None,
        thinking_level: ThinkingLevel | None = None,
        tools: Iterable[AgentTool] = (),
        active_tool_names: Sequence[str] | None = None,
        steering_mode: QueueMode = "one-at-a-time",
        follow_up_mode: QueueMode = "one-at-a-time",
        stream_options: StreamOptions | None = None,
        retry: RetryPolicy | None = RetryPolicy(),  # noqa: B008 (never changed)
        resources: ResourcesInput = None,
        tool_context: Any = None,
        stream_fn: StreamFn | None = None,
        get_api_key: Callable[..., str | None] | None = None,
        environment: ExecutionEnvironment | None = None,
        cwd: str | os.PathLike[str] | None = None,
        compaction: CompactionSettings | bool = True,
        tool_execution: ToolExecutionMode | Literal["sequential", "parallel"] = ToolExecutionMode.PARALLEL,
        max_tool_workers: int = 32,
        tool_grace: float = 2.0,
        extensions: Iterable[Any] = (),
    ) -> None:
        check_setting("session", session, Session, "pass a Session, such as Session(JsonlSessionStorage.open(path))")
        check_setting("retry", retry, RetryPolicy, "pass a RetryPolicy, or None to never ask again")
        if not isinstance(compaction, (bool, CompactionSettings)):
            raise TypeError(
                f"compaction must not be of type {type(compaction).__name__}: pass CompactionSettings(…), True or False"
            )
        if stream_fn is not None and not callable(stream_fn):
            raise TypeError(
                f"stream_fn must be callable, not {type(stream_fn).__name__}: pass a function of (model, context, options)"
            )
        if isinstance(environment, (str, os.PathLike)):
            raise TypeError("environment must be an ExecutionEnvironment: pass cwd=… for a directory of this machine")
        self._session = Session(MemorySessionStorage()) if session is None else session
        stored = self._session.build_context()
        if model is None and stored.model is not None:
            model = _known_model(stored.model.provider, stored.model.model_id)
        tools = as_tools(tools)
        self._settings = HarnessSettings(
            model=find_model(model),
            thinking_level=check_thinking_level(stored.thinking_level if thinking_level is None else thinking_level),
            resources=_to_resources(resources),
            stream_options=check_stream_options(stream_options),
            system_prompt=SystemPrompt(system_prompt),
            tool_context=tool_context,
            compaction=CompactionSettings(enabled=compaction) if isinstance(compaction, bool) else compaction,
            retry=retry,
            stream_fn=stream_fn,
            get_api_key=get_api_key,
        )
        self._settings.set_tools(tools, [tool.name for tool in tools] if active_tool_names is None else active_tool_names)
        self._environment = environment
        self._cwd = cwd
        self._operation: Run | None = None  # a compaction or a move
        self._delivery = Delivery(lambda: self.active_run)
        self._queues = Queues(steering_mode, follow_up_mode, self._tell_queues)
        self._agent = Agent(
            messages=stored.messages,
            get_api_key=get_api_key,
            tool_execution=tool_execution,
            max_tool_workers=max_tool_workers,
            tool_grace=tool_grace,
            retry=retry,
            session_id=self._session.id,
        )
        self._ledger = Ledger(self._session, lambda message: self._agent.state.messages.append(message))
        hooks = self._hooks = Hooks(self._delivery)
        self._compactor = Compactor(self._ledger, self._settings, hooks, self._tell, lambda: self._driver.reload())
        self._driver = TurnDriver(
            self._agent,
            self._ledger,
            self._settings,
            self._queues,
            hooks,
            self._compactor,
            lambda: self.environment,
            self._tell,
        )
        self._agent.session = self._driver
        self.extension_errors: dict[str, HarnessError | TypeError] = {}
        """By name: why an extension given to the constructor is not in use."""
        for extension in _as_extensions(extensions):
            try:
                self.use(extension)
            except (HarnessError, TypeError) as error:
                _log.warning("%s", error)
                name = extension_name(extension)
                same = sum(one == name or one.startswith(f"{name} (") for one in self.extension_errors)
                self.extension_errors[f"{name} ({same + 1})" if same else name] = error

    def __repr__(self) -> str:
        return f"<AgentHarness {self.phase}, model {self.model.id}, session {self._session.id}>"

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_") and name != "extension_errors":
            setter = "set_active_tools" if name == "active_tool_names" else f"set_{name}"
            way = f"call {setter}(…)" if hasattr(self, setter) else f"pass AgentHarness({name}=…) if it is one of its settings"
            raise AttributeError(f"{name} of an AgentHarness cannot be set: {way}")
        super().__setattr__(name, value)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(
            "an AgentHarness cannot be copied or pickled, since it owns threads and a session: make a new one on the session, "
            "AgentHarness(session=…), or on a fork of it"
        )

    # --- what it knows -------------------------------------------------------------------------------------------------

    @property
    def session(self) -> Session:
        """The session. What is appended to it directly is in the context of the next turn."""
        return self._session

    @property
    def environment(self) -> ExecutionEnvironment:
        """Files and commands."""
        if self._environment is None:
            self._environment = LocalEnvironment(self._cwd)
        return self._environment

    @property
    def phase(self) -> HarnessPhase:
        """What it is doing: `"idle"`, `"turn"`, `"compaction"` or `"branch_summary"`."""
        return self._ledger.phase

    @property
    def active_run(self) -> Run | None:
        """The run, compaction or move that is going; None when the harness is idle."""
        return self._operation or self._agent.active_run

    @property
    def messages(self) -> list[AgentMessage]:
        """The transcript: the context of the session, as far as it is stored. Live."""
        return self._agent.state.messages

    @property
    def model(self) -> Model:
        """Who answers from the next turn on."""
        return self._settings.model

    @property
    def thinking_level(self) -> ThinkingLevel:
        """How much the model thinks from the next turn on."""
        return self._settings.thinking_level

    @property
    def tools(self) -> list[AgentTool]:
        """All tools."""
        return list(self._settings.tools)

    @property
    def active_tools(self) -> list[AgentTool]:
        """The tools that the model is offered."""
        return self._settings.active_tools

    @property
    def resources(self) -> Resources:
        """Skills and prompt templates."""
        return self._settings.resources

    @property
    def stream_options(self) -> StreamOptions | None:
        """How requests are made."""
        return self._settings.stream_options

    @property
    def steering_mode(self) -> QueueMode:
        """How many steered messages go into one turn."""
        return self._queues.steer.mode

    @property
    def follow_up_mode(self) -> QueueMode:
        """How many follow-ups go into one turn."""
        return self._queues.follow_up.mode

    def queued_messages(self) -> QueueUpdateEvent:
        """Return the messages that wait, in the form in which listeners hear of them."""
        return self._queues.show()

    # --- runs ----------------------------------------------------------------------------------------------------------

    def prompt(self, prompt: PromptInput, images: Images = (), *, detached: bool = False) -> Run:
        """Start a run with a text, a message or a list of messages; returns at once.

        Args:
            images: Behind the text: `ImageContent`, paths, or the bytes of files.
            detached: In a tool of another run: do not let an abort of that run abort this one.

        Returns:
            The run. Beside the errors that it has anyway, its `result` raises a `HarnessError` of code `hook` if a
            `before_agent_start` handler, the system prompt or a listener raised before anything was said; nothing is stored then.

        Raises:
            HarnessBusyError: A run, a compaction or a move is going.
        """
        claim = self._ledger.claim("turn")
        return self._start(claim, lambda: self._agent.prompt(prompt, images, detached=detached))

    def continue_(self, *, detached: bool = False) -> Run:
        """Start a run that goes on where the session ends: at a message of the user or at tool results.

        Raises:
            HarnessBusyError: A run, a compaction or a move is going.
            ValueError: The session is empty, or ends in an answer and nothing is queued.
        """

        def start() -> Run:
            if not self._ledger.is_in_step:
                self._driver.reload()
            return self._agent.continue_(detached=detached)

        return self._start(self._ledger.claim("turn"), start)

    def skill(self, name: str, additional_instructions: str | None = None) -> Run:
        """Start a run with the text of a skill, and what the user wants with it.

        Raises:
            HarnessBusyError: A run, a compaction or a move is going.
            HarnessError: There is no such skill (`invalid_argument`).
        """

        def start() -> Run:
            skill = _find(name, self.resources.skills, "skill")
            return self._agent.prompt(format_skill_invocation(skill, additional_instructions))

        return self._start(self._ledger.claim("turn"), start)

    def prompt_from_template(self, name: str, args: Sequence[str] | str = ()) -> Run:
        """Start a run with what a prompt template makes of some arguments.

        Args:
            args: A list of them, or one text that is taken apart at blanks, with quotes, as on a command line.

        Raises:
            TypeError: The arguments are no texts.
            HarnessBusyError: A run, a compaction or a move is going.
            HarnessError: There is no such template (`invalid_argument`).
        """
        given = parse_command_args(args) if isinstance(args, str) else list(args)
        for one in given:
            if not isinstance(one, str):
                raise TypeError(f"the arguments of a template are texts, not {type(one).__name__}: pass str({one!r})")

        def start() -> Run:
            template = _find(name, self.resources.prompt_templates, "prompt template")
            return self._agent.prompt(format_prompt_template_invocation(template, given))

        return self._start(self._ledger.claim("turn"), start)

    def run(self, prompt: PromptInput, images: Images = (), timeout: float | None = None) -> AssistantMessage:
        """Prompt, wait, and return the last answer.

        Args:
            timeout: Seconds; when they are over the run is aborted, and `TimeoutError` is raised when it has settled.

        Raises:
            HarnessBusyError, AgentRunError, AgentAbortedError, TimeoutError, KeyboardInterrupt: As `prompt` and `Agent.run` say.
        """
        return wait_for_answer(lambda: self.prompt(prompt, images), lambda: self.active_run, timeout)

    def stream(self, prompt: PromptInput, images: Images = (), *, detached: bool = False) -> RunStream:
        """Start a run and return an iterator over its events, read in step; leaving it early aborts the run.

        The events are those of the agent. What the harness tells beside them (`queue_update`, `save_point`, …) goes to listeners.

        Raises:
            HarnessBusyError: A run, a compaction or a move is going.
        """
        return self._start(self._ledger.claim("turn"), lambda: self._agent.stream(prompt, images, detached=detached))

    def _start(self, claim: Claim, start: Callable[[], RunT]) -> RunT:
        self._driver.started(claim)
        try:
            return start()
        except BaseException:
            self._ledger.release(claim)
            raise

    def steer(self, message: PromptInput, images: Images = ()) -> None:
        """Queue a message for the next turn of the run. During a compaction or a move it waits for the next run.

        Raises:
            HarnessError: The harness is idle (`invalid_state`), or a listener raised (`hook`; the message is queued).

        Threads:
            Any, a listener or a tool included.
        """
        self._refuse_idle("steer", "prompt()")
        self._agent.steer(message, images)
        self._tell_call(self._queues.show())

    def follow_up(self, message: PromptInput, images: Images = ()) -> None:
        """Queue a message for when the run would stop. During a compaction or a move it waits for the next run.

        Raises:
            HarnessError: The harness is idle (`invalid_state`), or a listener raised (`hook`; the message is queued).

        Threads:
            Any, a listener or a tool included.
        """
        self._refuse_idle("follow up", "prompt()")
        self._agent.follow_up(message, images)
        self._tell_call(self._queues.show())

    def _refuse_idle(self, what: str, way: str) -> None:
        if self.phase == "idle":
            text = f"cannot {what} while the harness is idle: use {way}, or next_turn() for the next prompt"
            raise HarnessError(text, code="invalid_state")

    def next_turn(self, message: PromptInput, images: Images = ()) -> None:
        """Queue a message that goes before the next prompt.

        Raises:
            HarnessError: A listener raised (`hook`; the message is queued).

        Threads:
            Any, a listener or a tool included.
        """
        for item in normalize_prompt_input(message, _to_images(images)):
            self._queues.next_turn.put(item)
        self._tell_call(self._queues.show())

    def append_message(self, message: AgentMessage) -> None:
        """Put a message into the session: now, or at the next save point if a run is going. Listeners do not hear of it.

        Raises:
            SessionError: It could not be stored; it waits for the next write.
            TypeError, ValueError: It is no message, or cannot be written as JSON.

        Threads:
            Any, a listener or a tool included.
        """
        if not isinstance(getattr(message, "role", None), str):
            raise TypeError(f"append_message takes a message, not {type(message).__name__}: UserMessage(…) makes one of a text")
        dumps(message)  # what cannot be written must be refused here, and not at the save point
        self._ledger.write(lambda: self._session.append_message(message), message)

    def abort(self, reason: object = None) -> AbortResult:
        """Clear the steering and follow-up queues, ask what is going on to stop, and wait until it has.

        On the run's own threads (a listener, a hook, a tool) it does not wait.

        Returns:
            What was cleared.

        Raises:
            HarnessError: A listener raised (`hook`); the run was aborted all the same.
        """
        result = AbortResult(self._queues.steer.take_all(), self._queues.follow_up.take_all())
        run = self.active_run
        if run is not None:
            run.abort(reason)
        try:
            self._tell_call(self._queues.show())
        finally:
            if run is not None and run not in current_runs.get():
                run.wait()
        self._tell_call(AbortEvent(result.cleared_steer, result.cleared_follow_up))
        return result

    def wait_for_idle(self, timeout: float | None = None) -> bool:
        """Block until the run, compaction or move that is going, and its listeners, have finished.

        Args:
            timeout: Seconds to wait; None waits without limit. When they are over, it goes on.

        Returns:
            True when the harness is idle, False when the time was up first.

        Raises:
            RuntimeError: Called inside of what it would wait for.
            KeyboardInterrupt: Ctrl-C; what was going on has been aborted.
        """
        run = self.active_run
        return True if run is None else run.wait(timeout)

    def __enter__(self) -> AgentHarness:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        run = self.active_run
        if run is None:
            return
        if error is not None:
            run.abort(f"left by {kind.__name__}" if kind is not None else None)
            run.refuse_waiting_inside()
            run.settle()
        else:
            run.wait()

    # --- the session ---------------------------------------------------------------------------------------------------

    def compact(self, custom_instructions: str | None = None) -> CompactionResult:
        """Have the older part of the conversation summarised, and wait for it.

        Raises:
            HarnessBusyError: A run, a compaction or a move is going.
            HarnessError: There is nothing to compact, a handler cancelled it, the summary failed or was aborted (`compaction`), or
                a handler raised (`hook`). Nothing has been stored then.
        """

        def work(run: Run) -> CompactionResult:
            return self._compactor.compact(custom_instructions, run.signal)[0]

        return self._operate("compaction", "compact()", work)

    def navigate_tree(
        self,
        target_id: str | None,
        *,
        summarize: bool = False,
        custom_instructions: str | None = None,
        replace_instructions: bool = False,
        label: str | None = None,
    ) -> NavigateTreeResult:
        """Go to another entry of the session, and wait for it; what is said next begins a branch there.

        Args:
            target_id: Where to go; None is before the first entry. At a message of the user the session stands before it, and its
                text is in the result.
            summarize: Whether to have the branch summarised that is left.
            custom_instructions: What the summary should look at in particular or, with `replace_instructions`, all that is asked.
            label: Names the summary or, without one, the target.

        Raises:
            HarnessBusyError: A run, a compaction or a move is going.
            HarnessError: There is no such entry (`invalid_argument`), the summary failed (`branch_summary`), a handler raised
                (`hook`). The session stands where it stood then.
        """
        wish = TreeWish(target_id, summarize, custom_instructions, replace_instructions, label)

        def work(run: Run) -> NavigateTreeResult:
            result, told = navigate_tree(self._session, wish, self._hooks, self._compactor, run.signal)
            if told is not None:
                self._driver.reload()
                self._tell(told)
            return result

        return self._operate("branch_summary", "navigate_tree()", work)

    def _operate(self, phase: HarnessPhase, what: str, work: Callable[[Run], ResultT]) -> ResultT:
        """Do something that needs the harness for itself on a run thread, and wait for it."""
        claim = self._ledger.claim(phase, what)
        made: list[ResultT] = []

        def play(run: Run) -> list[AgentMessage]:
            try:
                made.append(work(run))
            except AgentCoreError:
                raise
            except Exception as error:  # a listener's: what was asked for has been done
                raise HarnessError(str(error), code="hook") from error
            return []

        def settle() -> None:
            self._operation = None
            try:
                self._ledger.release(claim)
            except Exception:
                _log.exception("what waited for the end of %s could not be stored, and still waits", what)

        run = Run(play, on_settled=settle, on_lost=settle)
        try:
            self._operation = run
            run.start()
        except BaseException as error:  # no thread to be had, or Ctrl-C
            run.withdraw(error)
            raise
        run.result()
        return made[0]

    # --- settings ------------------------------------------------------------------------------------------------------

    def set_model(self, model: Model | str) -> None:
        """Let another model answer from the next turn on.

        Raises:
            HarnessError: A listener raised (`hook`); the change has been made.
        """
        settings, new = self._settings, find_model(model)
        with settings.lock:
            previous, settings.model = settings.model, new
            self._ledger.write(lambda: self._session.append_model_change(new.provider, new.id))
        self._tell_call(ModelUpdateEvent(new, previous))

    def set_thinking_level(self, level: ThinkingLevel) -> None:
        """Let the model think this much from the next turn on.

        Raises:
            HarnessError: There is no such level (`invalid_argument`), or a listener raised (`hook`; the change has been made).
        """
        settings, level = self._settings, check_thinking_level(level)
        with settings.lock:
            previous, settings.thinking_level = settings.thinking_level, level
            self._ledger.write(lambda: self._session.append_thinking_level_change(level))
        self._tell_call(ThinkingLevelUpdateEvent(level, previous))

    def set_tools(self, tools: Iterable[AgentTool], active_tool_names: Sequence[str] | None = None) -> None:
        """Set the tools and, unless the names stay, those that the model is offered from the next turn on.

        Raises:
            HarnessError: A name is there twice or is no tool's (`invalid_argument`; nothing has changed), or a listener raised
                (`hook`; the change has been made).
        """
        new = as_tools(tools)
        self._change_tools(lambda there, active: (new, active if active_tool_names is None else active_tool_names))

    def set_active_tools(self, names: Sequence[str]) -> None:
        """Offer the model these tools from the next turn on.

        Raises:
            HarnessError: As `set_tools` says.
        """
        self._change_tools(lambda tools, active: (tools, names))

    def _change_tools(
        self,
        change: Callable[[list[AgentTool], Sequence[str]], tuple[list[AgentTool], Sequence[str]]],
        *,
        is_stored: bool = True,
    ) -> None:
        """Replace the tools and the active names by what a function makes of them."""
        settings = self._settings
        with settings.lock:
            previous, previous_active = settings.tool_set
            settings.set_tools(*change(previous, previous_active))
            tools, active = settings.tool_set
            names = list(active)
            if is_stored:
                self._ledger.write(lambda: self._session.append_active_tools_change(names))
        tool_names = [tool.name for tool in tools]
        self._tell_call(ToolsUpdateEvent(tool_names, [tool.name for tool in previous], names, list(previous_active)))

    def set_resources(self, resources: ResourcesInput) -> None:
        """Set skills and prompt templates.

        Raises:
            HarnessError: A listener raised (`hook`); the change has been made.
        """
        new = _to_resources(resources)
        self._change_resources(lambda there: new)

    def _change_resources(self, change: Callable[[Resources], Resources]) -> None:
        settings = self._settings
        with settings.lock:
            previous = settings.resources
            new = settings.resources = change(previous)
        self._tell_call(ResourcesUpdateEvent(new, previous))

    def set_stream_options(self, options: StreamOptions | None) -> None:
        """Make requests this way from the next turn on."""
        self._settings.stream_options = check_stream_options(options)

    def set_steering_mode(self, mode: QueueMode) -> None:
        """Let this many steered messages go into one turn."""
        self._queues.steer.mode = mode

    def set_follow_up_mode(self, mode: QueueMode) -> None:
        """Let this many follow-ups go into one turn."""
        self._queues.follow_up.mode = mode

    # --- listeners, handlers, extensions -------------------------------------------------------------------------------

    def subscribe(self, listener: Callable[..., Any]) -> Callable[[], None]:
        """Tell `listener(event, signal)` everything but the questions to handlers; `signal` is that of what is going on, or None.

        Returns:
            A function that ends this; calling it twice is harmless.

        Threads:
            Run thread, or the thread whose call brought the event about; never two at a time. What it raises fails the run or the
            call, and keeps the event from those that come after it.
        """
        return note_removal(self._delivery.add(listener))

    def on(self, event_type: str, handler: Callable[..., Any]) -> Callable[[], None]:
        """Ask `handler(event, signal)` a question, or tell it the events of one type; see `agentcore.harness.events`.

        Returns:
            A function that ends this; calling it twice is harmless.

        Raises:
            ValueError: There is no such type.
            TypeError: The handler needs more arguments than there are.

        Threads:
            As for `subscribe`. What a handler of a question raises fails what it was asked about; of a notification, it is logged
            and told in a `HandlerErrorEvent`.
        """
        return note_removal(self._delivery.add(handler, event_type))

    def use(self, extension: Any) -> Callable[[], None]:
        """Let an extension, an object or a module with a function `register(harness)`, add what it has.

        Returns:
            A function that takes all of it out again.

        Raises:
            HarnessError: Its `register` raised (`extension`); nothing of it is left.
            TypeError: It has none.
        """
        return register_extension(extension, self)

    def add_tools(self, tools: Iterable[AgentTool]) -> Callable[[], None]:
        """Add tools, and offer them to the model from the next turn on; in a `before_agent_start` handler, at once.

        Unlike `set_tools` this is not stored: whoever adds a tool does so anew with each harness.

        Returns:
            A function that takes them out again.

        Raises:
            HarnessError: As `set_tools` says.
        """
        added = as_tools(tools)
        names = [tool.name for tool in added]
        self._change_tools(lambda there, active: ([*there, *added], [*active, *names]), is_stored=False)

        def without(there: list[AgentTool], active: Sequence[str]) -> tuple[list[AgentTool], list[str]]:
            left = [tool for tool in there if not any(tool is one for one in added)]
            left_names = {tool.name for tool in left}
            return left, [name for name in active if name in left_names]

        def remove() -> None:
            if any(tool is one for one in added for tool in self._settings.tools):
                self._change_tools(without, is_stored=False)

        return note_removal(remove)

    def add_skills(self, skills: Iterable[Skill]) -> Callable[[], None]:
        """Add skills, behind those that there are. Returns a function that takes them out again."""
        return self._add_resources(_to_resources({"skills": skills}))

    def add_prompt_templates(self, templates: Iterable[PromptTemplate]) -> Callable[[], None]:
        """Add prompt templates, behind those that there are. Returns a function that takes them out again."""
        return self._add_resources(_to_resources({"prompt_templates": templates}))

    def _add_resources(self, added: Resources) -> Callable[[], None]:
        skills, templates = added.skills, added.prompt_templates
        self._change_resources(lambda there: Resources([*there.skills, *skills], [*there.prompt_templates, *templates]))

        def without(there: Resources) -> Resources:
            left_skills = [skill for skill in there.skills if not any(skill is one for one in skills)]
            left_templates = [template for template in there.prompt_templates if not any(template is one for one in templates)]
            return Resources(left_skills, left_templates)

        def remove() -> None:
            there = self.resources
            if any(one is mine for one in (*there.skills, *there.prompt_templates) for mine in (*skills, *templates)):
                self._change_resources(without)

        return note_removal(remove)

    # --- telling -------------------------------------------------------------------------------------------------------

    def _tell(self, event: Any) -> None:
        run = self.active_run
        self._delivery.tell(event, None if run is None else run.signal)

    def _tell_queues(self) -> None:
        self._tell(self._queues.show())

    def _tell_call(self, event: Any) -> None:
        """Tell what a call has brought about; it waits for no listener that is at work on another thread."""
        run = self.active_run
        try:
            self._delivery.tell(event, None if run is None else run.signal, waits=False)
        except Exception as error:
            raise HarnessError(str(error), code="hook") from error


def _as_extensions(extensions: Iterable[Any]) -> list[Any]:
    try:
        return list(extensions)
    except TypeError as error:
        raise TypeError(f"extensions must be a list: pass [{extension_name(extensions)}]") from error


def _to_images(images: Images) -> list[ImageContent]:
    if isinstance(images, (ImageContent, bytes, bytearray, str, os.PathLike)):
        return [to_image(images)]
    return [to_image(image) for image in images]


def _to_resources(given: ResourcesInput) -> Resources:
    if given is None:
        return Resources()
    if isinstance(given, Resources):
        made = replace(given)
    elif not isinstance(given, Mapping):
        raise TypeError(f"resources must be Resources or a mapping with skills and prompt_templates, not {type(given).__name__}")
    else:
        try:
            made = Resources(**given)
        except TypeError as error:
            raise TypeError(f"resources have skills and prompt_templates, not {', '.join(map(str, given))}") from error
    made.skills = _all_of(Skill, made.skills, "skills", "load_skills(…).skills")
    made.prompt_templates = _all_of(
        PromptTemplate, made.prompt_templates, "prompt_templates", "load_prompt_templates(…).prompt_templates"
    )
    return made


def _all_of(wanted: type[OneT], given: Iterable[OneT], name: str, way: str) -> list[OneT]:
    made = list(given)
    for one in made:
        if not isinstance(one, wanted):
            raise TypeError(f"{name} must hold {wanted.__name__}s, not {type(one).__name__}: pass {way}")
    return made


def _find(name: str, there: Sequence[Any], what: str) -> Any:
    for one in there:
        if one.name == name:
            return one
    names = ", ".join(one.name for one in there)
    raise HarnessError(f"unknown {what} {name!r}: there are {names or 'none'}", code="invalid_argument")


def _known_model(provider: str, model_id: str) -> Model:
    if (provider, model_id) == (UNKNOWN_MODEL.provider, UNKNOWN_MODEL.id):
        return UNKNOWN_MODEL  # it was made without a model, with a stream function of its own
    try:
        return find_model(f"{provider}/{model_id}")
    except ValueError:  # a server of one's own, say: the first request says that there is no model
        _log.warning("the model %s/%s of the session is not known: set it with set_model()", provider, model_id)
        return UNKNOWN_MODEL
