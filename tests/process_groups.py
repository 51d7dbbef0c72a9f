"""Looks at process groups from outside, for the tests of commands."""

from __future__ import annotations

import contextlib
import glob
import os
import subprocess
import time
from collections.abc import Callable


def living_members(group: int) -> list[int]:
    """Return the processes of a group that run; those that have ended and wait to be reaped are none."""
    found = []
    if os.path.isdir("/proc/self"):
        for path in glob.glob("/proc/[0-9]*/stat"):
            with contextlib.suppress(OSError):
                with open(path, "rb") as file:
                    head, _, rest = file.read().rpartition(b")")
                state, _, its_group = rest.split()[:3]
                if int(its_group) == group and state not in (b"Z", b"X"):
                    found.append(int(head.split()[0]))
        return found
    table = subprocess.run(["ps", "-A", "-o", "pid=,pgid=,stat="], capture_output=True, text=True, check=True, timeout=20).stdout
    for line in table.splitlines():
        process, its_group, state = line.split()[:3]
        if int(its_group) == group and not state.startswith("Z"):
            found.append(int(process))
    return found


def wait_until(is_so: Callable[[], bool], seconds: float) -> bool:
    """Wait until something is so that gives no sign of itself; False when the time was up first."""
    deadline = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True
