"""What sessions cost: append, open, build a context, keep in memory; and that a hundred times the entries cost a hundred times.

An entry is appended while a run waits, and a long session is opened while a person does.

Floors, each in the same run:

- append: the same lines, ready made, written to a file (and synced after each, where we sync after each);
- open: `json.loads` on each line of the same file;
- the context of the whole path: a bare loop that makes the same messages of the same parsed entries;
- growth: one session of 100,000 entries against a hundred of 1,000, all kept, so that both need the same memory.
"""

from __future__ import annotations

import gc
import json
import os
import tempfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path

from agentcore.codec import decode_tagged
from agentcore.messages import AssistantMessage, TextContent, Usage, UserMessage
from agentcore.session import JsonlSessionStorage, Session
from benchmarks.frame import Options, Row, cpu_seconds, in_turns, wall_seconds

TITLE = "Sessions"
TEXT = 'The quick brown fox jumps over the lazy dog, "again", and then\nit is noted down here. ' * 10


def write_file(path: Path, count: int, branch_at: int | None = None) -> None:
    """Write a session of `count` messages of about 1 KB; from `branch_at` on in a branch of its own, from the first entry."""
    usage = Usage(100, 20, 5, 5, 130)
    messages = [UserMessage(TEXT, timestamp=1), AssistantMessage([TextContent(TEXT)], "a", "p", "m", usage, timestamp=2)]
    with Session(JsonlSessionStorage.create(path, cwd="/w", fsync="never")) as session:
        first = session.append_message(messages[0])
        for place in range(1, count):
            if place == branch_at:
                session.move_to(first)
            session.append_message(messages[place % 2])


def measure(options: Options) -> list[Row]:
    """Measure."""
    with tempfile.TemporaryDirectory() as folder:
        return [*_appends(options, Path(folder)), *_reads(options, Path(folder))]


def _appends(options: Options, folder: Path) -> list[Row]:
    count = 1_000 if options.is_quick else 10_000
    source = folder / "lines.jsonl"
    write_file(source, count)
    lines = [line + b"\n" for line in source.read_bytes().split(b"\n")[1:-1]]
    messages = [UserMessage(TEXT, timestamp=1), AssistantMessage([TextContent(TEXT)], "a", "p", "m", Usage(100, 20, 5, 5, 130))]
    numbers = iter(range(1_000_000))
    # On the clock where the disk is waited for; else in CPU, since what others write to the disk is no matter of ours.
    seconds_of = {"never": cpu_seconds, "every": wall_seconds}

    def ours(fsync: str, many: int) -> float:
        path = folder / f"append-{next(numbers)}.jsonl"
        with Session(JsonlSessionStorage.create(path, cwd="/w", fsync=fsync)) as session:  # type: ignore[arg-type]
            spent = seconds_of[fsync](lambda: [session.append_message(messages[place % 2]) for place in range(many)])
        path.unlink()
        return spent * 1e6 / many

    def floor(fsync: str, many: int) -> float:
        path = folder / f"append-{next(numbers)}.jsonl"
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

        def work() -> None:
            for line in lines[:many]:
                os.write(fd, line)
                if fsync == "every":
                    os.fdatasync(fd)

        spent = seconds_of[fsync](work)
        os.close(fd)
        path.unlink()
        return spent * 1e6 / many

    rows = []
    for fsync, many, unit in (("never", count, "µs CPU"), ("every", count // 5, "µs")):
        mine, bare = in_turns(options.rounds, lambda f=fsync, m=many: ours(f, m), lambda f=fsync, m=many: floor(f, m))  # type: ignore[misc]
        rows.append(Row(f"append {many:,} × 1 KB, fsync {fsync}", unit, mine, bare, limit=50.0 if fsync == "never" else None))
    long, short = in_turns(options.rounds, lambda: _append_behind(folder, 100 * count // 10), lambda: _append_behind(folder, 10))
    rows.append(Row(f"append behind {100 * count // 10:,} entries / behind 10", "µs CPU", long, short, goal=1.2))
    return rows


def _append_behind(folder: Path, count: int) -> float:
    path = folder / f"behind-{count}.jsonl"
    if not path.exists():
        write_file(path, count)
    message = UserMessage(TEXT, timestamp=1)
    with Session(JsonlSessionStorage.open(path, fsync="never")) as session:
        size = path.stat().st_size
        gc.freeze()  # the collector's walks over the entries are another matter
        spent = cpu_seconds(lambda: [session.append_message(message) for _ in range(1000)])
        gc.unfreeze()
    os.truncate(path, size)
    return spent * 1e6 / 1000


def _reads(options: Options, folder: Path) -> list[Row]:
    count = 10_000 if options.is_quick else 100_000
    small = count // 100
    big_path, small_path, branch_path = folder / "big.jsonl", folder / "small.jsonl", folder / "branch.jsonl"
    write_file(big_path, count)
    write_file(small_path, small)
    write_file(branch_path, count, branch_at=count - 2000)

    def loads() -> list[object]:
        with open(big_path, "rb") as file:
            return [json.loads(line) for line in file]

    def open_small() -> list[Session]:
        return [Session(JsonlSessionStorage.open(small_path, read_only=True)) for _ in range(100)]

    mine, bare, mine_small = in_turns(
        options.rounds,
        lambda: cpu_seconds(lambda: JsonlSessionStorage.open(big_path, read_only=True)),
        lambda: cpu_seconds(loads),
        lambda: cpu_seconds(open_small),
    )
    rows = [
        Row(f"open {count:,} entries / json.loads on each line", "s CPU", mine, bare, goal=2.0),
        Row(f"open {count:,} entries / a hundred times {small:,}", "s CPU", mine, mine_small, goal=1.2),
    ]
    whole = Session(JsonlSessionStorage.open(big_path, read_only=True))
    raws = whole.storage.index.raws
    few = open_small()
    mine, bare, mine_small = in_turns(
        options.rounds,
        lambda: cpu_seconds(whole.build_context),
        lambda: cpu_seconds(lambda: [decode_tagged(raw["message"]) for raw in raws]),
        lambda: cpu_seconds(lambda: [session.build_context() for session in few]),
    )
    rows.append(Row(f"context of {count:,} entries / a bare loop", "s CPU", mine, bare, goal=1.3))
    rows.append(Row(f"context of {count:,} entries / a hundred times {small:,}", "s CPU", mine, mine_small, goal=1.2))
    few.clear()
    branch = Session(JsonlSessionStorage.open(branch_path, read_only=True))
    assert len(branch.build_context().messages) == 2001
    spent = in_turns(options.rounds, lambda: cpu_seconds(branch.build_context) * 1000)[0]
    rows.append(Row(f"context of 2,000 entries in {count:,}", "ms CPU", spent, limit=50.0))
    rows.append(Row("memory per entry", "bytes", [_memory(lambda: JsonlSessionStorage.open(big_path, read_only=True), count)]))
    rows[-1].note = f"a line of the file has {big_path.stat().st_size // count} bytes"
    return rows


def _memory(make: Callable[[], object], count: int) -> float:
    tracemalloc.start()
    kept = make()
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    del kept
    return size / count
