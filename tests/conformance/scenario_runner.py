"""Plays recorded scenarios: a scripted model, scripted tools, hooks and listeners, and a script of user actions.

A `Runner` plays one scenario and gives what could be observed, in the form of `expected`. What is the same for every target (the
model, the tools, gates, waits, triggers, writing things down) is here, in parts that another target may use or replace:

- `Scene`: the events so far, gates, and waits on them; every wait has a limit;
- `ScriptedModel`: the stream function, and the requests that it saw;
- `Writer`: messages, events, models, errors as plain data, as the recordings have them;
- `Runner`: tools, triggers and ops; a target adds ops as methods `op_<name>`, and says how it is made and observed.

A key, an op or a step that nobody knows is an error in the scenario, and fails.
"""

from __future__ import annotations

import copy
import hashlib
import json
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from agentcore import codec
from agentcore.abort import AbortController, AbortSignal
from agentcore.agent import Agent
from agentcore.codec import decode_tagged
from agentcore.custom_messages import AgentMessage
from agentcore.errors import AgentAbortedError, AgentRunError
from agentcore.events import (
    AgentEvent,
    AssistantMessageEvent,
    DoneEvent,
    ErrorEvent,
    StartEvent,
    TextDeltaEvent,
    TextEndEvent,
    TextStartEvent,
    ThinkingDeltaEvent,
    ThinkingEndEvent,
    ThinkingStartEvent,
    ToolCallDeltaEvent,
    ToolCallEndEvent,
    ToolCallStartEvent,
)
from agentcore.llm.request import Context, ProviderResponse, StreamOptions
from agentcore.loop import (
    AfterToolCallContext,
    AfterToolCallResult,
    AgentContext,
    AgentLoopConfig,
    AgentLoopTurnUpdate,
    BeforeToolCallContext,
    BeforeToolCallResult,
    PrepareNextTurnContext,
    agent_loop,
    agent_loop_continue,
    run_agent_loop,
    run_agent_loop_continue,
)
from agentcore.messages import (
    AgentToolResult,
    AssistantMessage,
    Message,
    TextContent,
    ThinkingContent,
    ToolCall,
    Usage,
    UserMessage,
)
from agentcore.models import Model
from agentcore.tools.agent_tool import AgentTool, ToolExecutionMode
from tests.conformance.cases import data_folder

LIMIT = 10.0
"""Seconds that any wait may take."""

ZERO_USAGE = {
    "input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 0,
    "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 0},
}  # fmt: skip


class FormatError(Exception):
    """The scenario is not as its description says."""


class ScriptedError(Exception):
    """Raised by the script: by a model, a tool, a hook or a listener."""


def scenario_paths(folder: str) -> list[Path]:
    """Return the scenario files of a folder, sorted by name."""
    return sorted((data_folder() / folder).glob("*.json"))


def load_scenario(path: Path) -> dict[str, Any]:
    """Read a scenario and check its form."""
    raw = json.loads(path.read_text("utf-8"))
    check_keys(
        raw,
        "the scenario",
        {
            "format", "name", "description", "target", "tags", "notes", "record", "models", "agent", "loop", "harness", "tools",
            "turns", "completions", "hooks", "listeners", "script", "expected",
        },
    )  # fmt: skip
    if raw.get("format") != 1:
        raise FormatError(f"{path}: format {raw.get('format')!r} is not known")
    if raw.get("name") != path.stem:
        raise FormatError(f"{path}: the name in it is {raw.get('name')!r}")
    for key in ("script", "expected"):
        if key not in raw:
            raise FormatError(f"{path}: no {key}")
    return {key: value if key == "expected" else write_out(value) for key, value in raw.items()}


def check_keys(value: Mapping[str, Any], what: str, known: Iterable[str]) -> None:
    """Fail on a key that nobody knows."""
    unknown = set(value) - set(known)
    if unknown:
        raise FormatError(f"{what} has unknown keys: {', '.join(sorted(unknown))}")


def write_out(value: Any) -> Any:
    """Write `$repeat` out, anywhere in an input."""
    if isinstance(value, list):
        return [write_out(member) for member in value]
    if not isinstance(value, dict):
        return value
    if set(value) == {"$repeat", "times"}:
        return value["$repeat"] * value["times"]
    return {key: write_out(member) for key, member in value.items()}


# --- waits -----------------------------------------------------------------------------------------------------------


