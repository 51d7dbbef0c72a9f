"""Tool calls: which are run, in which order their results come, and what the model reads of those that fail."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from agentcore.agent import Agent
from agentcore.errors import AgentBusyError, AgentRunError
from agentcore.llm.request import Context
from agentcore.loop.config import AfterToolCallResult
from agentcore.messages import AgentToolResult, TextContent, ToolResultMessage
from agentcore.testing import SseServer, calls, calls_raw, ends, says, scripted_stream
from agentcore.testing import Turn as ScriptedAnswer
from agentcore.tools.agent_tool import AgentTool
from agentcore.tools.decorator import tool

pytestmark = pytest.mark.pythons

OBJECT = {"type": "object", "properties": {}}


def make_tool(name: str, execute: Callable[..., Any], **more: Any) -> AgentTool:
    return AgentTool(name, name, "A tool of a test.", OBJECT, execute, **more)


def text_result(text: str) -> AgentToolResult:
    return AgentToolResult([TextContent(text)])


@tool
def read(path: str) -> str:
    """Read a file."""
    return f"content of {path}"


def results(agent: Agent) -> list[ToolResultMessage]:
    return [message for message in agent.messages if isinstance(message, ToolResultMessage)]


def test_arguments_that_are_not_json_are_not_run() -> None:
    """C053: the call gets an error that quotes a bounded piece of the text, and the model gets another turn."""
    ran = []

    @tool
    def write(path: str, content: str) -> str:
        """Write a file."""
        ran.append(path)
        return "written"

    raw = '{"path": "a.txt", "content": "' + "x" * 2000
    stream = scripted_stream(calls_raw("write", raw), says("sorry"))
    agent = Agent(tools=[write], stream_fn=stream)
    agent.run("go")
    (result,) = results(agent)
    assert ran == []
    assert result.is_error and result.error is not None
    assert "not valid JSON" in result.error and raw[:300] in result.error
    assert len(result.error) < 900
    assert len(stream.requests) == 2


@pytest.mark.parametrize("reports_length", [True, False])
def test_a_cut_answer_has_no_call_run(reports_length: bool) -> None:
    """C055, C056: a message cut at the token limit has none of its calls run; each gets an error that says why."""
    ran = []

    @tool
    def write(path: str, content: str = "") -> str:
        """Write a file."""
        ran.append(path)
        return "written"

    if reports_length:
        turn = calls("write", path="a", content="whole") + calls("write", path="b", content="hal") + ends("length")
        texts = ["output token limit"] * 2
    else:  # reported as toolUse: the broken text gives it away
        turn = calls_raw("write", '{"path":"a","content":"hal') + ends("toolUse")
        texts = ["not valid JSON"]
    agent = Agent(tools=[write], stream_fn=scripted_stream(turn, says("ok")))
    agent.run("go")
    assert ran == []
    assert [text in (result.error or "") for text, result in zip(texts, results(agent), strict=True)] == [True] * len(texts)


def test_one_bad_call_leaves_no_call_without_a_result() -> None:
    """C058: an unknown name, bad JSON and a good call give three results in order; the first names the known tools."""
    turn = calls("serch", q="x") + calls_raw("read", '{"path": ') + calls("read", path="a.txt")
    agent = Agent(tools=[read], stream_fn=scripted_stream(turn, says("ok")))
    agent.run("go")
    first, second, third = results(agent)
    assert first.error == "Tool serch not found. Available tools: read."
    assert second.is_error and "not valid JSON" in second.text
    assert not third.is_error and third.text == "content of a.txt"


def test_without_tools_an_unknown_call_says_that_there_are_none() -> None:
    """An agent without tools tells the model so."""
    agent = Agent(stream_fn=scripted_stream(calls("read"), says("ok")))
    agent.run("go")
    assert results(agent)[0].error == "Tool read not found. There are no tools."


def test_ends_come_as_calls_end_and_results_in_the_order_of_the_calls() -> None:
    """C064: the fast call's end event does not wait for the slow one; the result messages follow the source."""
    fast_has_ended = threading.Event()

    def slow(args: Any) -> AgentToolResult:
        assert fast_has_ended.wait(5), "the end of the fast call was held back"
        return text_result("slow")

    agent = Agent(
        tools=[make_tool("slow", lambda call_id, args: slow(args)), make_tool("fast", lambda: text_result("fast"))],
        stream_fn=scripted_stream(calls("slow") + calls("fast"), says("ok")),
    )
    ended = []

    def listener(event: Any) -> None:
        if event.type == "tool_execution_end":
            ended.append(event.tool_name)
            fast_has_ended.set()

    agent.subscribe(listener)
    agent.run("go")
    assert ended == ["fast", "slow"]
    assert [result.tool_name for result in results(agent)] == ["slow", "fast"]


