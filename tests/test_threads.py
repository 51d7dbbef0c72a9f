"""Who may call what from where, and what an abort reaches."""

from __future__ import annotations

import os
import threading
import time
from typing import Any

import pytest

from agentcore.agent import Agent
from agentcore.errors import AgentAbortedError
from agentcore.events import DoneEvent
from agentcore.messages import AgentToolResult, AssistantMessage, TextContent
from agentcore.testing import calls, says, scripted_stream, waits
from agentcore.tools.agent_tool import AgentTool
from agentcore.tools.decorator import tool

pytestmark = pytest.mark.pythons

OBJECT = {"type": "object", "properties": {}}


def test_after_a_run_the_process_has_the_threads_it_had_before() -> None:
    """An idle agent owns no thread: neither the run thread nor a worker is left."""

    @tool
    def work() -> str:
        """Work."""
        return "done"

    before = set(threading.enumerate())
    agent = Agent(tools=[work], stream_fn=scripted_stream(*[calls("work") + calls("work"), says("ok")] * 3))
    for _ in range(3):
        agent.run("go")
    for thread in set(threading.enumerate()) - before:
        thread.join(2)
    assert set(threading.enumerate()) <= before


def test_a_tool_that_never_returns_does_not_hold_the_run() -> None:
    """C070: the agent is idle within the grace time, the result says aborted, the late return is dropped, the next prompt works."""
    started, let_go, returned = threading.Event(), threading.Event(), threading.Event()

    def execute() -> AgentToolResult:
        started.set()
        let_go.wait(60)  # ignores the signal
        returned.set()
        return AgentToolResult([TextContent("too late")])

    agent = Agent(
        tools=[AgentTool("stuck", "stuck", "", OBJECT, execute)],
        stream_fn=scripted_stream(calls("stuck"), says("never"), says("back")),
        tool_grace=0.2,
    )
    events: list[Any] = []
    agent.subscribe(events.append)
    try:
        agent.prompt("go")
        assert started.wait(5)
        began = time.monotonic()
        agent.abort()
        assert agent.wait_for_idle(5)
        assert 0.15 < time.monotonic() - began < 1.5
        result = agent.messages[2]
        assert result.role == "toolResult" and result.is_error and result.text == "Operation aborted"
        count = len(events)
        let_go.set()
        assert returned.wait(5)
        assert agent.run("again").text == "back"
        assert "too late" not in str(agent.messages)
        assert [event.type for event in events[count:]][:2] == ["agent_start", "turn_start"]
    finally:
        let_go.set()


def test_abort_in_a_tool_and_in_a_listener() -> None:
    """Both return at once; the run settles as aborted."""

    @tool
    def stop() -> str:
        """Stop everything."""
        agent.abort("by the tool")
        return "stopping"

    agent = Agent(tools=[stop], stream_fn=scripted_stream(calls("stop"), says("never"), says("one", "two")))
    with pytest.raises(AgentAbortedError, match="by the tool"):
        agent.run("go")
    assert agent.messages[2].text == "stopping"
    agent.subscribe(lambda event: agent.abort("by a listener") if event.type == "message_update" else None)
    with pytest.raises(AgentAbortedError, match="by a listener"):
        agent.run("go")


def test_on_abort_runs_on_the_thread_that_aborts() -> None:
    """A tool may hear of the abort by a callback; it runs on the caller's thread of `abort`."""
    ready, where = threading.Event(), []

    def execute(tool_call_id: str, args: Any, signal: Any) -> AgentToolResult:
        signal.on_abort(lambda reason: where.append((threading.current_thread(), reason)))
        ready.set()
        assert signal.wait(5)
        return AgentToolResult()

    agent = Agent(tools=[AgentTool("t", "t", "", OBJECT, execute)], stream_fn=scripted_stream(calls("t"), says("never")))
    run = agent.prompt("go")
    assert ready.wait(5)
    agent.abort("now")
    assert where == [(threading.current_thread(), "now")]
    assert run.wait(5)


