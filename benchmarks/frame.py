"""What all benchmarks share: interleaved rounds, medians with quartiles, one table, and the comparison of two runs.

A benchmark is a module with `TITLE`, `measure(options) -> list[Row]`, and a docstring that says what it measures and why. A `Row`
has the figures of ours and, where there is one, those of the floor, measured in the same run and in turns, since a machine's speed
changes from one minute to the next: the ratio holds, the figures themselves are of this machine and this hour.
"""

from __future__ import annotations

import gc
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Options:
    """How much is measured. `rounds` is the number of repetitions; `is_quick` takes the small sizes only."""

    url: str
    rounds: int = 5
    is_quick: bool = False


@dataclass
class Row:
    """One line of the table.

    Args:
        name: What was measured.
        unit: Of `ours` and `floor`.
        ours, floor: One figure for each round; `floor` is empty where there is none.
        goal: At most this: a ratio where there is a floor, else a figure in `unit`.
    """

    name: str
    unit: str
    ours: list[float]
    floor: list[float] = field(default_factory=list)
    goal: float | None = None
    note: str = ""

    @property
    def ratios(self) -> list[float]:
        """Ours over the floor, round by round."""
        return [mine / bare for mine, bare in zip(self.ours, self.floor, strict=True) if bare]

    @property
    def ratio(self) -> float | None:
        """The ratio of the medians."""
        return statistics.median(self.ours) / statistics.median(self.floor) if self.floor else None

    @property
    def is_good(self) -> bool | None:
        """Whether the goal is met; None where there is none."""
        if self.goal is None:
            return None
        return (self.ratio if self.ratio is not None else statistics.median(self.ours)) <= self.goal

    def to_json(self) -> dict[str, Any]:
        """Return what `--compare` needs."""
        return {"name": self.name, "unit": self.unit, "ours": self.ours, "floor": self.floor, "goal": self.goal}


def cpu_seconds(work: Callable[[], object]) -> float:
    """Return the CPU time of this process, all threads, that `work` takes."""
    gc.collect()
    started = time.process_time()
    work()
    return time.process_time() - started


def wall_seconds(work: Callable[[], object]) -> float:
    """Return the time that `work` takes on the clock."""
    gc.collect()
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def in_turns(rounds: int, *measures: Callable[[], float]) -> list[list[float]]:
    """Take each measure once a round, the order reversed in every second round; return the figures of each measure."""
    figures: list[list[float]] = [[] for _ in measures]
    for turn in range(rounds):
        order = range(len(measures)) if turn % 2 == 0 else reversed(range(len(measures)))
        for index in order:
            figures[index].append(measures[index]())
    return figures


def machine() -> str:
    """Say on what was measured."""
    from importlib.metadata import version

    versions = ", ".join(f"{name} {version(name)}" for name in ("agentcore-sync", "requests", "urllib3", "sseclient-py"))
    processor = platform.processor() or platform.machine()
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo") as file:
            processor = next((line.partition(":")[2].strip() for line in file if line.startswith("model name")), processor)
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    return f"{platform.system()}, {processor}, {os.cpu_count()} cores{load}; Python {platform.python_version()}; {versions}"


def print_rows(title: str, rows: Iterable[Row]) -> None:
    """Print one benchmark's part of the table."""
    print(f"\n{title}")
    print(f"  {'':<42} {'ours':>26} {'floor':>26}  {'ratio':>17}  goal")
    for row in rows:
        ratio = f"{row.ratio:.2f} {_spread(row.ratios)}" if row.ratio is not None else ""
        figures = f"{_figure(row.ours, row.unit):>26} {_figure(row.floor, row.unit):>26}  {ratio:>17}"
        goal = f"  ≤ {row.goal:g} {'ok' if row.is_good else 'MISSED'}" if row.goal is not None else ""
        print(f"  {row.name:<42} {figures}{goal}".rstrip())
        if row.note:
            print(f"      {row.note}")
    sys.stdout.flush()


def _figure(values: Sequence[float], unit: str) -> str:
    return f"{statistics.median(values):.4g} {_spread(values)} {unit}" if values else ""


def _spread(values: Sequence[float]) -> str:
    if len(values) < 2:
        return ""
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return f"({low:.3g}–{high:.3g})"


def compare(rows: Sequence[Row], path: str) -> int:
    """Say what got slower than in an earlier run, judged by the ratio to the floor; return how many rows did.

    A change counts when it is larger than the noise of both runs: the distance between their quartiles.
    """
    with open(path) as file:
        earlier = {row["name"]: Row(row["name"], row["unit"], row["ours"], row["floor"]) for row in json.load(file)["rows"]}
    slower = 0
    print(f"\nCompared with {path}, by ratio to the floor (by figure where there is none)")
    for row in rows:
        old = earlier.get(row.name)
        if old is None:
            print(f"  {row.name:<44} new")
            continue
        has_floor = bool(row.floor and old.floor)
        now, before = (row.ratios, old.ratios) if has_floor else (row.ours, old.ours)
        change = statistics.median(now) / statistics.median(before) - 1
        noise = (_width(now) + _width(before)) / 2
        word = "the same" if abs(change) <= max(noise, 0.03) else "SLOWER" if change > 0 else "faster"
        slower += word == "SLOWER"
        print(f"  {row.name:<44} {change:>+7.1%}  noise ±{noise:.1%}  {word}")
    return slower


def _width(values: Sequence[float]) -> float:
    if len(values) < 2:
        return 0.0
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return (high - low) / middle if middle else 0.0
