"""The `agentcore` command: one prompt, one run, shown as it happens.

    agentcore "Read setup.cfg and tell me what this project needs"
    git diff | agentcore "Review this:" -

Standard output gets the run: the answer as it streams, tool calls and their results, a line with tokens and time (with `--quiet`
the answer alone, with `--json` one event a line). Standard error gets the rest: the model that was taken, questions, failures.

Before bash, write and edit it asks, unless `--yes` is given; where it cannot ask, the call is refused and the model is told.

Exit codes: 0 done, 1 the run failed, 2 wrong use, 130 interrupted.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, TextIO

from agentcore.abort import AbortSignal
from agentcore.agent import Agent
from agentcore.codec import camel_case, dumps, encode
from agentcore.errors import AgentAbortedError, AgentCoreError, AgentRunError
from agentcore.events import (
    AgentEvent,
    MessageEndEvent,
    MessageUpdateEvent,
    RetryEvent,
    TextDeltaEvent,
    TextEndEvent,
    ToolExecutionEndEvent,
    ToolExecutionStartEvent,
)
from agentcore.loop.config import BeforeToolCallContext, BeforeToolCallResult
from agentcore.messages import AssistantMessage, Usage, content_text
from agentcore.models import Model
from agentcore.tools.agent_tool import AgentTool

DONE, FAILED, WRONG_USE, INTERRUPTED = 0, 1, 2, 130

TOOL_NAMES = ("read", "bash", "write", "edit", "ls", "find", "grep")
DEFAULT_TOOLS = ("read", "bash", "write", "edit")
ASKED_BEFORE = frozenset({"bash", "write", "edit"})
"""Tools that change something; all others only look."""

# In this order; the first provider with a key counts.
_DEFAULT_MODELS = {"anthropic": "claude-sonnet-4-5", "openai": "gpt-5-mini", "google": "gemini-2.5-flash"}
_LOCAL_SERVERS = {"ollama": "http://127.0.0.1:11434/v1", "llama.cpp": "http://127.0.0.1:8080/v1"}
_PROBE_TIMEOUT = 0.5

SERVER_KEY_VARIABLE = "OPENAI_COMPATIBLE_API_KEY"
"""The key for the server of `--base-url`, which gets no other."""

_SHOWN_RESULT_LINES = 6
_SHOWN_LINE_CHARS = 160


class WrongUse(Exception):
    """The command cannot be carried out as it was given. The text says what to do."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    _prepare_streams()
    arguments = list(sys.argv[1:] if argv is None else argv)
    # What follows -- is the prompt, dashes or not; parse_intermixed_args would drop the -- and take it for options.
    end = arguments.index("--") if "--" in arguments else len(arguments)
    try:
        given = _make_parser().parse_intermixed_args(arguments[:end])
        if given.list_models is not None:
            code = _list_models(given.list_models)
        else:
            code = _run(given, _read_prompt([*given.prompt, *arguments[end + 1 :]]))
        sys.stdout.flush()
        return code
    except SystemExit as error:  # argparse has said what is wrong, or shown its help
        return error.code if isinstance(error.code, int) else WRONG_USE
    except WrongUse as error:
        print(f"agentcore: {error}", file=sys.stderr)
        return WRONG_USE
    except OSError as error:
        # Nobody reads the output any more, or the disk is full. The interpreter would fail once more when it flushes at exit.
        if not isinstance(error, BrokenPipeError):
            print(f"agentcore: the output cannot be written: {error.strerror or error}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED


def _prepare_streams() -> None:
    """Make standard input, output and error such that nothing about them raises later."""
    if sys.stdout is None:  # closed by whoever started us
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # an ASCII terminal shows what it can; a Latin-1 file is read as far as it can


class _Parser(argparse.ArgumentParser):
    """Says in one line what is wrong."""

    def error(self, message: str) -> NoReturn:
        raise WrongUse(f"{message}; agentcore --help shows what there is")


def _make_parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="agentcore",
        description="Give a model a task and tools, and watch it work.",
        epilog=f"Keys come from the environment; the one for --base-url is {SERVER_KEY_VARIABLE}. "
        "Exit codes: 0 done, 1 the run failed, 2 wrong use, 130 interrupted.",
    )
    parser.add_argument("prompt", nargs="*", help="what to do; - stands for standard input")
    parser.add_argument("--model", metavar="PROVIDER/ID", help="the model; 'local' is the embedded one")
    parser.add_argument("--base-url", metavar="URL", help="an OpenAI-compatible server, such as http://localhost:11434/v1")
    parser.add_argument("--system", metavar="TEXT", help="the system prompt")
    parser.add_argument("--tools", metavar="NAMES", help=f"comma-separated, of {', '.join(TOOL_NAMES)} (default: the first four)")
    parser.add_argument("--no-tools", action="store_true", help="give the model no tools")
    parser.add_argument("--yes", "-y", action="store_true", help="do not ask before bash, write and edit")
    parser.add_argument("--cwd", metavar="DIR", help="the directory that tools work in")
    parser.add_argument("--quiet", "-q", action="store_true", help="print the answer alone")
    parser.add_argument("--json", action="store_true", help="print each event as a line of JSON")
    parser.add_argument(
        "--list-models", metavar="NAME", nargs="?", const="", help="list the models that are known, or those of a name"
    )
    parser.add_argument("--version", action="version", version=_version())
    return parser


