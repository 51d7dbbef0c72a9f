"""A listener that raises, and an abort, at every position of a run: nothing that was done is lost, and the agent is usable.

One run has it all: text, calls that end well, a call with updates, a call that is not run, an answer that breaks off and is asked
for again, a second turn with calls, a steered message, a follow-up.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

from agentcore.abort import AbortSignal
from agentcore.agent import Agent
from agentcore.codec import encode
from agentcore.events import AgentEvent
from agentcore.loop.config import RetryPolicy
from agentcore.messages import AgentToolResult, TextContent
from agentcore.session import MemorySessionStorage, Session
from agentcore.testing import calls, fails, says, scripted_stream
from agentcore.tools.agent_tool import AgentTool, ToolExecutionMode
from agentcore.transcript import pair_tool_results

NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


class Scene:
    """An agent with a session, and what its tools have done."""

    def __init__(self, mode: str) -> None:
        self.done: list[int] = []
        self.events: list[AgentEvent] = []
        self.in_tool: Callable[[], object] | None = None
        stream = scripted_stream(
            says("a", "b") + calls("note", n=1) + calls("note", n=2) + calls("gone") + calls("slow", n=3),
            says("half") + fails("overloaded", kind="server", retryable=True),
            says("whole") + calls("note", n=4),
            says("end"),
            says("end of the follow-up"),
            *[says("later")] * 3,
        )
        tools = [AgentTool("note", "", "", NUMBER, self.note), AgentTool("slow", "", "", NUMBER, self.slow)]
        self.session = Session(MemorySessionStorage())
        self.agent = Agent(
            tools=tools,
            stream_fn=stream,
            session=self.session,
            tool_execution=ToolExecutionMode(mode),
            retry=RetryPolicy(3, 0.0),
        )
        self.agent.follow_up("follow-up")

    def note(self, tool_call_id: str, args: dict[str, int]) -> AgentToolResult:
        if self.in_tool is not None:
            self.in_tool()
        self.done.append(args["n"])
        return AgentToolResult([TextContent(f"done {args['n']}")])

    def slow(self, tool_call_id: str, args: dict[str, int], signal: AbortSignal, on_update: Any) -> AgentToolResult:
        on_update(AgentToolResult([TextContent("half")]))
        return self.note(tool_call_id, args)

    def check(self, replaced: int = 0) -> None:
        """Idle; what was done is told, once; the file is as the transcript; every call can be answered; the next prompt works."""
        agent, state = self.agent, self.agent.state
        assert agent.active_run is None
        assert (state.is_streaming, state.streaming_message, state.pending_tool_calls) == (False, None, frozenset())
        stored = [entry.message for entry in self.session.get_branch()]  # type: ignore[union-attr]
        assert [encode(message) for message in stored] == [encode(message) for message in agent.messages]
        results = [message for message in agent.messages if message.role == "toolResult" and not message.is_error]
        told = {message.content[0].text for message in results}  # type: ignore[union-attr]
        assert told <= {f"done {n}" for n in self.done}
        assert len(results) == len(self.done) - replaced
        assert len(self.done) == len(set(self.done))
        paired = pair_tool_results(agent.messages)
        calls_made = [call.id for message in paired if message.role == "assistant" for call in message.tool_calls]
        assert calls_made == [message.tool_call_id for message in paired if message.role == "toolResult"]
        texts = [message.content[0].text for message in agent.messages if message.role == "user"]  # type: ignore[union-attr]
        waiting = [message.content[0].text for message in agent.follow_up_queue.messages()]  # type: ignore[union-attr]
        assert (texts + waiting).count("follow-up") == 1
        run = agent.prompt("again")
        assert run.wait(10)
        assert run.exception() is None


def count_events(mode: str) -> int:
    scene = Scene(mode)
    scene.agent.subscribe(scene.events.append)
    scene.agent.prompt("go").result(10)
    kinds = {event.type for event in scene.events}
    assert kinds >= {"retry", "tool_execution_update", "tool_execution_end", "message_update", "turn_start", "agent_end"}
    return len(scene.events)


@pytest.mark.parametrize("mode", ["parallel", "sequential"])
@pytest.mark.parametrize(
    ("error", "is_lasting"),
    [
        (ValueError("no"), False),
        (ValueError("no"), True),
        (SystemExit(3), True),
        (StopIteration(), False),
        (KeyboardInterrupt(), False),
    ],
)
def test_a_listener_that_raises_anywhere_loses_nothing(
    mode: str, error: BaseException, is_lasting: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """C062 at every event: once, or from there on; also with what is no Exception, and what would end a generator."""
    caplog.set_level(logging.CRITICAL, "agentcore")
    for position in range(count_events(mode)):
        scene = Scene(mode)

        def listen(event: AgentEvent, scene: Scene = scene, position: int = position) -> None:
            scene.events.append(event)
            count = len(scene.events) - 1
            if count == position or (is_lasting and count > position):
                raise error

        unsubscribe = scene.agent.subscribe(listen)
        run = scene.agent.prompt("go")
        assert run.wait(10)
        assert run.exception() is not None
        unsubscribe()
        scene.check()


@pytest.mark.pythons
@pytest.mark.parametrize("mode", ["parallel", "sequential"])
@pytest.mark.parametrize("who", ["listener", "another thread"])
def test_an_abort_anywhere_loses_nothing(mode: str, who: str) -> None:
    """At every event, from the listener itself or from another thread; what was done before and behind it is told."""
    for position in range(count_events(mode)):
        scene = Scene(mode)

        def listen(event: AgentEvent, scene: Scene = scene, position: int = position) -> None:
            scene.events.append(event)
            if len(scene.events) - 1 == position:
                if who == "listener":
                    scene.agent.abort("enough")
                else:
                    thread = threading.Thread(target=scene.agent.abort, args=("enough",))
                    thread.start()
                    thread.join(5)

        unsubscribe = scene.agent.subscribe(listen)
        assert scene.agent.prompt("go").wait(10)
        assert scene.events[-1].type == "agent_end"
        unsubscribe()
        scene.check()


@pytest.mark.parametrize("mode", ["parallel", "sequential"])
def test_an_abort_in_a_tool_loses_nothing(mode: str) -> None:
    """The call that aborts comes to its end and is told."""
    scene = Scene(mode)
    scene.in_tool = lambda: scene.agent.abort("enough")
    scene.agent.prompt("go").wait(10)
    scene.in_tool = None
    assert scene.done
    scene.check()


@pytest.mark.parametrize(
    "hook",
    [
        "convert_to_llm", "transform_context", "get_api_key", "before_tool_call", "after_tool_call", "should_stop_after_turn",
        "prepare_next_turn", "prepare_next_turn_with_context", "before_request", "recover", "before_run", "after_run",
    ],
)  # fmt: skip
@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3)])
def test_a_hook_that_raises_anywhere_loses_nothing(hook: str, error: BaseException) -> None:
    """Each hook at each of its calls."""
    position, has_raised = 0, True
    while has_raised:
        scene, has_raised, count = Scene("parallel"), False, 0

        def raising(*arguments: Any, position: int = position) -> Any:
            nonlocal count, has_raised
            count += 1
            if count - 1 == position:
                has_raised = True
                raise error
            return arguments[0] if hook in ("convert_to_llm", "transform_context") else None

        setattr(scene.agent, hook, raising)
        assert scene.agent.prompt("go").wait(10)
        setattr(scene.agent, hook, None)
        # What `after_tool_call` raises stands in place of the result, as recorded; but what is no Exception fails the run.
        scene.check(replaced=int(has_raised and hook == "after_tool_call" and isinstance(error, Exception)))
        position += 1
    assert position > 0
