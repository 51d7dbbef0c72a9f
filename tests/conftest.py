"""What holds for every test: no key or proxy of the machine reaches it, and it leaves nothing behind."""

from __future__ import annotations

import contextlib
import gc
import glob
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentcore.provider_keys import is_provider_key_variable

PATIENCE = 2.0
"""Seconds that threads, processes and descriptors of a test have to go away after its end."""


@pytest.fixture(scope="session", autouse=True)
def no_keys_and_no_proxies() -> None:
    """Take out of the environment what would send a test to a real provider or through a proxy."""
    for name in [*os.environ]:
        if is_provider_key_variable(name) or name.lower() in ("http_proxy", "https_proxy", "all_proxy"):
            del os.environ[name]


@pytest.fixture(scope="session", autouse=True)
def ctrl_c_is_heard() -> None:
    """Undo what a background job inherits from its shell: an ignored SIGINT, which the children of the tests would inherit too."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Fail a test that leaves a thread, a process or a descriptor behind.

    Idle connections are no leak: they are closed first. The guard process of shell commands lives as long as Python.
    """
    threads, processes, descriptors = set(threading.enumerate()), _processes(), _descriptors()
    yield
    deadline = time.monotonic() + PATIENCE
    while True:
        _close_connections()
        left = [f"thread {thread.name}" for thread in threading.enumerate() if thread not in threads]
        left += [f"process {pid}: {command}" for pid, command in _processes().items() if pid not in processes]
        left += [f"descriptor {number}: {target}" for number, target in _descriptors().items() if descriptors.get(number) != target]
        if not left:
            return
        if time.monotonic() > deadline:
            pytest.fail("left behind: " + "; ".join(left), pytrace=False)
        gc.collect()
        time.sleep(0.01)


def _close_connections() -> None:
    if "agentcore.llm.http" in sys.modules:
        import agentcore

        agentcore.close_connections()


def _processes() -> dict[int, str]:
    """Return the processes that this one started and their command lines, where the system tells (Linux)."""
    found: dict[int, str] = {}
    for children in glob.glob("/proc/self/task/*/children"):
        for pid in _read(children).split():
            command = _read(f"/proc/{pid}/cmdline").replace("\0", " ").strip()
            if not _is_guard(command):
                found[int(pid)] = command or "(ended, but not waited for)"
    return found


def _is_guard(command: str) -> bool:
    """Whether this is the process that ends shell commands when Python is gone; it lives as long as Python does."""
    return command.startswith(f"{sys.executable} -I -S -c ")


def _descriptors() -> dict[int, str]:
    """Return the open descriptors and what they lead to, without those that lead to the guard."""
    folder = "/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"
    found: dict[int, str] = {}
    for number in map(int, os.listdir(folder)):
        try:
            found[number] = os.readlink(f"{folder}/{number}") if folder.startswith("/proc") else str(os.fstat(number).st_ino)
        except OSError:
            continue  # the listing's own descriptor
    pipes = _pipes_of_the_guard() if any(target.startswith("pipe:") for target in found.values()) else set()
    return {number: target for number, target in found.items() if target not in pipes}


def _pipes_of_the_guard() -> set[str]:
    pipes: set[str] = set()
    for children in glob.glob("/proc/self/task/*/children"):
        for pid in _read(children).split():
            if _is_guard(_read(f"/proc/{pid}/cmdline").replace("\0", " ")):
                for path in glob.glob(f"/proc/{pid}/fd/*"):
                    with contextlib.suppress(OSError):  # closed while we looked
                        pipes.add(os.readlink(path))
    return {pipe for pipe in pipes if pipe.startswith("pipe:")}


def _read(path: str) -> str:
    try:
        return Path(path).read_text("utf-8", "replace")
    except OSError:
        return ""  # it ended while we looked