class Scene:
    """The events that `main` has had, the gates, and waits on them.

    Threads:
        Any. `_changed` guards everything; it is held for single steps alone.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.finished: list[dict[str, Any]] = []  # events that main is done with
        self._arrived: set[str] = set()
        self._open: set[str] = set()

    def finish(self, event: dict[str, Any]) -> None:
        with self._changed:
            self.finished.append(event)
            self._changed.notify_all()

    def wait_event(self, pattern: Mapping[str, Any]) -> None:
        nth = pattern.get("nth", 1)
        self._wait(lambda: sum(matches(pattern, event) for event in self.finished) >= nth, f"event {dict(pattern)}")

    def open_gate(self, gate: str) -> None:
        with self._changed:
            self._open.add(gate)
            self._changed.notify_all()

    def wait_gate(self, gate: str) -> None:
        self._wait(lambda: gate in self._arrived, f"an arrival at gate {gate}")

    def pass_gate(self, gate: str, or_abort: bool, signal: AbortSignal | None) -> None:
        with self._changed:
            self._arrived.add(gate)
            self._changed.notify_all()
        remove = signal.on_abort(lambda reason: self._wake()) if or_abort and signal is not None else None
        try:
            self._wait(
                lambda: gate in self._open or (or_abort and signal is not None and signal.aborted), f"gate {gate} to be opened"
            )
        finally:
            if remove is not None:
                remove()

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _wait(self, is_over: Callable[[], bool], what: str) -> None:
        with self._changed:
            if not self._changed.wait_for(is_over, LIMIT):
                raise AssertionError(f"waited {LIMIT:g} s for {what}")


def matches(pattern: Mapping[str, Any], event: Mapping[str, Any]) -> bool:
    """Return whether an event, written down, is one that a filter means."""
    message = event.get("message") or {}
    if event["type"] != pattern["event"]:
        return False
    if "role" in pattern and message.get("role") != pattern["role"]:
        return False
    if "toolCallId" in pattern and pattern["toolCallId"] not in (event.get("toolCallId"), message.get("toolCallId")):
        return False
    return "update" not in pattern or (event.get("assistantMessageEvent") or {}).get("type") == pattern["update"]


# --- writing things down ---------------------------------------------------------------------------------------------


class Writer:
    """Writes objects down as the recordings have them. A copy is made at once; `finish` is for the end."""

    def __init__(self, *, compact_updates: bool = False) -> None:
        self.compact_updates = compact_updates

    def write(self, value: Any) -> Any:
        """Write down anything: messages, blocks, results, plain data."""
        return strip(codec.encode(value))

    def event(self, event: Any) -> dict[str, Any]:
        """Write down an event."""
        raw: dict[str, Any] = self.write(event)
        if raw["type"] == "message_update":
            inner = raw["assistantMessageEvent"]
            if self.compact_updates:
                raw.pop("message")
                inner = {key: inner[key] for key in ("type", "contentIndex", "delta") if key in inner}
            else:
                inner.pop("partial", None)
            raw["assistantMessageEvent"] = inner
        return raw

    def model(self, model: Model) -> dict[str, Any]:
        return {"id": model.id, "provider": model.provider}

    def context(self, context: AgentContext) -> dict[str, Any]:
        return {
            "systemPrompt": context.system_prompt,
            "roles": roles(context.messages),
            "tools": None if context.tools is None else [tool.name for tool in context.tools],
        }

    def error(self, error: BaseException) -> dict[str, Any]:
        made: dict[str, Any] = {"message": str(error)}
        if getattr(error, "code", None) is not None:
            made["code"] = error.code  # type: ignore[attr-defined]
        return made


def strip(value: Any) -> Any:
    """Leave timestamps out; a usage that is all zero is `"$zero"`; sets are sorted lists."""
    if isinstance(value, (list, tuple)):
        return [strip(member) for member in value]
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    if isinstance(value, dict):
        made = {key: strip(member) for key, member in value.items() if key != "timestamp"}
        if made.get("usage") == ZERO_USAGE:
            made["usage"] = "$zero"
        return made
    return value


def shorten(value: Any) -> Any:
    """Replace texts of more than 600 characters by their length, hash, head and tail. The last step on both sides."""
    if isinstance(value, list):
        return [shorten(member) for member in value]
    if isinstance(value, dict):
        return value if "$long" in value else {key: shorten(member) for key, member in value.items()}
    if isinstance(value, str) and len(value) > 600:
        digest = hashlib.sha256(value.encode()).hexdigest()
        return {"$long": {"length": len(value), "sha256": digest, "head": value[:60], "tail": value[-60:]}}
    return value


def roles(messages: Iterable[Any]) -> list[str]:
    return [message.role for message in messages]


_FAULTS = re.compile(r'(Validation failed for tool "[^"]*":\n)(?:  - .*\n)+(\nReceived arguments:)')


def hide_faults(value: Any) -> Any:
    """Replace the lines of a validation error that are the validator's own words, on both sides."""
    if isinstance(value, str):
        return _FAULTS.sub(r"\1<faults>\n\2", value)
    if isinstance(value, list):
        return [hide_faults(member) for member in value]
    if isinstance(value, dict):
        return {key: hide_faults(member) for key, member in value.items()}
    return value


# --- reading inputs --------------------------------------------------------------------------------------------------


def read_message(raw: Mapping[str, Any]) -> AgentMessage:
    """Make a message of an input, with what it leaves out."""
    made = dict(raw)
    if made.get("role") == "assistant":
        made = {"api": "test-api", "provider": "test-provider", "model": "test-model", "stopReason": "stop", **made}
        made["usage"] = complete_usage(made.get("usage"))
    made.setdefault("timestamp", 1)
    message: AgentMessage = decode_tagged(made)
    return message


def read_messages(raw: Iterable[Mapping[str, Any]]) -> list[AgentMessage]:
    return [read_message(item) for item in raw]


def complete_usage(raw: Mapping[str, Any] | None) -> dict[str, Any]:
    given = dict(raw or {})
    return {**ZERO_USAGE, **given, "cost": {**ZERO_USAGE["cost"], **given.get("cost", {})}}  # type: ignore[dict-item]


def read_result(raw: Mapping[str, Any]) -> AgentToolResult:
    """Make a tool's result: what is missing stays missing, as far as the class can say so."""
    result = codec.decode(AgentToolResult, {"content": None, **raw})
    if raw.get("content") is None:
        result.content = None  # type: ignore[assignment]
    return result


def read_model(name: str | None, models: Mapping[str, Mapping[str, Any]]) -> Model:
    fields: dict[str, Any] = {
        "id": name, "name": name, "api": "test-api", "provider": "test-provider", "baseUrl": "", "reasoning": True,
        "input": ["text", "image"], "contextWindow": 128000, "maxTokens": 16384,
    }  # fmt: skip
    if name == "other-model":
        fields |= {"provider": "other-provider", "api": "other-api"}
    elif name != "test-model" and name not in models:
        raise FormatError(f"no model {name!r}")
    fields |= models.get(name or "", {})
    return codec.decode(Model, fields)


# --- the scripted model ----------------------------------------------------------------------------------------------


