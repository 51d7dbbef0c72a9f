"""How long a delta takes from the server's write to a listener.

Each delta is the time at which the server wrote it, read off the clock that all processes of a machine share. One every 3 ms, so
that each meets an idle reader: what counts is the way through the library, not the queue in front of it. The best of five rounds
counts, of both sides, since anything else that runs on the machine comes on top.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import requests

import agentcore
from benchmarks import floor
from benchmarks.frame import Options, Row, in_turns

TITLE = "Latency from the server's write to the listener"
DELTAS = 300


def measure_ours(url: str) -> list[float]:
    """Return the latency of each delta in ms."""
    agent = agentcore.Agent(model=agentcore.openai_compatible(f"{url}/v1", "bench"))
    found: list[float] = []

    def on_event(event: Any) -> None:
        if event.type == "message_update" and event.assistant_message_event.type == "text_delta":
            found.append((time.monotonic_ns() - int(event.assistant_message_event.delta)) / 1e6)

    agent.subscribe(on_event)
    agent.prompt("Go.").result(timeout=60)
    return found


def measure_floor(session: requests.Session, url: str) -> list[float]:
    """Return the latency of each delta in ms."""
    found: list[float] = []
    body = {"model": "bench", "messages": [{"role": "user", "content": "Go."}], "stream": True}
    events = floor.stream_events(session, url, body)
    floor.read_answer(events, lambda delta: found.append((time.monotonic_ns() - int(delta)) / 1e6))
    return found


def measure(options: Options) -> list[Row]:
    """Measure."""
    url = f"{options.url}/clock/{DELTAS}"
    with requests.Session() as session:
        measure_ours(url), measure_floor(session, url)
        ours: list[list[float]] = []
        bare: list[list[float]] = []

        def one(found: list[list[float]], latencies: list[float]) -> float:
            found.append(sorted(latencies))
            return 0.0

        in_turns(max(options.rounds, 5), lambda: one(ours, measure_ours(url)), lambda: one(bare, measure_floor(session, url)))
    medians = [[statistics.median(latencies) for latencies in side] for side in (ours, bare)]
    tails = [[latencies[int(len(latencies) * 0.99)] for latencies in side] for side in (ours, bare)]
    lowest = min(medians[1])
    return [
        Row("median, best round", "ms", medians[0], medians[1], limit=lowest + 0.3, is_best=True),
        Row("99 of 100, best round", "ms", tails[0], tails[1], goal=4.0, is_best=True),
    ]
