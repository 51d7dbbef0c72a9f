"""What becomes of a run when the script ends, and when somebody presses Ctrl-C. Each script runs in a Python of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.pythons

HEAD = """
import os, sys, threading, time
from agentcore.agent import Agent, at_exit
from agentcore.messages import AgentToolResult, AssistantMessage, TextContent
from agentcore.testing import calls, says, scripted_stream, waits
from agentcore.tools.agent_tool import AgentTool

def say(text):
    sys.stdout.write(text + "\\n")  # in one piece, also from two threads
    sys.stdout.flush()

def make_tool(execute, name="t"):
    return AgentTool(name, name, "", {"type": "object", "properties": {}}, execute)

def result(text):
    return AgentToolResult([TextContent(text)])

main_has_ended = threading.Event()
wait_for_runs = at_exit._wait_for_runs

def wait_at_exit():
    main_has_ended.set()
    if os.environ.get("SAY_EXIT"):
        say("at exit")
    wait_for_runs()

at_exit._wait_for_runs = wait_at_exit

def stuck():
    say("stuck")
    time.sleep(60)
    return result("never")
"""


def start(tmp_path: Path, script: str, *options: str, **more: Any) -> subprocess.Popen[str]:
    path = tmp_path / "script.py"
    path.write_text(HEAD + script, "utf-8")
    return subprocess.Popen(
        [sys.executable, *options, str(path)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        **more,
    )


def finish(process: subprocess.Popen[str], timeout: float = 20) -> tuple[list[str], str, int]:
    """Wait for a script; return its lines, its errors and its exit code. It is killed when the time is up."""
    try:
        output, errors = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        output, errors = process.communicate()
        pytest.fail(f"the script did not end within {timeout:g} s\n{output}\n{errors}", pytrace=False)
    return output.splitlines(), errors, process.returncode


def wait_for_line(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdout is not None
    timer = threading.Timer(20, process.kill)
    timer.start()
    try:
        for read in process.stdout:
            if read.rstrip() == line:
                return
        pytest.fail(f"the script ended without saying {line!r}: {process.stderr and process.stderr.read()}", pytrace=False)
    finally:
        timer.cancel()
        timer.join()


def interrupt(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGINT)


posix = pytest.mark.skipif(os.name == "nt", reason="sends SIGINT to a process")


def test_a_script_that_does_not_wait_completes_its_run_with_its_tools(tmp_path: Path) -> None:
    """The main thread ends before the first call is made: executors are still open, the tool runs, the run ends well."""
    script = """
def execute():
    say("tool on " + threading.current_thread().name.split("_")[0])
    return result("ok")

stream = scripted_stream(waits(main_has_ended) + calls("t") + calls("t"), calls("t"), says("done"))
agent = Agent(tools=[make_tool(execute)], stream_fn=stream)
agent.subscribe(lambda event: say(event.type) if event.type == "agent_end" else None)
agent.prompt("go")
say("main ends")
"""
    lines, errors, code = finish(start(tmp_path, script))
    # 3.12 starts no thread any more when the main thread has ended: there the run thread runs the tools itself.
    where = "agentcore-run-1" if sys.version_info[:2] == (3, 12) else "agentcore-tool"
    assert lines == ["main ends", *[f"tool on {where}"] * 3, "agent_end"]
    assert (errors, code) == ("", 0)


def test_a_run_that_a_done_callback_starts_is_completed_too(tmp_path: Path) -> None:
    """Runs that follow each other are all waited for; sys.exit keeps its code. (3.12 starts no thread any more.)"""
    script = """
agent = Agent(stream_fn=scripted_stream(waits(main_has_ended) + says("one"), says("two")))
agent.prompt("go").add_done_callback(lambda run: agent.prompt("more").add_done_callback(lambda run: say(run.text)))
sys.exit(3)
"""
    lines, errors, code = finish(start(tmp_path, script))
    if sys.version_info[:2] == (3, 12):
        assert (lines, code) == ([], 3) and "can't create new thread at interpreter shutdown" in errors
    else:
        assert (lines, errors, code) == (["two"], "", 3)


def test_a_script_that_dies_of_an_exception_ends_at_once(tmp_path: Path) -> None:
    """The run is aborted instead of waited for."""
    script = """
agent = Agent(stream_fn=scripted_stream(waits(threading.Event()) + says("never")))
agent.prompt("go").add_done_callback(lambda run: say(type(run.exception()).__name__))
raise LookupError("a bug")
"""
    began = time.monotonic()
    lines, errors, code = finish(start(tmp_path, script))
    assert time.monotonic() - began < 10
    assert (lines, code) == (["AgentAbortedError"], 1)
    assert "LookupError: a bug" in errors


def test_an_exception_ends_a_script_also_with_a_tool_that_hangs(tmp_path: Path) -> None:
    """The tool has its grace period; then the process ends without it."""
    script = """
