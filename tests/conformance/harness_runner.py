"""Plays recorded scenarios of the `AgentHarness`; see `scenario_runner` for what all targets share."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from agentcore import codec
from agentcore.abort import AbortSignal
from agentcore.codec import decode_tagged
from agentcore.custom_messages import AgentMessage
from agentcore.errors import AgentAbortedError, AgentRunError, HarnessError
from agentcore.events import AssistantMessageEvent, DoneEvent, ErrorEvent, StartEvent
from agentcore.harness import AgentHarness, Resources, Skill, SystemPromptContext
from agentcore.harness.compaction import CompactionResult
from agentcore.harness.events import QUESTIONS
from agentcore.harness.summaries import (
    BRANCH_INSTRUCTIONS,
    INITIAL_INSTRUCTIONS,
    SUMMARY_SYSTEM_PROMPT,
    TURN_PREFIX_INSTRUCTIONS,
    UPDATE_INSTRUCTIONS,
)
from agentcore.harness.templates import PromptTemplate
from agentcore.llm.request import Context, StreamOptions
from agentcore.loop.config import RetryPolicy
from agentcore.messages import AssistantMessage, TextContent, Usage
from agentcore.models import Model
from agentcore.session import MemorySessionStorage, Session
from tests.conformance.scenario_runner import (
    LIMIT,
    RUNNERS,
    FormatError,
    Runner,
    ScriptedError,
    ScriptedModel,
    check_keys,
    codec_name,
    complete_usage,
    message_text,
    read_message,
    read_messages,
    read_model,
    roles,
)

_FIXED = {
    "initial": INITIAL_INSTRUCTIONS,
    "update": UPDATE_INSTRUCTIONS,
    "turnPrefix": TURN_PREFIX_INSTRUCTIONS,
    "branch": BRANCH_INSTRUCTIONS,
}

OPTION_NAMES = {
    "transport": "transport",
    "timeoutMs": "timeout",
    "maxRetries": "max_retries",
    "maxRetryDelayMs": "max_retry_delay_ms",
    "cacheRetention": "cache_retention",
    "headers": "headers",
    "metadata": "metadata",
}


class SteadyRetry(RetryPolicy):
    """Pauses without chance, so that they can be compared."""

    def pause(self, attempt: int) -> float:
        return self.base_delay * 2.0 ** (attempt - 1)


# --- options ---------------------------------------------------------------------------------------------------------


def read_options(raw: Mapping[str, Any]) -> StreamOptions:
    """Make options of those that are given. What is not given is None, or 0 for the retries, and is not written down again."""
    check_keys(raw, "stream options", OPTION_NAMES)
    made = StreamOptions(timeout=None, max_retries=0)
    for key, value in raw.items():
        setattr(made, OPTION_NAMES[key], value / 1000 if key == "timeoutMs" else copy.deepcopy(value))
    return made


def write_options(options: StreamOptions | None) -> dict[str, Any]:
    """Write down the options that were given."""
    if options is None:
        return {}
    made: dict[str, Any] = {}
    for key, name in OPTION_NAMES.items():
        value = getattr(options, name)
        if value is not None and not (key == "maxRetries" and value == 0):
            made[key] = value * 1000 if key == "timeoutMs" else copy.deepcopy(value)
    return made


def read_option_changes(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Make changes of options: what is to be deleted is None, or the value that stands for "not given"."""

    def read(key: str, value: Any) -> Any:
        if value == {"$delete": True}:
            return 0 if key == "maxRetries" else None
        if isinstance(value, Mapping):
            return {inner: read(inner, one) for inner, one in value.items()}
        return value / 1000 if key == "timeoutMs" else value

    check_keys(raw, "changes of stream options", OPTION_NAMES)
    return {OPTION_NAMES[key]: read(key, value) for key, value in raw.items()}


# --- the model -------------------------------------------------------------------------------------------------------


