"""The harness as its user sees it: runs, queues, settings, the session, phases."""

from __future__ import annotations

import base64
import copy
import pickle
import re
import threading
from pathlib import Path
from typing import Any

import pytest

from agentcore import (
    EXECUTION_PARALLEL,
    AgentAbortedError,
    AgentHarness,
    AgentRunError,
    AgentTool,
    AgentToolResult,
    AssistantMessage,
    HarnessBusyError,
    HarnessError,
    JsonlSessionStorage,
    LocalEnvironment,
    MemorySessionStorage,
    Model,
    PromptTemplate,
    Run,
    Session,
    Skill,
    StreamOptions,
    TextContent,
    ToolResultMessage,
    UserMessage,
    estimate_context_tokens,
    tool,
)
from agentcore.harness import Resources, SystemPromptContext
from agentcore.session import SessionStorage
from agentcore.testing import calls, fails, says, scripted_stream, waits
from agentcore.testing.stream import ScriptedStream

MODEL = Model("m", provider="p", context_window=100_000)
OTHER = Model("other", provider="p")
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


@tool
def echo(text: str) -> str:
    """Give a text back."""
    return text


@tool
def where(text: str, context: Any) -> str:
    """Say what the tool context is."""
    return str(context)


def make(*turns: Any, **options: Any) -> tuple[AgentHarness, ScriptedStream]:
    stream = scripted_stream(*turns)
    options.setdefault("retry", None)
    options.setdefault("model", MODEL)
    return AgentHarness(stream_fn=stream, **options), stream


def kinds(harness: AgentHarness) -> list[str]:
    return [entry.type for entry in harness.session.get_entries()]


def test_prompt_returns_at_once_and_run_waits() -> None:
    """`prompt` gives a `Run`, `run` the last answer; both store what was said."""
    let_go = threading.Event()
    harness, stream = make([waits(let_go), says("one")], says("two"))
    run = harness.prompt("first")
    assert isinstance(run, Run)
    assert not run.done()
    assert harness.active_run is run
    assert harness.phase == "turn"
    let_go.set()
    assert [message.role for message in run.result(10)] == ["user", "assistant"]
    assert harness.active_run is None
    assert harness.phase == "idle"
    answer = harness.run("second", timeout=10)
    assert (answer.text, len(stream.requests[1])) == ("two", 3)
    assert kinds(harness) == ["message"] * 4


def test_a_busy_harness_refuses_and_says_what_to_do() -> None:
    """Every call that needs an idle harness raises while a run is going; nothing of it happens."""
    let_go = threading.Event()
    harness, _ = make([waits(let_go), says("one")])
    run = harness.prompt("first")
    way = r"the harness is busy, since a run is going: use steer\(\) or follow_up\(\) to add a message, or wait_for_idle\(\) first"
    for call in (
        lambda: harness.prompt("x"),
        lambda: harness.run("x"),
        lambda: harness.skill("x"),
        lambda: harness.prompt_from_template("x"),
        harness.continue_,
    ):
        with pytest.raises(HarnessBusyError, match=way) as caught:
            call()
        assert caught.value.code == "busy"
    with pytest.raises(HarnessBusyError, match=r"compact\(\) needs an idle harness, but a run is going: wait_for_idle\(\) first"):
        harness.compact()
    with pytest.raises(HarnessBusyError, match=r"navigate_tree\(\) needs an idle harness"):
        harness.navigate_tree("x")
    let_go.set()
    assert len(run.result(10)) == 2
    assert harness.wait_for_idle(0)


def test_queues_while_idle_and_while_running() -> None:
    """`steer` and `follow_up` are refused while idle; `next_turn` waits for the next prompt; `wait_for_idle` can give up."""
    asked, let_go = threading.Event(), threading.Event()
    harness, stream = make([waits(asked.set), waits(let_go), says("one")], says("two"), says("three"))
    for call, word in ((harness.steer, "steer"), (harness.follow_up, "follow up")):
        with pytest.raises(HarnessError, match=rf"cannot {word} while the harness is idle: use prompt\(\)") as caught:
            call("x")
        assert caught.value.code == "invalid_state"
    harness.next_turn("before")
    run = harness.prompt("go")
    assert asked.wait(5)
    harness.follow_up("later")
    harness.steer("now")
    assert not harness.wait_for_idle(0.01)
    let_go.set()
    run.result(10)
    texts = [[message.text for message in request if message.role == "user"] for request in stream.requests]
    assert texts == [["before", "go"], ["before", "go", "now"], ["before", "go", "now", "later"]]


