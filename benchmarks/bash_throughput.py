"""How fast, and in how much memory, the bash tool takes in a very long output.

    python -m benchmarks.bash_throughput [BYTES] [ROUNDS]      prints throughput in MB/s, the ratio and the memory

The floor is `subprocess` with a plain read loop over the same command, which keeps nothing. The tool decodes and cleans the
output, counts its lines, keeps the tail, shows it ten times a second and writes the whole to a file. Both run in each round, in
turns. The command prints lines of one byte, which is the worst case for counting them.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable

from agentcore.tools.bash import create_bash_tool
from benchmarks.frame import Options, Row, in_turns, wall_seconds

TITLE = "Bash tool: a very long output"


def read_loop(command: str) -> None:
    """Read the output of a command to its end."""
    with subprocess.Popen(["/bin/bash", "-c", command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, bufsize=0) as process:
        assert process.stdout is not None
        while process.stdout.read(65536):
            pass


def through_the_tool(command: str, size: int) -> None:
    """Run a command with the bash tool, partial updates included; all of the output must be in the file."""
    result = create_bash_tool().run("call", {"command": command}, None, lambda update: None, None)
    path = result.details.full_output_path
    assert os.path.getsize(path) == result.details.truncation.total_bytes == size
    shutil.rmtree(os.path.dirname(path))


def measure(options: Options) -> list[Row]:
    """Seconds of both, and what the tool adds to the memory of the process at its peak."""
    rows, _ = _measure(100_000_000 if options.is_quick else 1_000_000_000, options.rounds)
    return rows


def _measure(size: int, rounds: int) -> tuple[list[Row], Callable[[list[float]], float]]:
    command = f"yes | head -c {size}"
    through_the_tool("yes | head -c 100000", 100_000)  # imports, the guard process
    before = _memory_now_mb()
    ours, floor = in_turns(
        rounds, lambda: wall_seconds(lambda: through_the_tool(command, size)), lambda: wall_seconds(lambda: read_loop(command))
    )
    memory = max(0.0, _peak_memory_mb() - before)
    rows = [
        Row(f"{size // 1_000_000} MB of output", "s", ours, floor, goal=2.0, note="floor: subprocess with a plain read loop"),
        Row("peak memory above the start", "MB", [memory], goal=100.0),
    ]
    return rows, lambda seconds: size / statistics.median(seconds) / 1e6


def _memory_now_mb() -> float:
    """What this process takes now, in MB (10^6 bytes); its peak so far where the system does not say."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    except OSError:
        return _peak_memory_mb()


def _peak_memory_mb() -> float:
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6


def main(size: int = 1_000_000_000, rounds: int = 5) -> None:
    """Print the figures."""
    (time, memory), throughput = _measure(size, rounds)
    ratio = throughput(time.ours) / throughput(time.floor)
    print(f"{size / 1e6:.0f} MB of output, medians of {rounds} rounds in turns")
    print(f"read loop (floor): {throughput(time.floor):.0f} MB/s")
    print(f"bash tool:         {throughput(time.ours):.0f} MB/s, {ratio:.2f} of the floor (wanted: at least 0.5)")
    print(f"peak memory:       {memory.ours[0]:.1f} MB above the start (wanted: below 100)")


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