agent = Agent(tools=[make_tool(stuck)], stream_fn=scripted_stream(calls("t"), says("never")), tool_grace=0.2)
started = threading.Event()
agent.subscribe(lambda event: started.set() if event.type == "tool_execution_start" else None)
agent.prompt("go")
started.wait(10)
raise LookupError("a bug")
"""
    began = time.monotonic()
    _, errors, code = finish(start(tmp_path, script))
    assert time.monotonic() - began < 10
    assert code == 1 and "LookupError: a bug" in errors


def test_a_listener_that_hangs_does_not_hold_a_dying_script(tmp_path: Path) -> None:
    """A run that does not settle in its grace period is left behind, its workers too."""
    script = """
def execute():
    return result("ok")

agent = Agent(tools=[make_tool(execute)], stream_fn=scripted_stream(calls("t"), says("never")), tool_grace=0.2)
hanging = threading.Event()

def listener(event):
    if event.type == "tool_execution_end":
        hanging.set()
        time.sleep(60)

agent.subscribe(listener)
agent.prompt("go")
hanging.wait(10)
raise LookupError("a bug")
"""
    began = time.monotonic()
    _, errors, code = finish(start(tmp_path, script))
    assert time.monotonic() - began < 10
    assert code == 1 and "LookupError: a bug" in errors


def test_a_script_that_reads_one_event_and_ends_exits(tmp_path: Path) -> None:
    """The wait at exit ends the reading in step: the run completes."""
    script = """
agent = Agent(stream_fn=scripted_stream(says("one", "two")))
stream = agent.stream("go")
say(next(stream).type)
stream.run.add_done_callback(lambda run: say(run.text))
"""
    assert finish(start(tmp_path, script)) == (["agent_start", "onetwo"], "", 0)


def test_agent_loop_is_completed_too(tmp_path: Path) -> None:
    """The loop without an agent has the same exit rule."""
    script = """
from agentcore.loop import AgentContext, AgentLoopConfig, agent_loop
from agentcore.messages import UserMessage
from agentcore.models import Model
config = AgentLoopConfig(model=Model("m"))
stream = agent_loop([UserMessage("go")], AgentContext(), config, None, scripted_stream(waits(main_has_ended) + says("done")))
stream.run.add_done_callback(lambda run: say(run.text))
"""
    assert finish(start(tmp_path, script)) == (["done"], "", 0)


def test_an_interactive_interpreter_does_not_wait(tmp_path: Path) -> None:
    """With -i somebody sat at a prompt and left: the run is aborted."""
    script = """
agent = Agent(stream_fn=scripted_stream(waits(threading.Event()) + says("never")))
agent.prompt("go").add_done_callback(lambda run: say(type(run.exception()).__name__))
"""
    began = time.monotonic()
    lines, _, code = finish(start(tmp_path, script, "-i"))
    assert time.monotonic() - began < 10
    assert (lines, code) == (["AgentAbortedError"], 0)


def test_a_tool_that_was_given_up_does_not_hold_the_exit(tmp_path: Path) -> None:
    """C070: after the run went on without it, the script ends although the tool has not returned."""
    script = """
agent = Agent(tools=[make_tool(stuck)], stream_fn=scripted_stream(calls("t"), says("never"), says("back")), tool_grace=0.1)
started = threading.Event()
agent.subscribe(lambda event: started.set() if event.type == "tool_execution_start" else None)
run = agent.prompt("go")
started.wait(10)
agent.abort()
run.wait(10)
say(agent.run("again").text)
"""
    began = time.monotonic()
    lines, errors, code = finish(start(tmp_path, script))
    assert time.monotonic() - began < 10
    assert (lines[-1], code) == ("back", 0)
    assert "Traceback" not in errors


INTERRUPTED = """
run = None
try:
    WAIT
except KeyboardInterrupt:
    say("interrupted")
say("idle" if agent.active_run is None else "still running")
say(getattr(agent.messages[-1], "stop_reason", "?"))
say(agent.run("again").text)
deadline = time.monotonic() + 2
while threading.active_count() > THREADS and time.monotonic() < deadline:
    time.sleep(0.01)
