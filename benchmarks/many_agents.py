"""Many agents at once in one process: five turns each against a server that thinks for 50 ms before each answer.

An agent is a thread, so what each one holds and how they get in each other's way decides how many a process can have.

The floor does the same work with a thread for each conversation, a `requests.Session` in each, and sseclient. Memory is what an
agent adds: the resident memory with 500 of them, less that with 100, divided by 400. Each figure is of a process of its own.
"""

from __future__ import annotations

import json
import statistics
import sys
import threading
import time
from typing import Any

from benchmarks.frame import Options, Row, in_turns, peak_kb, run_child

TITLE = "Many agents at once, 5 turns each, 50 ms of thinking a turn"
TURNS = 5


def measure(options: Options) -> list[Row]:
    """Measure."""
    url = f"{options.url}/turns/{TURNS - 1}/50"
    rows = []
    memory: dict[tuple[str, int], list[float]] = {}

    def run(side: str, count: int) -> float:
        found = run_child("-m", "benchmarks.many_agents", side, str(count), url)
        memory.setdefault((side, count), []).append(found["peak_kb"])
        seconds: float = found["seconds"]
        return seconds

    for count in (1, 50) if options.is_quick else (1, 50, 100, 500):
        ours, bare = in_turns(
            options.rounds,
            lambda count=count: run("ours", count),  # type: ignore[misc]
            lambda count=count: run("floor", count),  # type: ignore[misc]
        )
        rows.append(Row(f"{count} agent{'s' if count > 1 else ''}, wall", "s", ours, bare, goal=1.6))
    few, many = (1, 50) if options.is_quick else (100, 500)
    ours_kb, bare_kb = (
        [(high - low) / (many - few) for low, high in zip(memory[side, few], memory[side, many], strict=True)]
        for side in ("ours", "floor")
    )
    rows.append(
        Row(
            "memory of one more agent",
            "KB",
            ours_kb,
            limit=None if options.is_quick else 100.0,  # of so few agents it is what the process takes anyway
            note=f"a thread of the floor takes {statistics.median(bare_kb):.0f} KB",
        )
    )
    return rows


def run_ours(url: str, count: int) -> None:
    """Run `count` agents at once."""
    import agentcore
    from benchmarks import floor
    from benchmarks.turn_cost import make_tool

    model = agentcore.openai_compatible(f"{url}/v1", "bench")
    agents = [agentcore.Agent(model=model, system_prompt=floor.SYSTEM, tools=[make_tool()]) for _ in range(count)]
    runs = [agent.prompt("Travel.") for agent in agents]
    for run in runs:
        messages: list[Any] = run.result(timeout=300)
        assert len(messages) == 2 * TURNS


def run_floor(url: str, count: int) -> None:
    """Run `count` bare loops at once."""
    import requests

    from benchmarks import floor

    finished: list[int] = []

    def work() -> None:
        with requests.Session() as session:
            finished.append(len(floor.run_tool_loop(session, url)))

    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(finished) == count


def main() -> None:
    """Run one side once; print what it took."""
    side, count, url = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    work = run_ours if side == "ours" else run_floor
    work(url, 1)  # imports
    started = time.perf_counter()
    work(url, count)
    seconds = time.perf_counter() - started
    print(json.dumps({"seconds": seconds, "peak_kb": peak_kb()}))


if __name__ == "__main__":
    main()
