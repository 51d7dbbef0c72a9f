"""The benchmarks measure what they say: both sides do the same work, and a comparison finds what got slower."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from benchmarks import abort_latency, delta_cost, floor, latency, parallel_tools, turn_cost
from benchmarks.__main__ import NAMES
from benchmarks.frame import Options, Row, compare, in_turns
from benchmarks.server import serve


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A running server."""
    with serve() as address:
        yield address


@pytest.fixture(scope="module", autouse=True)
def _server_before_the_leak_check(url: str) -> None:
    pass


def test_both_sides_have_the_same_conversation(url: str) -> None:
    """The floor's loop and an agent make the same calls and get the same results."""
    with requests.Session() as session:
        bare = floor.run_tool_loop(session, f"{url}/turns/3")
    ours = turn_cost.run_ours(f"{url}/turns/3")
    assert [message.role for message in ours] == ["user"] + ["assistant", "toolResult"] * 3 + ["assistant"]
    assert [message["content"] for message in bare if message["role"] == "tool"] == [
        message.text for message in ours if message.role == "toolResult"
    ]


@pytest.mark.parametrize("kind", delta_cost.SIZES)
def test_both_sides_see_every_delta(url: str, kind: str) -> None:
    """A thousand deltas arrive at both (each side counts them)."""
    delta_cost.run_ours(f"{url}/{kind}/1000", kind)
    with requests.Session() as session:
        delta_cost.run_floor(session, f"{url}/{kind}/1000")


def test_latency_and_makespan_are_plausible(url: str) -> None:
    """Latencies are positive, one for each delta; eight tools of 100 ms take far less than 800."""
    found = latency.measure_ours(f"{url}/clock/20")
    assert len(found) == 20 and min(found) > 0
    assert 100 <= parallel_tools.run_batch(f"{url}/calls/8") < 600


def test_abort_is_measured_in_each_state(url: str) -> None:
    """Each state is reached, and each abort settles."""
    rows = abort_latency.measure(Options(url, rounds=1))
    assert [row.name for row in rows if max(row.ours) < 2000] == [row.name for row in rows]


def test_every_benchmark_says_what_it_measures() -> None:
    """Each has a title, a docstring and a function."""
    for name in NAMES:
        module = importlib.import_module(f"benchmarks.{name}")
        assert module.TITLE and module.__doc__ and callable(module.measure)


def test_measures_are_taken_in_turns() -> None:
    """The order is turned round in every second round."""
    order: list[str] = []
    in_turns(2, lambda: order.append("a") or 1.0, lambda: order.append("b") or 2.0)
    assert order == ["a", "b", "b", "a"]


def test_a_comparison_goes_by_the_ratio(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A slower machine is no regression; a larger ratio is one, unless it is within the noise."""
    old = [Row("steady", "ms", [1, 1], [1, 1]), Row("slow", "ms", [1, 1], [1, 1]), Row("noisy", "ms", [1, 2, 3, 4], [1, 1, 1, 1])]
    path = tmp_path / "old.json"
    path.write_text(json.dumps({"rows": [row.to_json() for row in old]}))
    new = [
        Row("steady", "ms", [2, 2], [2, 2]),
        Row("slow", "ms", [1.5, 1.5], [1, 1]),
        Row("noisy", "ms", [2, 3, 4, 5], [1, 1, 1, 1]),
        Row("added", "ms", [1.0]),
    ]
    assert compare(new, str(path)) == 1
    words = {line.split()[0]: line.split()[-1] for line in capsys.readouterr().out.splitlines()[2:]}
    assert words == {"steady": "same", "slow": "SLOWER", "noisy": "same", "added": "new"}