def inner_and_outer(is_detached: bool) -> tuple[Agent, Agent, threading.Event]:
    """Make an agent whose tool runs another agent that streams until it is aborted."""
    streaming = threading.Event()
    inner = Agent(stream_fn=scripted_stream(says("one ", streaming.set, threading.Event(), "two")))

    def ask(tool_call_id: str, args: Any, signal: Any, on_update: Any) -> AgentToolResult:
        remove = inner.subscribe(lambda event: on_update(AgentToolResult([TextContent(event.type)])))
        run = inner.prompt("sub-question", detached=is_detached)
        if is_detached:
            signal.wait(5)
        else:
            run.wait(5)
        remove()
        return AgentToolResult([TextContent(run.text)])

    outer = Agent(tools=[AgentTool("ask", "ask", "", OBJECT, ask)], stream_fn=scripted_stream(calls("ask"), says("never")))
    return inner, outer, streaming


def test_an_abort_reaches_an_agent_inside_a_tool() -> None:
    """C073: the inner run is aborted with the same reason, its events can be forwarded, its messages stay its own."""
    inner, outer, streaming = inner_and_outer(is_detached=False)
    forwarded: list[str] = []

    def listener(event: Any) -> None:
        if event.type == "tool_execution_update":
            forwarded.append(event.partial_result.content[0].text)

    outer.subscribe(listener)
    run = outer.prompt("go")
    assert streaming.wait(5)
    inner_run = inner.active_run
    assert inner_run is not None
    outer.abort("all of it")
    assert run.wait(5) and inner_run.wait(5)
    error = inner_run.exception()
    assert isinstance(error, AgentAbortedError) and error.reason == "all of it"
    assert forwarded[0] == "agent_start" and forwarded[-1] == "agent_end"
    assert "sub-question" not in str(outer.messages)
    assert [message.role for message in outer.messages] == ["user", "assistant", "toolResult", "assistant"]
    assert outer.messages[2].text == "one "


def test_a_detached_run_goes_on() -> None:
    """`prompt(…, detached=True)` in a tool: the outer abort does not reach it."""
    inner, outer, streaming = inner_and_outer(is_detached=True)
    run = outer.prompt("go")
    assert streaming.wait(5)
    outer.abort()
    assert run.wait(5)
    inner_run = inner.active_run
    assert inner_run is not None and not inner_run.signal.aborted
    inner.abort()
    assert inner_run.wait(5)


def test_two_agents_that_call_each_other_through_tools() -> None:
    """The one whose turn it is is busy: the call back is refused with a text for the model, and both come to an end."""

    @tool
    def ask_second() -> str:
        """Ask the second agent."""
        return second.run("question").text

    @tool
    def ask_first() -> str:
        """Ask the first agent."""
        return first.run("question back").text

    first = Agent(tools=[ask_second], stream_fn=scripted_stream(calls("ask_second"), says("first done")))
    second = Agent(tools=[ask_first], stream_fn=scripted_stream(calls("ask_first"), says("second done")))
    assert first.run("go", timeout=10).text == "first done"
    answer = second.messages[2]
    assert answer.role == "toolResult" and answer.is_error and "a run is active" in answer.text
    assert first.messages[2].text == "second done"


def test_subscribe_during_a_run_from_other_threads() -> None:
    """Listeners come and go from ten threads while events stream: the run comes to its end, and who stays hears the rest."""
    words = [f"{number} " for number in range(300)]
    agent = Agent(stream_fn=scripted_stream(says(*words)))
    heard: list[list[str]] = []

    def come_and_go() -> None:
        while agent.active_run is not None:
            agent.subscribe(lambda event: None)()
        mine: list[str] = []
        heard.append(mine)
        agent.subscribe(lambda event: mine.append(event.type))

    go = threading.Event()
    agent.subscribe(lambda event: go.wait(5) if event.type == "agent_start" else None)
    run = agent.prompt("go")
    threads = [threading.Thread(target=come_and_go) for _ in range(10)]
    for thread in threads:
        thread.start()
    go.set()
    assert run.wait(30)
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    assert run.text == "".join(words)
    agent.stream_fn = scripted_stream(says("again"))
    agent.run("go")
    assert len(heard) == 10 and all(mine[0] == "agent_start" and mine[-1] == "agent_end" for mine in heard)


