"""What becomes of runs when the script ends.

`concurrent.futures` closes all executors when the main thread ends, before threads are joined: a run that outlives `main` could
call no tool any more. So the main thread settles all runs before that:

- The script came to its end: it waits for the runs, so that a script which forgets `wait_for_idle` still finishes its work.
- The main thread died of an exception, or somebody sits at a prompt: the runs are aborted, and have their grace period.
- Ctrl-C while it waits: the same.

Two private names of the standard library stand here and nowhere else: `threading._register_atexit` (what is registered last is
called first, so this module imports `concurrent.futures.thread` before it registers) and
`concurrent.futures.thread._threads_queues`, the workers that are joined at exit. A worker that was given up is taken out of it, or
the process would wait for a tool that never returns.
"""

from __future__ import annotations

import atexit
import concurrent.futures.thread as pool
import sys
import threading

from agentcore.loop.run import active_runs
from agentcore.loop.tool_workers import WORKER_NAME


def settle_runs() -> None:
    """Wait for all runs, or abort them (see above). Runs on the main thread, at its end."""
    try:
        if not _must_abort():
            _wait_for_runs()
    except KeyboardInterrupt:
        pass
    try:
        _abort_runs()
    except KeyboardInterrupt:
        pass  # the second Ctrl-C: nothing is waited for any more
    _forget_workers()


def _must_abort() -> bool:
    if getattr(sys, "last_exc", None) is not None or getattr(sys, "last_type", None) is not None:
        return True
    return hasattr(sys, "ps1") or bool(sys.flags.interactive) or "ipykernel" in sys.modules


def _wait_for_runs() -> None:
    while runs := active_runs():
        for run in runs:
            run.wait()
            run.join()  # a done callback may start the next one


def _abort_runs() -> None:
    runs = active_runs()
    for run in runs:
        run.abort("the interpreter exits")
    for run in runs:
        run.settle()


def _forget_workers() -> None:
    """Take our workers out of those that are joined: all runs are over, so only those of given up calls are left."""
    workers = getattr(pool, "_threads_queues", {})
    for thread in list(workers):
        if thread.name.startswith(WORKER_NAME):
            workers.pop(thread, None)


def _abort_at_exit() -> None:
    """The way out where `_register_atexit` is missing: executors are closed by now, so nothing can be finished."""
    _abort_runs()
    _forget_workers()


_register = getattr(threading, "_register_atexit", None)
if _register is not None:
    _register(settle_runs)
else:
    atexit.register(_abort_at_exit)