def test_failures_and_aborts_are_answers_that_are_stored() -> None:
    """A failed request raises from `run`, and is an entry; so is an aborted one."""
    never = threading.Event()
    harness, _ = make(fails("no credit", kind="quota"), [waits(never), says("x")], says("fine"))
    with pytest.raises(AgentRunError, match="no credit") as caught:
        harness.run("one", timeout=10)
    assert caught.value.kind == "quota"
    with pytest.raises(TimeoutError):
        harness.run("two", timeout=0.05)
    assert harness.run("three", timeout=10).text == "fine"
    stored = harness.session.build_context().messages
    reasons = [message.stop_reason for message in stored if isinstance(message, AssistantMessage)]
    assert reasons == ["error", "aborted", "done"]


def test_a_run_lets_go_when_it_has_settled() -> None:
    """In `agent_end` the harness counts as idle for queues and writes; a prompt is refused until the run has settled."""
    harness, _ = make(says("one"), says("two"))
    errors: list[tuple[str, str]] = []
    started: list[Run] = []

    def listener(event: Any) -> None:
        if event.type == "agent_end" and not errors:
            assert harness.phase == "idle"
            harness.append_message(UserMessage("stored at once"))
            for call in (lambda: harness.prompt("inner"), lambda: harness.steer("x")):
                with pytest.raises(HarnessError) as caught:
                    call()
                errors.append((caught.value.code, str(caught.value)))

    harness.subscribe(listener)
    run = harness.prompt("outer")
    run.add_done_callback(lambda run: started.append(harness.prompt("next")))
    run.result(10)
    assert [code for code, _ in errors] == ["busy", "invalid_state"]
    assert errors[0][1] == "the harness is busy, since a run has not settled yet: wait_for_idle() first"
    run_thread_is_over = threading.Event()
    while not started:
        run_thread_is_over.wait(0.005)
    assert [message.role for message in started[0].result(10)] == ["user", "assistant"]
    assert kinds(harness) == ["message"] * 5


def test_a_listener_that_raises_at_the_report_too() -> None:
    """Then its own exception comes out of the run; what was pending is stored, and the harness is idle."""
    harness, _ = make(says("one"))

    def listener(event: Any) -> None:
        if event.type == "agent_start":
            harness.append_message(UserMessage("pending"))
        raise ValueError(f"broken at {event.type}")

    unsubscribe = harness.subscribe(listener)
    with pytest.raises(ValueError, match="broken at message_start"):
        harness.run("go", timeout=10)
    unsubscribe()
    assert [message.text for message in harness.session.build_context().messages] == ["pending"]  # type: ignore[union-attr]
    harness.run("again", timeout=10)


def test_what_a_listener_raises_is_an_entry_too() -> None:
    """A run's failure is told as events and stored; the pending writes are stored as well."""
    harness, _ = make(says("one"))

    def listener(event: Any) -> None:
        if event.type == "message_update":
            harness.append_message(UserMessage("noted"))
            raise ValueError("screen is gone")

    unsubscribe = harness.subscribe(listener)
    with pytest.raises(AgentRunError, match="screen is gone") as caught:
        harness.run("go", timeout=10)
    assert isinstance(caught.value.__cause__, ValueError)
    unsubscribe()
    stored = harness.session.build_context().messages
    assert [message.text for message in stored if message.role == "user"] == ["go", "noted"]


def test_settings_of_the_session_are_taken_where_none_are_given() -> None:
    """A harness on an old session goes on with its thinking level; what is given wins."""
    session = Session(MemorySessionStorage())
    session.append_thinking_level_change("high")
    session.append_model_change("nowhere", "no-such-model")
    harness, _ = make(session=session, model=None)
    assert harness.thinking_level == "high"
    assert harness.model.id == "unknown"
    given, _ = make(session=session, thinking_level="off")
    assert (given.thinking_level, given.model) == ("off", MODEL)


