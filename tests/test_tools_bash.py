"""The bash tool: what the model gets, what is seen meanwhile, and what is refused."""

from __future__ import annotations

import itertools
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from agentcore import Agent
from agentcore.abort import AbortController, AbortSignal
from agentcore.errors import EnvironmentFileError
from agentcore.events import ToolExecutionUpdateEvent
from agentcore.messages import AgentToolResult, TextContent, ToolResultMessage
from agentcore.testing import calls, says, scripted_stream
from agentcore.tools.bash import BashExecution, BashPrepare, BashToolDetails, BashToolOptions, create_bash_tool
from agentcore.tools.environment import LocalEnvironment
from tests.process_groups import living_members, wait_until

pytestmark = pytest.mark.skipif(os.name == "nt", reason="commands need a POSIX system")


@pytest.fixture(autouse=True)
def temporary_files_in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole outputs are written where they are removed again."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))


def run(
    command: str,
    *,
    timeout: float | None = None,
    signal: AbortSignal | None = None,
    updates: list[AgentToolResult] | None = None,
    context: Any = None,
    options: BashToolOptions | None = None,
    environment: LocalEnvironment | None = None,
) -> AgentToolResult:
    """Call a bash tool as the loop does."""
    tool = create_bash_tool(options, environment=environment)
    args: dict[str, Any] = {"command": command, **({} if timeout is None else {"timeout": timeout})}
    result: AgentToolResult = tool.run("call-1", args, signal, None if updates is None else updates.append, context)
    return result


def text_of(result: AgentToolResult) -> str:
    """Return the one text of a result."""
    (block,) = result.content
    assert isinstance(block, TextContent)
    return block.text


def failure(command: str, **options: Any) -> str:
    """Return the text of the error that a command ends in."""
    with pytest.raises(EnvironmentFileError) as caught:
        run(command, **options)
    return str(caught.value)


def whole_output(text: str) -> str:
    """Return the content of the file that a notice names."""
    return Path(text.rpartition("Full output: ")[2].partition("]")[0]).read_text("utf-8")


def test_2001_lines_lose_the_first() -> None:
    """C101: one line too many: the tail is kept, counts are right, the file has the whole."""
    result = run("seq 1 2001")
    lines = text_of(result).splitlines()
    assert lines[0] == "2" and lines[1999] == "2001"
    assert lines[2000] == "" and lines[2001].startswith("[Showing lines 2-2001 of 2001. Full output: ")
    assert whole_output(text_of(result)) == "".join(f"{number}\n" for number in range(1, 2002))
    assert isinstance(result.details, BashToolDetails) and result.details.truncation is not None
    assert (result.details.truncation.total_lines, result.details.truncation.output_lines) == (2001, 2000)


def test_2000_lines_with_a_final_newline_are_whole() -> None:
    """C101: the final newline does not begin another line."""
    result = run("seq 1 2000")
    assert text_of(result) == "".join(f"{number}\n" for number in range(1, 2001))
    assert result.details is None


