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
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Options:
    """How much is measured.

    `rounds` is the number of repetitions; `is_quick` takes the small sizes only; `typescript` is a folder whose `node_modules` hold
    the TypeScript original.
    """

    url: str
    rounds: int = 5
    is_quick: bool = False
    typescript: str | None = None


@dataclass
class Row:
    """One line of the table.

    Args:
        name: What was measured.
        unit: Of `ours` and `floor`.
        ours, floor: One figure for each round; `floor` is empty where there is none.
        goal: The ratio of ours to the floor is to be at most this.
        limit: The figure, in `unit`, is to be at most this.
        is_best: The best round counts, not the middle one: for what other work on the machine can only make worse.
        note: A further line of the table.
    """

    name: str
    unit: str
    ours: list[float]
    floor: list[float] = field(default_factory=list)
    goal: float | None = None
    limit: float | None = None
    is_best: bool = False
    note: str = ""

    @property
    def ratios(self) -> list[float]:
        """Ours over the floor, round by round."""
        return [mine / bare for mine, bare in zip(self.ours, self.floor, strict=True) if bare]

    @property
    def figure(self) -> float:
        """The figure that counts: the median, or the best round's."""
        return _counted(self.ours, self.is_best)

    @property
    def ratio(self) -> float | None:
        """The ratio of the figures that count; None where there is no floor, or it is nothing."""
        bare = _counted(self.floor, self.is_best) if self.floor else 0.0
        return self.figure / bare if bare else None

    @property
    def is_good(self) -> bool | None:
        """Whether goal and limit are met; None where there are none."""
        if self.goal is None and self.limit is None:
            return None
        is_within_goal = self.goal is None or (self.ratio is not None and self.ratio <= self.goal)
        return is_within_goal and (self.limit is None or self.figure <= self.limit)

    def to_json(self) -> dict[str, Any]:
        """Return what `--compare` needs, and what was to be reached."""
        return {
            "name": self.name,
            "unit": self.unit,
            "ours": self.ours,
            "floor": self.floor,
            "goal": self.goal,
            "limit": self.limit,
            "is_best": self.is_best,
        }


def _counted(values: Sequence[float], is_best: bool) -> float:
    return min(values) if is_best else statistics.median(values)


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


def peak_kb() -> int:
    """Return what this process had in memory at its peak, in units of 1,024 bytes."""
    if os.path.exists("/proc/self/status"):
        # Not getrusage: a child's ru_maxrss begins with what its parent had in memory.
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
    try:
        import resource
    except ImportError:  # Windows
        import psutil

        peak = int(psutil.Process().memory_info().peak_wset)
        return peak // 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak // 1024 if sys.platform == "darwin" else peak


def run_child(*arguments: str, timeout: float = 600.0, **settings: Any) -> Any:
    """Run `python ARGUMENTS` and return what its last line says in JSON; for what must be measured in a process of its own.

    Raises:
        CalledProcessError: It failed; `stderr` says how.
    """
    command = [sys.executable, *arguments]
    ran = subprocess.run(command, check=True, capture_output=True, text=True, timeout=timeout, **settings)
    return json.loads(ran.stdout.strip().splitlines()[-1])


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
    print(f"  {'':<46} {'ours':>28} {'floor':>28}  {'ratio':>17}  goal")
    for row in rows:
        ratio = f"{row.ratio:.2f} {_spread(row.ratios)}" if row.ratio is not None else ""
        figures = f"{_figure(row, row.ours):>28} {_figure(row, row.floor):>28}  {ratio:>17}"
        goals = [f"≤ {row.goal:g}"] if row.goal is not None else []
        goals += [f"≤ {row.limit:g} {row.unit}"] if row.limit is not None else []
        goal = f"  {', '.join(goals)} {'ok' if row.is_good else 'MISSED'}" if goals else ""
        print(f"  {row.name:<46} {figures}{goal}".rstrip())
        if row.note:
            print(f"      {row.note}")
    sys.stdout.flush()


def markdown(title: str, rows: Iterable[Row]) -> str:
    """Write one benchmark's part of the table in `README.md`."""
    lines = [f"| **{title}** | | | | |"]
    for row in rows:
        ratio = f"{row.ratio:.2f} {_spread(row.ratios)}".rstrip() if row.ratio is not None else ""
        goals = [f"≤ {row.goal:g} times" if row.ratio is not None else f"≤ {row.goal:g}"] if row.goal is not None else []
        goals += [f"≤ {row.limit:.4g} {row.unit}"] if row.limit is not None else []
        figures = [f"{_rounded(_counted(values, row.is_best))} {row.unit}" if values else "" for values in (row.ours, row.floor)]
        missed = " **missed**" if row.is_good is False else ""
        lines.append(f"| {row.name} | {figures[0]} | {figures[1]} | {ratio} | {', '.join(goals)}{missed} |")
    return "\n".join(line.replace("|  |", "| |").replace("|  |", "| |") for line in lines)


def _rounded(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _figure(row: Row, values: Sequence[float]) -> str:
    return " ".join(part for part in (f"{_counted(values, row.is_best):.4g}", _spread(values), row.unit) if part) if values else ""


def _spread(values: Sequence[float]) -> str:
    if len(values) < 2:
        return ""
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return f"({low:.3g}–{high:.3g})"


def compare(rows: Sequence[Row], path: str) -> int:
    """Say what got slower than in an earlier run, judged by the ratio to the floor; return how many rows did.

    A change counts when it is larger than the noise of both runs: the distance between their quartiles, and never less than 3 %;
    10 % where there is no floor, since then the machine's speed is in the figure, and 25 % where there was one round only.
    """
    earlier = {row.name: row for row in read_rows(path)}
    slower = 0
    print(f"\nCompared with {path}, by ratio to the floor (by figure where there is none)")
    for row in rows:
        old = earlier.get(row.name)
        if old is None:
            print(f"  {row.name:<46} new")
            continue
        has_floor = row.ratio is not None and old.ratio is not None
        now, before = (row.ratios, old.ratios) if has_floor else (row.ours, old.ours)
        mine, earlier_one = (row.ratio, old.ratio) if has_floor else (row.figure, old.figure)
        if mine is None or earlier_one is None or earlier_one <= 0:
            print(f"  {row.name:<46} nothing to compare with")
            continue
        change = mine / earlier_one - 1
        least = 0.25 if min(len(now), len(before)) < 2 else 0.03 if has_floor else 0.1
        noise = max((_width(now) + _width(before)) / 2, least)
        word = "the same" if abs(change) <= noise else "SLOWER" if change > 0 else "faster"
        slower += word == "SLOWER"
        print(f"  {row.name:<46} {change:>+7.1%}  noise ±{noise:.1%}  {word}")
    missing = [name for name in earlier if name not in {row.name for row in rows}]
    if missing:
        print(f"  not measured this time: {len(missing)} of {len(earlier)}")
    return slower


def read_rows(path: str) -> list[Row]:
    """Read what `--json` wrote.

    Raises:
        ValueError: It is no such file.
        OSError: It cannot be read.
    """
    with open(path) as file:
        try:
            return [Row(**row) for row in json.load(file)["rows"]]
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path} is no file of figures: give one that --json has written") from error


def _width(values: Sequence[float]) -> float:
    if len(values) < 2:
        return 0.0
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return (high - low) / middle if middle else 0.0
