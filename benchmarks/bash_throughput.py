"""How fast, and in how much memory, the bash tool takes in a very long output.

    python -m benchmarks.bash_throughput [BYTES] [ROUNDS]      by itself, with the throughput in MB/s

The floor is `subprocess` with a plain read loop over the same command, which keeps nothing. The tool decodes and cleans the
output, counts its lines, keeps the tail, shows it ten times a second and writes the whole to a file. Both run in each round, in
turns. The command prints lines of one byte, which is the worst case for counting them.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys

from agentcore.tools.bash import create_bash_tool
from benchmarks.frame import Options, Row, in_turns, peak_kb, print_rows, run_child, wall_seconds

TITLE = "Bash tool, a very long output (floor: a plain read loop)"


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
    """Seconds of both, and what the tool adds to the memory of the process at its peak; a process of its own, for the peak."""
    size = 100_000_000 if options.is_quick else 1_000_000_000
    rounds = min(options.rounds, 3)
    found = run_child("-m", "benchmarks.bash_throughput", "--json", str(size), str(rounds))
    return [Row(**row) for row in found]


def _measure(size: int, rounds: int) -> list[Row]:
    command = f"yes | head -c {size}"
    through_the_tool("yes | head -c 100000", 100_000)  # imports, the guard process
    before = _memory_now_kb()
    ours, floor = in_turns(
        rounds, lambda: wall_seconds(lambda: through_the_tool(command, size)), lambda: wall_seconds(lambda: read_loop(command))
    )
    memory = max(0, peak_kb() - before) / 1024
    return [
        Row(f"{size // 1_000_000:,} MB of output", "s", ours, floor, goal=2.0),
        Row("peak memory above the start", "MB", [memory], limit=100.0),
    ]


def _memory_now_kb() -> float:
    """Return what this process has in memory now; its peak so far where the system does not say."""
    if not os.path.exists("/proc/self/statm"):
        return peak_kb()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1024


def main() -> None:
    """Print the figures: a table, or with `--json` what `measure` reads."""
    arguments = [argument for argument in sys.argv[1:] if argument != "--json"]
    size, rounds = (int(given) for given in (arguments + ["1000000000", "5"][len(arguments) :]))
    rows = _measure(size, rounds)
    if "--json" in sys.argv:
        print(json.dumps([row.to_json() for row in rows]))
        return
    ours, floor = (size / statistics.median(seconds) / 1e6 for seconds in (rows[0].ours, rows[0].floor))
    print_rows(TITLE, rows)
    print(f"  the tool takes in {ours:.0f} MB/s, the read loop {floor:.0f}")


if __name__ == "__main__":
    main()
