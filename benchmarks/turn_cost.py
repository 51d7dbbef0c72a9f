"""What a turn of a tool loop costs in CPU: one request, one tool call, its result; 25, 100 and 400 turns in one conversation.

A turn should not grow dearer faster than the floor's does: that has to write the whole history for each request, and so has
everybody else. What is above it is walking, copying or validating the history again in each turn.
"""

from __future__ import annotations

from typing import Any

import requests

import agentcore
from benchmarks import floor
from benchmarks.frame import Options, Row, cpu_seconds, in_turns

TITLE = "CPU per turn of a tool loop"


def make_tool() -> agentcore.AgentTool:
    """Make the floor's tool into one of the library."""

    def execute(tool_call_id: str, args: dict[str, Any]) -> agentcore.AgentToolResult:
        return agentcore.AgentToolResult([agentcore.TextContent(floor.look(**args))])

    function = floor.TOOL["function"]
    return agentcore.AgentTool("look", "Look", function["description"], function["parameters"], execute)  # type: ignore[index]


def run_ours(url: str, listeners: int = 1) -> list[Any]:
    """Run the conversation of `floor.run_tool_loop` with an agent; return its messages."""
    agent = agentcore.Agent(
        model=agentcore.openai_compatible(f"{url}/v1", "bench"), system_prompt=floor.SYSTEM, tools=[make_tool()]
    )
    for _ in range(listeners):
        agent.subscribe(lambda event: None)
    return agent.prompt("Travel.").result(timeout=600)


def measure(options: Options) -> list[Row]:
    """Measure."""
    rows: list[Row] = []
    with requests.Session() as session:
        for turns in (25, 100) if options.is_quick else (25, 100, 400):
            url = f"{options.url}/turns/{turns}"
            run_ours(url), floor.run_tool_loop(session, url)  # imports and connections
            times = range(max(1, 200 // turns))  # a short conversation alone is within the noise
            ours, bare = in_turns(
                options.rounds,
                lambda url=url, times=times: cpu_seconds(lambda: [run_ours(url) for _ in times]),  # type: ignore[misc]
                lambda url=url, times=times: cpu_seconds(lambda: [floor.run_tool_loop(session, url) for _ in times]),  # type: ignore[misc]
            )
            scale = 1000 / (turns + 1) / len(times)
            rows.append(Row(f"{turns} turns", "ms", [s * scale for s in ours], [s * scale for s in bare], goal=1.5))
    first, last = rows[0], rows[-1]
    mine, bare = (
        [late / early for early, late in zip(*sides, strict=True)] for sides in ((first.ours, last.ours), (first.floor, last.floor))
    )
    goal = None if options.is_quick else 1.0  # at 100 turns nothing has grown yet
    rows.append(Row(f"growth from {first.name.split()[0]} to {last.name}", "times", mine, bare, goal=goal))
    return rows
