"""The benchmarks measure what they say: both sides do the same work, and a comparison finds what got slower."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from benchmarks import abort_latency, delta_cost, floor, latency, parallel_tools, peers, turn_cost
from benchmarks.__main__ import NAMES, main
from benchmarks.frame import Options, Row, compare, in_turns, markdown, read_rows
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


def test_a_comparison_of_the_best_rounds_goes_by_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where the best round counts, slow rounds beside it are no regression; one round alone gives an alarm from 25 % on."""
    best = {"is_best": True}
    old = [
        Row("best", "ms", [1, 1.1, 1], [1, 1, 1], **best),
        Row("one", "ms", [10.0]),
        Row("none", "ms", [-1.0]),
        Row("gone", "ms", [1.0]),
    ]
    path = tmp_path / "old.json"
    path.write_text(json.dumps({"rows": [row.to_json() for row in old]}))
    new = [Row("best", "ms", [9, 1, 9], [1, 1, 1], **best), Row("one", "ms", [12.0]), Row("none", "ms", [1.0])]
    assert compare(new, str(path)) == 0
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "  none                                           nothing to compare with",
        "  not measured this time: 1 of 4",
    ]


@pytest.mark.parametrize(
    ("row", "is_good"),
    [
        (Row("no goal", "ms", [1.0]), None),
        (Row("ratio", "ms", [3.0, 3.0], [2.0, 2.0], goal=1.5), True),
        (Row("ratio", "ms", [3.1, 3.1], [2.0, 2.0], goal=1.5), False),
        (Row("figure", "ms", [51.0, 49.0, 50.0], [1.0, 1.0, 1.0], limit=50.0), True),
        (Row("figure", "ms", [51.0, 51.0, 50.0], [1.0, 1.0, 1.0], limit=50.0), False),
        (Row("best figure", "ms", [51.0, 51.0, 50.0], limit=50.0, is_best=True), True),
    ],
)
def test_goals_are_judged_by_the_figure_that_counts(row: Row, is_good: bool | None) -> None:
    """A goal is a ratio to the floor, a limit a figure of ours; the middle round counts, or the best one."""
    assert row.is_good is is_good


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["turn_costs"], "there is no benchmark 'turn_costs'; there are turn_cost, "),
        (["--rounds", "0"], "--rounds 0: give 1 or more"),
        (["--compare", "/no/such.json"], "--compare: [Errno 2] No such file or directory: '/no/such.json'"),
        (["--compare", __file__], "is no file of figures: give one that --json has written"),
        (["--json", "/no/such/folder/x.json"], "--json: [Errno 2]"),
    ],
)
def test_wrong_use_is_told_before_anything_is_measured(
    arguments: list[str], text: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line says what to do; exit code 2."""
    monkeypatch.setattr(sys, "argv", ["benchmarks", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert text in capsys.readouterr().err.splitlines()[-1]


def test_the_command_measures_writes_and_compares(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run prints machine, versions and a table, and keeps its figures; the next one is compared with it."""
    path = tmp_path / "figures.json"
    monkeypatch.setattr(sys, "argv", ["benchmarks", "parallel_tools", "--rounds", "2", "--json", str(path)])
    assert main() == 0
    out = capsys.readouterr().out
    assert "Python" in out and "agentcore-sync" in out and "  8 tools " in out
    assert [row.name for row in read_rows(str(path))] == ["8 tools", "32 tools"]
    monkeypatch.setattr(sys, "argv", ["benchmarks", "parallel_tools", "--rounds", "2", "--compare", str(path)])
    assert main() in (0, 1)
    assert "Compared with" in capsys.readouterr().out


def test_other_libraries_are_left_out_with_a_reason(url: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Ours and the floor are measured in processes of their own; without a folder, or in an empty one, the original is left out."""
    floor_and_ours = [peers._run(name, url, 3) for name in ("floor", "agentcore")]
    assert all(figures["turn"] > 0 and figures["delta"] > 0 for figures in floor_and_ours)
    for folder in (None, str(tmp_path)):
        assert not peers._works("pi", lambda turns, folder=folder: peers._run_typescript(folder, url, turns))  # type: ignore[misc]
    first, second = capsys.readouterr().err.splitlines()
    assert first == "pi is left out: give --typescript FOLDER, where npm has installed @earendil-works/pi-agent-core and pi-ai"
    assert second.startswith("pi is left out: ")


@pytest.mark.slow
def test_the_typescript_original_is_measured(url: str) -> None:
    """Where it is installed (AGENTCORE_TYPESCRIPT), node runs the same conversations."""
    folder = os.environ.get("AGENTCORE_TYPESCRIPT")
    if not folder or not shutil.which("node"):
        pytest.skip("the TypeScript original is not there: set AGENTCORE_TYPESCRIPT to a folder where npm has installed it")
    figures = peers._run_typescript(folder, url, 10)
    assert figures["turn"] > 0 and figures["delta"] > 0


def test_the_table_of_the_readme_is_written_by_the_command() -> None:
    """`--markdown` gives the rows as they stand in the README: figures with units, the ratio with its quartiles, the goal."""
    rows = [
        Row("turns", "ms", [2.0, 2.0], [1.0, 1.0], goal=1.5),
        Row("import", "ms", [1234.0], limit=2000.0),
        Row("best", "ms", [0.5, 0.3], [0.2, 0.1], is_best=True),
    ]
    assert markdown("Costs", rows).splitlines() == [
        "| **Costs** | | | | |",
        "| turns | 2 ms | 1 ms | 2.00 (2–2) | ≤ 1.5 times **missed** |",
        "| import | 1,234 ms | | | ≤ 2000 ms |",
        "| best | 0.3 ms | 0.1 ms | 3.00 (2.62–2.87) | |",
    ]
    shown = (Path(__file__).parent.parent / "benchmarks" / "README.md").read_text()
    for name in NAMES:
        assert f"| **{importlib.import_module(f'benchmarks.{name}').TITLE}** | | | | |" in shown