class ScriptedModel:
    """The stream function: takes the next turn with every call, and writes the request down."""

    def __init__(self, turns: Iterable[Mapping[str, Any]], scene: Scene, writer: Writer, *, is_agent: bool) -> None:
        self._turns = list(turns)
        self._scene = scene
        self._writer = writer
        self._is_agent = is_agent
        self.requests: list[dict[str, Any]] = []
        for turn in self._turns:
            check_keys(
                turn,
                "a turn",
                {
                    "content", "stopReason", "errorMessage", "usage", "omitStart", "omitDone", "raise", "raiseBefore", "gates",
                    "payload", "response",
                },
            )  # fmt: skip

    def __call__(self, model: Model, context: Context, options: StreamOptions) -> ScriptedAnswer:
        request = {
            "model": self._writer.model(model),
            "systemPrompt": context.system_prompt,
            "messages": self._writer.write(list(context.messages)),
            "tools": None if context.tools is None else [tool.name for tool in context.tools],
            "options": self.write_options(options),
            "signalAborted": options.signal is not None and options.signal.aborted,
        }
        self.requests.append(request)
        number = len(self.requests)
        turn = self._turns[number - 1] if number <= len(self._turns) else None
        if turn is not None and "raise" in turn:
            raise ScriptedError(turn["raise"])
        return ScriptedAnswer(turn, model, options, self._scene, request)

    def write_options(self, options: StreamOptions) -> dict[str, Any]:
        written = {
            "reasoning": options.reasoning,
            "apiKey": options.api_key,
            "sessionId": options.session_id,
            "thinkingBudgets": options.thinking_budgets,
            "maxRetryDelayMs": options.max_retry_delay_ms,
            # Not given is None here, and the word "auto" in the reference's agent.
            "transport": options.transport or ("auto" if self._is_agent else None),
        }
        return {key: value for key, value in written.items() if value is not None}


class ScriptedAnswer:
    """One answer: a lazy iterator of events with a `result()`, pulled by the reader."""

    def __init__(
        self, turn: Mapping[str, Any] | None, model: Model, options: StreamOptions, scene: Scene, request: dict[str, Any]
    ) -> None:
        self._turn = turn
        self._model = model
        self._options = options
        self._scene = scene
        self._request = request
        self._content: list[Any] = []
        self._events = self._play()

    def __iter__(self) -> Iterator[AssistantMessageEvent]:
        return self._events

    def result(self) -> AssistantMessage:
        return self._final()

    def _play(self) -> Iterator[AssistantMessageEvent]:
        self._call_request_hooks(self._turn or {})
        for count, make in enumerate(self._script()):
            if self._pass(count):
                yield ErrorEvent(self._aborted())
                return
            yield make()

    def _call_request_hooks(self, turn: Mapping[str, Any]) -> None:
        if "payload" in turn:
            payload = copy.deepcopy(turn["payload"])
            if self._options.on_payload is not None:
                payload = self._options.on_payload(payload, self._model) or payload
            self._request["payload"] = payload
        if "response" in turn and self._options.on_response is not None:
            response = turn["response"]
            self._options.on_response(ProviderResponse(response["status"], response["headers"]), self._model)

    def _pass(self, count: int) -> bool:
        """Do what is due before event number `count`; true if the answer is aborted here."""
        turn = self._turn or {}
        signal = self._options.signal
        for gate in turn.get("gates", ()):
            if gate["before"] == count:
                self._scene.pass_gate(gate["gate"], gate.get("orAbort", False), signal)
        if signal is not None and signal.aborted:
            return True
        at = turn.get("raiseBefore")
        if at is not None and at["event"] == count:
            raise ScriptedError(at["message"])
        return False

    def _script(self) -> Iterator[Callable[[], AssistantMessageEvent]]:
        turn = self._turn
        if turn is None:
            yield lambda: ErrorEvent(self._message(stop_reason="error", error_message="No more scripted turns"))
            return
        if not turn.get("omitStart"):
            yield lambda: StartEvent(self._message())
        for index, block in enumerate(turn.get("content", ())):
            if block["type"] in ("text", "thinking"):
                yield from self._text(index, block["type"] == "text", block["chunks"])
            elif block["type"] == "toolCall":
                yield from self._call(index, block)
            else:
                raise FormatError(f"a turn with a block of type {block['type']!r}")
        if not turn.get("omitDone"):
            yield self._last

    def _text(self, index: int, is_text: bool, chunks: list[str]) -> Iterator[Callable[[], AssistantMessageEvent]]:
        def begin() -> AssistantMessageEvent:
            self._content.append(TextContent("") if is_text else ThinkingContent(""))
            return (TextStartEvent if is_text else ThinkingStartEvent)(index, self._message())

        def add(chunk: str) -> AssistantMessageEvent:
            block = self._content[index]
            if is_text:
                block.text += chunk
            else:
                block.thinking += chunk
            return (TextDeltaEvent if is_text else ThinkingDeltaEvent)(index, chunk, self._message())

        yield begin
        for chunk in chunks:
            yield lambda chunk=chunk: add(chunk)  # type: ignore[misc]
        yield lambda: (TextEndEvent if is_text else ThinkingEndEvent)(index, "".join(chunks), self._message())

    def _call(self, index: int, raw: Mapping[str, Any]) -> Iterator[Callable[[], AssistantMessageEvent]]:
        def begin() -> AssistantMessageEvent:
            self._content.append(ToolCall(raw["id"], raw["name"], {}))
            return ToolCallStartEvent(index, self._message())

        def end() -> AssistantMessageEvent:
            chunks = raw.get("argumentChunks", [])
            arguments = raw["arguments"] if "arguments" in raw else json.loads("".join(chunks))
            self._content[index].arguments = copy.deepcopy(arguments)
            message = self._message()
            return ToolCallEndEvent(index, copy.deepcopy(self._content[index]), message)

        yield begin
        for chunk in raw.get("argumentChunks", ()):
            yield lambda chunk=chunk: ToolCallDeltaEvent(index, chunk, self._message())  # type: ignore[misc]
        yield end

    def _last(self) -> AssistantMessageEvent:
        message = self._final()
        return ErrorEvent(message) if message.stop_reason in ("error", "aborted") else DoneEvent(message)

    def _final(self) -> AssistantMessage:
        turn = self._turn or {}
        has_call = any(block["type"] == "toolCall" for block in turn.get("content", ()))
        reason = turn.get("stopReason") or ("toolUse" if has_call else "stop")
        message = self._message(stop_reason="done" if reason == "stop" else reason, error_message=turn.get("errorMessage"))
        message.usage = codec.decode(Usage, complete_usage(turn.get("usage")))
        return message

    def _aborted(self) -> AssistantMessage:
        return self._message(stop_reason="aborted", error_message="Request was aborted")

    def _message(self, stop_reason: Any = "done", error_message: str | None = None) -> AssistantMessage:
        return AssistantMessage(
            copy.deepcopy(self._content),
            self._model.api,
            self._model.provider,
            self._model.id,
            stop_reason=stop_reason,
            error_message=error_message,
        )