def test_an_update_after_the_return_is_ignored() -> None:
    """C065: a thread of the tool that reports late makes no event, neither in the run nor after it."""
    updates: list[Callable[[Any], None]] = []

    def execute(tool_call_id: str, args: Any, signal: Any, on_update: Callable[[Any], None]) -> AgentToolResult:
        updates.append(on_update)
        on_update(text_result("in time"))
        return text_result("done")

    agent = Agent(tools=[make_tool("t", execute)], stream_fn=scripted_stream(calls("t"), says("ok")))
    seen = []

    def listener(event: Any) -> None:
        if event.type.startswith("tool_execution"):
            seen.append(event.type)
        if event.type == "tool_execution_end":
            late = threading.Thread(target=updates[0], args=(text_result("late"),))
            late.start()
            late.join(5)

    agent.subscribe(listener)
    agent.run("go")
    updates[0](text_result("later still"))
    assert seen == ["tool_execution_start", "tool_execution_update", "tool_execution_end"]


def test_a_result_survives_a_listener_that_raises() -> None:
    """C062: the result is in the transcript, and going on does not run the tool twice."""
    count = []

    @tool
    def counter() -> str:
        """Count."""
        count.append(1)
        return "counted"

    agent = Agent(tools=[counter], stream_fn=scripted_stream(calls("counter"), says("fine")))

    def listener(event: Any) -> None:
        if event.type == "tool_execution_end":
            raise ValueError("listener broke")

    unsubscribe = agent.subscribe(listener)
    with pytest.raises(AgentRunError, match="listener broke") as raised:
        agent.run("go")
    assert raised.value.kind == "hook" and isinstance(raised.value.__cause__, ValueError)
    unsubscribe()
    assert [message.role for message in agent.messages] == ["user", "assistant", "toolResult", "assistant"]
    agent.continue_().result(5)
    assert agent.messages[-1].text == "fine"
    assert len(count) == 1


def test_a_listener_that_raises_on_an_update_does_not_raise_in_the_tool() -> None:
    """The tool's `on_update` only hands over; the tool runs to its end, and its result is kept."""
    in_tool: list[str] = []

    def execute(tool_call_id: str, args: Any, signal: Any, on_update: Callable[[Any], None]) -> AgentToolResult:
        on_update(text_result("half"))
        on_update(text_result("more"))
        assert signal.wait(5), "a failing run asks its tools to stop"
        in_tool.append("ended")
        return text_result("whole")

    agent = Agent(tools=[make_tool("t", execute)], stream_fn=scripted_stream(calls("t")))

    def listener(event: Any) -> None:
        if event.type == "tool_execution_update":
            raise ValueError("no updates, please")

    agent.subscribe(listener)
    with pytest.raises(AgentRunError, match="no updates, please"):
        agent.run("go")
    assert in_tool == ["ended"]
    assert [result.text for result in results(agent)] == ["whole"]
    assert agent.messages[-1].stop_reason == "error"  # type: ignore[union-attr]


