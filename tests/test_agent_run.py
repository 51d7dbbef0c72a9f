"""A `Run`: its result, who may wait for it, and what it is to other libraries."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import wait as wait_for_futures
from typing import Any

import pytest

from agentcore.agent import Agent
from agentcore.errors import AgentAbortedError, AgentBusyError, AgentRunError
from agentcore.loop.run import active_runs
from agentcore.messages import Usage, UserMessage
from agentcore.testing import calls, ends, fails, says, scripted_stream, waits
from agentcore.tools.decorator import tool

pytestmark = pytest.mark.pythons


def test_result_gives_the_new_messages_and_message_the_last_answer() -> None:
    """A run knows what it added; earlier messages are not among it."""
    agent = Agent(messages=[UserMessage("before")], stream_fn=scripted_stream(says("Hello", "!")))
    run = agent.prompt("hi")
    assert [message.role for message in run.result(5)] == ["user", "assistant"]
    assert run.done() and run.text == "Hello!" and run.message is agent.messages[-1]
    assert run.exception() is None
    assert agent.active_run is None


def test_a_run_that_goes_on_has_no_result_yet() -> None:
    """Waits end with their time, and the run goes on; `result` says so."""
    gate = threading.Event()
    agent = Agent(stream_fn=scripted_stream(waits(gate) + says("late")))
    run = agent.prompt("hi")
    assert agent.active_run is run and not run.done() and run.text == ""
    assert run.wait(0.01) is False
    assert agent.wait_for_idle(0.01) is False
    with pytest.raises(TimeoutError, match="goes on"):
        run.result(0.01)
    assert not run.signal.aborted
    gate.set()
    assert run.wait(5) and run.text == "late"


def test_run_with_a_timeout_aborts() -> None:
    """`agent.run(timeout=)` gives up: the run is aborted and settled when TimeoutError comes."""
    agent = Agent(stream_fn=scripted_stream(waits(threading.Event()), says("next")))
    with pytest.raises(TimeoutError, match=r"not done within 0\.05 s and was aborted"):
        agent.run("hi", timeout=0.05)
    assert agent.active_run is None
    assert agent.messages[-1].stop_reason == "aborted"  # type: ignore[union-attr]
    assert agent.run("again", timeout=5).text == "next"


def test_a_failed_run_raises_what_happened() -> None:
    """Text, kind and message come from the failed answer."""
    agent = Agent(stream_fn=scripted_stream(fails("key refused", kind="auth")))
    with pytest.raises(AgentRunError, match="key refused") as raised:
        agent.run("hi")
    assert raised.value.kind == "auth"
    assert raised.value.message is agent.messages[-1]
    assert agent.state.error_message == "key refused"


def test_a_hook_that_raises_is_the_cause() -> None:
    """An exception of a hook fails the run with its text, and is kept as the cause."""

    def broken(messages: Any) -> Any:
        raise LookupError("no such row")

    agent = Agent(stream_fn=scripted_stream(says("never")), transform_context=broken)
    with pytest.raises(AgentRunError, match="no such row") as raised:
        agent.run("hi")
    assert raised.value.kind == "hook"
    assert isinstance(raised.value.__cause__, LookupError)


def test_only_if_the_report_fails_too_the_listeners_own_exception_comes_through() -> None:
    """A listener that raises on everything leaves nothing else to say; the agent is idle and usable afterwards."""

    def listener(event: Any) -> None:
        raise OSError("disk full")

    agent = Agent(stream_fn=scripted_stream(says("ok")))
    unsubscribe = agent.subscribe(listener)
    with pytest.raises(OSError, match="disk full"):
        agent.run("hi")
    unsubscribe()
    assert agent.run("again").text == "ok"


def test_an_aborted_run_says_why() -> None:
    """The reason given to abort is in the error; what had come is kept."""
    heard = threading.Event()
    agent = Agent(stream_fn=scripted_stream(says("one ", threading.Event(), "two")))
    agent.subscribe(lambda event: heard.set() if event.type == "message_update" and event.message.text else None)
    run = agent.prompt("hi")
    assert heard.wait(5)
    agent.abort("changed my mind")
    agent.abort("a second time")
    with pytest.raises(AgentAbortedError, match="the run was aborted: changed my mind") as raised:
        run.result(5)
    assert raised.value.reason == "changed my mind"
    assert run.text == "one "


def test_done_callbacks_may_start_the_next_run() -> None:
    """They run when the agent is idle, get the run, and may ask for its result; what they raise is only logged."""
    agent = Agent(stream_fn=scripted_stream(says("one"), says("two")))
    second: list[Any] = []
    finished = threading.Event()

    def go_on(run: Any) -> None:
        assert run.result()[-1].text == "one"
        second.append(agent.prompt("more"))
        finished.set()

    gate = threading.Event()
    agent.subscribe(lambda event: gate.wait(5) if event.type == "agent_start" else None)
    run = agent.prompt("hi")
    run.add_done_callback(lambda run: 1 / 0)
    run.add_done_callback(go_on)
    gate.set()
    assert finished.wait(5)
    assert second[0].result(5)[-1].text == "two"
    late: list[Any] = []
    run.add_done_callback(late.append)
    assert late == [run]


def test_future_is_a_real_future() -> None:
    """It can be waited for with others, has the result or the error, and cancelling it aborts the run."""
    agent = Agent(stream_fn=scripted_stream(says("ok"), fails("broken"), waits(threading.Event())))
    future = agent.prompt("hi").future()
    done, _ = wait_for_futures([future], timeout=5)
    assert done == {future}
    assert future.result()[-1].text == "ok"
    with pytest.raises(AgentRunError, match="broken"):
        agent.prompt("hi").future().result(5)
    run = agent.prompt("hi")
    future = run.future()
    assert future is run.future()
    assert future.cancel() is False
    with pytest.raises(AgentAbortedError):
        future.result(5)
    assert run.wait(5)
    assert run.future().done()


def test_a_run_can_be_awaited() -> None:
    """Inside a running asyncio loop, without a patch: `asyncio.wrap_future(run.future())`; cancelling the task aborts the run."""
    agent = Agent(stream_fn=scripted_stream(says("awaited"), waits(threading.Event())))

    async def main() -> Any:
        messages = await asyncio.wrap_future(agent.prompt("hi").future())
        run = agent.prompt("hang")
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.wrap_future(run.future()), 0.05)
        return messages[-1], run

    message, run = asyncio.run(main())
    assert message.text == "awaited"
    assert run.wait(5) and isinstance(run.exception(), AgentAbortedError)


@pytest.mark.parametrize("way", ["wait_for_idle", "wait", "result", "with", "stream"])
def test_waiting_inside_the_own_run_is_an_error(way: str) -> None:
    """In a listener it would wait for itself: it raises at once and says so."""
    agent = Agent(stream_fn=scripted_stream(says("ok")))
    stream: list[Any] = []

    def wait(event: Any) -> None:
        run = agent.active_run
        assert run is not None
        if way == "wait_for_idle":
            agent.wait_for_idle()
        elif way == "wait":
            run.wait(1)
        elif way == "result":
            run.result()
        elif way == "with":
            with agent:
                pass
        else:
            next(stream[0])

    unsubscribe = agent.subscribe(wait)
    if way == "stream":
        ready = threading.Event()
        agent.subscribe(lambda event: None)
        unsubscribe()

        def wait_when_ready(event: Any) -> None:
            assert ready.wait(5)
            wait(event)

        unsubscribe = agent.subscribe(wait_when_ready)
        stream.append(agent.stream("go"))
        ready.set()
        run = stream[0].run
    else:
        run = agent.prompt("go")
    assert run.wait(5)
    with pytest.raises(RuntimeError, match="cannot be waited for from inside itself"):
        run.result()
    unsubscribe()
    assert agent.active_run is None


def test_waiting_in_a_tool_of_the_run_is_an_error_also_through_an_inner_agent() -> None:
    """The chain of runs is known on workers and in runs that were started there."""
    errors: list[BaseException] = []

    @tool
    def wait_directly() -> str:
        """Wait for the own run."""
        outer.wait_for_idle()
        return "never"

    @tool
    def wait_from_inside() -> str:
        """Wait for the outer run, one agent further in."""
        try:
            outer.wait_for_idle()
        except RuntimeError as error:
            errors.append(error)
            raise
        return "never"

    @tool
    def ask_inner() -> str:
        """Run another agent to its end, which is fine."""
        inner = Agent(tools=[wait_from_inside], stream_fn=scripted_stream(calls("wait_from_inside"), says("inner done")))
        return inner.run("go").text

    outer = Agent(
        tools=[wait_directly, ask_inner],
        stream_fn=scripted_stream(calls("wait_directly") + calls("ask_inner"), says("outer done")),
    )
    assert outer.run("go", timeout=10).text == "outer done"
    first, second = (message for message in outer.messages if message.role == "toolResult")
    assert first.is_error and "from inside itself" in first.text
    assert second.text == "inner done" and len(errors) == 1


def test_prompt_while_a_run_is_active_is_refused() -> None:
    """From another thread and from a listener; continue_ and reset too; the run itself is not disturbed."""
    gate = threading.Event()
    agent = Agent(stream_fn=scripted_stream(waits(gate) + says("ok")))
    refused: list[BaseException] = []

    def listener(event: Any) -> None:
        try:
            agent.prompt("me too")
        except AgentBusyError as error:
            refused.append(error)

    agent.subscribe(listener)
    run = agent.prompt("go")
    for call in (lambda: agent.prompt("x"), lambda: agent.stream("x"), agent.continue_, agent.reset):
        with pytest.raises(AgentBusyError, match="a run is active"):
            call()
    gate.set()
    assert run.result(5)[-1].text == "ok"
    assert refused and "steer()" in str(refused[0])
    assert len(agent.messages) == 2


def test_leaving_a_with_block_waits_and_an_exception_aborts() -> None:
    """Normally the run is waited for; an exception aborts it, settles, and comes through."""
    agent = Agent(stream_fn=scripted_stream(says("ok"), waits(threading.Event())))
    with agent:
        agent.prompt("one")
    assert agent.messages[-1].text == "ok"
    with pytest.raises(ZeroDivisionError), agent:
        agent.prompt("two")
        raise ZeroDivisionError
    assert agent.active_run is None
    assert agent.messages[-1].stop_reason == "aborted"  # type: ignore[union-attr]


def test_a_thread_that_cannot_be_started_leaves_the_agent_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without threads left, prompt raises what Python says, and works again later."""
    agent = Agent(stream_fn=scripted_stream(says("ok")))

    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            agent.prompt("hi")
    assert agent.active_run is None and not agent.state.is_streaming
    assert agent.run("hi").text == "ok"