def test_updates_and_results_queue_up_while_a_listener_runs() -> None:
    """While a listener runs nothing else moves, and it may wait for a tool's own code."""
    tool_has_ended = threading.Event()
    order: list[str] = []

    def execute(tool_call_id: str, args: Any, signal: Any, on_update: Any) -> AgentToolResult:
        on_update(AgentToolResult([TextContent("1")]))
        on_update(AgentToolResult([TextContent("2")]))
        tool_has_ended.set()
        return AgentToolResult([TextContent("done")])

    def listener(event: Any) -> None:
        if event.type == "tool_execution_update":
            assert tool_has_ended.wait(5)  # the tool itself is not held up by listeners
        order.append(event.type)

    agent = Agent(tools=[AgentTool("t", "t", "", OBJECT, execute)], stream_fn=scripted_stream(calls("t"), says("ok")))
    agent.subscribe(listener)
    agent.run("go", timeout=10)
    assert [kind for kind in order if kind.startswith("tool_execution")] == [
        "tool_execution_start",
        "tool_execution_update",
        "tool_execution_update",
        "tool_execution_end",
    ]


def test_many_agents_at_once_do_not_share_anything() -> None:
    """Fifty runs on one tool and one stream function each get their own answers."""

    def stream(model: Any, context: Any, options: Any) -> Any:
        text = context.messages[-1].text
        return iter([DoneEvent(AssistantMessage([TextContent(f"answer to {text}")]))])

    agents = [Agent(stream_fn=stream) for _ in range(50)]
    runs = [agent.prompt(f"question {number}") for number, agent in enumerate(agents)]
    for number, run in enumerate(runs):
        assert run.result(10)[-1].text == f"answer to question {number}"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_in_a_tool() -> None:
    """In the child no run is going: the agent is idle there and can run; the parent's run goes on."""
    answers: list[bytes] = []

    def in_child() -> str:
        run = seen[0]
        if agent.active_run is not None or not run.done() or agent.state.is_streaming:
            return "the agent is not idle"
        agent.stream_fn = scripted_stream(says("from the child"))
        return agent.run("go").text

    def execute() -> AgentToolResult:
        read_end, write_end = os.pipe()
        seen.append(agent.active_run)
        child = os.fork()
        if child == 0:
            try:
                text = in_child()
            except BaseException as error:
                text = f"{type(error).__name__}: {error}"
            os.write(write_end, text.encode())
            os._exit(0)
        os.close(write_end)
        with os.fdopen(read_end, "rb") as pipe:
            answers.append(pipe.read())
        os.waitpid(child, 0)
        return AgentToolResult([TextContent("forked")])

    seen: list[Any] = []
    agent = Agent(tools=[AgentTool("fork", "fork", "", OBJECT, execute)], stream_fn=scripted_stream(calls("fork"), says("ok")))
    assert agent.run("go", timeout=20).text == "ok"
    assert answers == [b"from the child"]


def test_a_run_is_linked_only_where_a_tool_started_it() -> None:
    """A run that a listener starts is not ended by an abort of the outer one."""
    gate = threading.Event()
    inner = Agent(stream_fn=scripted_stream(waits(gate) + says("inner")))
    outer = Agent(stream_fn=scripted_stream(says("one", "two")))
    runs: list[Any] = []

    def listener(event: Any) -> None:
        if event.type == "message_update" and not runs:
            runs.append(inner.prompt("go"))
            outer.abort()

    outer.subscribe(listener)
    outer.prompt("go").wait(5)
    assert not runs[0].signal.aborted
    gate.set()
    assert runs[0].result(5)[-1].text == "inner"
