"""Many runs at once with everything that can happen to a run: no deadlock, every request valid, no thread left."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from agentcore.agent import Agent
from agentcore.errors import AgentAbortedError, AgentRunError
from agentcore.llm.request import Context, StreamOptions
from agentcore.loop import RetryPolicy
from agentcore.messages import AgentToolResult, AssistantMessage, Message, TextContent, ToolResultMessage
from agentcore.testing import Turn, calls_raw, ends, fails, says, scripted_stream, thinks
from agentcore.tools.agent_tool import AgentTool
from agentcore.transcript import pair_tool_results

pytestmark = pytest.mark.pythons

THREADS = 8
WATCHDOG = 20.0
"""Seconds that one run may take at most; none of them does anything that takes long."""


def check_request(messages: list[Message]) -> None:
    """Each call has exactly one result, right behind its answer and in the order of the calls; no result stands alone."""
    paired = pair_tool_results(messages)
    index = 0
    while index < len(paired):
        message = paired[index]
        assert not isinstance(message, ToolResultMessage), f"a result without a call at {index}"
        index += 1
        if isinstance(message, AssistantMessage):
            wanted = [call.id for call in message.tool_calls]
            got = paired[index : index + len(wanted)]
            assert [getattr(result, "tool_call_id", None) for result in got] == wanted
            index += len(wanted)
    given = [message for message in messages if isinstance(message, ToolResultMessage)]
    kept = {id(message) for message in paired}
    assert all(id(message) in kept for message in given), "a result of the transcript has no call"


class Chaos:
    """The stream function, the tools and the listeners of one agent, all by chance."""

    def __init__(self, chance: random.Random, problems: list[str]) -> None:
        self.chance = chance
        self.problems = problems
        self.ran: dict[str, int] = {}
        self.lock = threading.Lock()
        self.numbers = itertools.count()

    def stream(self, model: Any, context: Context, options: StreamOptions) -> Iterator[Any]:
        try:
            check_request(list(context.messages))
        except AssertionError as error:
            self.problems.append(str(error))
        if self.chance.random() < 0.03:
            raise ConnectionError("the stream function broke")
        return scripted_stream(self.turn())(model, context, options)

    def turn(self) -> Turn:
        chance = self.chance
        kind = chance.random()
        if kind < 0.35:
            return says(*[f"word{number} " for number in range(chance.randrange(1, 20))])
        if kind < 0.42:
            return says("half") + fails("overloaded", retryable=True)
        if kind < 0.47:
            return fails("bad request")
        if kind < 0.52:
            return thinks("hm") + self.call("quick") + ends("length")
        if kind < 0.57:
            return calls_raw("quick", '{"broken": ') + self.call("quick")
        turn = self.call(chance.choice(["quick", "slow", "deaf", "raises", "unknown"]))
        for _ in range(chance.randrange(4)):
            turn = turn + self.call(chance.choice(["quick", "slow", "raises"]))
        return turn

    def call(self, name: str) -> Turn:
        return calls_raw(name, "{}", id=f"{name}-{next(self.numbers)}")

    def tools(self) -> list[AgentTool]:
        def quick(call_id: str) -> AgentToolResult:
            with self.lock:
                self.ran[call_id] = self.ran.get(call_id, 0) + 1
            return AgentToolResult([TextContent("quick")])

        def slow(call_id: str, args: Any, signal: Any, on_update: Any) -> AgentToolResult:
            on_update(AgentToolResult([TextContent("half")]))
            signal.wait(self.chance.random() * 0.02)
            return quick(call_id)

        def deaf(call_id: str) -> AgentToolResult:
            time.sleep(0.03)  # whatever the signal says; with a short grace period it is given up
            return quick(call_id)

        def raises(call_id: str) -> AgentToolResult:
            quick(call_id)
            raise ValueError("the tool broke")

        parameters = {"type": "object", "properties": {}}
        made = [("quick", quick), ("slow", slow), ("deaf", deaf), ("raises", raises)]
        return [AgentTool(name, name, "", parameters, execute) for name, execute in made]

    def listener(self) -> Any:
        """Make a listener that raises at one event by chance."""
        countdown = self.chance.randrange(1, 120)

        def listen(event: Any) -> None:
            nonlocal countdown
            countdown -= 1
            if countdown == 0:
                raise LookupError("the listener broke")

        return listen


def play(chance: random.Random, runs: int, problems: list[str], outcomes: list[str]) -> None:
    """Make agents and run them one after the other, while a thread disturbs them."""
    left = runs
    while left > 0:
        chaos = Chaos(chance, problems)
        agent = Agent(
            stream_fn=chaos.stream,
            tools=chaos.tools(),
            retry=RetryPolicy(2, 0.001),
            tool_execution=chance.choice(["parallel", "sequential"]),
            steering_mode=chance.choice(["all", "one-at-a-time"]),
            follow_up_mode="all",
            tool_grace=chance.choice([0.005, 0.5]),
            should_stop_after_turn=lambda chance=chance: chance.random() < 0.15,
        )
        stop = threading.Event()
        disturber = threading.Thread(target=disturb, args=(agent, random.Random(chance.random()), stop))
        disturber.start()
        try:
            for _ in range(min(left, 10)):
                left -= 1
                outcomes.append(run_once(agent, chaos, chance, problems))
        finally:
            stop.set()
            disturber.join(WATCHDOG)
        if any(count > 1 for count in chaos.ran.values()):
            problems.append("a call was run twice")


def run_once(agent: Agent, chaos: Chaos, chance: random.Random, problems: list[str]) -> str:
    remove = agent.subscribe(chaos.listener()) if chance.random() < 0.4 else None
    if chance.random() < 0.2:
        stream = agent.stream("go")
        for number, _ in enumerate(stream):
            if number > 15:
                stream.close()
                break
        run = stream.run
    else:
        run = agent.prompt("go")
    if not run.wait(WATCHDOG):
        problems.append(f"a run has not settled within {WATCHDOG:g} s: {[thread.name for thread in threading.enumerate()]}")
        run.abort()
        return "hangs"
    error = run.exception()
    if error is not None and not isinstance(error, (AgentRunError, AgentAbortedError, LookupError)):
        problems.append(f"{type(error).__name__}: {error}")
    if agent.active_run is not None or agent.state.is_streaming or agent.state.pending_tool_calls:
        problems.append("the agent is not idle after its run")
    if remove is not None:
        remove()
    return "done" if error is None else type(error).__name__


def disturb(agent: Agent, chance: random.Random, stop: threading.Event) -> None:
    while not stop.wait(chance.random() * 0.01):
        kind = chance.random()
        if kind < 0.3:
            agent.abort("by chance")
        elif kind < 0.6:
            agent.steer("and this")
        elif kind < 0.7:
            agent.follow_up("then that")
        elif kind < 0.8:
            agent.subscribe(lambda event: None)()
        elif kind < 0.9:
            agent.wait_for_idle(0.001)


def stress(runs: int, seed: int) -> None:
    before = set(threading.enumerate())
    problems: list[str] = []
    outcomes: list[str] = []
    per_thread = runs // THREADS
    threads = [
        threading.Thread(
            target=play, args=(random.Random(seed * 1000 + number), per_thread, problems, outcomes), name=f"stress-{number}"
        )
        for number in range(THREADS)
    ]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + WATCHDOG + per_thread * 2
    for thread in threads:
        thread.join(max(0.1, deadline - time.monotonic()))
        assert not thread.is_alive(), f"{thread.name} hangs; problems so far: {problems[:5]}"
    assert problems == []
    assert {"done", "AgentRunError", "AgentAbortedError"} <= set(outcomes) and len(outcomes) == runs
    for thread in set(threading.enumerate()) - before:
        thread.join(2)
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize("seed", [1, 2])
def test_two_hundred_runs(seed: int) -> None:
    """200 runs a seed on 8 threads, with random aborts, steers, raising listeners, slow, deaf and failing tools."""
    stress(200, seed)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [3, 4, 5, 6])
def test_two_thousand_runs(seed: int) -> None:
    """The same, ten times as many."""
    stress(2000, seed)
