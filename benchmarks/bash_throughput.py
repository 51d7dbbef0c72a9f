"""How fast, and in how much memory, the bash tool takes in a very long output.

    python benchmarks/bash_throughput.py [BYTES] [ROUNDS]

The floor is `subprocess` with a plain read loop over the same command, which keeps nothing. The tool decodes and cleans the
output, counts its lines, keeps the tail and writes the whole to a file. Both run in each round, in turns, since the machine's
load changes; the ratio is that of the medians. Memory is the peak of the process above what it took at the start.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import time

from agentcore.tools.bash import create_bash_tool


def read_loop(command: str) -> tuple[float, int]:
    """Read the output of a command to its end; seconds and bytes."""
    began = time.perf_counter()
    total = 0
    with subprocess.Popen(["/bin/bash", "-c", command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, bufsize=0) as process:
        assert process.stdout is not None
        while piece := process.stdout.read(65536):
            total += len(piece)
    return time.perf_counter() - began, total


def through_the_tool(command: str) -> tuple[float, int]:
    """Run a command with the bash tool, partial updates included; seconds and bytes."""
    tool = create_bash_tool()
    began = time.perf_counter()
    result = tool.run("call", {"command": command}, None, lambda update: None, None)
    seconds = time.perf_counter() - began
    path = result.details.full_output_path
    total = os.path.getsize(path)
    assert total == result.details.truncation.total_bytes
    shutil.rmtree(os.path.dirname(path))
    return seconds, total


def peak_memory_mb() -> float:
    """The most memory that this process has had so far, in MB (10^6 bytes)."""
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6


def memory_now_mb() -> float:
    """What this process takes now, in MB; its peak so far where the system does not say."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    except OSError:
        return peak_memory_mb()


def main(size: int = 1_000_000_000, rounds: int = 3) -> None:
    """Print the figures."""
    command = f"yes | head -c {size}"
    through_the_tool("seq 1 3000")  # imports, the guard process
    before = memory_now_mb()
    floor: list[float] = []
    ours: list[float] = []
    for number in range(1, rounds + 1):
        seconds, total = read_loop(command)
        floor.append(total / seconds / 1e6)
        seconds, total = through_the_tool(command)
        assert total == size
        ours.append(total / seconds / 1e6)
        print(f"round {number}: read loop {floor[-1]:.0f} MB/s, bash tool {ours[-1]:.0f} MB/s")
    ratio = statistics.median(ours) / statistics.median(floor)
    print(f"output: {size / 1e6:.0f} MB of {command!r}, written to a file by the tool")
    print(f"read loop (floor): {statistics.median(floor):.0f} MB/s")
    print(f"bash tool:         {statistics.median(ours):.0f} MB/s, {ratio:.2f} of the floor (wanted: at least 0.5)")
    print(f"peak memory:       {max(0.0, peak_memory_mb() - before):.1f} MB above the start (wanted: below 100)")


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