def test_all_tools_are_offered_to_a_session_that_is_opened_again(tmp_path: Path) -> None:
    """As in the reference; the names that were active last are in the session, for who wants them back."""
    with Session(JsonlSessionStorage.create(tmp_path / "chat.jsonl", cwd=str(tmp_path))) as session:
        harness, _ = make(session=session, tools=[echo, where])
        harness.set_active_tools(["where"])
    with Session(JsonlSessionStorage.open(tmp_path / "chat.jsonl")) as session:
        harness, _ = make(session=session, tools=[echo, where])
        assert harness.active_tools == [echo, where]
        names = session.build_context().active_tool_names
        harness, _ = make(session=session, tools=[echo, where], active_tool_names=names)
        assert harness.active_tools == [where]


def test_without_a_model_the_first_run_says_so() -> None:
    """The failure names the way out."""
    with pytest.raises(AgentRunError, match="no model"):
        AgentHarness(retry=None).run("hi", timeout=10)


def test_settings_changed_in_a_run_hold_from_the_next_turn_on() -> None:
    """Model, level, tools and options of a turn are a snapshot; the entries stand behind the turn's results."""
    harness, stream = make(calls("echo", text="a"), calls("where", text="b"), says("ok"), tools=[echo])

    def listener(event: Any) -> None:
        if event.type == "tool_execution_end" and event.tool_name == "echo":
            harness.set_model(OTHER)
            harness.set_thinking_level("low")
            harness.set_tools([where], ["where"])
            harness.set_stream_options(StreamOptions(headers={"late": "1"}))

    harness.subscribe(listener)
    harness.run("go", timeout=10)
    assert [model.id for model in stream.models] == ["m", "other", "other"]
    assert [[spec.name for spec in context.tools or ()] for context in stream.contexts] == [["echo"], ["where"], ["where"]]
    assert [options.reasoning for options in stream.options] == [None, "low", "low"]
    assert [options.headers for options in stream.options] == [None, {"late": "1"}, {"late": "1"}]
    changes = ["model_change", "thinking_level_change", "active_tools_change"]
    assert kinds(harness) == ["message"] * 3 + changes + ["message"] * 3


def test_tool_context_is_asked_before_each_turn() -> None:
    """A function without arguments gives each turn its own; a value is the same for all."""
    count = iter(range(10))
    turns = (calls("where", text="a"), calls("where", text="b"), says("ok"))
    harness, _ = make(*turns, tools=[where], tool_context=lambda: f"turn {next(count)}")
    harness.run("go", timeout=10)
    assert [message.text for message in harness.messages if message.role == "toolResult"] == ["turn 0", "turn 1"]


def test_the_system_prompt_can_be_a_function() -> None:
    """It sees session, model, level, active tools and resources, and is asked before each turn."""
    seen: list[SystemPromptContext] = []

    def prompt(context: SystemPromptContext) -> str:
        seen.append(context)
        return f"{len(seen)} {context.model.id} {[one.name for one in context.active_tools]} {len(context.resources.skills)}"

    skill = Skill("review", "d", "c", "/s/SKILL.md")
    harness, stream = make(
        calls("echo", text="a"), says("ok"), tools=[echo, where], active_tool_names=["echo"], system_prompt=prompt,
        resources={"skills": [skill]},
    )  # fmt: skip
    harness.run("go", timeout=10)
    assert [context.system_prompt for context in stream.contexts] == ["1 m ['echo'] 1", "2 m ['echo'] 1"]
    assert seen[0].session is harness.session
    assert isinstance(seen[0].environment, LocalEnvironment)
    wrong, _ = make(system_prompt=lambda: 42)
    with pytest.raises(HarnessError, match="system_prompt returned a value of type int: it must return a text"):
        wrong.run("go", timeout=10)