class HarnessModel(ScriptedModel):
    """The stream function of a harness: turns, and completions for the summaries."""

    def __init__(self, runner: HarnessRunner, completions: Sequence[Mapping[str, Any]], *args: Any) -> None:
        super().__init__(*args, is_agent=False)
        self._runner = runner
        self._completions = list(completions)
        self._asked = 0
        self._all: list[dict[str, Any]] = []
        for completion in self._completions:
            check_keys(completion, "a completion", {"text", "content", "usage", "stopReason", "errorMessage", "raise", "gate"})

    @property
    def written(self) -> list[dict[str, Any]]:
        """All requests, of both kinds."""
        return self._all

    def __call__(self, model: Model, context: Context, options: StreamOptions) -> Any:
        if context.system_prompt == SUMMARY_SYSTEM_PROMPT:
            return self._complete(model, context, options)
        try:
            return super().__call__(model, context, options)
        finally:
            self.requests[-1]["kind"] = "stream"
            self._all.append(self.requests[-1])

    def write_options(self, options: StreamOptions) -> dict[str, Any]:
        written = {"reasoning": options.reasoning, "sessionId": options.session_id, **write_options(options)}
        return {key: value for key, value in written.items() if value is not None}

    def _complete(self, model: Model, context: Context, options: StreamOptions) -> Iterator[AssistantMessageEvent]:
        session_id = options.session_id
        own = session_id == self._runner.session.id
        written = {
            **self.write_options(options),
            "sessionId": session_id if own else "$uuid",
            "maxTokens": options.max_tokens,
        }
        request = {
            "kind": "complete",
            "model": self._writer.model(model),
            "systemPrompt": "$summarizationSystemPrompt",
            "messageCount": len(context.messages),
            "prompt": take_apart(message_text(context.messages[0])),
            "options": written,
        }
        self._all.append(request)
        self._asked += 1
        turn = self._completions[self._asked - 1] if self._asked <= len(self._completions) else None
        return self._answer(turn, model, options)

    def _answer(self, turn: Mapping[str, Any] | None, model: Model, options: StreamOptions) -> Iterator[AssistantMessageEvent]:
        if turn is None:
            turn = {"content": [], "stopReason": "error", "errorMessage": "No more scripted completions"}
        if "gate" in turn:
            self._scene.pass_gate(turn["gate"], False, options.signal)
        if "raise" in turn:
            raise ScriptedError(turn["raise"])
        reason = turn.get("stopReason", "stop")
        content = [decode_tagged(block) for block in turn["content"]] if "content" in turn else [TextContent(turn.get("text", ""))]
        message = AssistantMessage(content, model.api, model.provider, model.id)
        message.usage = codec.decode(Usage, complete_usage(turn.get("usage")))
        message.stop_reason = "done" if reason == "stop" else reason
        message.error_message = turn.get("errorMessage")
        yield StartEvent(message)
        yield ErrorEvent(message) if reason in ("error", "aborted") else DoneEvent(message)


def take_apart(prompt: str) -> dict[str, Any]:
    """Return the parts of the text of a summary request."""
    match = re.fullmatch(
        r"<conversation>\n(.*)\n</conversation>\n\n(?:<previous-summary>\n(.*)\n</previous-summary>\n\n)?(.*)", prompt, re.DOTALL
    )
    assert match is not None, f"no summary request: {prompt[:200]}"
    conversation, previous, instructions = match.groups()
    made: dict[str, Any] = {"conversation": conversation}
    if previous is not None:
        made["previousSummary"] = previous
    for kind, text in _FIXED.items():
        if instructions.startswith(text):
            rest = instructions[len(text) :]
            assert rest == "" or rest.startswith("\n\nAdditional focus: "), rest
            made["instructions"] = kind
            if rest:
                made["additionalFocus"] = rest.removeprefix("\n\nAdditional focus: ")
            return made
    return {**made, "instructions": "custom", "text": instructions}


# --- the runner ------------------------------------------------------------------------------------------------------


