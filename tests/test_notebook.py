"""The same code in a notebook cell, in a script, and inside a running asyncio loop, without a patch."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

CODE = """
from agentcore import Agent, tool
from agentcore.testing import calls, says, scripted_stream

@tool
def add(a: int, b: int) -> int:
    \"\"\"Add two numbers.\"\"\"
    return a + b

agent = Agent(tools=[add], stream_fn=scripted_stream(calls("add", a=17, b=25), says("It is ", "42."), says("Gladly.")))
print(agent.run("How much is 17 and 25?", timeout=20).text)
with agent.stream("Thank you.") as events:
    print(*(event.assistant_message_event.delta for event in events
            if event.type == "message_update" and event.assistant_message_event.type == "text_delta"))
"""
OUTPUT = "It is 42.\nGladly.\n"

# In a process of its own: a kernel's client leaves threads and sockets behind that are no concern of ours.
NOTEBOOK = """
import json, sys
import nbformat
from nbclient import NotebookClient

code = sys.stdin.read()
cells = [code, "import asyncio; print(type(asyncio.get_running_loop()).__name__)", code]
notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
NotebookClient(notebook, timeout=60, kernel_name="python3").execute()
print(json.dumps([[output.get("text") for output in cell.outputs] for cell in notebook.cells]))
"""


def test_a_cell_of_a_notebook(tmp_path: Path) -> None:
    """In a kernel, whose event loop is running in the very thread that runs the cell, an agent works as in a script."""
    pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    # The kernel of this environment, whatever kernels the machine has.
    kernel = tmp_path / "kernels" / "python3"
    kernel.mkdir(parents=True)
    command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (kernel / "kernel.json").write_text(json.dumps({"argv": command, "display_name": "Python", "language": "python"}))
    env = {
        **os.environ,
        "JUPYTER_PATH": str(tmp_path),
        "IPYTHONDIR": str(tmp_path / "ipython"),
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
    }
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", NOTEBOOK],
        input=CODE,
        capture_output=True,
        text=True,
        timeout=110,
        env=env,
        cwd=tmp_path,
    )
    assert ran.returncode == 0, ran.stderr
    first, loop, again = json.loads(ran.stdout.splitlines()[-1])
    assert "".join(first) == OUTPUT
    assert "Loop" in "".join(loop), "the cell is expected to run inside an event loop"
    assert "".join(again) == OUTPUT


def run_code() -> str:
    """Run the code in this thread; return what it prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(CODE, {})
    return out.getvalue()


def test_inside_a_running_event_loop() -> None:
    """Inside a coroutine the same code runs as it is; it blocks the loop, as all synchronous code does."""

    async def main() -> str:
        return run_code()

    assert asyncio.run(main()) == OUTPUT


def test_a_script() -> None:
    """And in a script."""
    assert run_code() == OUTPUT


def test_a_run_can_be_awaited() -> None:
    """`run.future()` is a future that a loop can wait for while it goes on."""
    from agentcore import Agent
    from agentcore.testing import says, scripted_stream, waits

    async def main() -> tuple[list[str], str]:
        order: list[str] = []
        gate = threading.Event()
        run = Agent(stream_fn=scripted_stream(waits(gate) + says("done"))).prompt("go")

        async def go_on() -> None:
            order.append("the loop goes on")
            gate.set()

        going = asyncio.ensure_future(go_on())
        messages = await asyncio.wait_for(asyncio.wrap_future(run.future()), timeout=20)
        order.append("the run is done")
        await going
        return order, messages[-1].text

    assert asyncio.run(main()) == (["the loop goes on", "the run is done"], "done")