def test_skills_and_templates_are_called_up_by_name() -> None:
    """Their text is the prompt; an unknown name lists what there is and leaves the harness idle."""
    resources = Resources([Skill("review", "d", "Read it.", "/s/review/SKILL.md")], [PromptTemplate("fix", "Fix $1 in $2.")])
    harness, stream = make(says("a"), says("b"), resources=resources)
    harness.skill("review", "Be brief.").result(10)
    harness.prompt_from_template("fix", ["it", "a.py"]).result(10)
    texts = [message.text for message in stream.requests[1] if message.role == "user"]
    assert "Read it." in texts[0] and texts[0].endswith("Be brief.")
    assert texts[1] == "Fix it in a.py."
    with pytest.raises(HarnessError, match="unknown skill 'reveiw': there are review") as caught:
        harness.skill("reveiw")
    assert caught.value.code == "invalid_argument"
    with pytest.raises(HarnessError, match="unknown prompt template 'x': there are fix"):
        harness.prompt_from_template("x")
    assert harness.phase == "idle"


def test_bad_settings_change_nothing() -> None:
    """Each is refused with one line that names it."""
    harness, _ = make(tools=[echo])
    for call, text in (
        (lambda: harness.set_tools([echo, echo]), "two tools have the same name: echo; rename one"),
        (lambda: harness.set_active_tools(["echo", "echo"]), "an active tool is named twice: echo; name it once"),
        (lambda: harness.set_active_tools(["nope"]), "no such tool: nope; there are echo"),
        (lambda: harness.set_thinking_level("hihg"), "unknown thinking level 'hihg'"),  # type: ignore[arg-type]
    ):
        with pytest.raises(HarnessError, match=text) as caught:
            call()
        assert caught.value.code == "invalid_argument"
    with pytest.raises(TypeError, match="resources have skills and prompt_templates, not skill"):
        harness.set_resources({"skill": []})
    with pytest.raises(TypeError, match="tools must hold AgentTools, not str"):
        harness.set_tools(["echo"])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="a queue mode is"):
        harness.set_steering_mode("some")  # type: ignore[arg-type]
    assert kinds(harness) == []
    assert [one.name for one in harness.active_tools] == ["echo"]


def test_what_is_written_to_the_session_directly_is_in_the_next_turn() -> None:
    """The harness notices entries that it did not write itself, and moves."""
    harness, stream = make(says("one"), says("two"), says("three"))
    harness.run("a", timeout=10)
    first = harness.session.get_entries()[0].id
    harness.session.append_custom_message_entry("note", "from elsewhere")
    harness.run("b", timeout=10)
    assert [message.role for message in stream.requests[1]] == ["user", "assistant", "user", "user"]
    harness.session.move_to(first)
    harness.run("c", timeout=10)
    assert [message.text for message in stream.requests[2]] == ["a", "c"]


def test_projectors_of_the_session_hold_in_every_turn() -> None:
    """A custom entry becomes what the session's projector makes of it."""
    session = Session(MemorySessionStorage(), projectors={"state": lambda entry: UserMessage(f"state {entry.data}")})
    session.append_custom_entry("state", 1)
    harness, stream = make(calls("echo", text="x"), says("ok"), session=session, tools=[echo])
    harness.run("go", timeout=10)
    assert [message.text for message in stream.requests[0]] == ["state 1", "go"]
    assert [message.role for message in stream.requests[1]] == ["user", "user", "assistant", "toolResult"]


def test_continue_goes_on_where_the_session_ends() -> None:
    """At a user's message the answer is asked for; behind an answer there is nothing to continue."""
    harness, stream = make(says("ok"))
    with pytest.raises(ValueError, match="there are no messages to continue from"):
        harness.continue_()
    harness.session.append_message(UserMessage("hello"))
    harness.continue_().result(10)
    assert [message.text for message in stream.requests[0]] == ["hello"]
    with pytest.raises(ValueError, match="cannot continue from an assistant message"):
        harness.continue_()
    assert harness.phase == "idle"


def test_leaving_the_block_waits_or_aborts() -> None:
    """`with`: the run is waited for; an exception aborts it."""
    let_go = threading.Event()
    harness, _ = make([waits(let_go), says("one")])
    threading.Timer(0.05, let_go.set).start()
    with harness:
        run = harness.prompt("go")
    assert run.done() and run.text == "one"

    never = threading.Event()
    other, _ = make([waits(never), says("one")])
    with pytest.raises(KeyError), other:
        run = other.prompt("go")
        raise KeyError("stop")
    assert run.done()
    assert isinstance(run.exception(), AgentAbortedError)