def test_results_in_parallel_survive_a_listener_that_raises() -> None:
    """All results that are in are told in the order of the calls before the failure, those of later calls too."""
    told = []
    agent = Agent(
        tools=[make_tool(name, lambda name=name: text_result(name)) for name in "abc"],
        stream_fn=scripted_stream(calls("a") + calls("b") + calls("c")),
    )

    def listener(event: Any) -> None:
        if event.type == "message_end" and event.message.role == "toolResult":
            told.append(event.message.tool_name)
            raise ValueError("not listening")

    agent.subscribe(listener)
    with pytest.raises(AgentRunError, match="not listening"):
        agent.run("go")
    assert told == ["a", "b", "c"]
    assert [result.tool_name for result in results(agent)] == ["a", "b", "c"]


def test_a_call_id_that_comes_again_is_a_call_of_its_own() -> None:
    """C074: two turns with the same id have a result each, and so have two calls of one answer."""
    turn = calls_raw("read", '{"path":"a"}', id="call_1")
    again = calls_raw("read", '{"path":"b"}', id="call_1") + calls_raw("read", '{"path":"c"}', id="call_1")
    agent = Agent(tools=[read], stream_fn=scripted_stream(turn, again, says("ok")))
    agent.run("go")
    assert [result.text for result in results(agent)] == ["content of a", "content of b", "content of c"]
    assert {result.tool_call_id for result in results(agent)} == {"call_1"}


def test_a_tool_that_takes_longer_than_its_timeout_is_given_up() -> None:
    """Its signal is set, the model reads why, and the run goes on; what it returns later is dropped."""
    let_go, signals = threading.Event(), []

    def execute(tool_call_id: str, args: Any, signal: Any) -> AgentToolResult:
        signals.append(signal)
        let_go.wait(10)
        return text_result("too late")

    agent = Agent(
        tools=[make_tool("slow", execute, timeout=0.05), make_tool("fast", lambda: text_result("fast"))],
        stream_fn=scripted_stream(calls("slow"), calls("fast"), says("ok")),
        max_tool_workers=1,
    )
    try:
        assert agent.run("go", timeout=5).text == "ok"
        assert signals[0].aborted
        slow, fast = results(agent)
        assert slow.error == "the tool slow was given up: it took more than 0.05 s"
        assert fast.text == "fast"  # with one worker: the lost one takes no place away
    finally:
        let_go.set()


def test_a_tool_that_returns_no_result_is_told_so() -> None:
    """A wrong type is an error result that names it."""
    agent = Agent(tools=[make_tool("t", lambda: "plain text")], stream_fn=scripted_stream(calls("t"), says("ok")))
    agent.run("go")
    assert results(agent)[0].error == "the tool t returned a value of type str: it must return an AgentToolResult"


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), ValueError(""), ZeroDivisionError("by zero")])
def test_whatever_a_tool_raises_is_a_result(error: BaseException) -> None:
    """Also what is no Exception, and what says nothing."""

    def execute() -> AgentToolResult:
        raise error

    agent = Agent(tools=[make_tool("t", execute)], stream_fn=scripted_stream(calls("t"), says("ok")))
    agent.run("go")
    assert results(agent)[0].error == (str(error) or type(error).__name__)


def test_calls_run_at_the_same_time_up_to_the_limit() -> None:
    """`max_tool_workers` calls are under way at once, and no more."""
    lock, going, most = threading.Lock(), [0], [0]
    both = threading.Barrier(2)

    def execute() -> AgentToolResult:
        with lock:
            going[0] += 1
            most[0] = max(most[0], going[0])
        both.wait(5)
        with lock:
            going[0] -= 1
        both.wait(5)
        return text_result("ok")

    turn: ScriptedAnswer = calls("t") + calls("t") + calls("t") + calls("t")
    agent = Agent(tools=[make_tool("t", execute)], stream_fn=scripted_stream(turn, says("ok")), max_tool_workers=2)
    agent.run("go", timeout=10)
    assert most == [2]
    assert [result.is_error for result in results(agent)] == [False] * 4


