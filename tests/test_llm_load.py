"""Many requests, and large ones: nothing stays behind, and nothing grows but the answer itself."""

from __future__ import annotations

import gc
import os
import sys
import threading
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

from agentcore.llm import Context, StreamOptions, stream
from agentcore.messages import UserMessage
from agentcore.models import Model
from agentcore.testing import Request, SseServer, answer, fails, says

ENDING = 'data: {"choices":[{"delta":{"content":"ok"},"finish_reason":"stop"}]}\n\n'


def last_of(model: Model, **options: Any) -> Any:
    last: Any = None
    for last in stream(model, Context("", [UserMessage("hi")]), StreamOptions(max_retries=0, **options)):  # noqa: B007
        pass
    return last


@pytest.mark.slow
@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="descriptors are counted in /proc")
def test_two_thousand_requests_leave_nothing_behind() -> None:
    """Good and bad ends in turn: no descriptor, no thread, and no memory to speak of is kept for any of them."""
    script = [
        says("x"),
        answer("bad", status=400),
        answer(says("y"), cut_at=40),
        answer(drop=True),
        answer({"error": "x"}),
        answer(says("z"), framing="close"),
        says("a") + fails("overloaded"),
    ]
    served = 0

    def next_answer(request: Request) -> Any:
        nonlocal served
        served += 1
        return script[served % len(script)]

    def count() -> tuple[int, int]:
        gc.collect()
        return len(os.listdir("/proc/self/fd")), threading.active_count()

    with SseServer(next_answer, repeat=True) as server:
        model = server.model()
        for _ in range(70):
            last_of(model)
        before = count()
        tracemalloc.start()
        server.requests.clear()
        for _ in range(2000):
            last_of(model)
        server.requests.clear()
        gc.collect()
        kept, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        after = count()
    assert all(then <= now + 2 for now, then in zip(before, after, strict=True))
    assert kept < 1_000_000


@pytest.mark.slow
def test_five_hundred_streams_at_the_same_time() -> None:
    """Each has a connection of its own, all are answered, and all connections can serve again."""
    go_on = threading.Event()
    found: list[Any] = []
    with SseServer(says("a", go_on, "b"), repeat=True) as server:
        model = server.model()
        threads = [threading.Thread(target=lambda: found.append(last_of(model))) for _ in range(500)]
        for thread in threads:
            thread.start()
        assert server.wait_for_requests(500, timeout=60)
        go_on.set()
        for thread in threads:
            thread.join(60)
        assert [(last.type, last.message.text) for last in found] == [("done", "ab")] * 500
        last_of(model)
        assert server.connections == 500


def _comments() -> Iterator[str]:
    for _ in range(600):
        yield ": " + "p" * 65000 + "\n\n"
    yield ENDING


def _passed_over() -> Iterator[str]:
    for _ in range(600):
        yield 'data: {"choices":[],"junk":"' + "x" * 65000 + '"}\n\n'
    yield ENDING


@pytest.mark.parametrize("body", [_comments, _passed_over])
def test_what_is_passed_over_takes_no_memory(body: Any) -> None:
    """Forty megabytes of comments, or of chunks that say nothing, are read in the space of a few."""
    with SseServer(says("imports are done"), answer(body())) as server:
        last_of(server.model())
        tracemalloc.start()
        last = last_of(server.model())
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert last.message.text == "ok"
    assert peak < 5_000_000


def test_one_event_of_ten_megabytes_is_read_at_once() -> None:
    """A large event costs what it holds a few times over, however many pieces it comes in."""
    text = "x" * 10_000_000
    with SseServer(
        says("imports are done"), answer(['data: {"choices":[{"delta":{"content":"', text, '"}}]}\n\n', ENDING], chunk_size=30_000)
    ) as server:
        last_of(server.model())
        tracemalloc.start()
        last = last_of(server.model())
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert last.message.text == text + "ok"
    assert peak < 12 * sys.getsizeof(text)