class HarnessRunner(Runner):
    """Plays a scenario of the `AgentHarness`."""

    entry_keys = Runner.entry_keys | {
        "name", "additionalInstructions", "args", "customInstructions", "target", "options", "model", "level", "tools",
        "activeToolNames", "mode", "resources", "streamOptions",
    }  # fmt: skip

    def __init__(self, scenario: Mapping[str, Any]) -> None:
        super().__init__(scenario)
        self.model: HarnessModel = HarnessModel(
            self, scenario.get("completions", ()), scenario.get("turns", ()), self.scene, self.writer
        )
        self._tool_list = {raw["name"]: raw for raw in scenario.get("tools", ())}
        self._tool_context_calls = 0
        self.construct_error: dict[str, Any] | None = None

    def play(self) -> dict[str, Any]:
        self.session = Session(MemorySessionStorage(session_id="session-1"))
        for step in self.scenario["harness"].get("session", ()):
            self._fill(step)
        try:
            self.set_up()
        except HarnessError as error:
            seen: dict[str, Any] = {"events": [], "requests": [], "hookCalls": [], "toolRuns": {}, "ops": []}
            return {**seen, "constructError": {"error": self.writer.error(error), "class": type(error).__name__}}
        made: dict[str, Any] = self.put_tokens(self._play_script())
        return made

    def _play_script(self) -> dict[str, Any]:
        self.set_up = lambda: None  # type: ignore[method-assign]
        return super().play()

    def _fill(self, step: Mapping[str, Any]) -> None:
        session, what = self.session, step.get("append", "moveTo")
        if what == "message":
            session.append_message(self._stored(step["message"]))
        elif what == "modelChange":
            session.append_model_change(step["provider"], step["modelId"])
        elif what == "thinkingLevelChange":
            session.append_thinking_level_change(step["thinkingLevel"])
        elif what == "activeToolsChange":
            session.append_active_tools_change(step["activeToolNames"])
        elif what == "custom":
            session.append_custom_entry(step["customType"], step.get("data"))
        elif what == "customMessage":
            session.append_custom_message_entry(step["customType"], step["content"], step.get("display", True), step.get("details"))
        elif what == "label":
            session.append_label(self.entry_id(step["target"]), step.get("label"))
        elif what == "sessionName":
            session.append_session_name(step["name"])
        elif what == "moveTo":
            session.move_to(step["target"] and self.entry_id(step["target"]), step.get("summary"))
        elif what == "compaction":
            session.append_compaction(
                step["summary"], self.entry_id(step["firstKept"]), step["tokensBefore"], details=step.get("details"),
                from_hook=step.get("fromHook"),
                retained_tail=[self._stored(one) for one in step["retainedTail"]] if "retainedTail" in step else None,
            )  # fmt: skip
        else:
            raise FormatError(f"unknown step {what!r}")

    @staticmethod
    def _stored(raw: Mapping[str, Any]) -> Mapping[str, Any]:
        """Complete a message as the reference's recorder did, and keep its content as it is written."""
        made = dict(raw)
        if made.get("role") == "assistant":
            made = {"api": "test-api", "provider": "test-provider", "model": "test-model", "stopReason": "stop", **made}
            made["usage"] = complete_usage(made.get("usage"))
        made.setdefault("timestamp", 1)
        return made

    def entry_id(self, token: str) -> str:
        """Return the id of the nth entry for `eN`; any other id as it is."""
        if not re.fullmatch(r"e\d+", token):
            return token
        return self.session.get_entries()[int(token[1:]) - 1].id

    def put_tokens(self, value: Any) -> Any:
        """Replace entry ids by their tokens, anywhere."""
        tokens = {entry.id: f"e{number}" for number, entry in enumerate(self.session.get_entries(), 1)}
        pattern = re.compile("|".join(map(re.escape, tokens)) or r"(?!)")

        def put(member: Any) -> Any:
            if isinstance(member, str):
                return pattern.sub(lambda match: tokens[match.group()], member)
            if isinstance(member, list):
                return [put(one) for one in member]
            return {key: put(one) for key, one in member.items()} if isinstance(member, dict) else member

        return put(value)

    def set_up(self) -> None:
        given = dict(self.scenario["harness"])
        check_keys(
            given,
            "harness",
            {
                "session", "model", "thinkingLevel", "activeToolNames", "steeringMode", "followUpMode", "streamOptions", "retry",
                "resources", "tools", "systemPrompt", "toolContext",
            },
        )  # fmt: skip
        prompt = given.get("systemPrompt")
        if isinstance(prompt, Mapping):
            check_keys(prompt, "systemPrompt", {"callback", "raise"})
            prompt = self._prompt_callback(prompt)
        context = given.get("toolContext", {})
        check_keys(context, "toolContext", {"value", "callback"})
        retry = given.get("retry", {})
        check_keys(retry, "retry", {"enabled", "maxRetries", "baseDelayMs"})
        self.harness = AgentHarness(
            session=self.session,
            model=read_model(given.get("model", "test-model"), self.models),
            system_prompt=prompt,
            thinking_level=given.get("thinkingLevel", "off"),
            tools=[self.make_tool(self._tool_list[name]) for name in given.get("tools", list(self._tool_list))],
            active_tool_names=given.get("activeToolNames"),
            steering_mode=given.get("steeringMode", "one-at-a-time"),
            follow_up_mode=given.get("followUpMode", "one-at-a-time"),
            stream_options=read_options(given.get("streamOptions", {})),
            retry=SteadyRetry(retry["maxRetries"], retry["baseDelayMs"] / 1000) if retry.get("enabled") else None,
            resources=read_resources(given.get("resources", {})),
            tool_context=self._tool_context if context.get("callback") else context.get("value"),
            stream_fn=self.model,
        )
        self._subscriptions: dict[str, Callable[[], None]] = {}
        self.harness.subscribe(self.on_main)
        for listener in self.scenario.get("listeners", ()):
            check_keys(listener, "a listener", {"id", "manual"})
            if not listener.get("manual"):
                self.op_subscribe({"listener": listener["id"]})
        self._handler_calls: dict[int, int] = {}
        for index, hook in enumerate(self.scenario.get("hooks", ())):
            check_keys(hook, "a handler", {"on", "nth", "toolCallId", "actions", "raise", "return"})
            self.harness.on(hook["on"], self._make_handler(index, hook))

    def _prompt_callback(self, spec: Mapping[str, Any]) -> Callable[[SystemPromptContext], str]:
        def make(context: SystemPromptContext) -> str:
            skills = [skill.name for skill in context.resources.skills]
            templates = [template.name for template in context.resources.prompt_templates]
            tools = [tool.name for tool in context.active_tools]
            self.note_hook(
                "systemPrompt", model=context.model.id, thinkingLevel=context.thinking_level, activeTools=tools, skills=skills,
                promptTemplates=templates,
            )  # fmt: skip
            if "raise" in spec:
                raise ScriptedError(spec["raise"])
            return (
                f"model={context.model.id} thinking={context.thinking_level} tools={','.join(tools)} skills={','.join(skills)} "
                f"templates={','.join(templates)}"
            )

        return make

    def _tool_context(self) -> dict[str, Any]:
        self._tool_context_calls += 1
        self.note_hook("toolContext", call=self._tool_context_calls)
        return {"call": self._tool_context_calls}

    def note_tool_context(self, run: dict[str, Any], context: Any) -> None:
        if context is not None:
            run["context"] = copy.deepcopy(context)

    # --- handlers --------------------------------------------------------------------------------------------------

    def _make_handler(self, index: int, hook: Mapping[str, Any]) -> Callable[..., Any]:
        def handler(event: Any, signal: AbortSignal | None) -> Any:
            self._handler_calls[index] = number = self._handler_calls.get(index, 0) + 1
            self.note_hook(hook["on"], handler=index, event=self._write_question(event))
            noted = self.hook_calls[-1]
            if hook.get("nth", number) != number or hook.get("toolCallId", getattr(event, "tool_call_id", None)) != getattr(
                event, "tool_call_id", None
            ):
                return None
            if "actions" in hook:
                noted["actions"] = [self._run_action(action) for action in hook["actions"]]
            if "raise" in hook:
                raise ScriptedError(hook["raise"])
            return self._read_answer(hook["on"], hook["return"], event) if "return" in hook else None

        return handler

    def _run_action(self, action: Mapping[str, Any]) -> dict[str, Any]:
        outcome: dict[str, Any] = {"op": action["op"]}
        try:
            value = self.run_op(action)
        except (AssertionError, FormatError):
            raise
        except Exception as error:
            return {**outcome, "outcome": "error", "error": self.writer.error(error), "class": type(error).__name__}
        return {**outcome, "outcome": "ok"} if value is None else {**outcome, "outcome": "ok", "value": value}

    def _write_question(self, event: Any) -> dict[str, Any]:
        """Write an event of a handler down, shortened as the recordings are; fields of ours that say nothing are left out."""
        if event.type not in QUESTIONS:
            written = self.write_event(event)
            written.pop("type")
            return written
        made: dict[str, Any] = {}
        for name, value in vars(event).items():
            if value is None or name in ("type", "signal"):
                continue
            key = codec.camel_case(name)
            if name == "model":
                made[key] = self.writer.model(value)
            elif name == "resources":
                made[key] = write_resources(value, lambda one: one.name)
            elif name == "stream_options":
                made[key] = write_options(value)
            elif name == "preparation":
                made[key] = self._write_preparation(value)
            elif name == "branch_entries":
                made[key] = [entry.id for entry in value]
            elif name == "messages" and event.type == "context":
                made["roles"] = roles(value)
            elif name in ("messages", "images") and not value:
                continue
            else:
                made[key] = self.writer.write(value)
        return made

    def _write_preparation(self, preparation: Any) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for name, value in vars(preparation).items():
            if name in ("messages_to_summarize", "turn_prefix_messages", "retained_tail"):
                value = roles(value)
            elif name == "entries_to_summarize":
                value = [entry.id for entry in value]
            elif name == "file_ops":
                value = {"read": sorted(value.read), "written": sorted(value.written), "edited": sorted(value.edited)}
            made[codec.camel_case(name)] = self.writer.write(value)
        return made

    def _read_answer(self, kind: str, raw: Any, event: Any) -> Any:
        if kind == "context":
            if "messages" in raw:
                return {"messages": read_messages(raw["messages"])}
            kept = event.messages[-raw["keepLast"] :] if "keepLast" in raw else event.messages
            return {"messages": [*kept, *read_messages(raw.get("append", ()))]}
        if kind == "before_agent_start":
            made = {codec_name(key): value for key, value in raw.items()}
            return {**made, "messages": read_messages(raw["messages"])} if "messages" in raw else made
        if kind == "before_provider_request":
            return {"stream_options": read_option_changes(raw["streamOptions"])}
        if kind == "session_before_compact" and "compaction" in raw:
            given = raw["compaction"]
            compaction = CompactionResult(
                given["summary"],
                self.entry_id(given["firstKeptEntryId"]),
                given["tokensBefore"],
                retained_tail=read_messages(given["retainedTail"]),
                details=given["details"],
            )
            return {"compaction": compaction}
        if kind == "tool_result":
            made = {codec_name(key): value for key, value in raw.items()}
            if "content" in made:
                made["content"] = [decode_tagged(block) for block in made["content"]]
            if "usage" in made:
                made["usage"] = codec.decode(Usage, made["usage"])
            return made
        return {codec_name(key): value for key, value in raw.items()}

    # --- listeners -------------------------------------------------------------------------------------------------

    def on_main(self, event: Any, signal: Any = None) -> None:
        self._record(event)

    def _record(self, event: Any) -> None:
        """What `main` does; as in `Runner`, with the events of the harness written down as the recordings have them."""
        if event.type in ("agent_start", "agent_end") or hasattr(event, "message") or event.type.startswith(("turn", "tool_exec")):
            super().on_main(event)
            return
        written = self.write_event(event)
        self.events.append(written)
        if "listeners" in self.scenario:
            self.listener_log.append(f"main:{written['type']}")
        self.trigger("main", written)
        self.scene.finish(written)

    def write_event(self, event: Any) -> dict[str, Any]:
        raw: dict[str, Any] = self.writer.event(event)
        for key in ("model", "previous_model"):
            if hasattr(event, key):
                raw[codec.camel_case(key)] = self.writer.model(getattr(event, key))
        for key in ("resources", "previous_resources"):
            if hasattr(event, key):
                raw[codec.camel_case(key)] = write_resources(getattr(event, key), self._write_resource)
        if event.type == "retry_scheduled":
            raw["delayMs"] = raw.pop("delay") * 1000
        return raw

    def _write_resource(self, one: Any) -> dict[str, Any]:
        return {key: value for key, value in self.writer.write(one).items() if value not in (False, "")}

    # --- what was observed -----------------------------------------------------------------------------------------

    def observe(self) -> dict[str, Any]:
        queued = self.harness.queued_messages()
        context = self.session.build_context()
        entries = [self.writer.write(entry) for entry in self.session.get_entries()]
        return {
            **super().observe(),
            "requests": self.model.written,
            "state": self._settings(),
            "queues": {
                "steer": [message_text(message) for message in queued.steer],
                "followUp": [message_text(message) for message in queued.follow_up],
                "nextTurn": [message_text(message) for message in queued.next_turn],
            },
            "session": {
                "leaf": self.session.get_leaf_id(),
                "entries": entries,
                "context": {
                    "roles": roles(context.messages),
                    "thinkingLevel": context.thinking_level,
                    "model": self.writer.write(context.model),
                    "activeToolNames": context.active_tool_names,
                },
            },
        }

    def _settings(self) -> dict[str, Any]:
        harness = self.harness
        return {
            "model": self.writer.model(harness.model),
            "thinkingLevel": harness.thinking_level,
            "tools": [tool.name for tool in harness.tools],
            "activeTools": [tool.name for tool in harness.active_tools],
            "steeringMode": harness.steering_mode,
            "followUpMode": harness.follow_up_mode,
            "streamOptions": write_options(harness.stream_options),
            "resources": {
                "skills": [skill.name for skill in harness.resources.skills],
                "promptTemplates": [template.name for template in harness.resources.prompt_templates],
            },
        }

    # --- ops -------------------------------------------------------------------------------------------------------

    def _finish(self, run: Any) -> Any:
        """Wait for a run and return its last answer. A failed or aborted one is no error of the call."""
        error = run.exception(timeout=LIMIT)
        if error is not None and not isinstance(error, (AgentRunError, AgentAbortedError)):
            raise error
        return self.writer.write(run.message)

    def _images(self, entry: Mapping[str, Any]) -> list[Any]:
        return [decode_tagged(image) for image in entry.get("images", ())]

    def op_prompt(self, entry: Mapping[str, Any]) -> Any:
        return self._finish(self.harness.prompt(entry["text"], self._images(entry)))

    def op_skill(self, entry: Mapping[str, Any]) -> Any:
        return self._finish(self.harness.skill(entry["name"], entry.get("additionalInstructions")))

    def op_promptFromTemplate(self, entry: Mapping[str, Any]) -> Any:
        return self._finish(self.harness.prompt_from_template(entry["name"], entry.get("args", ())))

    def op_steer(self, entry: Mapping[str, Any]) -> None:
        self.harness.steer(entry["text"], self._images(entry))

    def op_followUp(self, entry: Mapping[str, Any]) -> None:
        self.harness.follow_up(entry["text"], self._images(entry))

    def op_nextTurn(self, entry: Mapping[str, Any]) -> None:
        self.harness.next_turn(entry["text"], self._images(entry))

    def op_appendMessage(self, entry: Mapping[str, Any]) -> None:
        self.harness.append_message(read_message(entry["message"]))

    def op_compact(self, entry: Mapping[str, Any]) -> Any:
        result = self.writer.write(self.harness.compact(entry.get("customInstructions")))
        return {key: value for key, value in result.items() if value is not None}

    def op_navigateTree(self, entry: Mapping[str, Any]) -> Any:
        given = entry.get("options", {})
        check_keys(given, "options", {"summarize", "customInstructions", "replaceInstructions", "label"})
        options = {codec_name(key): value for key, value in given.items()}
        return self.writer.write(self.harness.navigate_tree(self.entry_id(entry["target"]), **options))

    def op_setModel(self, entry: Mapping[str, Any]) -> None:
        self.harness.set_model(read_model(entry["model"], self.models))

    def op_setThinkingLevel(self, entry: Mapping[str, Any]) -> None:
        self.harness.set_thinking_level(entry["level"])

    def op_setTools(self, entry: Mapping[str, Any]) -> None:
        tools = [self.make_tool(self._tool_list[name]) for name in entry["tools"]]
        self.harness.set_tools(tools, entry.get("activeToolNames"))

    def op_setActiveTools(self, entry: Mapping[str, Any]) -> None:
        self.harness.set_active_tools(entry["tools"])

    def op_setSteeringMode(self, entry: Mapping[str, Any]) -> None:
        self.harness.set_steering_mode(entry["mode"])

    def op_setFollowUpMode(self, entry: Mapping[str, Any]) -> None:
        self.harness.set_follow_up_mode(entry["mode"])

    def op_setResources(self, entry: Mapping[str, Any]) -> None:
        self.harness.set_resources(read_resources(entry["resources"]))

    def op_setStreamOptions(self, entry: Mapping[str, Any]) -> None:
        self.harness.set_stream_options(read_options(entry["streamOptions"]))

    def op_abort(self, entry: Mapping[str, Any]) -> Any:
        return self.writer.write(self.harness.abort())

    def op_waitForIdle(self, entry: Mapping[str, Any]) -> None:
        assert self.harness.wait_for_idle(LIMIT), f"not idle after {LIMIT:g} s"

    def op_subscribe(self, entry: Mapping[str, Any]) -> None:
        name = entry["listener"]
        self._subscriptions[name] = self.harness.subscribe(lambda event: self.on_other(name, event))

    def op_unsubscribe(self, entry: Mapping[str, Any]) -> None:
        self._subscriptions[entry["listener"]]()

    def op_inspect(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        return {**self._settings(), "entryTypes": [self._entry_type(raw) for raw in self.session.storage.index.raws]}

    def _entry_type(self, raw: Mapping[str, Any]) -> str:
        if raw["type"] != "message":
            return str(raw["type"])
        message: AgentMessage | Mapping[str, Any] = raw["message"]
        return f"message:{message['role'] if isinstance(message, Mapping) else message.role}"


def read_resources(raw: Mapping[str, Any]) -> Resources:
    check_keys(raw, "resources", {"skills", "promptTemplates"})
    skills = [Skill(**{codec_name(key): value for key, value in one.items()}) for one in raw.get("skills", ())]
    templates = [PromptTemplate(**one) for one in raw.get("promptTemplates", ())]
    return Resources(skills, templates)


def write_resources(resources: Resources, write: Callable[[Any], Any]) -> dict[str, Any]:
    """Write resources down; a list that was not given is absent in the reference, and empty here."""
    lists: dict[str, Sequence[Any]] = {"skills": resources.skills, "promptTemplates": resources.prompt_templates}
    return {key: [write(one) for one in members] for key, members in lists.items() if members}


RUNNERS["harness"] = HarnessRunner
