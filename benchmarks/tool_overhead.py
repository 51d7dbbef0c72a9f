"""What the ready-made tools add to the work itself: a read, an edit, a command, each called as the loop calls it.

A model makes such calls by the hundred: what a tool adds is to be small beside the answer that asked for it.

Floors: `open().read()`; reading, replacing and writing the file back; `subprocess.run` of the same command, its output captured.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import agentcore
from agentcore.tools.arguments import validate_tool_arguments
from benchmarks.frame import Options, Row, in_turns, wall_seconds

TITLE = "Tools, one call"


def caller(tool: agentcore.AgentTool, **arguments: Any) -> Callable[[], object]:
    """Return a function that makes one call: the arguments are validated, then the tool runs."""
    call = agentcore.ToolCall("call_1", tool.name, arguments)

    def make_call() -> object:
        result: object = tool.run(call.id, validate_tool_arguments(tool, call), None, None, None)
        return result

    return make_call


def measure(options: Options) -> list[Row]:
    """Measure."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "text.txt"
        lines = [f"line {n}: the quick brown fox\n" for n in range(1000)]
        path.write_text("".join(lines))
        words = ["brown", "red"]

        def swap_bare() -> None:
            text = path.read_text()
            path.write_text(text.replace("line 500: the quick", "line 500: the slow").replace("slow", "quick"))

        edit = agentcore.create_edit_tool(cwd=folder)

        def swap_ours() -> None:
            words.reverse()
            old, new = (f"line 500: the quick {word} fox" for word in words)
            caller(edit, path="text.txt", edits=[{"oldText": new, "newText": old}])()

        read = caller(agentcore.create_read_tool(cwd=folder), path="text.txt")
        bash = caller(agentcore.create_bash_tool(cwd=folder), command="true")
        pairs: dict[str, tuple[Callable[[], object], Callable[[], object], int]] = {
            "read 1,000 lines": (read, path.read_text, 200),
            "edit a line of 1,000": (swap_ours, swap_bare, 100),
            "bash: true": (bash, lambda: subprocess.run(["bash", "-c", "true"], capture_output=True, check=True), 20),
        }
        rows = []
        for name, (ours, bare, count) in pairs.items():
            ours(), bare()
            found = in_turns(
                options.rounds,
                lambda ours=ours, count=count: wall_seconds(lambda: [ours() for _ in range(count)]),  # type: ignore[misc]
                lambda bare=bare, count=count: wall_seconds(lambda: [bare() for _ in range(count)]),  # type: ignore[misc]
            )
            rows.append(Row(name, "ms", *([seconds / count * 1000 for seconds in side] for side in found)))
        return rows