def test_a_tool_gets_the_context_and_the_callers_context_variables() -> None:
    """`tool_context` is handed over, and what the caller set in a context variable is seen by tools and listeners."""
    import contextvars

    user = contextvars.ContextVar("user", default="nobody")
    seen: list[Any] = []

    def execute(tool_call_id: str, args: Any, context: Any) -> AgentToolResult:
        seen.append((context, user.get(), threading.current_thread().name))
        return text_result("ok")

    def execute_all(tool_call_id: str, args: Any, signal: Any, on_update: Any, context: Any) -> AgentToolResult:
        return execute(tool_call_id, args, context)

    agent = Agent(tools=[make_tool("t", execute_all)], stream_fn=scripted_stream(calls("t"), says("ok")), tool_context={"db": 1})
    heard: list[str] = []
    agent.subscribe(lambda event: heard.append(user.get()))
    user.set("ada")
    agent.run("go")
    ((context, name, thread),) = seen
    assert (context, name) == ({"db": 1}, "ada")
    assert thread.startswith("agentcore-tool")
    assert set(heard) == {"ada"}


def test_hooks_and_listeners_run_on_the_run_thread_and_tools_do_not() -> None:
    """One thread for everything but `execute`, also for single and sequential calls."""
    threads: dict[str, set[str]] = {"run": set(), "tool": set()}

    def note(where: str) -> None:
        threads[where].add(threading.current_thread().name)

    def convert(messages: list[Any]) -> list[Any]:
        note("run")
        return messages

    def stream(model: Any, context: Context, options: Any) -> Any:
        note("run")
        return scripted(model, context, options)

    def execute() -> AgentToolResult:
        note("tool")
        return text_result("ok")

    scripted = scripted_stream(calls("t"), says("ok"))
    agent = Agent(
        tools=[make_tool("t", execute)],
        stream_fn=stream,
        convert_to_llm=convert,
        before_tool_call=lambda: note("run"),
        after_tool_call=lambda: note("run"),
        prepare_next_turn=lambda: note("run"),
        tool_execution="sequential",
    )
    agent.subscribe(lambda event: note("run"))
    agent.run("go")
    assert len(threads["run"]) == 1 and next(iter(threads["run"])).startswith("agentcore-run-")
    assert len(threads["tool"]) == 1 and next(iter(threads["tool"])).startswith("agentcore-tool")


def test_an_agent_without_calls_makes_no_workers() -> None:
    """The executor is made with the first call of a run."""
    seen: list[list[str]] = []
    agent = Agent(tools=[read], stream_fn=scripted_stream(says("ok")))
    agent.subscribe(lambda event: seen.append([thread.name for thread in threading.enumerate()]))
    agent.run("go")
    assert seen and not any(name.startswith("agentcore-tool") for names in seen for name in names)


@pytest.mark.parametrize("hook", ["before_tool_call", "after_tool_call"])
def test_a_hook_of_a_call_that_returns_something_else_makes_an_error_result(hook: str) -> None:
    """The call fails with a text that names the hook; the run goes on."""
    agent = Agent(tools=[read], stream_fn=scripted_stream(calls("read", path="a"), says("ok")), **{hook: lambda: False})  # type: ignore[arg-type]
    assert agent.run("go").text == "ok"
    assert (results(agent)[0].error or "").startswith(f"{hook} returned a value of type bool: it must return ")