def test_a_run_in_a_tool_is_aborted_with_the_outer_one() -> None:
    """A harness used inside a tool of another harness is aborted with it."""
    never, started = threading.Event(), threading.Event()
    inner, _ = make([waits(never), says("x")])

    @tool
    def delegate() -> str:
        """Ask the other harness."""
        run = inner.prompt("sub task")
        started.set()
        run.wait(10)
        return "done"

    outer, _ = make(calls("delegate"), says("ok"), tools=[delegate])
    run = outer.prompt("go")
    assert started.wait(5)
    outer.abort()
    assert run.done()
    assert inner.wait_for_idle(5)
    assert inner.messages[-1].stop_reason == "aborted"  # type: ignore[union-attr]


class _FullDisk(MemorySessionStorage):
    is_full = False

    def _write(self, line: str) -> None:
        if self.is_full:
            raise OSError(28, "No space left on device")


def test_what_could_not_be_stored_waits() -> None:
    """A write that fails raises, is not lost, and is stored with the next one."""
    storage = _FullDisk()
    assert isinstance(storage, SessionStorage)
    harness, _ = make(says("ok"), session=Session(storage))
    storage.is_full = True
    with pytest.raises(Exception, match="No space left"):
        harness.append_message(UserMessage("precious"))
    with pytest.raises(Exception, match="No space left"):
        harness.prompt("go")
    storage.is_full = False
    harness.run("go", timeout=10)
    assert [message.text for message in harness.session.build_context().messages] == ["precious", "go", "ok"]
    assert [message.text for message in harness.messages] == ["precious", "go", "ok"]


def test_what_is_no_message_is_refused_at_once() -> None:
    """Not at the save point, where it would fail the run and stand in the way of everything after it."""
    harness, _ = make()
    with pytest.raises(TypeError, match="append_message takes a message, not str"):
        harness.append_message("hello")  # type: ignore[arg-type]
    details: dict[str, Any] = {}
    details["self"] = details
    with pytest.raises(ValueError, match="written as JSON"):
        harness.append_message(ToolResultMessage("c", "t", [], details))
    assert kinds(harness) == []


def test_listeners_that_raise_fail_compact_and_navigate_tree_with_their_code() -> None:
    """The session has been compacted, and moved in; the error says that a listener raised."""
    harness, _ = make(says("SUMMARY"))
    for number in range(4):
        harness.append_message(UserMessage(f"{number}" + "x" * 60_000))

    def listener(event: Any) -> None:
        raise ValueError(f"broken at {event.type}")

    harness.subscribe(listener)
    with pytest.raises(HarnessError, match="broken at session_compact") as caught:
        harness.compact()
    assert caught.value.code == "hook"
    assert kinds(harness)[-1] == "compaction"
    with pytest.raises(HarnessError, match="broken at session_tree") as caught:
        harness.navigate_tree(harness.session.get_entries()[1].id)
    assert caught.value.code == "hook"
    assert harness.phase == "idle"


def test_images_are_taken_in_every_form(tmp_path: Path) -> None:
    """Bytes, paths and blocks, one or several, for prompts and for all queues."""
    png = base64.b64decode(PNG)
    path = tmp_path / "a.png"
    path.write_bytes(png)
    harness, stream = make(says("ok"))
    harness.next_turn("look", path)
    harness.run("and this", [png, str(path)], timeout=10)
    counts = [sum(block.type == "image" for block in message.content) for message in stream.requests[0]]
    assert counts == [1, 2]


def test_everything_survives_in_a_file(tmp_path: Path) -> None:
    """A second harness on the file has the same conversation."""
    path = tmp_path / "s.jsonl"
    with Session(JsonlSessionStorage.create(path, cwd=str(tmp_path))) as session:
        harness, _ = make(calls("echo", text="hi"), says("ok"), session=session, tools=[echo])
        harness.run("go", timeout=10)
    with Session(JsonlSessionStorage.open(path)) as session:
        again, stream = make(says("still here"), session=session, tools=[echo])
        again.run("and?", timeout=10)
    assert [message.role for message in stream.requests[0]] == ["user", "assistant", "toolResult", "assistant", "user"]


def test_repr_says_what_it_does() -> None:
    """Phase, model and session."""
    harness, _ = make()
    assert repr(harness) == f"<AgentHarness idle, model m, session {harness.session.id}>"