def _version() -> str:
    import agentcore

    return f"agentcore {agentcore.__version__}"  # type: ignore[attr-defined]


def _read_prompt(words: Sequence[str]) -> str:
    if not words:
        raise WrongUse('there is no prompt: agentcore "what to do", or - to read it from standard input')
    if "-" in words and sys.stdin is None:
        raise WrongUse("standard input is closed, so there is nothing to read for -: give the prompt as an argument")
    try:
        prompt = " ".join(sys.stdin.read().removeprefix("\ufeff") if word == "-" else word for word in words).strip()
    except OSError as error:
        raise WrongUse(f"standard input cannot be read ({error.strerror}): give the prompt as an argument") from error
    if not prompt:
        raise WrongUse("the prompt is empty: say what to do")
    # Bytes of an argument that are no text have come as halves of surrogate pairs.
    return prompt.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _run(given: argparse.Namespace, prompt: str) -> int:
    for option in ("model", "base_url", "cwd", "tools"):
        value = getattr(given, option)
        if value is not None and not value.strip(" ,"):
            raise WrongUse(f"--{option.replace('_', '-')} is empty: give it a value, or leave it out")
    cwd = _find_directory(given.cwd)
    tools = _make_tools(given, cwd)
    model, why = choose_model(given.model, given.base_url)
    print(f"model: {model.provider}/{model.id} ({why})", file=sys.stderr, flush=True)
    agent = Agent(
        model=model,
        system_prompt=_system_prompt(given.system, model, cwd, tools),
        tools=tools,
        before_tool_call=None if given.yes else _Doorkeeper(),
    )
    printer = _JsonPrinter() if given.json else _Printer(_Style(sys.stdout), is_quiet=given.quiet)
    agent.subscribe(printer.on_event)
    started = time.monotonic()
    run = agent.prompt(prompt)
    code = DONE
    try:
        run.result()
    except AgentRunError as error:
        if printer.failure is not None:
            raise printer.failure from error
        printer.end_line()
        print(f"agentcore: {_say_without_code(str(error), model)}", file=sys.stderr)
        code = FAILED
    except AgentAbortedError:
        code = INTERRUPTED
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        code = INTERRUPTED
    printer.close(time.monotonic() - started)
    return code


def _say_without_code(text: str, model: Model) -> str:
    """Return the text of a failure with the ways to give a key that there are on the command line."""
    from agentcore.llm.keys import PASS_KEY, key_variables

    begin, is_there, end = text.partition(f", or {PASS_KEY}")
    if is_there:
        return f"{begin}, or take another model with --model{end}"
    begin, is_there, end = text.partition("no API key was sent: ")
    if not is_there:
        return text
    names = " or ".join(key_variables(model.provider)) or SERVER_KEY_VARIABLE
    return f"{begin}{is_there}set {names}"


def _find_directory(given: str | None) -> str:
    if given is None:
        try:
            return os.getcwd()
        except OSError as error:
            raise WrongUse("the current directory is gone: go to another one, or give --cwd DIR") from error
    cwd = os.path.abspath(os.path.expanduser(given))
    if not os.path.isdir(cwd):
        raise WrongUse(f"--cwd {given}: {'this is no directory' if os.path.exists(cwd) else 'there is no such directory'}")
    return cwd