# --- the runner ------------------------------------------------------------------------------------------------------


class Runner:
    """Plays one scenario. A target makes the thing under test in `set_up`, and adds its ops."""

    entry_keys = frozenset(
        {"op", "on", "in", "every", "background", "id", "message", "messages", "text", "images", "gate", "event", "role"}
        | {"toolCallId", "update", "nth", "result", "listener"}
    )

    def __init__(self, scenario: Mapping[str, Any]) -> None:
        self.scenario = scenario
        record = scenario.get("record", {})
        check_keys(record, "record", {"compactUpdates", "states"})
        self.scene = Scene()
        self.writer = Writer(compact_updates=record.get("compactUpdates", False))
        self.records_states = record.get("states", False)
        self.events: list[dict[str, Any]] = []
        self.states: list[dict[str, Any]] = []
        self.hook_calls: list[dict[str, Any]] = []
        self.tool_runs: dict[str, dict[str, Any]] = {}
        self.listener_log: list[str] = []
        self.script: list[dict[str, Any]] = list(scenario["script"])
        self.outcomes: list[dict[str, Any] | None] = [None] * len(self.script)
        self.models: Mapping[str, Any] = scenario.get("models", {})
        self._counts = [0] * len(self.script)
        self._updates: dict[str, Callable[[Any], None]] = {}
        self._background: dict[str, threading.Thread] = {}
        self._hook_counts: dict[str, int] = {}
        self.model = ScriptedModel(scenario.get("turns", ()), self.scene, self.writer, is_agent=scenario["target"] == "agent")
        self.tools = {tool["name"]: self.make_tool(tool) for tool in scenario.get("tools", ())}
        for entry in self.script:
            check_keys(entry, f"the op {entry.get('op')!r}", self.entry_keys)
            if not hasattr(self, f"op_{entry['op']}"):
                raise FormatError(f"unknown op {entry['op']!r}")

    def play(self) -> dict[str, Any]:
        """Play the whole script and return what was observed."""
        self.set_up()
        for index, entry in enumerate(self.script):
            if "on" in entry:
                continue
            if entry.get("background"):
                thread = threading.Thread(target=self.run_entry, args=(index,), name=f"background-{index}", daemon=True)
                self._background[entry["id"]] = thread
                thread.start()
            else:
                self.run_entry(index)
        for thread in self._background.values():
            thread.join(LIMIT)
            assert not thread.is_alive(), f"{thread.name} has not ended"
        return self.observe()

    def set_up(self) -> None:
        raise NotImplementedError

    def observe(self) -> dict[str, Any]:
        """Return what was observed, in the form of `expected`."""
        seen: dict[str, Any] = {
            "events": self.events,
            "requests": self.model.requests,
            "hookCalls": self.hook_calls,
            "toolRuns": self.tool_runs,
            "ops": self.outcomes,
        }
        if self.records_states:
            seen["states"] = self.states
        if "listeners" in self.scenario:
            seen["listenerLog"] = self.listener_log
        return seen

    # --- the script ------------------------------------------------------------------------------------------------

    def run_entry(self, index: int) -> None:
        """Run an entry of the script and write its outcome down."""
        entry = self.script[index]
        outcome: dict[str, Any] = {"op": entry["op"]}
        try:
            value = self.run_op(entry)
            outcome["outcome"] = "ok"
            if value is not None:
                outcome["value"] = value
        except (AssertionError, FormatError):
            raise
        except Exception as error:
            outcome |= {"outcome": "error", "error": self.writer.error(error), "class": type(error).__name__}
        self.set_outcome(index, outcome)

    def set_outcome(self, index: int, outcome: dict[str, Any]) -> None:
        before = self.outcomes[index] or {}
        if self.script[index].get("every"):
            outcome["fired"] = before.get("fired", 0) + 1
        self.outcomes[index] = outcome

    def run_op(self, entry: Mapping[str, Any]) -> Any:
        return getattr(self, f"op_{entry['op']}")(entry)

    def op_noop(self, entry: Mapping[str, Any]) -> None:
        pass

    def op_raise(self, entry: Mapping[str, Any]) -> None:
        raise FormatError("the op raise stands only in a listener")

    def op_waitGate(self, entry: Mapping[str, Any]) -> None:
        self.scene.wait_gate(entry["gate"])

    def op_openGate(self, entry: Mapping[str, Any]) -> None:
        self.scene.open_gate(entry["gate"])

    def op_waitEvent(self, entry: Mapping[str, Any]) -> None:
        self.scene.wait_event(entry)

    def op_join(self, entry: Mapping[str, Any]) -> None:
        thread = self._background[entry["id"]]
        thread.join(LIMIT)
        assert not thread.is_alive(), f"{thread.name} has not ended"

    def op_callUpdate(self, entry: Mapping[str, Any]) -> None:
        self._updates[entry["toolCallId"]](read_result(entry["result"]))

    # --- listeners -------------------------------------------------------------------------------------------------

    def on_main(self, event: Any, state: Callable[[str], dict[str, Any]] | None = None) -> None:
        """What the listener `main` does with an event."""
        written = self.writer.event(event)
        self.events.append(written)
        full = (
            written
            if "message" in written or not hasattr(event, "message")
            else {**written, "message": self.writer.write(event.message)}
        )
        if state is not None and self.records_states:
            self.states.append(state(written["type"]))
        if "listeners" in self.scenario:
            self.listener_log.append(f"main:{written['type']}")
        self.trigger("main", full)
        self.scene.finish(full)

    def on_other(self, name: str, event: Any) -> None:
        """What another listener does with an event."""
        written = self.writer.event(event)
        self.listener_log.append(f"{name}:{written['type']}")
        self.trigger(name, written)

    def trigger(self, listener: str, event: Mapping[str, Any]) -> None:
        """Run the entries that an event triggers in a listener. The counts are brought up to date first."""
        due = []
        for index, entry in enumerate(self.script):
            pattern = entry.get("on")
            if pattern is None or entry.get("in", "main") != listener:
                continue
            check_keys(pattern, "a trigger", {"event", "role", "toolCallId", "update", "nth"})
            if matches(pattern, event):
                self._counts[index] += 1
                if entry.get("every") or self._counts[index] == pattern.get("nth", 1):
                    due.append(index)
        for index in due:
            entry = self.script[index]
            if entry["op"] == "raise":
                error = ScriptedError(entry["message"])
                self.set_outcome(index, {"op": "raise", "outcome": "raised", "error": self.writer.error(error)})
                raise error
            self.run_entry(index)

    # --- tools -----------------------------------------------------------------------------------------------------

    def make_tool(self, raw: Mapping[str, Any]) -> AgentTool:
        check_keys(
            raw,
            f"the tool {raw.get('name')!r}",
            {"name", "label", "description", "parameters", "executionMode", "prepareArguments", "steps", "calls"},
        )
        mode = raw.get("executionMode")
        shim = raw.get("prepareArguments")

        def execute(
            tool_call_id: str, args: Any, signal: AbortSignal, on_update: Callable[[Any], None], context: Any
        ) -> AgentToolResult:
            return self.run_tool(raw, tool_call_id, args, signal, on_update, context)

        return AgentTool(
            raw["name"],
            raw.get("label", raw["name"]),
            raw.get("description", "A tool of the scenario."),
            raw["parameters"],
            execute,
            None if shim is None else lambda args: run_shim(shim, args),
            None if mode is None else ToolExecutionMode(mode),
        )

    def run_tool(
        self,
        raw: Mapping[str, Any],
        call_id: str,
        args: Any,
        signal: AbortSignal,
        on_update: Callable[[Any], None],
        context: Any,
    ) -> AgentToolResult:
        run = {"tool": raw["name"], "args": self.writer.write(args), "abortedAtStart": signal.aborted}
        self.note_tool_context(run, context)
        self.tool_runs[call_id] = run
        self._updates[call_id] = on_update
        steps = raw.get("calls", {}).get(call_id) or raw.get("steps") or [{"do": "returnArgs"}]
        for step in steps:
            do = step["do"]
            if do == "update":
                on_update(read_result(step["result"]))
            elif do == "waitEvent":
                self.scene.wait_event(step)
            elif do == "gate":
                self.scene.pass_gate(step["gate"], step.get("orAbort", False), signal)
            elif do == "op":
                self.run_op(step)
            elif do == "raiseIfAborted":
                if signal.aborted:
                    raise ScriptedError(step["message"])
            elif do == "raise":
                raise ScriptedError(step["message"])
            elif do == "raiseValue":
                raise ScriptedError(str(step["value"]))  # no bare values here: see the differences
            elif do == "return":
                return read_result(step["result"])
            elif do == "returnArgs":
                return AgentToolResult([TextContent(f"{raw['name']} ok")], {"args": args})
            elif do == "returnContext":
                return AgentToolResult([TextContent(f"{raw['name']} ok")], {"context": context})
            else:
                raise FormatError(f"unknown step {do!r}")
        raise FormatError(f"the steps of {raw['name']} do not end in a result")

    def note_tool_context(self, run: dict[str, Any], context: Any) -> None:
        """Put the context that a tool got into its record, where the target has one."""

    # --- rules of hooks --------------------------------------------------------------------------------------------

    def note_hook(self, hook: str, **what: Any) -> None:
        self.hook_calls.append({"hook": hook, "at": len(self.events), **what})

    def apply_rule(self, hook: str, rules: Iterable[Mapping[str, Any]], call: ToolCall | None = None, args: Any = None) -> Any:
        """Find the rule for this call of a hook, do what it says, and return it (empty if there is none)."""
        number = self._hook_counts[hook] = self._hook_counts.get(hook, 0) + 1
        for rule in rules:
            if rule.get("nth", number) != number:
                continue
            if call is not None and (rule.get("id", call.id) != call.id or rule.get("tool", call.name) != call.name):
                continue
            if "setArgs" in rule:
                args.update(copy.deepcopy(rule["setArgs"]))
            for action in rule.get("actions", ()):
                self.run_op(action)
            if "raise" in rule:
                raise ScriptedError(rule["raise"])
            return rule
        return {}

    def make_turn_update(self, raw: Mapping[str, Any] | None, context: AgentContext | None) -> AgentLoopTurnUpdate | None:
        if raw is None:
            return None
        check_keys(raw, "what prepareNextTurn returns", {"model", "thinkingLevel", "context"})
        new_context = None
        if "context" in raw:
            assert context is not None
            given = raw["context"]
            kept = context.messages if "keepLast" not in given else context.messages[-given["keepLast"] :]
            messages = read_messages(given["messages"]) if "messages" in given else [*kept, *read_messages(given.get("append", ()))]
            tools = [self.tools[name] for name in given["tools"]] if "tools" in given else context.tools
            new_context = AgentContext(given.get("systemPrompt", context.system_prompt), messages, tools)
        return AgentLoopTurnUpdate(
            context=new_context,
            model=read_model(raw["model"], self.models) if "model" in raw else None,
            thinking_level=raw.get("thinkingLevel"),
        )

    def make_hook(self, name: str, rules: Any) -> Callable[..., Any]:
        """Make a hook of the agent or the loop from its rules."""
        make = getattr(self, f"hook_{name}", None)
        if make is None:
            raise FormatError(f"unknown hook {name!r}")
        made: Callable[..., Any] = make(rules)
        return made

    def hook_beforeToolCall(self, rules: Any) -> Callable[..., Any]:
        def hook(context: BeforeToolCallContext, signal: AbortSignal) -> BeforeToolCallResult | None:
            call = context.tool_call
            self.note_hook(
                "beforeToolCall", toolCallId=call.id, toolName=call.name, rawArguments=self.writer.write(call.arguments),
                args=self.writer.write(context.args), assistantStopReason=stop_word(context.assistant_message),
                context=self.writer.context(context.context), signalAborted=signal.aborted,
            )  # fmt: skip
            rule = self.apply_rule("beforeToolCall", rules, call, context.args)
            return BeforeToolCallResult(**rule["return"]) if "return" in rule else None

        return hook

    def hook_afterToolCall(self, rules: Any) -> Callable[..., Any]:
        def hook(context: AfterToolCallContext, signal: AbortSignal) -> AfterToolCallResult | None:
            call = context.tool_call
            self.note_hook(
                "afterToolCall", toolCallId=call.id, toolName=call.name, args=self.writer.write(context.args),
                result=self.writer.write(context.result), isError=context.is_error,
                context=self.writer.context(context.context), signalAborted=signal.aborted,
            )  # fmt: skip
            rule = self.apply_rule("afterToolCall", rules, call, context.args)
            if "return" not in rule:
                return None
            given = rule["return"]
            check_keys(given, "what afterToolCall returns", {"content", "details", "isError", "usage", "terminate"})
            result = read_result(given)
            return AfterToolCallResult(
                content=result.content, details=result.details, is_error=given.get("isError"), usage=result.usage,
                terminate=given.get("terminate"),
            )  # fmt: skip

        return hook

    def hook_transformContext(self, rules: Any) -> Callable[..., Any]:
        def hook(messages: list[AgentMessage], signal: AbortSignal) -> list[AgentMessage]:
            self.note_hook("transformContext", roles=roles(messages), signalAborted=signal.aborted)
            rule = self.apply_rule("transformContext", rules)
            kept = messages[-rule["keepLast"] :] if "keepLast" in rule else messages
            return [*read_messages(rule.get("prepend", ())), *kept, *read_messages(rule.get("append", ()))]

        return hook

    def hook_convertToLlm(self, spec: Any) -> Callable[..., Any]:
        check_keys(spec, "convertToLlm", {"asUser", "rules"})

        def hook(messages: list[AgentMessage]) -> list[Message]:
            self.note_hook("convertToLlm", roles=roles(messages))
            self.apply_rule("convertToLlm", spec.get("rules", ()))
            return [message for item in messages for message in convert(item)]

        def convert(message: Any) -> list[Any]:
            if message.role in ("user", "assistant", "toolResult"):
                return [message]
            return [UserMessage(message.fields["text"])] if message.role in spec.get("asUser", ()) else []

        return hook

    def hook_getApiKey(self, rules: Any) -> Callable[..., Any]:
        def hook(provider: str) -> str | None:
            self.note_hook("getApiKey", provider=provider)
            key: str | None = self.apply_rule("getApiKey", rules).get("return")
            return key

        return hook


