"""One command in its own process group: its output, its end, and the end of everything that it started."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from agentcore.abort import AbortController
from agentcore.errors import EnvironmentFileError
from agentcore.tools import guard
from agentcore.tools.shell import MAX_TIMEOUT, OutputStream, run_process_group
from tests.process_groups import living_members, wait_until

pytestmark = [
    pytest.mark.pythons,
    pytest.mark.skipif(os.name == "nt", reason="process groups are POSIX"),
]


class Output:
    """Keeps what a command prints, and acts on the first of it."""

    def __init__(self, on_first: Callable[[], object] | None = None) -> None:
        self.stdout = b""
        self.stderr = b""
        self._on_first = on_first

    def __call__(self, stream: OutputStream, data: bytes) -> None:
        setattr(self, stream, getattr(self, stream) + data)
        if self._on_first is not None:
            act, self._on_first = self._on_first, None
            act()


def run(command: str, on_output: Callable[[OutputStream, bytes], object], **options: object) -> int:
    """Run a command with bash in this directory and this environment."""
    arguments = ["/bin/bash", "-c", command]
    return run_process_group(arguments, on_output, cwd=os.getcwd(), env=dict(os.environ), **options)  # type: ignore[arg-type]


def fails_with(code: str, command: str, output: Output, **options: object) -> EnvironmentFileError:
    """Run a command that must fail with this code, and return the error."""
    with pytest.raises(EnvironmentFileError) as caught:
        run(command, output, **options)
    assert caught.value.code == code, caught.value
    return caught.value


def test_the_exit_code_and_both_streams_come_back() -> None:
    """Each stream is told apart, and the exit code is the shell's."""
    output = Output()
    assert run("echo out; echo err >&2; exit 3", output) == 3
    assert (output.stdout, output.stderr) == (b"out\n", b"err\n")


def test_a_shell_killed_by_a_signal_has_128_more_than_the_signal() -> None:
    """A command that a signal ended is no success."""
    assert run("kill -9 $$", Output()) == 137
    assert run("kill -TERM $$", Output()) == 143


def test_the_command_leads_a_session_of_its_own() -> None:
    """No signal for this process' group or terminal reaches the command."""
    output = Output()
    run("echo $$; ps -o pgid=,sid= -p $$ 2>/dev/null || cut -d' ' -f5,6 /proc/$$/stat", output)
    leader, group, session = map(int, output.stdout.split())
    assert leader == group == session != os.getpgid(0)


def test_a_timeout_ends_the_whole_group() -> None:
    """C097: a group that ignores TERM gets KILL; the output so far is kept, and it takes no longer than timeout and grace."""
    output = Output()
    began = time.monotonic()
    error = fails_with("timeout", 'echo $$; trap "" TERM; sleep 60 & wait', output, timeout=1)
    assert time.monotonic() - began < 1 + 0.5 + 1.5
    assert str(error) == "the command timed out after 1 seconds"
    assert wait_until(lambda: not living_members(int(output.stdout)), 2)


def test_a_child_that_takes_its_leave_at_term_may_do_so() -> None:
    """TERM comes before KILL, to every member of the group, and what they say then is still heard."""
    output = Output()
    child = "trap 'echo tidied up; exit' TERM; echo armed; while :; do sleep 0.05; done"
    fails_with("timeout", f"bash -c {child!r} & wait", output, timeout=1)
    assert output.stdout == b"armed\ntidied up\n"


@pytest.mark.parametrize("command", ["sleep 60", "sleep 300 | cat", "sleep 300 & sleep 300 & wait"])
def test_an_abort_ends_the_whole_group_within_a_tenth_of_a_second(command: str) -> None:
    """C098 (a): nothing of the group is left, and nobody waits for it. (The best of three: the machine may be busy.)"""
    seconds = []
    for _ in range(3):
        controller = AbortController()
        aborted_at: list[float] = []

        def abort(controller: AbortController = controller, aborted_at: list[float] = aborted_at) -> None:
            aborted_at.append(time.monotonic())
            controller.abort()

        aborter = threading.Thread(target=abort)
        output = Output(aborter.start)
        fails_with("aborted", f"echo $$; {command}", output, signal=controller.signal)
        seconds.append(time.monotonic() - aborted_at[0])
        aborter.join(10)
        assert wait_until(lambda group=int(output.stdout): not living_members(group), 2)  # type: ignore[misc]
    assert min(seconds) < 0.1


def test_a_signal_that_was_set_before_starts_nothing(tmp_path: Path) -> None:
    """Aborted before the start: the command does not run."""
    controller = AbortController()
    controller.abort()
    fails_with("aborted", f"touch {tmp_path}/ran", Output(), signal=controller.signal)
    assert not (tmp_path / "ran").exists()


ABORTED = (
    "sleep 300",
    "sleep 300 | cat",
    "sleep 300 & sleep 300 & wait",
    "(sleep 300 &) ; sleep 300",
    "yes > /dev/null",
    "yes",
    "cat <(sleep 300) | sort",
    "sleep 300 > /dev/null 2>&1 & exec sleep 300",
    "exec > /dev/null 2>&1; sleep 300",
    "while :; do sleep 0.01; done",
)