def test_stream_gives_the_events_of_a_run_in_step() -> None:
    """`stream` is `Agent.stream`: an iterator over the run's events; leaving it early aborts the run."""
    harness = AgentHarness(stream_fn=scripted_stream(says("one"), says("two"), says("three")))
    seen: list[str] = []
    harness.subscribe(lambda event: seen.append(event.type))
    with harness.stream("hello") as stream:
        kinds = [event.type for event in stream]
    assert kinds[0] == "agent_start"
    assert kinds[-1] == "agent_end"
    assert [kind for kind in seen if kind in kinds] == kinds
    assert seen[-1] == "settled"
    assert stream.run.text == "one"

    with harness.stream("again") as stream:
        assert next(stream).type == "agent_start"
        with pytest.raises(HarnessBusyError, match="the harness is busy, since a run is going"):
            harness.stream("and again")
    assert harness.phase == "idle"
    assert isinstance(stream.run.exception(5), AgentAbortedError)
    assert harness.run("once more").stop_reason == "done"


def test_a_stream_that_a_handler_refuses_ends() -> None:
    """What is raised before anything was said is raised by the run; the stream has no events then, and the harness is free."""
    harness = AgentHarness(stream_fn=scripted_stream(says("one")))

    def refuse(event: Any) -> None:
        raise ValueError("not today")

    remove = harness.on("before_agent_start", refuse)
    with harness.stream("hello") as stream:
        assert list(stream) == []
    with pytest.raises(HarnessError, match="not today"):
        stream.result(5)
    remove()
    assert [event.type for event in harness.stream("hello")][-1] == "agent_end"
    assert harness.wait_for_idle(5)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"session": "chat.jsonl"},
            "session must not be of type str: pass a Session, such as Session(JsonlSessionStorage.open(path))",
        ),
        ({"retry": 3}, "retry must not be of type int: pass a RetryPolicy, or None to never ask again"),
        ({"compaction": None}, "compaction must not be of type NoneType: pass CompactionSettings(…), True or False"),
        ({"stream_options": {"temperature": 1}}, "stream_options must not be of type dict: pass StreamOptions(temperature=…, …)"),
        ({"environment": "/home"}, "environment must be an ExecutionEnvironment: pass cwd=… for a directory of this machine"),
        ({"active_tool_names": "echo"}, "active_tool_names must be a list of names, not the text 'echo'"),
        ({"resources": [1]}, "resources must be Resources or a mapping with skills and prompt_templates, not list"),
        ({"resources": {"skills": ["fix"]}}, "skills must hold Skills, not str: pass load_skills(…).skills"),
        ({"extensions": print}, "extensions must be a list: pass [print]"),
    ],
)
def test_a_wrong_setting_is_refused_at_once(options: dict[str, Any], text: str) -> None:
    """One clear line that says what to pass, and not an error in the first run."""
    with pytest.raises(TypeError, match=f"^{re.escape(text)}$"):
        make(**options)


def test_a_stream_function_must_be_one() -> None:
    """What cannot be called is refused when it is given."""
    with pytest.raises(TypeError, match=r"^stream_fn must be callable, not int: pass a function of \(model, context, options\)$"):
        AgentHarness(stream_fn=3)  # type: ignore[arg-type]


def test_a_single_tool_will_do() -> None:
    """As for an agent, a tool that stands for itself is a list of one."""
    harness, _ = make(tools=echo)
    harness.add_tools(where)  # type: ignore[arg-type]
    assert [tool.name for tool in harness.active_tools] == ["echo", "where"]


def test_arguments_of_a_template_may_be_one_text() -> None:
    """A text is taken apart as on a command line, and not into letters; what is no text is refused before anything begins."""
    harness, stream = make(says("ok"), resources={"prompt_templates": [PromptTemplate("fix", "Fix $1 in $2.")]})
    with pytest.raises(TypeError, match=r"^the arguments of a template are texts, not int: pass str\(7\)$"):
        harness.prompt_from_template("fix", [7])  # type: ignore[list-item]
    assert harness.phase == "idle"
    harness.prompt_from_template("fix", "'the bug' a.py").result(5)
    [[message]] = stream.requests
    assert message.text == "Fix the bug in a.py."


