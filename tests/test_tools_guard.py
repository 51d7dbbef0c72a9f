"""The guard process: no command outlives the Python that started it, however that went."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agentcore.tools import guard
from agentcore.tools.environment import LocalEnvironment
from tests.process_groups import living_members, wait_until

pytestmark = [
    pytest.mark.pythons,
    pytest.mark.skipif(os.name == "nt", reason="process groups are POSIX"),
]

PATIENCE = 5.0
"""Seconds after which a group must be gone (C098)."""

HOST = """
import os, sys, threading
from agentcore.tools.environment import LocalEnvironment

environment = LocalEnvironment()
started = threading.Event()

def take(stream, data):
    sys.stdout.write(data.decode())
    sys.stdout.flush()
    started.set()

def run():
    environment.run_command(sys.argv[1], take)

threading.Thread(target=run, daemon=True).start()
assert started.wait(20)
"""


def start_host(command: str, then: str, **options: object) -> tuple[subprocess.Popen[str], int]:
    """Start a Python that runs a command on a daemon thread and then does `then`; also the command's group."""
    host = subprocess.Popen(
        [sys.executable, "-c", HOST + then, command], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True, **options
    )  # type: ignore[call-overload]
    assert host.stdout is not None
    group = int(host.stdout.readline())
    # Not at the first look: while it is going on, the shell may go and its child come.
    assert wait_until(lambda: bool(living_members(group)), PATIENCE)
    return host, group


def end_host(host: subprocess.Popen[str]) -> None:
    """Close a host's pipes and wait for it."""
    host.communicate(timeout=20)


WAITS = "sys.stdin.read()"
COMMANDS = {
    "one process": "echo $$; exec sleep 300",
    "a pipe": "echo $$; sleep 300 | cat",
    "the background": "echo $$; sleep 300 & sleep 300 > /dev/null 2>&1 & wait",
    "ignores TERM": "trap '' TERM; echo $$; while :; do sleep 1; done",
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_no_command_outlives_kill_9(command: str) -> None:
    """C098 (b): after `kill -9` of Python the group is gone within 5 seconds."""
    host, group = start_host(command, WAITS)
    host.kill()
    end_host(host)
    assert wait_until(lambda: not living_members(group), PATIENCE)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT], ids=lambda number: number.name)
def test_no_command_outlives_a_signal(number: signal.Signals) -> None:
    """C098 (b): after a signal that ends Python the group is gone within 5 seconds."""
    host, group = start_host(COMMANDS["a pipe"], WAITS)
    host.send_signal(number)
    end_host(host)
    assert wait_until(lambda: not living_members(group), PATIENCE)


def test_no_command_outlives_the_end_of_the_script() -> None:
    """C098 (b): a script that ends while a command runs on a daemon thread takes the group along, and is not held up by it."""
    began = time.monotonic()
    host, group = start_host(COMMANDS["a pipe"], "")
    end_host(host)
    assert host.returncode == 0
    assert time.monotonic() - began < 20
    assert wait_until(lambda: not living_members(group), PATIENCE)


def test_the_whole_tree_may_be_told_to_end_at_once() -> None:
    """TERM to Python and guard together, as a service manager sends it: the guard still does its work."""
    host, group = start_host(
        COMMANDS["ignores TERM"],
        "from agentcore.tools import guard\nprint(guard.guard_process_id(), flush=True)\n" + WAITS,
    )
    assert host.stdout is not None
    guard_id = int(host.stdout.readline())
    os.kill(guard_id, signal.SIGTERM)
    host.terminate()
    end_host(host)
    assert wait_until(lambda: not living_members(group), PATIENCE)
    assert wait_until(lambda: not _runs(guard_id), PATIENCE)


def test_what_a_command_left_in_the_background_ends_with_python() -> None:
    """A command that has ended well, with a child in the background: the child goes on, and ends with Python."""
    then = "import time\nwhile threading.active_count() > 1: time.sleep(0.01)\nprint('ended', flush=True)\n" + WAITS
    host, group = start_host("echo $$; sleep 300 > /dev/null 2>&1 &", then)
    assert host.stdout is not None
    assert host.stdout.readline() == "ended\n"
    assert living_members(group)
    host.kill()
    end_host(host)
    assert wait_until(lambda: not living_members(group), PATIENCE)


def test_a_group_that_has_emptied_itself_is_forgotten() -> None:
    """A background child that ended by itself leaves no id that could later be somebody else's."""
    output: list[bytes] = []
    LocalEnvironment().run_command("echo $$; sleep 0.3 > /dev/null 2>&1 &", lambda stream, data: output.append(data))
    group = int(b"".join(output))
    assert group in guard.watched_groups()
    assert wait_until(lambda: group not in guard.watched_groups(), PATIENCE)