def abort_many(count: int) -> None:
    """Abort so many commands of every kind, and look for what is left."""
    groups = []
    for number in range(count):
        controller = AbortController()
        output = Output(controller.abort)
        fails_with("aborted", f"echo $$; {ABORTED[number % len(ABORTED)]}", output, signal=controller.signal)
        groups.append(int(output.stdout.split()[0]))
    assert wait_until(lambda: not any(living_members(group) for group in groups), 2)


def test_aborted_commands_leave_nothing_behind() -> None:
    """After 20 aborted commands: no process (here), no zombie and no open file (the fixture of every test)."""
    abort_many(20)


@pytest.mark.slow
def test_200_aborted_commands_leave_nothing_behind() -> None:
    """After 200 aborted sleeping, piping and backgrounding commands: no process, no zombie, no open file."""
    abort_many(200)


def test_commands_are_aborted_from_many_threads_at_once() -> None:
    """Eight commands at the same time, each aborted by itself: each ends, and each takes only its own group along."""
    faults: list[BaseException] = []

    def one() -> None:
        try:
            abort_many(3)
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=one) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert faults == []


def test_a_background_child_that_holds_the_pipe_is_not_waited_for() -> None:
    """The end is that of the process, not that of its output; the child goes on."""
    output = Output()
    began = time.monotonic()
    assert run("echo $$; sleep 30 & echo done", output) == 0
    assert time.monotonic() - began < 5
    group = int(output.stdout.split()[0])
    assert living_members(group)
    os.killpg(group, 9)
    assert wait_until(lambda: not living_members(group), 2)


def test_a_background_child_that_never_stops_talking_does_not_keep_the_command() -> None:
    """Late output is read for one second at most."""
    output = Output()
    began = time.monotonic()
    assert run("echo $$; (while :; do echo x; sleep 0.02; done) & echo done", output) == 0
    assert 1 <= time.monotonic() - began < 5
    os.killpg(int(output.stdout.split()[0]), 9)


def test_an_abort_after_the_end_of_the_shell_ends_the_background_too() -> None:
    """While late output is read the command still counts as running."""
    controller = AbortController()
    output = Output()

    def take(stream: OutputStream, data: bytes) -> None:
        output(stream, data)
        if b"late" in data:
            controller.abort()

    with pytest.raises(EnvironmentFileError) as caught:
        run("echo $$; (sleep 0.05; echo late; sleep 300) &", take, signal=controller.signal)
    assert caught.value.code == "aborted"
    assert wait_until(lambda: not living_members(int(output.stdout.split()[0])), 2)


def test_a_failing_callback_ends_the_command() -> None:
    """What `on_output` raises is the cause of the error, and the group is gone."""
    output = Output()

    def take(stream: OutputStream, data: bytes) -> None:
        output(stream, data)
        raise RuntimeError("no more")

    with pytest.raises(EnvironmentFileError, match="no more") as caught:
        run("echo $$; sleep 60", take)
    assert caught.value.code == "callback_error"
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert wait_until(lambda: not living_members(int(output.stdout)), 2)


def test_ctrl_c_kills_the_group_and_comes_through() -> None:
    """An exception that is not ours leaves no command behind."""
    output = Output()

    def take(stream: OutputStream, data: bytes) -> None:
        output(stream, data)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run("echo $$; sleep 60", take)
    assert wait_until(lambda: not living_members(int(output.stdout)), 2)


def test_ticks_come_while_a_command_is_silent() -> None:
    """`on_tick` is called about every 100 ms."""
    ticks: list[float] = []
    run("sleep 0.55", Output(), on_tick=lambda: ticks.append(time.monotonic()))
    assert 2 <= len(ticks) <= 6
    assert all(later - earlier > 0.09 for earlier, later in itertools.pairwise(ticks))


@pytest.mark.parametrize("timeout", [0, -1, 10**12, float("nan"), float("inf")])
def test_a_timeout_out_of_range_is_refused(timeout: float, tmp_path: Path) -> None:
    """C100: the error names the range, and the command does not run."""
    error = fails_with("timeout", f"touch {tmp_path}/ran", Output(), timeout=timeout)
    assert str(error).startswith("invalid timeout ")
    assert str(error).endswith(": give a number of seconds above 0 and at most 2147483.647, or none for no limit")
    assert not (tmp_path / "ran").exists()


def test_the_longest_timeout_is_taken() -> None:
    """The range ends where it says."""
    assert run("true", Output(), timeout=MAX_TIMEOUT) == 0