say(str(threading.active_count() - THREADS))
"""


@posix
@pytest.mark.parametrize(
    "wait",
    [
        "agent.run('go')",
        "agent.prompt('go').wait()",
        "agent.prompt('go').result(30)",
        "agent.prompt('go'); agent.wait_for_idle()",
        "[None for event in agent.stream('go')]",
    ],
)
def test_ctrl_c_while_waiting_mid_stream(tmp_path: Path, wait: str) -> None:
    """C071 (a): the run is aborted and settled, KeyboardInterrupt is raised, the agent is usable, no thread is left."""
    script = """
from agentcore.loop.event_stream import EventChannel
from agentcore.loop.run import Run
THREADS = 1
is_waiting = threading.Event()

def announce(method):
    def announced(*args):
        is_waiting.set()
        return method(*args)
    return announced

Run.block, EventChannel.take = announce(Run.block), announce(EventChannel.take)

def streaming():
    is_waiting.wait(10)  # Ctrl-C between two statements of the script would be the script's own affair
    say("streaming")

agent = Agent(stream_fn=scripted_stream(says("one ", streaming, threading.Event(), "two"), says("back")))
""" + INTERRUPTED.replace("WAIT", wait)
    process = start(tmp_path, script)
    wait_for_line(process, "streaming")
    interrupt(process)
    lines, errors, code = finish(process)
    assert lines == ["interrupted", "idle", "aborted", "back", "0"], errors
    assert code == 0


@posix
def test_ctrl_c_while_a_tool_hangs(tmp_path: Path) -> None:
    """C071: the tool is given up after its grace period; the transcript is valid, the agent usable, the script can end."""
    script = """
THREADS = 2  # the worker that never returns
agent = Agent(tools=[make_tool(stuck)], stream_fn=scripted_stream(calls("t"), says("never"), says("back")), tool_grace=0.2)
""" + INTERRUPTED.replace("WAIT", "agent.run('go')")
    process = start(tmp_path, script)
    wait_for_line(process, "stuck")
    interrupt(process)
    lines, errors, code = finish(process)
    assert lines == ["interrupted", "idle", "aborted", "back", "0"], errors
    assert code == 0


@posix
def test_ctrl_c_leaves_a_hanging_tool_without_a_handler(tmp_path: Path) -> None:
    """A script whose tool hangs ends as any interrupted script does."""
    script = """
agent = Agent(tools=[make_tool(stuck)], stream_fn=scripted_stream(calls("t"), says("never")), tool_grace=0.2)
agent.run("go")
"""
    process = start(tmp_path, script)
    wait_for_line(process, "stuck")
    interrupt(process)
    _, errors, code = finish(process)
    assert "KeyboardInterrupt" in errors
    assert code in (-signal.SIGINT, 130, 1)


@posix
def test_ctrl_c_during_the_wait_at_exit(tmp_path: Path) -> None:
    """The script has come to its end and its tool hangs: Ctrl-C aborts the run, and the process ends."""
    script = """
agent = Agent(tools=[make_tool(stuck)], stream_fn=scripted_stream(calls("t"), says("never")), tool_grace=0.2)
started = threading.Event()
agent.subscribe(lambda event: started.set() if event.type == "tool_execution_start" else None)
agent.prompt("go")
started.wait(10)
"""
    process = start(tmp_path, script, env={**os.environ, "SAY_EXIT": "1"})
    wait_for_line(process, "at exit")
    interrupt(process)
    began = time.monotonic()
    finish(process)
    assert time.monotonic() - began < 5


@posix
def test_a_second_ctrl_c_is_raised_at_once(tmp_path: Path) -> None:
    """While the first one waits for the tool's grace period."""
    script = """
agent = Agent(tools=[make_tool(stuck)], stream_fn=scripted_stream(calls("t"), says("never")), tool_grace=30)
agent.subscribe(lambda event, signal: signal.on_abort(lambda reason: say("aborting")) if event.type == "agent_start" else None)
agent.run("go")
"""
    process = start(tmp_path, script)
    wait_for_line(process, "stuck")
    interrupt(process)
    wait_for_line(process, "aborting")
    for _ in range(50):  # the second one ends the wait, a third one the wait at exit
        if process.poll() is not None:
            break
        interrupt(process)
        time.sleep(0.1)
    _, errors, _ = finish(process, 5)
    assert "KeyboardInterrupt" in errors