@pytest.mark.parametrize("do", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_harness_is_not_copied(do: Any) -> None:
    """It says so, and what to do instead."""
    with pytest.raises(TypeError, match=r"^an AgentHarness cannot be copied or pickled, .* make a new one on the session"):
        do(make()[0])


def test_a_session_without_a_model_is_opened_without_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """What was made with a stream function alone names no model, and that is no fault."""
    session = Session(MemorySessionStorage())
    make(says("ok"), session=session, model=None)[0].run("hi", timeout=10)
    again, _ = make(session=session, model=None)
    assert (again.model.id, caplog.records) == ("unknown", [])


def test_the_common_patterns_of_a_session(tmp_path: Path) -> None:
    """Memory, long conversations, branches, a tool of one's own: written as the original's documents have them, in snake_case."""
    storage = JsonlSessionStorage.create(tmp_path / "chat.jsonl", cwd=str(tmp_path))
    session = Session(storage)

    # 1: a conversation with memory
    session.append_message(UserMessage("The meeting is at nine."))
    branch_point_id = session.append_message(AssistantMessage([TextContent("Noted.")], "a", "p", "m"))
    first_kept_id = session.append_message(UserMessage("And lunch is at one."))
    context = session.build_context()
    assert [message.role for message in context.messages] == ["user", "assistant", "user"]

    # 2: a long one is compacted by hand
    token_count = estimate_context_tokens(context.messages).tokens
    if token_count > 12 * 0.8:
        session.append_compaction("The meeting is at nine.", first_kept_id, token_count)
    assert [message.role for message in session.build_context().messages] == ["compactionSummary", "user"]

    # 3: a branch
    session.move_to(branch_point_id, summary={"summary": "Exploring alternative approach"})
    session.append_message(UserMessage("Is it at nine?"))
    assert [message.role for message in session.build_context().messages] == ["user", "assistant", "branchSummary", "user"]

    # 4: a tool, positional as there
    def execute(tool_call_id: str, args: dict[str, Any], signal: Any, on_update: Any, context: Any) -> AgentToolResult:
        return AgentToolResult([TextContent("done: " + args["what"])])

    parameters = {"type": "object", "properties": {"what": {"type": "string"}}, "required": ["what"]}
    custom_tool = AgentTool("custom", "Custom", "Does custom thing", parameters, execute, None, EXECUTION_PARALLEL)

    harness, stream = make(calls("custom", what="it"), says("Yes."), session=session, tools=[custom_tool])
    assert harness.active_run is None
    assert harness.continue_().result(5)[-1].role == "assistant"
    assert harness.messages[-2].text == "done: it"  # type: ignore[union-attr]
    assert [message.role for message in stream.requests[0]] == ["user", "assistant", "user", "user"]
    assert session.get_session_stats() is not None
    assert len(session.get_branch()) == len(harness.messages)
    session.close()


@pytest.mark.parametrize(
    ("name", "way"),
    [
        ("model", r"call set_model\(…\)"),
        ("active_tools", r"call set_active_tools\(…\)"),
        ("active_tool_names", r"call set_active_tools\(…\)"),
        ("system_prompt", r"pass AgentHarness\(system_prompt=…\)"),
        ("messages", r"pass AgentHarness\(messages=…\) if it is one of its settings"),
    ],
)
def test_attributes_are_not_set(name: str, way: str) -> None:
    """Nothing is set without an effect: the error names the method, or the constructor."""
    harness, _ = make()
    with pytest.raises(AttributeError, match=f"^{name} of an AgentHarness cannot be set: {way}"):
        setattr(harness, name, "x")


def test_a_harness_is_free_again_if_no_thread_can_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    """What could not begin lets go: a run, a compaction and a move can be tried again."""
    harness, _ = make(says("one"), says("two"))
    harness.run("go", timeout=10)
    here = harness.session.get_entries()[0].id

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        for call in (
            lambda: harness.prompt("x"),
            harness.compact,
            lambda: harness.navigate_tree(here),
            lambda: harness.stream("x"),
        ):
            with pytest.raises(RuntimeError, match="can't start new thread"):
                call()
            assert (harness.phase, harness.active_run) == ("idle", None)
    assert harness.run("again", timeout=10).text == "two"
