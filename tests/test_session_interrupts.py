"""Ctrl-C in the middle of an append: memory and storage never differ, and nothing acknowledged is lost."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.pythons, pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="timers of Unix")]

INTERRUPTED = """
import random, signal, sys, time
from agentcore.messages import UserMessage
from agentcore.session import JsonlSessionRepo, MemorySessionRepo, Session, SqliteSessionRepo

kind, folder, seed, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
repo = {
    "jsonl": lambda: JsonlSessionRepo(folder, fsync="never"),
    "sqlite": lambda: SqliteSessionRepo(f"{folder}/sessions.db", fsync="never"),
    "memory": MemorySessionRepo,
}[kind]()
chance = random.Random(seed)
is_armed = False


def interrupt(*_):
    if is_armed:
        raise KeyboardInterrupt


signal.signal(signal.SIGALRM, interrupt)
session = repo.create(cwd="/w")
acknowledged, interrupted = [], 0
for round in range(rounds):
    if round % 7 == 0:
        session.close()
        session = repo.open(session.id)  # the first append takes the lock, and is interrupted too
    try:
        is_armed = True
        signal.setitimer(signal.ITIMER_REAL, chance.uniform(1e-5, 6e-4))
        while True:
            acknowledged.append(session.append_message(UserMessage("x" * 2000, timestamp=1)))
    except KeyboardInterrupt:
        is_armed = False
        interrupted += 1
    index = session.storage.index
    stored = repo.open(session.id).storage.index if kind != "memory" else index
    assert [raw["id"] for raw in index.raws] == [raw["id"] for raw in stored.raws], round
    assert list(index.by_id) == [raw["id"] for raw in index.raws], round
    assert index.leaf_id == (index.raws[-1]["id"] if index.raws else None), round
    assert index.stats.message_count == len(index.raws), round
ids = [entry.id for entry in session.get_path()]
assert ids == [raw["id"] for raw in session.storage.index.raws], "one line of descent"
assert set(acknowledged) <= set(ids)
assert len(ids) - len(set(acknowledged)) <= interrupted
session.close()
assert [entry.id for entry in repo.open(session.id).get_path()] == ids
print(interrupted)
"""


def interrupted_writer(folder: Path, kind: str, seed: int, rounds: int) -> None:
    command = [sys.executable, "-W", "error", "-c", INTERRUPTED, kind, str(folder), str(seed), str(rounds)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.stderr, done.stdout) == ("", f"{rounds}\n")


@pytest.mark.parametrize("kind", ["jsonl", "sqlite", "memory"])
def test_an_interrupted_append_is_stored_or_not(tmp_path: Path, kind: str) -> None:
    """Interrupted at random moments, the session in memory is the one in the file, in one line of descent, and goes on."""
    interrupted_writer(tmp_path, kind, seed=1, rounds=60)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["jsonl", "sqlite", "memory"])
def test_an_interrupted_append_is_stored_or_not_often(tmp_path: Path, kind: str) -> None:
    """The same, a few hundred times."""
    interrupted_writer(tmp_path, kind, seed=2, rounds=400)