def _make_tools(given: argparse.Namespace, cwd: str) -> list[AgentTool]:
    if given.no_tools:
        if given.tools:
            raise WrongUse("--tools and --no-tools contradict each other: give one of them")
        return []
    names = [name.strip() for name in given.tools.split(",") if name.strip()] if given.tools else list(DEFAULT_TOOLS)
    unknown = [name for name in names if name not in TOOL_NAMES]
    if unknown:
        raise WrongUse(f"--tools {given.tools}: there is no tool {unknown[0]!r}; there are {', '.join(TOOL_NAMES)}")
    return [_make_tool(name, cwd) for name in dict.fromkeys(names)]


def _make_tool(name: str, cwd: str) -> AgentTool:
    module = importlib.import_module(f"agentcore.tools.{name}")
    tool: AgentTool = getattr(module, f"create_{name}_tool")(cwd=cwd)
    return tool


def _system_prompt(given: str | None, model: Model, cwd: str, tools: Sequence[AgentTool]) -> str:
    if given is not None or model.provider == "local":  # a system prompt only confuses the embedded model
        return given or ""
    names = ", ".join(tool.name for tool in tools)
    with_tools = f" You have the tools {names}; look at files before you speak of them." if names else ""
    return f"You are a careful assistant on the command line, working in {cwd}.{with_tools} Answer briefly, in plain text."


# --- which model -----------------------------------------------------------------------------------------------------


def choose_model(name: str | None, base_url: str | None, environ: Mapping[str, str] | None = None) -> tuple[Model, str]:
    """Return the model to use, and why it was this one.

    The first of: what was asked for; a provider whose key is in the environment; a server of Ollama or llama.cpp on its usual port
    of the loopback; the embedded model.

    Raises:
        WrongUse: There is no such model, or none at all.
    """
    from agentcore.llm.keys import key_variables
    from agentcore.llm.registry import get_model, openai_compatible

    environ = os.environ if environ is None else environ
    try:
        if base_url:
            key = environ.get(SERVER_KEY_VARIABLE)
            if name:
                return openai_compatible(base_url, name, api_key=key), f"at {base_url}"
            served = _served_model(openai_compatible(base_url, "any", api_key=key), timeout=10.0)
            if served is None:
                raise WrongUse(f"--base-url {base_url}: the server does not say which models it has; give one with --model ID")
            return openai_compatible(base_url, served, api_key=key), f"the first model at {base_url}"
        if name:
            if name.split("/")[0] == "local":
                return _embedded_model(), "embedded, on this machine"
            if name.split("/")[0] in _LOCAL_SERVERS and "/" in name:
                provider, _, model_id = name.partition("/")
                url = _LOCAL_SERVERS[provider]
                return openai_compatible(url, model_id, provider=provider), f"at {url}"
            return get_model(name), "asked for with --model"
        for provider, model_id in _DEFAULT_MODELS.items():
            for variable in key_variables(provider):
                if environ.get(variable, "").strip():
                    return get_model(f"{provider}/{model_id}"), f"{variable} is set; --model takes another one"
    except ValueError as error:
        raise WrongUse(str(error) if base_url else f"{error}; agentcore --list-models shows what there is") from error
    for provider, url in _LOCAL_SERVERS.items():
        served = _served_model(openai_compatible(url, "any"), timeout=_PROBE_TIMEOUT)
        if served is not None:
            return openai_compatible(url, served, provider=provider), f"found at {url}; --model takes another one"
    return _embedded_model(), "embedded and tiny, since there is no key and no local server; --model takes another one"


def _embedded_model() -> Model:
    from agentcore import local

    try:
        return local.model()
    except (ImportError, AgentCoreError) as error:
        keys = "ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY"
        raise WrongUse(f"{error}. Or set {keys}, or give --model or --base-url") from error