def test_without_workers_a_call_runs_on_the_run_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the interpreter goes down no thread starts any more: the call is made all the same, updates included."""
    from concurrent.futures import ThreadPoolExecutor

    def submit(*args: Any) -> Any:
        raise RuntimeError("cannot schedule new futures after interpreter shutdown")

    monkeypatch.setattr(ThreadPoolExecutor, "submit", submit)
    where: list[str] = []

    def execute(tool_call_id: str, args: Any, signal: Any, on_update: Callable[[Any], None]) -> AgentToolResult:
        where.append(threading.current_thread().name)
        on_update(text_result("half"))
        return text_result("done")

    agent = Agent(tools=[make_tool("t", execute)], stream_fn=scripted_stream(calls("t") + calls("t"), says("ok")))
    kinds: list[str] = []
    agent.subscribe(lambda event: kinds.append(event.type) if event.type.startswith("tool") else None)
    agent.run("go")
    assert len(where) == 2 and all(name.startswith("agentcore-run-") for name in where)
    assert kinds.count("tool_execution_update") == 2
    assert [result.text for result in results(agent)] == ["done", "done"]


def test_a_call_that_could_not_get_a_thread_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without threads left the executor has queued the call before it fails: no worker makes it a second time."""
    from concurrent.futures import ThreadPoolExecutor

    real, count = ThreadPoolExecutor._adjust_thread_count, [0]

    def adjust(executor: ThreadPoolExecutor) -> None:
        count[0] += 1
        if count[0] > 1:
            raise RuntimeError("can't start new thread")
        real(executor)

    monkeypatch.setattr(ThreadPoolExecutor, "_adjust_thread_count", adjust)
    made: list[str] = []
    agent = Agent(
        tools=[make_tool("t", lambda call_id: (made.append(call_id), text_result("ok"))[1])],
        stream_fn=scripted_stream(calls("t") + calls("t") + calls("t"), calls("t"), says("ok")),
    )
    agent.run("go", timeout=10)
    assert len(made) == len(set(made)) == 4
    assert [result.text for result in results(agent)] == ["ok"] * 4


def test_a_timeout_counts_from_when_the_call_begins() -> None:
    """Calls that wait for a place do not lose their time there: five calls, one worker, each shorter than the timeout."""
    pause = threading.Event()

    def execute(tool_call_id: str) -> AgentToolResult:
        pause.wait(0.15)
        return text_result("done")

    agent = Agent(
        tools=[make_tool("brief", execute, timeout=0.4)],
        stream_fn=scripted_stream([calls("brief") for _ in range(5)], says("ok")),
        max_tool_workers=1,
    )
    agent.run("go", timeout=20)
    assert [result.text for result in results(agent)] == ["done"] * 5


def test_a_call_that_was_given_up_takes_no_place_away() -> None:
    """One worker, and the first call never returns: the calls behind it are made all the same, one at a time."""
    let_go, running, most = threading.Event(), [0], [0]

    def stuck() -> AgentToolResult:
        let_go.wait(20)
        return text_result("late")

    def count() -> AgentToolResult:
        running[0] += 1
        most[0] = max(most[0], running[0])
        threading.Event().wait(0.01)
        running[0] -= 1
        return text_result("counted")

    agent = Agent(
        tools=[make_tool("stuck", stuck, timeout=0.1), make_tool("count", count)],
        stream_fn=scripted_stream([calls("stuck"), *[calls("count") for _ in range(4)]], calls("count"), says("ok")),
        max_tool_workers=1,
    )
    try:
        agent.run("go", timeout=10)
    finally:
        let_go.set()
    first, *rest = [result.text for result in results(agent)]
    assert "more than 0.1 s" in first
    assert rest == ["counted"] * 5 and most == [1]


def test_calls_that_wait_when_the_grace_period_is_over_are_never_made() -> None:
    """Aborted with one worker held: neither the calls that wait nor anything else begins when it is given up."""
    started, let_go, ran = threading.Event(), threading.Event(), []

    def make_next() -> AgentToolResult:
        ran.append(1)
        return text_result("made")

    def stuck() -> AgentToolResult:
        started.set()
        let_go.wait(20)
        return text_result("late")

    agent = Agent(
        tools=[make_tool("stuck", stuck), make_tool("next", make_next)],
        stream_fn=scripted_stream([calls("stuck"), calls("next"), calls("next")], says("ok")),
        max_tool_workers=1,
        tool_grace=0.1,
    )
    run = agent.prompt("go")
    assert started.wait(5)
    run.abort()
    assert run.wait(5)
    let_go.set()
    assert [result.text for result in results(agent)] == ["Operation aborted"] * 3
    assert ran == []


