"""What a harness stores: in the order of events, consistent whatever happens meanwhile, and nothing done twice after a kill."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from agentcore import (
    AgentAbortedError,
    AgentHarness,
    AgentRunError,
    CompactionSettings,
    Context,
    HarnessBusyError,
    JsonlSessionStorage,
    Model,
    Session,
    ToolResultMessage,
    Usage,
    UserMessage,
    dump_messages,
    pair_tool_results,
    resume,
    tool,
)
from agentcore.harness.summaries import SUMMARY_SYSTEM_PROMPT
from agentcore.session import CompactionEntry, MessageEntry
from agentcore.testing import calls, ends, says, scripted_stream, waits

MODEL = Model("m", provider="p", context_window=100_000)
ROOT = Path(__file__).parent.parent


def open_file(path: Path) -> Session:
    if path.exists():
        return Session(JsonlSessionStorage.open(path))
    return Session(JsonlSessionStorage.create(path, cwd=str(path.parent)))


def test_the_order_of_the_file_is_that_of_the_events(tmp_path: Path) -> None:
    """C091: a listener that takes its time at `message_end` changes nothing: no result stands before its call."""

    @tool
    def quick() -> str:
        """Return at once."""
        return "done"

    path = tmp_path / "s.jsonl"
    told: list[tuple[str, str]] = []
    with open_file(path) as session:
        harness = AgentHarness(
            session=session, model=MODEL, tools=[quick], stream_fn=scripted_stream(calls("quick") + calls("quick"), says("ok"))
        )

        def slow(event: Any) -> None:
            if event.type == "message_end":
                time.sleep(0.05)
                told.append((event.message.role, session.get_entries()[-1].id))

        harness.subscribe(slow)
        harness.run("go", timeout=20)
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()[1:]]
    stored = [(line["message"]["role"], line["id"]) for line in lines]
    assert told == stored
    assert [role for role, _ in stored] == ["user", "assistant", "toolResult", "toolResult", "assistant"]
    assert [line["parentId"] for line in lines[1:]] == [line["id"] for line in lines[:-1]]


def test_messages_sent_while_a_compaction_runs(tmp_path: Path) -> None:
    """C089: a prompt is refused, steering waits for the next run, an appended message is stored behind the compaction."""
    asked, let_go = threading.Event(), threading.Event()
    path = tmp_path / "s.jsonl"
    with open_file(path) as session:
        stream = scripted_stream([waits(asked.set), waits(let_go), says("SUMMARY")], says("ok"))
        harness = AgentHarness(session=session, model=MODEL, stream_fn=stream)
        for number in range(4):
            harness.append_message(UserMessage(f"{number}" + "x" * 60_000))
        thread = threading.Thread(target=harness.compact)
        thread.start()
        assert asked.wait(5)
        with pytest.raises(HarnessBusyError, match="since it is compacting the session"):
            harness.prompt("refused")
        harness.steer("steered")
        harness.append_message(UserMessage("appended"))
        assert not any(line.count("appended") for line in path.read_text("utf-8").splitlines())
        let_go.set()
        thread.join(5)
        harness.run("go", timeout=10)
        live = [message.role for message in harness.messages]
    with open_file(path) as session:
        entries = session.get_entries()
        assert [entry.type for entry in entries[4:]] == ["compaction"] + ["message"] * 4
        ids = {entry.id for entry in entries}
        assert all(entry.parent_id is None or entry.parent_id in ids for entry in entries)
        messages = session.build_context().messages
        assert [message.role for message in messages] == live
        texts = [message.text for message in messages if isinstance(message, UserMessage)]
        assert texts[-3:] == ["appended", "go", "steered"]


# --- a long life -----------------------------------------------------------------------------------------------------

READER = """
import json, sys
from agentcore import JsonlSessionStorage, Session, dump_messages
for path in sys.stdin:
    context = Session(JsonlSessionStorage.open(path.strip())).build_context()
    model = None if context.model is None else [context.model.provider, context.model.model_id]
    seen = [json.loads(dump_messages(context.messages)), context.thinking_level, model]
    print(json.dumps(seen), flush=True)
"""


class SecondProcess:
    """Another Python that opens the file anew each time it is asked, and says what context it builds."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", READER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
        )

    def read(self, path: Path) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{path}\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate(timeout=10)
        assert self._process.returncode == 0


