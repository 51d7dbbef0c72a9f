"""What `import agentcore` adds to the start of Python, and that it leaves the heavy libraries for later."""

from __future__ import annotations

import subprocess
import sys
import time

from benchmarks.frame import Options, Row, in_turns

TITLE = "import agentcore"
HEAVY = ("requests", "dataclasses_json", "jsonschema", "yaml", "PIL")


def start_python(code: str) -> float:
    """Return the time in ms that a fresh interpreter takes."""
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return (time.perf_counter() - started) * 1000


def measure(options: Options) -> list[Row]:
    """Measure."""
    look = f"import agentcore, sys; print(*[name for name in {HEAVY!r} if name in sys.modules])"
    heavy = subprocess.run([sys.executable, "-c", look], check=True, capture_output=True, text=True).stdout.strip()
    ours, bare = in_turns(max(options.rounds * 3, 11), lambda: start_python("import agentcore"), lambda: start_python("pass"))
    added = [mine - nothing for mine, nothing in zip(ours, bare, strict=True)]
    note = f"imported with it, though it should not be: {heavy}" if heavy else ""
    return [Row("above python -c pass", "ms", added, goal=60.0, note=note)]