def _served_model(server: Model, timeout: float) -> str | None:
    """Ask a server for its models; return the id of the first that can chat, None where nothing sensible answers."""
    import requests

    try:
        with requests.Session() as session:
            session.trust_env = not server.base_url.startswith("http://127.0.0.1:")  # no proxy between this machine and itself
            answer = session.get(f"{server.base_url}/models", headers=server.headers, timeout=timeout)
            models = answer.json()["data"] if answer.ok else []
            ids = [model["id"] for model in models if isinstance(model.get("id"), str)]
    except (requests.RequestException, ValueError, KeyError, TypeError, AttributeError):
        return None
    return next((model_id for model_id in ids if "embed" not in model_id.lower()), None)


def _list_models(name: str) -> int:
    from agentcore.llm.registry import list_models

    models = list_models(name) if name else list_models()
    if not models:  # not a provider: a part of a name
        models = [model for model in list_models() if name.lower() in f"{model.provider}/{model.id}".lower()]
    if not models:
        raise WrongUse(f"--list-models {name}: no model of such a name is known; agentcore --list-models shows all of them")
    print(f"{'model':<56} {'context':>9} {'answer':>8}  {'$/M in':>8} {'$/M out':>8}  thinks  images")
    for model in models:
        print(
            f"{model.provider + '/' + model.id:<56} {model.context_window or '?':>9} {model.max_tokens or '?':>8}  "
            f"{model.cost.input:>8.2f} {model.cost.output:>8.2f}  {'yes' if model.reasoning else '':<6}  "
            f"{'yes' if 'image' in model.input else ''}".rstrip()
        )
    return DONE


# --- asking ----------------------------------------------------------------------------------------------------------


class _Doorkeeper:
    """The hook before tool calls: asks the person at the terminal before something is changed.

    Threads:
        Runs on the run thread, which waits for the answer; an abort ends the wait.
    """

    def __init__(self) -> None:
        self._always: set[str] = set()

    def __call__(self, context: BeforeToolCallContext, signal: AbortSignal) -> BeforeToolCallResult | None:
        name = context.tool_call.name
        if name not in ASKED_BEFORE or name in self._always:
            return None
        if sys.stdin is None or not (sys.stdin.isatty() and sys.stderr.isatty()):
            return BeforeToolCallResult(True, f"{name} was refused: nobody is there to be asked. (agentcore --yes allows it.)")
        question = f"{name} wants:\n{_in_full(context.args)}\nallow it? [y]es, [a]lways {name}, [N]o: "
        print(question, end="", file=sys.stderr, flush=True)
        answer = _read_answer(signal).strip().lower()
        if answer in ("a", "always"):
            self._always.add(name)
        elif answer not in ("y", "yes"):
            return BeforeToolCallResult(True, f"{name} was refused by the user. Do not try it again; say what you wanted to do.")
        return None


def _read_answer(signal: AbortSignal) -> str:
    if sys.platform == "win32":
        return sys.stdin.readline()
    import select

    # In slices: a thread that sits in readline() could not be left when the run is interrupted.
    while not signal.aborted:
        if select.select([sys.stdin], [], [], 0.05)[0]:
            return sys.stdin.readline()
    return ""


# --- showing ---------------------------------------------------------------------------------------------------------


class _Style:
    """Colours, where rich is installed and somebody looks who wants them."""

    def __init__(self, file: TextIO) -> None:
        self._console: Any = None
        if file.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb":
            with contextlib.suppress(ImportError):
                from rich.console import Console

                self._console = Console(file=file, highlight=False, soft_wrap=True)

    def print(self, text: str, style: str) -> None:
        """Print one line."""
        if self._console is None:
            print(text)
        else:
            self._console.print(text, style=style, markup=False)