def run_shim(shim: Mapping[str, Any], args: Mapping[str, Any]) -> dict[str, Any]:
    check_keys(shim, "prepareArguments", {"raise", "raiseWhenKey", "rename", "set"})
    if "raise" in shim and ("raiseWhenKey" not in shim or shim["raiseWhenKey"] in args):
        raise ScriptedError(shim["raise"])
    made = {shim.get("rename", {}).get(key, key): value for key, value in args.items()}
    for key, value in shim.get("set", {}).items():
        made.setdefault(key, value)
    return made


def stop_word(message: AssistantMessage) -> str:
    return "stop" if message.stop_reason == "done" else message.stop_reason


def message_text(message: AgentMessage) -> str:
    return "".join(block.text for block in getattr(message, "content", ()) if isinstance(block, TextContent))


class AgentRunner(Runner):
    """Plays a scenario of the `Agent`."""

    entry_keys = Runner.entry_keys | {
        "model", "thinkingLevel", "systemPrompt", "tools", "steeringMode", "followUpMode", "toolExecution",
    }  # fmt: skip

    hook_names: Mapping[str, str] = {
        "beforeToolCall": "before_tool_call",
        "afterToolCall": "after_tool_call",
        "transformContext": "transform_context",
        "convertToLlm": "convert_to_llm",
        "getApiKey": "get_api_key",
        "prepareNextTurn": "prepare_next_turn",
        "prepareNextTurnWithContext": "prepare_next_turn_with_context",
    }

    def set_up(self) -> None:
        given = dict(self.scenario["agent"])
        check_keys(
            given,
            "agent",
            {
                "systemPrompt", "thinkingLevel", "toolExecution", "steeringMode", "followUpMode", "sessionId", "thinkingBudgets",
                "transport", "maxRetryDelayMs", "initialMessages", "model", "tools",
            },
        )  # fmt: skip
        options: dict[str, Any] = {codec_name(key): given[key] for key in given if key not in ("initialMessages", "model", "tools")}
        model = given.get("model", "test-model")
        hooks = self.scenario.get("hooks", {})
        check_keys(hooks, "hooks", self.hook_names)
        self.agent = Agent(
            model=None if model is None else read_model(model, self.models),
            tools=[self.tools[name] for name in given.get("tools", list(self.tools))],
            messages=read_messages(given.get("initialMessages", ())),
            stream_fn=self.model,
            retry=None,
            **{self.hook_names[name]: self.make_hook(name, rules) for name, rules in hooks.items()},
            **options,
        )
        self._subscriptions: dict[str, Callable[[], None]] = {}
        self.agent.subscribe(self._on_main)
        for listener in self.scenario.get("listeners", ()):
            check_keys(listener, "a listener", {"id", "manual"})
            if not listener.get("manual"):
                self.op_subscribe({"listener": listener["id"]})

    def _on_main(self, event: AgentEvent, signal: AbortSignal) -> None:
        self.on_main(event, lambda kind: {"event": kind, **self.write_state(signal)})

    def write_state(self, signal: AbortSignal | None) -> dict[str, Any]:
        state = self.agent.state
        streaming = None if state.streaming_message is None else self.writer.write(state.streaming_message)
        return {
            "isStreaming": state.is_streaming,
            "streamingMessage": streaming and {key: streaming[key] for key in ("role", "content") if key in streaming},
            "pendingToolCalls": sorted(state.pending_tool_calls),
            "messageRoles": roles(state.messages),
            "errorMessage": state.error_message,
            "signalAborted": signal is not None and signal.aborted,
        }

    def observe(self) -> dict[str, Any]:
        state = self.agent.state
        return {
            **super().observe(),
            "state": {
                "messages": self.writer.write(state.messages),
                "systemPrompt": state.system_prompt,
                "model": self.writer.model(state.model),
                "thinkingLevel": state.thinking_level,
                "tools": [tool.name for tool in state.tools],
                "isStreaming": state.is_streaming,
                "streamingMessage": state.streaming_message,
                "pendingToolCalls": sorted(state.pending_tool_calls),
                "errorMessage": state.error_message,
            },
            "queues": {
                "hasQueuedMessages": self.agent.has_queued_messages(),
                "steering": [message_text(message) for message in self.agent.steering_queue.messages()],
                "followUp": [message_text(message) for message in self.agent.follow_up_queue.messages()],
            },
        }

    def hook_prepareNextTurn(self, rules: Any) -> Callable[..., Any]:
        def hook(signal: AbortSignal) -> AgentLoopTurnUpdate | None:
            self.note_hook("prepareNextTurn", signalAborted=signal.aborted)
            return self.make_turn_update(self.apply_rule("prepareNextTurn", rules).get("return"), None)

        return hook

    def hook_prepareNextTurnWithContext(self, rules: Any) -> Callable[..., Any]:
        def hook(context: PrepareNextTurnContext, signal: AbortSignal) -> AgentLoopTurnUpdate | None:
            self.note_hook("prepareNextTurnWithContext", **write_turn(self.writer, context), signalAborted=signal.aborted)
            return self.make_turn_update(self.apply_rule("prepareNextTurnWithContext", rules).get("return"), context.context)

        return hook

    # --- ops -------------------------------------------------------------------------------------------------------

    def op_prompt(self, entry: Mapping[str, Any]) -> None:
        if "text" in entry:
            self._finish(self.agent.prompt(entry["text"], [decode_tagged(image) for image in entry.get("images", ())]))
        elif "message" in entry:
            self._finish(self.agent.prompt(read_message(entry["message"])))
        else:
            self._finish(self.agent.prompt(read_messages(entry["messages"])))

    def op_continue(self, entry: Mapping[str, Any]) -> None:
        self._finish(self.agent.continue_())

    def _finish(self, run: Any) -> None:
        """Wait for a run. A failed or aborted one is no error of the call: the transcript says so."""
        error = run.exception(timeout=LIMIT)
        if error is not None and not isinstance(error, (AgentRunError, AgentAbortedError)):
            raise error

    def op_waitForIdle(self, entry: Mapping[str, Any]) -> None:
        assert self.agent.wait_for_idle(LIMIT), f"not idle after {LIMIT:g} s"

    def op_abort(self, entry: Mapping[str, Any]) -> None:
        self.agent.abort()

    def op_reset(self, entry: Mapping[str, Any]) -> None:
        self.agent.reset()

    def op_steer(self, entry: Mapping[str, Any]) -> None:
        self.agent.steer(*self._queued(entry))

    def op_followUp(self, entry: Mapping[str, Any]) -> None:
        self.agent.follow_up(*self._queued(entry))

    def _queued(self, entry: Mapping[str, Any]) -> tuple[Any, ...]:
        if "message" in entry:
            return (read_message(entry["message"]),)
        return entry["text"], [decode_tagged(image) for image in entry.get("images", ())]

    def op_clearSteeringQueue(self, entry: Mapping[str, Any]) -> None:
        self.agent.clear_steering_queue()

    def op_clearFollowUpQueue(self, entry: Mapping[str, Any]) -> None:
        self.agent.clear_follow_up_queue()

    def op_clearAllQueues(self, entry: Mapping[str, Any]) -> None:
        self.agent.clear_all_queues()

    def op_setState(self, entry: Mapping[str, Any]) -> None:
        state = self.agent.state
        if "model" in entry:
            state.model = read_model(entry["model"], self.models)
        if "thinkingLevel" in entry:
            state.thinking_level = entry["thinkingLevel"]
        if "systemPrompt" in entry:
            state.system_prompt = entry["systemPrompt"]
        if "tools" in entry:
            state.tools = [self.tools[name] for name in entry["tools"]]
        if "messages" in entry:
            state.messages = read_messages(entry["messages"])

    def op_setOptions(self, entry: Mapping[str, Any]) -> None:
        for key in ("steeringMode", "followUpMode", "toolExecution"):
            if key in entry:
                setattr(self.agent, codec_name(key), entry[key])

    def op_subscribe(self, entry: Mapping[str, Any]) -> None:
        name = entry["listener"]
        self._subscriptions[name] = self.agent.subscribe(lambda event: self.on_other(name, event))

    def op_unsubscribe(self, entry: Mapping[str, Any]) -> None:
        self._subscriptions[entry["listener"]]()

    def op_inspect(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        signal = self.agent.signal
        return {
            **self.write_state(signal),
            "hasQueuedMessages": self.agent.has_queued_messages(),
            "hasActiveSignal": signal is not None,
            "steeringMode": self.agent.steering_mode,
            "followUpMode": self.agent.follow_up_mode,
        }


class LoopRunner(Runner):
    """Plays a scenario of the loop functions."""

    def set_up(self) -> None:
        given = self.scenario["loop"]
        check_keys(
            given,
            "loop",
            {"systemPrompt", "messages", "noTools", "model", "toolExecution", "apiKey", "sessionId", "reasoning"},
        )
        hooks = self.scenario.get("hooks", {})
        names = {
            "beforeToolCall": "before_tool_call",
            "afterToolCall": "after_tool_call",
            "transformContext": "transform_context",
            "convertToLlm": "convert_to_llm",
            "getApiKey": "get_api_key",
            "prepareNextTurn": "prepare_next_turn",
            "shouldStopAfterTurn": "should_stop_after_turn",
            "getSteeringMessages": "get_steering_messages",
            "getFollowUpMessages": "get_follow_up_messages",
        }
        check_keys(hooks, "hooks", names)
        made = {names[name]: self.make_hook(name, rules) for name, rules in hooks.items()}
        made.setdefault("convert_to_llm", keep_spoken)
        self.context = AgentContext(
            given.get("systemPrompt", ""),
            read_messages(given.get("messages", ())),
            None if given.get("noTools") else list(self.tools.values()),
        )
        self.config = AgentLoopConfig(
            model=read_model(given.get("model", "test-model"), self.models),
            tool_execution=ToolExecutionMode(given.get("toolExecution", "parallel")),
            api_key=given.get("apiKey"),
            session_id=given.get("sessionId"),
            thinking_level=given.get("reasoning"),
            **made,
        )
        self.controller = AbortController()

    def observe(self) -> dict[str, Any]:
        return {**super().observe(), "state": {"contextMessages": self.writer.write(self.context.messages)}}

    def hook_prepareNextTurn(self, rules: Any) -> Callable[..., Any]:
        def hook(context: PrepareNextTurnContext) -> AgentLoopTurnUpdate | None:
            self.note_hook("prepareNextTurn", **write_turn(self.writer, context))
            return self.make_turn_update(self.apply_rule("prepareNextTurn", rules).get("return"), context.context)

        return hook

    def hook_shouldStopAfterTurn(self, rules: Any) -> Callable[..., Any]:
        def hook(context: PrepareNextTurnContext) -> bool:
            self.note_hook("shouldStopAfterTurn", **write_turn(self.writer, context))
            return bool(self.apply_rule("shouldStopAfterTurn", rules).get("return"))

        return hook

    def hook_getSteeringMessages(self, answers: Any) -> Callable[..., Any]:
        return self._poll("getSteeringMessages", answers)

    def hook_getFollowUpMessages(self, answers: Any) -> Callable[..., Any]:
        return self._poll("getFollowUpMessages", answers)

    def _poll(self, name: str, answers: list[list[Mapping[str, Any]]]) -> Callable[[], list[AgentMessage]]:
        waiting = iter(answers)

        def hook() -> list[AgentMessage]:
            messages = read_messages(next(waiting, ()))
            self.note_hook(name, returned=len(messages))
            return messages

        return hook

    def op_run(self, entry: Mapping[str, Any]) -> Any:
        prompts = read_messages(entry["messages"])
        return self.writer.write(
            run_agent_loop(prompts, self.context, self.config, self.on_main, self.controller.signal, self.model)
        )

    def op_runContinue(self, entry: Mapping[str, Any]) -> Any:
        return self.writer.write(
            run_agent_loop_continue(self.context, self.config, self.on_main, self.controller.signal, self.model)
        )

    def op_stream(self, entry: Mapping[str, Any]) -> Any:
        prompts = read_messages(entry["messages"])
        return self._read(agent_loop(prompts, self.context, self.config, self.controller.signal, self.model))

    def op_streamContinue(self, entry: Mapping[str, Any]) -> Any:
        return self._read(agent_loop_continue(self.context, self.config, self.controller.signal, self.model))

    def _read(self, stream: Any) -> Any:
        for event in stream:
            self.on_main(event)
        return self.writer.write(stream.result(LIMIT))

    def op_abort(self, entry: Mapping[str, Any]) -> None:
        self.controller.abort()


def write_turn(writer: Writer, turn: PrepareNextTurnContext) -> dict[str, Any]:
    return {
        "stopReason": stop_word(turn.message),
        "toolResults": [result.tool_call_id for result in turn.tool_results],
        "context": writer.context(turn.context),
        "newMessageRoles": roles(turn.new_messages),
    }


def keep_spoken(messages: list[AgentMessage]) -> list[Any]:
    return [message for message in messages if message.role in ("user", "assistant", "toolResult")]


def codec_name(key: str) -> str:
    """Return a camelCase key in snake_case."""
    return re.sub(r"[A-Z]", lambda match: "_" + match.group().lower(), key)


RUNNERS: dict[str, type[Runner]] = {"agent": AgentRunner, "loop": LoopRunner}


def play(scenario: Mapping[str, Any]) -> dict[str, Any]:
    """Play a scenario and return what was observed; no thread of it may be left."""
    if scenario["target"] not in RUNNERS:
        raise FormatError(f"unknown target {scenario['target']!r}")
    before = set(threading.enumerate())
    seen = RUNNERS[scenario["target"]](scenario).play()
    deadline = time.monotonic() + LIMIT
    for thread in set(threading.enumerate()) - before:
        thread.join(max(0.0, deadline - time.monotonic()))
        assert not thread.is_alive(), f"{thread.name} is still going after the scenario"
    return seen
