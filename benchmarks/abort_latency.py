"""How long `agent.abort()` takes until the run has settled, in each state in which a run can wait.

There is no floor: with bare `requests` a thread that waits cannot be reached at all.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import agentcore
from benchmarks.frame import Options, Row, in_turns

TITLE = "Abort until idle"


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


def _in_a_tool(url: str, execute: Callable[..., agentcore.AgentToolResult], reached: threading.Event) -> float:
    tool = agentcore.AgentTool("look", "Look", "Look.", {"type": "object", "properties": {}}, execute)
    return _abort_when(agentcore.Agent(model=agentcore.openai_compatible(f"{url}/v1", "bench"), tools=[tool]), reached)


def _in_a_heeding_tool(url: str) -> float:
    reached = threading.Event()

    def execute(tool_call_id: str, args: Any, signal: agentcore.AbortSignal) -> agentcore.AgentToolResult:
        reached.set()
        signal.wait(30)
        return agentcore.AgentToolResult()

    return _in_a_tool(url, execute, reached)


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
        "in a silent stream": (lambda: _waiting_for(f"{url}/silent", "message_update"), 20.0),
        "in a tool that heeds its signal": (lambda: _in_a_heeding_tool(f"{url}/turns/1"), 20.0),
        "in the shell command sleep 60": (lambda: _in_a_shell_command(f"{url}/turns/1"), 100.0),
    }
    for measure_one, _ in states.values():
        measure_one()
    figures = in_turns(max(options.rounds, 5), *(measure_one for measure_one, _ in states.values()))
    return [Row(name, "ms", found, goal=goal) for (name, (_, goal)), found in zip(states.items(), figures, strict=True)]