def test_what_cannot_be_started_says_why() -> None:
    """A command or a variable that is too long, holds a NUL character, or is no text, is an error of its own, with the way out."""
    error = fails_with("spawn_error", "x" * 3_000_000, Output())
    assert str(error) == "the command is too long for the system (3000000 characters): write it to a file and run that"
    for command in ("echo a\0b", "echo \ud800"):
        error = fails_with("spawn_error", command, Output())
        assert str(error) == "the command holds a NUL character or half a surrogate pair: leave it out"
    texts = []
    for env in ({"A": "x" * 300_000}, {"A": "a\0b"}, {"A": 1, "B": "x", "C": None}):
        with pytest.raises(EnvironmentFileError) as caught:
            run_process_group(["/bin/bash", "-c", "true"], Output(), cwd="/", env=env)  # type: ignore[arg-type]
        texts.append((caught.value.code, str(caught.value)))
    assert texts == [
        ("spawn_error", "the environment is too large for the system (A has 300000 characters): hand long values over in a file"),
        ("spawn_error", "the environment variable 'A' holds a NUL character or half a surrogate pair: leave it out"),
        ("spawn_error", "these environment variables are no texts: A, C; give names and values as str"),
    ]
    with pytest.raises(EnvironmentFileError, match="cannot start /no/such in /: "):
        run_process_group(["/no/such"], Output(), cwd="/", env={})


def test_standard_input_is_empty() -> None:
    """A command that reads gets the end of the file at once."""
    output = Output()
    assert run("cat; read x; echo end $?", output) == 0
    assert output.stdout == b"end 1\n"


def test_all_output_of_a_command_that_has_ended_is_read() -> None:
    """A megabyte that is written right before the end comes complete, in order."""
    output = Output()
    assert run("seq 1 150000; seq 1 9 >&2", output) == 0
    assert output.stdout == "".join(f"{number}\n" for number in range(1, 150001)).encode()
    assert output.stderr == b"1\n2\n3\n4\n5\n6\n7\n8\n9\n"


def test_a_slow_reader_gets_all_that_the_pipes_held_at_the_end() -> None:
    """The limit on late output is one on waiting for more of it, not on taking in what is there."""
    sizes: list[int] = []

    def take(stream: OutputStream, data: bytes) -> None:
        sizes.append(len(data))
        time.sleep(0.3)  # a callback that takes its time

    assert run("head -c 400000 /dev/zero", take) == 0
    assert sum(sizes) == 400_000


def test_a_machine_without_descriptors_says_so() -> None:
    """The error is that of the command; nothing is left running, and the next command runs."""
    resource = pytest.importorskip("resource")
    _, hard = limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    run("true", Output())
    taken = [os.open(os.devnull, os.O_RDONLY)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(taken) + 3, hard))
    try:
        for room in range(12):
            with contextlib.suppress(EnvironmentFileError):
                run("true", Output())
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(taken) + 3 + room, hard))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for descriptor in taken:
            os.close(descriptor)
    assert run("true", Output()) == 0


def test_the_system_without_pidfd_does_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a process' end cannot be waited for in `poll`, it is asked for."""
    monkeypatch.delattr(os, "pidfd_open", raising=False)
    assert run("echo hi; exit 5", Output()) == 5
    assert run("exec > /dev/null 2>&1; sleep 0.2; exit 6", Output()) == 6
    fails_with("timeout", "sleep 60 | cat", Output(), timeout=0.2)
    monkeypatch.delattr(os, "waitid", raising=False)
    assert run("echo hi; exit 5", Output()) == 5
    fails_with("timeout", "sleep 60 | cat", Output(), timeout=0.2)


def test_the_guard_knows_no_group_of_a_command_that_has_ended() -> None:
    """Nothing is left that could be ended by mistake."""
    while_it_ran: list[int] = []
    well = Output(lambda: while_it_ran.extend(guard.watched_groups()))
    run("echo $$", well)
    ended = Output()
    fails_with("timeout", "echo $$; sleep 60", ended, timeout=0.1)
    assert int(well.stdout) in while_it_ran
    assert not {int(well.stdout), int(ended.stdout)} & set(guard.watched_groups())


def test_an_exit_code_that_is_lost_is_no_success(caplog: pytest.LogCaptureFixture) -> None:
    """Where a process ignores SIGCHLD, nobody learns how a command ended: that is told, and never taken for 0."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert run("exit 3", Output()) == 255
        fails_with("timeout", "sleep 60", Output(), timeout=0.1)
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert [record.getMessage() for record in caplog.records] == [
        "the exit code of a command is lost, and taken for 255: this process ignores SIGCHLD, or reaps all children"
    ]


@pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")
def test_forks_in_other_threads_disturb_nothing() -> None:
    """A process that forks while commands run gets their output and their exit codes, and keeps no descriptor of theirs."""
    stop = threading.Event()

    def fork_on() -> None:
        while not stop.wait(0.002):
            child = os.fork()
            if child == 0:
                os._exit(0)
            os.waitpid(child, 0)

    guard.watched_groups()
    run("true", Output())  # the guard is there
    before = len(os.listdir("/dev/fd"))
    thread = threading.Thread(target=fork_on)
    thread.start()
    try:
        for number in range(20):
            output = Output()
            assert run(f"echo {number}; exit 3", output) == 3
            assert output.stdout == b"%d\n" % number
    finally:
        stop.set()
        thread.join(20)
    assert len(os.listdir("/dev/fd")) == before