class RandomModel:
    """Answers with texts and calls as a random number says; each answer counts what it was sent. Summaries are short."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.summaries = 0
        self.abort_at: threading.Event | None = None

    def __call__(self, model: Model, context: Context, options: Any) -> Any:
        if context.system_prompt == SUMMARY_SYSTEM_PROMPT:
            self.summaries += 1
            return scripted_stream(says(f"summary {self.summaries}"))(model, context, options)
        size = sum(len(str(message.content)) for message in context.messages) // 4
        usage = ends(usage=Usage(input=size, total_tokens=size))
        turn: list[Any] = [says("x" * self._chance.randrange(10, 8_000))]
        if self._chance.random() < 0.4:
            turn = [calls("work", size=self._chance.randrange(10, 6_000)) for _ in range(self._chance.randrange(1, 4))]
        if self.abort_at is not None:
            turn.insert(self._chance.randrange(len(turn) + 1), waits(self.abort_at.set))
            turn.append(waits(threading.Event()))
        return scripted_stream([*turn, usage])(model, context, options)


def live_a_long_life(path: Path, turns: int, seed: int) -> dict[str, int]:
    """Run a session of so many prompts with everything that can happen, and compare after each."""
    chance = random.Random(seed)
    models = [Model(name, provider="p", context_window=20_000, max_tokens=2_000) for name in ("one", "two", "three")]
    stream = RandomModel(chance)

    @tool
    def work(size: int) -> str:
        """Give back a text of some length."""
        return "y" * size

    counts = {"aborts": 0, "branches": 0, "models": 0, "compactions": 0}
    reader = SecondProcess()
    try:
        with open_file(path) as session:
            harness = AgentHarness(
                session=session, model=models[0], tools=[work], stream_fn=stream, retry=None,
                compaction=CompactionSettings(reserve_tokens=4_000, keep_recent_tokens=3_000),
            )  # fmt: skip
            for number in range(turns):
                what = chance.random()
                if what < 0.12:
                    harness.set_model(chance.choice(models))
                    harness.set_thinking_level(chance.choice(["off", "low", "high"]))
                    counts["models"] += 1
                elif what < 0.26 and len(session.get_entries()) > 4:
                    target = chance.choice([entry for entry in session.get_entries() if isinstance(entry, MessageEntry)])
                    harness.navigate_tree(target.id, summarize=chance.random() < 0.5)
                    counts["branches"] += 1
                elif what < 0.33:
                    harness.append_message(UserMessage(f"noted {number}"))
                if chance.random() < 0.15:
                    stream.abort_at = threading.Event()
                    run = harness.prompt(f"turn {number}, cut short")
                    stream.abort_at.wait(10)
                    harness.abort()
                    assert run.done()
                    stream.abort_at = None
                    counts["aborts"] += 1
                else:
                    try:
                        harness.run(f"turn {number} " + "z" * chance.randrange(10, 2_000), timeout=30)
                    except (AgentRunError, AgentAbortedError) as error:  # nothing here should fail
                        raise AssertionError(f"turn {number} failed") from error
                live = [json.loads(dump_messages(pair_tool_results(harness.messages))), *_settings(session)]
                assert reader.read(path) == live, f"after turn {number} (seed {seed})"
            counts["compactions"] = sum(isinstance(entry, CompactionEntry) for entry in session.get_entries())
    finally:
        reader.close()
    return counts


def _settings(session: Session) -> list[Any]:
    """Return the settings on the path: a branch has those that were chosen on it."""
    context = session.build_context()
    return [context.thinking_level, None if context.model is None else [context.model.provider, context.model.model_id]]


def test_a_second_process_sees_the_same_after_every_turn(tmp_path: Path) -> None:
    """25 prompts with compactions, branches, model changes and aborts: the file always says what the live harness has."""
    counts = live_a_long_life(tmp_path / "s.jsonl", turns=25, seed=11)
    assert all(counts.values()), counts


@pytest.mark.slow
def test_a_second_process_sees_the_same_after_each_of_200_turns(tmp_path: Path) -> None:
    """The same for 200 prompts."""
    counts = live_a_long_life(tmp_path / "s.jsonl", turns=200, seed=int(os.environ.get("AGENTCORE_SEED", "7")))
    assert all(count >= 5 for count in counts.values()), counts


# --- kill -9 ---------------------------------------------------------------------------------------------------------

VICTIM = """
import sys, time
from agentcore import AgentHarness, JsonlSessionStorage, Model, Session, tool
from agentcore.testing import calls, says, scripted_stream

path, ledger, slow_at = sys.argv[1:]

@tool
def note(text: str) -> str:
    "Write a text into the ledger."
    with open(ledger, "a") as file:
        file.write(text + "\\n")
    if text.startswith("slow"):
        time.sleep(60)
    return "noted " + text

turns = []
for number in range(200):
    turns.append(calls("note", text=f"{number}a") + calls("note", text=f"{number}b"))