def test_one_long_line_keeps_its_end_in_whole_characters() -> None:
    """C101: 300 kB in one line, of characters of three bytes: the last 50 KB from a character on, and the file has the line."""
    text = text_of(run("""head -c 100000 /dev/zero | sed 's/\\x00/€/g'"""))
    kept, _, notice = text.partition("\n\n")
    assert kept == "€" * (51200 // 3)
    assert notice.startswith("[Showing last 50.0KB of line 1 (line is 293.0KB). Full output: ")
    assert whole_output(text) == "€" * 100_000


def test_a_timeout_keeps_what_was_printed() -> None:
    """C101: 5,000 lines, then the time is up: the tail, the notice, and the file with all of them."""
    text = failure("seq 1 5000; sleep 60", timeout=1)
    assert text.startswith("3001\n3002\n")
    assert "\n5000\n\n[Showing lines 3001-5000 of 5000. Full output: " in text
    assert text.endswith("]\n\nCommand timed out after 1 seconds")
    assert whole_output(text) == "".join(f"{number}\n" for number in range(1, 5001))


@pytest.mark.parametrize("timeout", [0, -1, 10**12])
def test_a_timeout_out_of_range_is_refused(timeout: float, tmp_path: Path) -> None:
    """C100: an error result that names the range; the command is not run."""
    text = failure(f"touch {tmp_path}/ran", timeout=timeout)
    assert text == (f"invalid timeout {timeout}: give a number of seconds above 0 and at most 2147483.647, or none for no limit")
    assert not (tmp_path / "ran").exists()


def test_env_prints_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """C116: the tool made without further words runs `env`, and the provider's key is not in it."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-secret")
    monkeypatch.setenv("KEPT", "kept")
    text = text_of(run("env"))
    assert "KEPT=kept" in text
    assert "sk-ant-secret" not in text and "ANTHROPIC_API_KEY" not in text


def test_a_failed_command_says_what_it_printed_and_why_it_failed() -> None:
    """Output, an empty line, and the status; a signal is a failure too."""
    assert failure("echo partly; exit 3") == "partly\n\n\nCommand exited with code 3"
    assert failure("exit 4") == "Command exited with code 4"
    assert failure("echo partly; kill -KILL $$") == "partly\n\n\nCommand exited with code 137"


def test_an_abort_returns_at_once_and_leaves_nothing() -> None:
    """The abort of `sleep 60` is over within 100 ms, and the group is gone. (The best of three: the machine may be busy.)"""
    seconds = []
    for _ in range(3):
        controller = AbortController()
        aborted_at: list[float] = []

        def abort_soon(
            update: AgentToolResult, aborted_at: list[float] = aborted_at, controller: AbortController = controller
        ) -> None:
            if update.content and not aborted_at:
                aborted_at.append(time.monotonic())
                controller.abort()

        tool = create_bash_tool()
        with pytest.raises(EnvironmentFileError) as caught:
            tool.run("call-1", {"command": "echo $$; sleep 60 | cat"}, controller.signal, abort_soon, None)
        seconds.append(time.monotonic() - aborted_at[0])
        group, _, status = str(caught.value).partition("\n\n\n")
        assert status == "Command aborted"
        assert caught.value.code == "aborted"
        assert wait_until(lambda group=group: not living_members(int(group)), 2)  # type: ignore[misc]
    assert min(seconds) < 0.1


def test_updates_come_at_most_ten_times_a_second() -> None:
    """The first is empty and comes at once; each shows the output so far; the last shows all of it."""
    seen: list[tuple[float, str]] = []

    def note(update: AgentToolResult) -> None:
        seen.append((time.monotonic(), "".join(block.text for block in update.content if isinstance(block, TextContent))))

    create_bash_tool().run("call-1", {"command": "for i in $(seq 1 50); do echo $i; sleep 0.01; done"}, None, note, None)
    texts = [text for _, text in seen]
    assert texts[0] == ""
    assert texts[-1] == "".join(f"{number}\n" for number in range(1, 51))
    assert all(later.startswith(earlier) for earlier, later in itertools.pairwise(texts))
    between = [later - earlier for (earlier, _), (later, _) in itertools.pairwise(seen[1:-1])]
    assert between and min(between) > 0.099


def test_what_was_printed_shows_also_when_nothing_follows() -> None:
    """A line that came too soon after the last update is shown while the command is silent, not only at its end."""
    shown = threading.Event()
    controller = AbortController()

    def note(update: AgentToolResult) -> None:
        if any(isinstance(block, TextContent) and "second" in block.text for block in update.content):
            shown.set()
            controller.abort()

    tool = create_bash_tool()
    with pytest.raises(EnvironmentFileError):
        tool.run("call-1", {"command": "echo first; sleep 0.02; echo second; sleep 60"}, controller.signal, note, None)
    assert shown.is_set()


def test_a_plain_function_prepares_with_the_context_of_the_call() -> None:
    """`prepare` sees the execution, the agent's tool context and the signal, and may take fewer of them."""
    seen: list[Any] = []

    def prepare(execution: BashExecution, context: Any, signal: AbortSignal | None) -> None:
        seen.append((execution.command, context, signal))
        execution.env["NAME"] = context["name"]

    controller = AbortController()
    options = BashToolOptions(prepare=prepare)
    result = run("echo hello $NAME", options=options, context={"name": "you"}, signal=controller.signal)
    assert text_of(result) == "hello you\n"
    assert seen == [("echo hello $NAME", {"name": "you"}, controller.signal)]
    assert text_of(run("echo x", options=BashToolOptions(prepare=lambda execution: None))) == "x\n"


def test_prepare_may_give_another_execution() -> None:
    """What it returns is run instead; its own context and signal go before those of the call."""

    def prepare(execution: BashExecution, context: Any) -> BashExecution:
        return BashExecution(f"echo {context}; {execution.command}", "/", {"ONLY": "1"}, inherit_env=False)

    options = BashToolOptions(command_prefix="x=2", prepare=BashPrepare(prepare, context="mine"))
    assert text_of(run("echo $x $ONLY ${HOME-unset}; pwd", options=options, context="theirs")) == "mine\n2 1 unset\n/\n"


def test_a_prepare_that_needs_too_much_is_refused_when_the_tool_is_made() -> None:
    """The error names the hook."""
    with pytest.raises(TypeError, match=r"prepare of the bash tool .* at most 3 arguments"):
        create_bash_tool(BashToolOptions(prepare=lambda a, b, c, d: None))


def test_a_prepare_that_returns_something_else_says_so() -> None:
    """Neither None nor a `BashExecution`: one clear line instead of a puzzle."""
    with pytest.raises(TypeError) as caught:
        run("echo x", options=BashToolOptions(prepare=lambda execution: "ls"))  # type: ignore[arg-type,return-value]
    assert str(caught.value) == "prepare of the bash tool returned str: change the BashExecution that it gets, or return one"


def test_a_full_disk_ends_no_command(tmp_path: Path) -> None:
    """Where the whole output cannot be saved, the command goes on, the tail is shown, and the notice says why."""
    (tmp_path / "tmp").rmdir()
    text = text_of(run("seq 1 3000; echo the end"))
    assert text.startswith("1002\n1003\n")
    assert text.endswith(
        "\n3000\nthe end\n\n[Showing lines 1002-3001 of 3001. The full output could not be saved: cannot make a temporary "
        f"directory in {tmp_path}/tmp: there is no such file or directory, check the path]"
    )


def test_the_directory_can_be_given(tmp_path: Path) -> None:
    """By itself, or as that of an environment; not both."""
    real = os.path.realpath(tmp_path)
    assert text_of(create_bash_tool(cwd=tmp_path).run("c", {"command": "pwd -P"}, None, None, None)) == f"{real}\n"
    assert text_of(run("pwd -P", environment=LocalEnvironment(tmp_path))) == f"{real}\n"
    with pytest.raises(ValueError, match="give either environment or cwd: an environment has a working directory of its own"):
        create_bash_tool(environment=LocalEnvironment(tmp_path), cwd="sub")


def test_a_null_timeout_is_none() -> None:
    """Models that fill every argument send null for what they do not mean."""
    tool = create_bash_tool()
    assert tool.prepare_arguments is not None
    assert tool.prepare_arguments({"command": "x", "timeout": None}) == {"command": "x"}
    assert tool.prepare_arguments({"command": "x", "timeout": 5}) == {"command": "x", "timeout": 5}
    assert text_of(tool.run("c", {"command": "echo x", "timeout": None}, None, None, None)) == "x\n"


def test_an_update_that_fails_ends_the_command() -> None:
    """What `on_update` raises comes through as it is."""

    def refuse(update: AgentToolResult) -> None:
        if update.content:
            raise ValueError("no updates, please")

    with pytest.raises(ValueError, match="no updates, please"):
        create_bash_tool().run("call-1", {"command": "echo x; sleep 60"}, None, refuse, None)


def test_many_commands_run_at_the_same_time() -> None:
    """Each call keeps its own output."""
    results: dict[int, str] = {}

    def one(number: int) -> None:
        results[number] = text_of(run(f"sleep 0.1; seq {number} {number + 3}"))

    threads = [threading.Thread(target=one, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert results == {number: "".join(f"{n}\n" for n in range(number, number + 4)) for number in range(12)}


@pytest.mark.slow
def test_a_gigabyte_takes_constant_memory() -> None:
    """1 GB of output raises the peak memory of the process by less than 100 MB, and all of it is in the file."""
    resource = pytest.importorskip("resource")
    run("seq 1 3000")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = run("yes | head -c 1000000000")
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert os.path.getsize(result.details.full_output_path) == 1_000_000_000
    os.unlink(result.details.full_output_path)
    assert result.details.truncation.total_lines == 500_000_000
    assert (after - before) * 1024 < 100_000_000


def test_an_agent_that_is_aborted_in_a_command_settles_at_once() -> None:
    """`agent.abort()` during `sleep 60`: the run is over within 100 ms, its call has a result that says so. (Best of three.)"""
    seconds = []
    for _ in range(3):
        agent = Agent(
            tools=[create_bash_tool()], stream_fn=scripted_stream(calls("bash", command="echo $$; sleep 60"), says("never"))
        )
        shown = threading.Event()
        agent.subscribe(lambda event, shown=shown: shown.set() if shows_output(event) else None)
        run_of_agent = agent.prompt("sleep")
        assert shown.wait(20)
        began = time.monotonic()
        agent.abort()
        assert agent.wait_for_idle(timeout=20)
        seconds.append(time.monotonic() - began)
        assert run_of_agent.done()
        (result,) = [message for message in agent.state.messages if isinstance(message, ToolResultMessage)]
        group, _, status = (result.error or "").partition("\n\n\n")
        assert status == "Command aborted"
        assert wait_until(lambda group=group: not living_members(int(group)), 2)  # type: ignore[misc]
    assert min(seconds) < 0.1


def shows_output(event: object) -> bool:
    """Whether an event is a partial update with some output."""
    return isinstance(event, ToolExecutionUpdateEvent) and bool(event.partial_result.content)
