"""`python -m benchmarks [NAME …]`: run the benchmarks and print one table."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import time

from benchmarks.frame import Options, Row, compare, machine, markdown, print_rows, read_rows
from benchmarks.server import serve

NAMES = (
    "turn_cost",
    "delta_cost",
    "latency",
    "abort_latency",
    "parallel_tools",
    "many_agents",
    "import_time",
    "session",
    "tool_overhead",
    "bash_throughput",
)


def main() -> int:
    """Run what was asked for; return 1 if something got slower than in the run given with `--compare`, 2 for wrong use."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure the library against a bare floor.")
    parser.add_argument("names", nargs="*", help=f"of {', '.join(NAMES)} (default: all)")
    parser.add_argument("--rounds", type=int, help="repetitions of each measurement (default: 5; with --quick 3)")
    parser.add_argument("--quick", action="store_true", help="the small sizes only")
    parser.add_argument("--markdown", action="store_true", help="print the table as it stands in the README")
    parser.add_argument("--json", metavar="FILE", help="write the figures to a file, for --compare")
    parser.add_argument("--compare", metavar="OLD.json", help="say what got slower since an earlier run")
    parser.add_argument("--peers", action="store_true", help="measure other agent libraries instead: those that are installed")
    parser.add_argument(
        "--typescript",
        metavar="FOLDER",
        default=os.environ.get("AGENTCORE_TYPESCRIPT"),
        help="with --peers: where npm has installed @earendil-works/pi-agent-core and pi-ai (default: $AGENTCORE_TYPESCRIPT)",
    )
    given = parser.parse_args()
    unknown = [name for name in given.names if name not in NAMES]
    if unknown:
        parser.error(f"there is no benchmark {unknown[0]!r}; there are {', '.join(NAMES)}")
    rounds = given.rounds if given.rounds is not None else 3 if given.quick else 5
    if rounds < 1:
        parser.error(f"--rounds {rounds}: give 1 or more")
    if given.compare:  # before some minutes of work, not after them
        try:
            read_rows(given.compare)
        except (OSError, ValueError) as error:
            parser.error(f"--compare: {error}")
    if given.json:
        try:
            open(given.json, "a").close()
        except OSError as error:
            parser.error(f"--json: {error}")
    print(machine())
    print("Medians of interleaved rounds, with quartiles; the floor is measured in the same run.")
    if given.markdown:
        print("\n| | ours | floor | ratio | goal |\n| --- | --- | --- | --- | --- |")
    rows: list[Row] = []
    seconds: dict[str, float] = {}
    with serve() as url:
        options = Options(url, rounds=rounds, is_quick=given.quick, typescript=given.typescript)
        names = [*(given.names or ([] if given.peers else NAMES)), *(["peers"] if given.peers else [])]
        for name in names:
            module = importlib.import_module(f"benchmarks.{name}")
            before = time.monotonic()
            measured = module.measure(options)
            seconds[name] = time.monotonic() - before
            if given.markdown:
                print(markdown(module.TITLE, measured), flush=True)
            else:
                print_rows(module.TITLE, measured)
            rows += measured
    print(f"\n{sum(seconds.values()):.0f} s: {', '.join(f'{name} {spent:.0f}' for name, spent in seconds.items())}")
    if given.json:
        with open(given.json, "w") as file:
            json.dump({"machine": machine(), "rows": [row.to_json() for row in rows]}, file, indent=1)
    missed = [row.name for row in rows if row.is_good is False]
    if missed:
        print(f"goals missed: {', '.join(missed)}")
    return 1 if given.compare and compare(rows, given.compare) else 0


if __name__ == "__main__":
    sys.exit(main())