turns[int(slow_at)] = calls("note", text="quick") + calls("note", text="slow")
session = Session(JsonlSessionStorage.create(path, cwd="."))
harness = AgentHarness(session=session, model=Model("m", provider="p"), tools=[note], stream_fn=scripted_stream(*turns))
harness.subscribe(lambda event: print(event.type, getattr(getattr(event, "message", None), "role", ""), flush=True))
harness.run("work")
"""


def kill(tmp_path: Path, *, slow_at: int, after: float | None = None) -> tuple[Path, Path, list[str]]:
    """Start a harness in a process of its own and kill it; return the session, the ledger and what was told.

    Args:
        slow_at: Which turn calls the tool that takes a minute; there it is killed.
        after: Kill it so many seconds after its first event instead.
    """
    path, ledger = tmp_path / "s.jsonl", tmp_path / "ledger.txt"
    process = subprocess.Popen(
        [sys.executable, "-c", VICTIM, str(path), str(ledger), str(slow_at)], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert process.stdout is not None
    try:
        first = process.stdout.readline()
        deadline = time.monotonic() + 20
        if after is not None:
            time.sleep(after)
        while after is None and not (ledger.exists() and "slow" in ledger.read_text()):
            assert time.monotonic() < deadline, "the slow call did not come"
            time.sleep(0.01)
    finally:
        process.kill()
        rest, _ = process.communicate(timeout=10)
    return path, ledger, [first, *rest.splitlines()]


@pytest.fixture
def note_again() -> Any:
    ran: list[str] = []

    @tool
    def note(text: str) -> str:
        """Note a text."""
        ran.append(text)
        return f"noted {text}"

    return note, ran


@pytest.mark.skipif(os.name == "nt", reason="there is no kill -9")
def test_a_killed_run_goes_on_and_does_nothing_twice(tmp_path: Path, note_again: Any) -> None:
    """All that was told is in the file; the calls without a result are answered with an error; no tool runs again by itself."""
    path, ledger, told = kill(tmp_path, slow_at=5)
    acknowledged = sum(line.startswith("message_end") for line in told)
    note, ran = note_again
    with open_file(path) as session:
        stored = [entry for entry in session.get_entries() if isinstance(entry, MessageEntry)]
        assert len(stored) >= acknowledged
        stream = scripted_stream(says("I see that the last call was cut off."))
        harness = AgentHarness(session=session, model=MODEL, tools=[note], stream_fn=stream)
        harness.run("go on", timeout=10)
        assert ran == []
        sent = stream.requests[0]
        results = {message.tool_call_id: message for message in sent if isinstance(message, ToolResultMessage)}
        made = [call for message in sent for call in getattr(message, "tool_calls", ())]
        assert len(results) == len(made) == 12
        for call in made:
            text = results[call.id].text
            if call.arguments["text"] in ("quick", "slow"):
                assert text in ("Operation aborted", f"noted {call.arguments['text']}")
            else:
                assert text == f"noted {call.arguments['text']}"
        assert harness.messages[-1].text == "I see that the last call was cut off."  # type: ignore[union-attr]
    assert len(ledger.read_text().split()) == 12


@pytest.mark.skipif(os.name == "nt", reason="there is no kill -9")
@pytest.mark.parametrize("after", [0.0, 0.02, 0.05, 0.1])
def test_a_kill_at_any_moment_loses_nothing_that_was_told(tmp_path: Path, note_again: Any, after: float) -> None:
    """Every message whose end was told is in the file; the harness goes on from there; no call is run by itself a second time."""
    path, ledger, told = kill(tmp_path, slow_at=199, after=after)
    acknowledged = sum(line.startswith("message_end") for line in told)
    note, ran = note_again
    with open_file(path) as session:
        assert sum(isinstance(entry, MessageEntry) for entry in session.get_entries()) >= acknowledged
        stream = scripted_stream(says("on I go"))
        harness = AgentHarness(session=session, model=MODEL, tools=[note], stream_fn=stream)
        assert harness.run("go on", timeout=10).text == "on I go"
        made = [call.id for message in stream.requests[0] for call in getattr(message, "tool_calls", ())]
        answered = [message.tool_call_id for message in stream.requests[0] if isinstance(message, ToolResultMessage)]
        assert sorted(answered) == sorted(made)
    assert ran == []
    written = ledger.read_text().split() if ledger.exists() else []
    assert len(written) == len(set(written))


@pytest.mark.skipif(os.name == "nt", reason="there is no kill -9")
def test_resume_after_a_kill(tmp_path: Path, note_again: Any) -> None:
    """`resume(path)` gives an agent on the same file: the missing results are errors, nothing runs twice, and it goes on."""
    path, ledger, _ = kill(tmp_path, slow_at=5)
    note, ran = note_again
    stream = scripted_stream(calls("note", text="slow"), says("done"))
    agent = resume(path, model=MODEL, tools=[note], stream_fn=stream)
    assert agent.messages[-1].role == "toolResult"
    assert agent.messages[-1].is_error  # type: ignore[union-attr]
    agent.continue_().result(10)
    assert ran == ["slow"]  # the model asked for it anew
    assert len(ledger.read_text().split()) == 12
    agent.session.close()  # type: ignore[union-attr]
    with open_file(path) as session:
        messages = session.build_context().messages
        assert [message.role for message in messages[-3:]] == ["assistant", "toolResult", "assistant"]
        assert dump_messages(messages) == dump_messages(pair_tool_results(agent.messages))
