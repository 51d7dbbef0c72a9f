"""What `import agentcore` adds to the start of Python, in time and memory, and that it leaves the heavy libraries for later.

A command-line tool pays this at every call. The floor is `python -c pass`; each figure is of a process of its own. The bytecode is
there, as it is after an installation, also where that of the checkout is out of date or must not be written. CPU is told beside
the wall, since on a busy machine it is the steadier of the two.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time

from benchmarks.frame import Options, Row, in_turns

TITLE = "import agentcore, above python -c pass"
HEAVY = ("requests", "dataclasses_json", "jsonschema", "yaml", "PIL")


def measure(options: Options) -> list[Row]:
    """Measure."""
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "PYTHONPYCACHEPREFIX": folder, "PYTHONDONTWRITEBYTECODE": ""}
        look = f"import agentcore, sys; print(*[name for name in {HEAVY!r} if name in sys.modules])"
        heavy = _run(look, env)  # writes the bytecode, too
        cpu: dict[str, list[float]] = {"import agentcore": [], "pass": []}

        def start(code: str) -> float:
            before, started = _children_cpu_ms(), time.perf_counter()
            _run(code, env)
            cpu[code].append(_children_cpu_ms() - before)
            return (time.perf_counter() - started) * 1000

        ours, bare = in_turns(max(options.rounds * 3, 11), *(lambda code=code: start(code) for code in cpu))  # type: ignore[misc]
        # Not getrusage: a child's ru_maxrss begins with what its parent had in memory.
        peak = "print(*[line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')])"
        memory = [[float(_run(f"{code}; {peak}", env)) for _ in range(3)] for code in cpu] if sys.platform == "linux" else []
    note = f"imported with it, though it should not be: {heavy}" if heavy else ""
    rows = [Row("wall", "ms", _above(ours, bare), limit=60.0, note=note)]
    if any(cpu["pass"]):
        rows.append(Row("CPU", "ms", _above(*cpu.values())))
    if memory:
        rows.append(Row("memory", "KB", _above(*memory)))
    return rows


def _run(code: str, env: dict[str, str]) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=env).stdout.strip()


def _above(ours: list[float], bare: list[float]) -> list[float]:
    return [mine - nothing for mine, nothing in zip(ours, bare, strict=True)]


def _children_cpu_ms() -> float:
    """Return the CPU time of all processes that were started and have ended; 0 where the system does not say."""
    try:
        import resource
    except ImportError:
        return 0.0
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (used.ru_utime + used.ru_stime) * 1000
