"""How long a batch of tools takes that each wait for 100 ms: ideally as long as one of them.

The floor is the longest of them alone, so the ratio is what the batch adds, from its first start to its last end. A pool with as
many workers as the machine has cores, or a lock that is held while a tool runs, shows here as a multiple.
"""

from __future__ import annotations

import time
from typing import Any

import agentcore
from benchmarks.frame import Options, Row, in_turns

TITLE = "Makespan of parallel tools, 100 ms each"
SECONDS = 0.1


def run_batch(url: str) -> float:
    """Return the time in ms from the first tool's start to the last one's end."""

    def execute(tool_call_id: str, args: dict[str, Any]) -> agentcore.AgentToolResult:
        time.sleep(SECONDS)
        return agentcore.AgentToolResult()

    parameters = {"type": "object", "properties": {"city": {"type": "string"}}}
    tool = agentcore.AgentTool("look", "Look", "Look.", parameters, execute)
    agent = agentcore.Agent(model=agentcore.openai_compatible(f"{url}/v1", "bench"), tools=[tool])
    times: list[float] = []

    def on_event(event: Any) -> None:
        if event.type in ("tool_execution_start", "tool_execution_end"):
            times.append(time.perf_counter())

    agent.subscribe(on_event)
    agent.prompt("Go.").result(timeout=60)
    return (times[-1] - times[0]) * 1000


def measure(options: Options) -> list[Row]:
    """Measure."""
    rows = []
    for count in (8, 32):
        url = f"{options.url}/calls/{count}"
        run_batch(url)
        (found,) = in_turns(options.rounds, lambda url=url: run_batch(url))  # type: ignore[misc]
        rows.append(Row(f"{count} tools", "ms", found, [SECONDS * 1000] * len(found), goal=1.15))
    return rows
