"""How long `agent.abort()` takes until the run has settled, in each state in which a run can wait.

Whoever presses a key to stop an agent wants it to stop. There is no floor: with bare `requests` a thread that waits cannot be
reached at all. A tool that does not heed its signal has the agent's `tool_grace` (here 0.1 s), and then is given up.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import agentcore
from benchmarks.frame import Options, Row, in_turns

TITLE = "Abort until idle"
_GRACE = 0.1


def _abort_when(agent: agentcore.Agent, is_there: threading.Event) -> float:
    run = agent.prompt("Go.")
    if not is_there.wait(30):
        raise TimeoutError("the run did not get to where it should be aborted")
    time.sleep(0.02)  # let it sink into its wait
    started = time.perf_counter()
    agent.abort()
    run.wait(30)
    return (time.perf_counter() - started) * 1000


def _on(event_type: str, reached: threading.Event) -> Callable[[Any], None]:
    return lambda event: reached.set() if event.type == event_type else None


def _waiting_for(url: str, event_type: str, **settings: Any) -> float:
    agent = agentcore.Agent(model=agentcore.openai_compatible(f"{url}/v1", "bench"), **settings)
    reached = threading.Event()
    agent.subscribe(_on(event_type, reached))
    return _abort_when(agent, reached)


def _in_a_tool(url: str, execute: Callable[..., Any], reached: threading.Event, **settings: Any) -> float:
    tool = agentcore.AgentTool("look", "Look", "Look.", {"type": "object", "properties": {}}, execute)
    model = agentcore.openai_compatible(f"{url}/v1", "bench")
    return _abort_when(agentcore.Agent(model=model, tools=[tool], **settings), reached)


def _in_a_heeding_tool(url: str) -> float:
    reached = threading.Event()

    def execute(tool_call_id: str, args: Any, signal: agentcore.AbortSignal) -> agentcore.AgentToolResult:
        reached.set()
        signal.wait(30)
        return agentcore.AgentToolResult()

    return _in_a_tool(url, execute, reached)


def _in_a_deaf_tool(url: str) -> float:
    reached, let_go = threading.Event(), threading.Event()
    logging.getLogger("agentcore").setLevel(logging.ERROR)  # it warns of a tool that was given up

    def execute(tool_call_id: str, args: Any) -> agentcore.AgentToolResult:
        reached.set()
        let_go.wait(30)
        return agentcore.AgentToolResult()

    try:
        return _in_a_tool(url, execute, reached, tool_grace=_GRACE)
    finally:
        let_go.set()
        logging.getLogger("agentcore").setLevel(logging.NOTSET)


def _on_a_reused_connection(url: str) -> float:
    agent = agentcore.Agent(model=agentcore.openai_compatible(f"{url}/then-mute/v1", "bench"))
    agent.run("Go.", timeout=30)
    reached = threading.Event()
    agent.subscribe(_on("message_end", reached))
    return _abort_when(agent, reached)


def _in_a_shell_command(url: str) -> float:
    reached = threading.Event()
    bash = agentcore.create_bash_tool()

    def execute(tool_call_id: str, args: Any, signal: agentcore.AbortSignal, on_update: Any) -> agentcore.AgentToolResult:
        reached.set()
        result: agentcore.AgentToolResult = bash.run(tool_call_id, {"command": "sleep 60"}, signal, on_update, None)
        return result

    return _in_a_tool(url, execute, reached)


def measure(options: Options) -> list[Row]:
    """Measure."""
    url = options.url
    states: dict[str, tuple[Callable[[], float], float]] = {
        "before the headers": (lambda: _waiting_for(f"{url}/mute", "message_end"), 20.0),
        "before the headers, on a reused connection": (lambda: _on_a_reused_connection(url), 20.0),
        "in a silent stream": (lambda: _waiting_for(f"{url}/silent", "message_update"), 20.0),
        "in a stream that goes on": (lambda: _waiting_for(f"{url}/clock/3000", "message_update"), 20.0),
        "in the pause before another try": (lambda: _waiting_for(f"{url}/busy", "retry"), 20.0),
        "in a tool that heeds its signal": (lambda: _in_a_heeding_tool(f"{url}/turns/1"), 20.0),
        "in a tool that does not, with 100 ms of grace": (lambda: _in_a_deaf_tool(f"{url}/turns/1"), _GRACE * 1000 + 20.0),
        "in the shell command sleep 60": (lambda: _in_a_shell_command(f"{url}/turns/1"), 100.0),
    }
    for measure_one, _ in states.values():
        measure_one()
    figures = in_turns(max(options.rounds, 5), *(measure_one for measure_one, _ in states.values()))
    return [Row(name, "ms", found, limit=limit) for (name, (_, limit)), found in zip(states.items(), figures, strict=True)]