@pytest.mark.parametrize("endless", [float("inf"), 1e12])
def test_times_without_end_are_times(endless: float) -> None:
    """A timeout and a grace period may be as long as one likes."""
    agent = Agent(tools=[make_tool("t", lambda: text_result("ok"), timeout=endless)], tool_grace=endless)

    def abort_and_return(event: Any) -> None:
        if event.type == "tool_execution_start":
            agent.abort()

    agent.stream_fn = scripted_stream(calls("t"), says("ok"), calls("t"), says("ok"))
    assert agent.run("go", timeout=5).text == "ok"
    agent.subscribe(abort_and_return)
    agent.prompt("go").wait(5)
    assert [result.text for result in results(agent)] == ["ok", "Operation aborted"]


def test_thirty_two_calls_run_at_the_same_time_and_one_sequential_call_makes_all_wait() -> None:
    """By default 32 calls are under way at once; a batch with one sequential tool runs one by one, in its order."""
    barrier, order = threading.Barrier(32, timeout=10), []

    def meet(tool_call_id: str) -> AgentToolResult:
        barrier.wait()
        return text_result("met")

    def alone(tool_call_id: str) -> AgentToolResult:
        order.append(tool_call_id)
        return text_result("alone")

    agent = Agent(
        tools=[make_tool("meet", meet), make_tool("alone", alone), make_tool("one", alone, execution_mode="sequential")],
        stream_fn=scripted_stream(
            [calls("meet") for _ in range(32)], [calls("alone"), calls("one"), calls("alone"), calls("alone")], says("ok")
        ),
    )
    agent.run("go", timeout=20)
    assert [result.text for result in results(agent)] == ["met"] * 32 + ["alone"] * 4
    assert order == [result.tool_call_id for result in results(agent)][32:]


def test_a_tool_may_talk_to_its_own_agent() -> None:
    """`steer` and `follow_up` in a tool reach the model, `prompt` and `wait_for_idle` are errors that the model reads."""

    def execute() -> AgentToolResult:
        agent.steer("steered")
        agent.follow_up("followed up")
        errors = []
        for forbidden in (lambda: agent.prompt("nested"), agent.wait_for_idle, agent.active_run.future().result):  # type: ignore[union-attr]
            try:
                forbidden()
            except (AgentBusyError, RuntimeError) as error:
                errors.append(type(error).__name__)
        return text_result(" ".join(errors))

    agent = Agent(tools=[make_tool("t", execute)], stream_fn=scripted_stream(calls("t"), says("a"), says("b")))
    agent.run("go", timeout=10)
    assert [result.text for result in results(agent)] == ["AgentBusyError RuntimeError RuntimeError"]
    assert [message.role for message in agent.messages] == [
        "user",
        "assistant",
        "toolResult",
        "user",
        "assistant",
        "user",
        "assistant",
    ]


def test_what_after_tool_call_gives_back_may_be_a_text() -> None:
    """A string replaces the content; content of a wrong kind is an error result, and the run goes on."""

    @tool
    def look() -> str:
        """Look."""
        return "secret"

    for content, text in (("redacted", "redacted"), (["x"], "content must hold TextContent and ImageContent, not str")):
        agent = Agent(
            tools=[look],
            stream_fn=scripted_stream(calls("look"), says("ok")),
            after_tool_call=lambda content=content: AfterToolCallResult(content=content),
        )
        assert agent.run("go").text == "ok"
        assert agent.messages[2].text == text


@pytest.mark.parametrize("place", ["tool", "hook"])
def test_content_that_no_request_could_hold_is_an_error_result(place: str) -> None:
    """It would stay in the transcript and fail every request from then on; so the model reads what is wrong instead."""
    wrong: Any = [TextContent(5)]  # type: ignore[arg-type]
    agent = Agent(tools=[make_tool("t", lambda: AgentToolResult(wrong if place == "tool" else [TextContent("right")]))])
    if place == "hook":
        agent.after_tool_call = lambda context: AfterToolCallResult(content=wrong)
    with SseServer(calls("t"), says("ok")) as server:
        agent.state.model = server.model()
        assert agent.run("go", timeout=10).text == "ok"
    assert results(agent)[0].is_error and "content that no model can read" in results(agent)[0].text