def test_a_guard_that_was_killed_is_replaced() -> None:
    """The next command has a guard again, which knows the groups that were there before."""
    then = (
        """
from agentcore.tools import guard
os.kill(guard.guard_process_id(), 9)
while guard.guard_process_id() is not None: pass
environment.run_command("true", take)
print(guard.guard_process_id() is not None, flush=True)
"""
        + WAITS
    )
    host, group = start_host(COMMANDS["a pipe"], then)
    assert host.stdout is not None
    assert host.stdout.readline() == "True\n"
    host.kill()
    end_host(host)
    assert wait_until(lambda: not living_members(group), PATIENCE)


def test_a_forked_child_does_not_keep_the_guard_waiting() -> None:
    """A child forked without exec lives on; the parent's commands end with the parent all the same."""
    then = """
child = os.fork()
if child == 0:
    from agentcore.tools import guard
    assert guard.guard_process_id() is None and guard.watched_groups() == []
    os.close(1)
    sys.stdin.read()
    os._exit(0)
print(child, flush=True)
sys.stdin.read()
"""
    host, group = start_host(COMMANDS["a pipe"], then)
    assert host.stdout is not None
    child = int(host.stdout.readline())
    host.kill()
    host.wait(20)
    assert wait_until(lambda: not living_members(group), PATIENCE)
    assert _runs(child)
    end_host(host)
    assert wait_until(lambda: not _runs(child), PATIENCE)


def test_whoever_reads_our_output_does_not_wait_for_the_guard() -> None:
    """The guard holds neither standard output nor standard error: `capture_output` returns with Python's end."""
    began = time.monotonic()
    script = "from agentcore.tools.environment import LocalEnvironment\nLocalEnvironment().run_command(%r, print)"
    command = "trap '' TERM; (trap '' TERM; sleep 300) > /dev/null 2>&1 & echo $$"
    done = subprocess.run([sys.executable, "-c", script % command], capture_output=True, text=True, timeout=20, check=True)
    group = int(done.stdout.split("b'")[1].split("\\n")[0])
    assert living_members(group)  # the guard is still waiting for it, and we are not
    assert done.stderr == ""
    assert time.monotonic() - began < 20
    assert wait_until(lambda: not living_members(group), PATIENCE)


def test_nothing_is_said_at_exit(tmp_path: Path) -> None:
    """A guard that outlives its Python is no warning, also where all warnings are shown."""
    script = "from agentcore.tools.environment import LocalEnvironment\nLocalEnvironment().run_command('true', print)"
    done = subprocess.run([sys.executable, "-X", "dev", "-c", script], capture_output=True, text=True, timeout=20, check=True)
    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="looks into /proc")
def test_the_guard_is_given_no_keys(tmp_path: Path) -> None:
    """Neither its environment nor its working directory is a user's."""
    script = """
import json
from agentcore.tools import guard
from agentcore.tools.environment import LocalEnvironment
LocalEnvironment().run_command('true', print)
folder = f"/proc/{guard.guard_process_id()}"
open_files = [os.readlink(f"{folder}/fd/{number}") for number in (0, 1, 2)]
with open(f"{folder}/environ") as file:
    print(json.dumps([file.read(), os.readlink(f"{folder}/cwd"), open_files]))
"""
    environment = {**os.environ, "OPENAI_API_KEY": "sk-secret", "KEPT": "kept"}
    done = subprocess.run(
        [sys.executable, "-c", "import os" + script], capture_output=True, text=True, timeout=20, check=True, env=environment
    )
    variables, directory, open_files = json.loads(done.stdout)
    assert "sk-secret" not in variables
    assert "KEPT=kept" in variables
    assert directory == "/"
    assert open_files[0].startswith("pipe:")
    assert open_files[1:] == ["/dev/null", "/dev/null"]


def test_the_guard_can_be_stopped_and_comes_back() -> None:
    """`stop_guard` is for whoever counts processes; the next command starts another guard."""
    environment = LocalEnvironment()
    environment.run_command("true", lambda stream, data: None)
    before = guard.guard_process_id()
    guard.stop_guard()
    assert guard.guard_process_id() is None
    environment.run_command("true", lambda stream, data: None)
    after = guard.guard_process_id()
    assert after is not None and after != before


def _runs(process_id: int) -> bool:
    try:
        with open(f"/proc/{process_id}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except FileNotFoundError:
        if os.path.isdir("/proc/self"):
            return False
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    return True
