"""What a streamed delta costs in CPU, from the socket to one listener: text, thinking, and the arguments of a tool call.

The floor reads the same stream with sseclient and `json.loads` and calls a function for each delta. The cost of a delta must not
depend on how many came before it: that is what the last lines show, where the floor is ours with few deltas.
"""

from __future__ import annotations

from typing import Any

import requests

import agentcore
from benchmarks import floor
from benchmarks.frame import Options, Row, cpu_seconds, in_turns
from benchmarks.turn_cost import make_tool

TITLE = "CPU per streamed delta, one listener"

SIZES = {"text": (1_000, 20_000, 100_000), "thinking": (1_000, 20_000, 100_000), "arguments": (1_000, 8_000)}


def run_ours(url: str, kind: str) -> None:
    """Stream one answer to a listener. A call is not carried out: it is the stream that is measured."""
    tools = [make_tool()] if kind == "arguments" else []
    agent = agentcore.Agent(
        model=agentcore.openai_compatible(f"{url}/v1", "bench"),
        system_prompt=floor.SYSTEM,
        tools=tools,
        before_tool_call=lambda: agentcore.BeforeToolCallResult(block=True),
        should_stop_after_turn=lambda: True,
    )
    seen: list[str] = []

    def on_event(event: Any) -> None:
        if event.type == "message_update":
            delta = getattr(event.assistant_message_event, "delta", None)
            if delta is not None:
                seen.append(delta)

    agent.subscribe(on_event)
    agent.prompt("Write.").result(timeout=600)
    assert len(seen) >= 1000


def run_floor(session: requests.Session, url: str) -> None:
    """Stream the same answer with nothing but the libraries."""
    body = {"model": "bench", "messages": [{"role": "user", "content": "Write."}], "stream": True}
    seen: list[str] = []
    floor.read_answer(floor.stream_events(session, url, body), seen.append)
    assert len(seen) >= 1000


def measure(options: Options) -> list[Row]:
    """Measure."""
    rows: list[Row] = []
    growth: list[Row] = []
    with requests.Session() as session:
        for kind, sizes in SIZES.items():
            few, many = sizes[0], sizes[1] if options.is_quick else sizes[-1]
            figures: dict[int, list[float]] = {}
            for size in [size for size in sizes if size <= many]:
                url = f"{options.url}/{kind}/{size}"
                run_ours(url, kind), run_floor(session, url)
                ours, bare = in_turns(
                    options.rounds,
                    lambda url=url, kind=kind: cpu_seconds(lambda: run_ours(url, kind)),  # type: ignore[misc]
                    lambda url=url: cpu_seconds(lambda: run_floor(session, url)),  # type: ignore[misc]
                )
                figures[size] = [seconds * 1e6 / size for seconds in ours]
                rows.append(
                    Row(f"{kind}, {size:,} deltas", "µs", figures[size], [seconds * 1e6 / size for seconds in bare], goal=2.0)
                )
            growth.append(Row(f"{kind}, {many:,} deltas / {few:,}", "µs", figures[many], figures[few], goal=1.2))
    return rows + growth