def test_runs_that_start_each_other_leave_nothing_behind() -> None:
    """A chain of done callbacks neither grows the chain of runs nor keeps waiters that gave up."""
    from agentcore.loop.run import current_runs

    lengths: list[int] = []
    finished = threading.Event()
    agent = Agent(stream_fn=lambda *args: scripted_stream(says("ok"))(*args))
    agent.subscribe(lambda event: lengths.append(len(current_runs.get())) if event.type == "agent_start" else None)

    def again(run: Any) -> None:
        if len(lengths) < 30:
            agent.prompt("more").add_done_callback(again)
        else:
            finished.set()

    agent.prompt("go").add_done_callback(again)
    assert finished.wait(10)
    assert lengths == [1] * 30
    gate = threading.Event()
    agent.stream_fn = scripted_stream(waits(gate) + says("ok"))
    run = agent.prompt("go")
    for _ in range(100):
        assert not run.wait(0)
    assert run._waiters == []
    gate.set()
    assert run.wait(5)


def test_a_run_knows_what_it_took() -> None:
    """`Run.usage` is that of one run, `Agent.usage` that of all; a run that failed keeps what it had added."""
    agent = Agent(
        stream_fn=scripted_stream(
            says("one") + ends(usage=Usage(input=10, output=1, total_tokens=11)),
            calls("nothing") + ends(usage=Usage(input=20, output=2, total_tokens=22)),
            fails("broken"),
        )
    )
    first = agent.prompt("a")
    first.result(5)
    second = agent.prompt("b")
    assert isinstance(second.exception(5), AgentRunError)
    assert (first.usage.input, second.usage.input, agent.usage.input) == (10, 20, 30)
    assert [message.role for message in second.messages] == ["user", "assistant", "toolResult", "assistant"]
    assert second.messages == agent.messages[2:]