@posix
@pytest.mark.parametrize("seed", range(4))
def test_ctrl_c_at_any_point(tmp_path: Path, seed: int) -> None:
    """Interrupts at random moments, one after the other: the agent is idle and usable after each, nothing hangs."""
    script = f"""
import random, signal
from agentcore.loop.config import RetryPolicy
from agentcore.testing import fails
from agentcore.transcript import pair_tool_results
random.seed({seed})
if {seed} % 2:
    sys.setswitchinterval(1e-6)  # threads take turns as often as they can

def execute():
    return result("ok")

class Endless:
    def __call__(self, model, context, options):
        turn = random.choice([
            calls("t") + calls("t"), says(*"some words that stream".split()), says("half") + fails("cut", retryable=True)
        ])
        return scripted_stream(turn)(model, context, options)

agent = Agent(tools=[make_tool(execute)], stream_fn=Endless(), tool_grace=1, retry=RetryPolicy(100, 0.001))

def read_on():
    with agent.stream("go") as stream:
        for event in stream:
            pass

def read_and_drop():
    for event in agent.stream("go"):
        pass

def enter():
    with agent:
        agent.prompt("go")

def prompt_and_wait():
    agent.prompt("go")
    agent.wait_for_idle()

ways = [
    lambda: agent.run("go"), read_on, prompt_and_wait, lambda: agent.run("go", timeout=60), enter,
    lambda: agent.prompt("go").result(), read_and_drop, lambda: agent.wait_for_idle() if agent.active_run else agent.prompt("go"),
]
signal.signal(signal.SIGALRM, signal.default_int_handler)  # a Ctrl-C that comes at its time, without a thread
interrupted = 0
for number in range(100):
    try:
        # Again every second: Python drops what is raised inside a __del__ or a callback of a weak reference.
        signal.setitimer(signal.ITIMER_REAL, random.random() * 0.01 + 0.0001, 1)
        while True:
            ways[number % len(ways)]()
    except KeyboardInterrupt:
        signal.setitimer(signal.ITIMER_REAL, 0)
        interrupted += 1
    if agent.active_run is not None:  # it came behind the last wait of a statement, say between run() and its return
        agent.abort()
        assert agent.wait_for_idle(10), "not idle"
    calls_made = sum(len(message.tool_calls) for message in agent.messages if message.role == "assistant")
    results = [message for message in pair_tool_results(agent.messages) if message.role == "toolResult"]
    assert len(results) == calls_made
    agent.state.messages = []
agent.stream_fn = scripted_stream(says("alive"))
say(agent.run("go").text)
say(str(interrupted))
"""
    lines, errors, code = finish(start(tmp_path, script), 60)
    assert code == 0, errors
    assert lines == ["alive", "100"]


def test_the_private_names_are_there() -> None:
    """The exit rule stands on two private names of the standard library; each Python that lacks one takes the way out."""
    import concurrent.futures.thread as pool

    assert callable(getattr(threading, "_register_atexit", None))
    assert hasattr(pool, "_threads_queues")


def test_without_the_early_hook_the_run_is_aborted_at_exit(tmp_path: Path) -> None:
    """Executors are closed by then, so nothing could be finished: the fallback aborts, and the script ends."""
    path = tmp_path / "script.py"
    path.write_text("import threading\ndel threading._register_atexit\nimport atexit\n", "utf-8")
    script = (
        path.read_text("utf-8")
        + HEAD
        + """
agent = Agent(stream_fn=scripted_stream(waits(threading.Event()) + says("never")))
agent.prompt("go").add_done_callback(lambda run: say(type(run.exception()).__name__))
"""
    )
    # concurrent.futures.thread wants the name too: it is imported before it goes.
    path.write_text("import concurrent.futures.thread\n" + script, "utf-8")
    process = subprocess.Popen(
        [sys.executable, str(path)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    )
    lines, _, code = finish(process)
    assert (lines, code) == (["AgentAbortedError"], 0)


@posix
def test_ctrl_c_during_a_command(tmp_path: Path) -> None:
    """C071 (b): the command and its children are ended, KeyboardInterrupt is raised, the agent is usable."""
    script = """
from agentcore.tools.bash import create_bash_tool
THREADS = 1
command = "sleep 300 | cat & echo $! > pid; echo running; wait"
stream = scripted_stream(calls("bash", command=command), says("never"), says("back"))
agent = Agent(tools=[create_bash_tool()], stream_fn=stream)
def listener(event):
    if event.type == "tool_execution_update" and "running" in str(event.partial_result.content):
        say("running")

agent.subscribe(listener)
""" + INTERRUPTED.replace("WAIT", "agent.run('go')")
    process = start(tmp_path, script)
    wait_for_line(process, "running")
    interrupt(process)
    lines, errors, code = finish(process)
    assert [line for line in lines if line != "running"] == ["interrupted", "idle", "aborted", "back", "0"], errors
    assert code == 0
    child = int((tmp_path / "pid").read_text())
    deadline = time.monotonic() + 5
    while _is_alive(child) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not _is_alive(child)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