class _Printer:
    """A listener that shows a run to a person.

    Threads:
        `on_event` runs on the run thread; the rest after the run.
    """

    def __init__(self, style: _Style, *, is_quiet: bool) -> None:
        self._style = style
        self._is_quiet = is_quiet
        self._is_in_line = False
        self._usage = Usage()
        self._has_answer = False
        self.failure: OSError | None = None
        """Why the output cannot be written any more."""

    def on_event(self, event: AgentEvent) -> None:
        if self.failure is not None:
            return
        try:
            self._show(event)
        except OSError as error:
            self.failure = error
            raise

    def _show(self, event: AgentEvent) -> None:
        if isinstance(event, MessageUpdateEvent):
            said = event.assistant_message_event
            if isinstance(said, TextDeltaEvent):
                self._write(_visible(said.delta))
            elif isinstance(said, TextEndEvent):
                self.end_line()
        elif isinstance(event, MessageEndEvent):
            self.end_line()
            if isinstance(event.message, AssistantMessage):
                self._usage += event.message.usage
                self._has_answer = self._has_answer or bool(event.message.content)
        elif isinstance(event, ToolExecutionStartEvent):
            self._say(f"→ {event.tool_name} {_short(event.args)}", "bold")
        elif isinstance(event, ToolExecutionEndEvent):
            for line in _result_lines(content_text(event.result.content, "\n")):
                self._say(f"{'✗' if event.is_error else ' '} {line}".rstrip(), "red" if event.is_error else "dim")
        elif isinstance(event, RetryEvent):
            self._say(f"  try {event.attempt} of {event.max_retries} in {event.delay:.1f} s: {event.error_message}", "yellow")

    def close(self, seconds: float) -> None:
        """Print the closing line, unless the model has said nothing at all."""
        usage = self._usage
        sent = usage.input + usage.cache_read + usage.cache_write
        if not self._has_answer and not sent:
            return
        money = f", ${usage.cost.total:.4f}" if usage.cost.total else ""
        self._say(f"[{sent:,} tokens in, {usage.output:,} out, {seconds:.1f} s{money}]", "dim")
        sys.stdout.flush()

    def end_line(self) -> None:
        """Go to the beginning of a line."""
        if self._is_in_line:
            self._write("\n")

    def _say(self, line: str, style: str) -> None:
        if not self._is_quiet:
            self.end_line()
            self._style.print(line, style)
            sys.stdout.flush()

    def _write(self, text: str) -> None:
        if text:
            sys.stdout.write(text)
            sys.stdout.flush()
            self._is_in_line = not text.endswith("\n")


class _JsonPrinter(_Printer):
    """A listener that prints each event as a line of JSON.

    The message of an update is left out: it is the sum of the deltas so far, and comes whole with `message_end`.
    """

    def __init__(self) -> None:
        super().__init__(_Style(sys.stdout), is_quiet=True)

    def _show(self, event: AgentEvent) -> None:
        if isinstance(event, MessageUpdateEvent):
            said = event.assistant_message_event
            inner = {key: value for key, value in vars(said).items() if key not in ("partial", "message")}
            line: Any = {
                "type": event.type,
                "assistantMessageEvent": {camel_case(key): encode(value) for key, value in inner.items()},
            }
        else:
            line = encode(event)
        sys.stdout.write(dumps(line) + "\n")
        sys.stdout.flush()


def _in_full(args: Any) -> str:
    """Show arguments with nothing left out that a person has to know before allowing them."""
    members = args.items() if isinstance(args, dict) else [("arguments", args)]
    texts = [f"{name}: {value if isinstance(value, str) else dumps(value)}" for name, value in members]
    return "\n".join(f"  {line}" for line in _visible("\n".join(texts)).splitlines())


def _short(args: Any) -> str:
    """Show arguments on one line."""
    members = args if isinstance(args, dict) else {"arguments": args}
    if len(members) == 1 and isinstance(only := next(iter(members.values())), str):
        return _cut(" ".join(only.split()))
    texts = (f"{name}={value if isinstance(value, str) else dumps(value)}" for name, value in members.items())
    return _cut(" ".join(" ".join(texts).split()))


def _result_lines(text: str) -> list[str]:
    lines = text.strip("\n").splitlines() or ["(nothing)"]
    shown = [_cut(line.rstrip()) for line in lines[:_SHOWN_RESULT_LINES]]
    if len(lines) > _SHOWN_RESULT_LINES:
        shown.append(f"… {len(lines) - _SHOWN_RESULT_LINES} more lines")
    return shown


def _cut(text: str) -> str:
    return _visible(text if len(text) <= _SHOWN_LINE_CHARS else text[:_SHOWN_LINE_CHARS] + "…")


_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def _visible(text: str) -> str:
    """Show control characters as what they are: neither a file nor a model may repaint the terminal, or hide what it asks for."""
    return _CONTROL.sub(lambda match: match.group().encode("unicode_escape").decode(), text)