def test_a_run_that_a_listener_ended_keeps_its_messages() -> None:
    """What it had added before the listener raised is among its messages, and the failure is the last one."""

    def listen(event: Any) -> None:
        if event.type == "turn_end" and event.message.stop_reason != "error":
            raise ValueError("no")

    agent = Agent(stream_fn=scripted_stream(says("one")))
    agent.subscribe(listen)
    run = agent.prompt("a")
    assert isinstance(run.exception(5), AgentRunError)
    assert run.messages == agent.messages and len(run.messages) == 3


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), ValueError("no")])
def test_whatever_the_last_hook_or_a_done_callback_raises_the_run_settles(error: BaseException) -> None:
    """Whoever waits is told, the other callbacks are called, and nothing is waited for at exit."""

    def raising(*arguments: object) -> None:
        raise error

    agent = Agent(stream_fn=scripted_stream(says("one"), says("two")))
    agent.after_run = raising
    gate, called = threading.Event(), threading.Event()
    agent.transform_context = lambda messages: gate.wait(5) and messages
    run = agent.prompt("a")
    run.add_done_callback(raising)
    run.add_done_callback(lambda run: called.set())
    gate.set()
    assert run.wait(5) and called.wait(5)
    run.join(5)
    assert run not in active_runs()
    assert agent.run("b", timeout=5).text == "two"


@pytest.mark.parametrize("timeout", ["5", True, object()])
def test_a_timeout_that_is_none_is_refused_before_the_run_starts(timeout: Any) -> None:
    """Nothing has begun then."""
    gate = threading.Event()
    agent = Agent(stream_fn=scripted_stream(waits(gate) + says("one")))
    with pytest.raises(TypeError, match="timeout must be seconds or None"):
        agent.run("a", timeout=timeout)
    assert agent.messages == [] and agent.active_run is None
    run = agent.prompt("a")
    with pytest.raises(TypeError, match="timeout must be seconds or None"):
        run.wait(timeout)
    for wait in (run.wait, run.result, agent.wait_for_idle, run.signal.wait):
        with pytest.raises(ValueError, match="not NaN"):
            wait(float("nan"))
    gate.set()
    run.result(5)


def test_a_done_callback_may_take_no_argument() -> None:
    """`event.set` will do; what is none is refused at once."""
    called = threading.Event()
    agent = Agent(stream_fn=scripted_stream(says("one")))
    run = agent.prompt("a")
    run.add_done_callback(called.set)
    for wrong in (5, lambda run, more: None):
        with pytest.raises(TypeError, match="a done callback"):
            run.add_done_callback(wrong)  # type: ignore[arg-type]
    assert called.wait(5)
    run.abort()  # C007: after its end, an abort does nothing
    assert not run.signal.aborted and run.result(5)
