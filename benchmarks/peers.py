"""Turn and delta cost of other agent libraries, side by side: the same conversations, the same server, one run (`--peers`).

Figures of other runs, on other machines, say nothing; here what an agent library takes beside ours is measured in one go. Each is
optional: what is installed is measured, each in a process of its own, with its streaming interface and the setting that its
documentation shows for a plain tool loop. CPU of the process, after a first conversation that imports everything.

The TypeScript original comes with `--typescript FOLDER` (or `AGENTCORE_TYPESCRIPT`), after this in the folder:

    npm install @earendil-works/pi-agent-core@0.82.1 @earendil-works/pi-ai@0.82.1
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import floor
from benchmarks.frame import Options, Row, in_turns, run_child

TITLE = "CPU beside other libraries (the floor is bare requests)"
PACKAGES = {
    "openai-agents": "agents",
    "pydantic-ai": "pydantic_ai",
    "smolagents": "smolagents",
    "langgraph": "langgraph",
    "strands": "strands",
    "pp-agent-core": "pi_agent",
}


DELTAS = 5_000

TYPESCRIPT = "pi-agent-core (TypeScript)"
_TYPESCRIPT_SCRIPT = Path(__file__).parent / "typescript" / "measure.mjs"


def measure(options: Options) -> list[Row]:
    """Measure every library that is installed."""
    turns = 25 if options.is_quick else 100
    takes: dict[str, Callable[[int], dict[str, float]]] = {
        name: lambda turns, name=name: _run(name, options.url, turns)  # type: ignore[misc]
        for name in ("floor", "agentcore", *PACKAGES)
        if name not in PACKAGES or importlib.util.find_spec(PACKAGES[name])
    }
    takes[TYPESCRIPT] = lambda turns: _run_typescript(options.typescript, options.url, turns)
    takes = {name: take for name, take in takes.items() if _works(name, take)}
    found: dict[str, list[dict[str, float]]] = {name: [] for name in takes}

    def one(name: str) -> float:
        found[name].append(takes[name](turns))
        return 0.0

    in_turns(min(options.rounds, 3), *(lambda name=name: one(name) for name in takes))  # type: ignore[misc]
    rows = []
    for key, unit, what in (("turn", "ms", f"a turn of {turns}"), ("delta", "µs", f"a delta of {DELTAS:,}")):
        figures = {name: [figure[key] for figure in taken] for name, taken in found.items() if key in taken[0]}
        rows += [Row(f"{what}, {name}", unit, figures[name], figures["floor"]) for name in figures if name != "floor"]
        if key == "turn":
            rows += _goals(figures)
    return rows


def _goals(figures: dict[str, list[float]]) -> list[Row]:
    """Ours beside the best other Python library, and beside the original."""
    ours = figures["agentcore"]
    others = {name: statistics.median(values) for name, values in figures.items() if name in PACKAGES}
    rows = []
    if others:
        best = min(others, key=lambda name: others[name])
        rows.append(Row(f"agentcore / {best}, the best of Python's", "ms", ours, figures[best], goal=0.1))
    if TYPESCRIPT in figures:
        rows.append(Row("agentcore / the TypeScript original", "ms", ours, figures[TYPESCRIPT], goal=1.0))
    return rows


def _works(name: str, take: Callable[[int], object]) -> bool:
    try:
        take(2)
    except (OSError, LookupError, subprocess.SubprocessError) as error:
        lines = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
        telling = [line for line in lines if "Error" in line] or lines
        print(f"{name} is left out: {telling[-1][:160]}", file=sys.stderr)
        return False
    return True


def _run(name: str, url: str, turns: int) -> dict[str, float]:
    env = {**os.environ, "OPENAI_API_KEY": "none", "OPENAI_AGENTS_DISABLE_TRACING": "1", "OTEL_SDK_DISABLED": "true"}
    found: dict[str, float] = run_child("-W", "ignore", "-m", "benchmarks.peers", name, url, str(turns), env=env)
    return found


def _run_typescript(folder: str | None, url: str, turns: int) -> dict[str, float]:
    """Let node run the same two conversations."""
    if folder is None:
        raise LookupError("give --typescript FOLDER, where npm has installed @earendil-works/pi-agent-core and pi-ai")
    node = shutil.which("node")
    if node is None:
        raise LookupError("there is no node")
    command = [node, "--no-warnings", "--input-type=module", "-", url, f"turns/{turns}", f"text/{DELTAS}"]
    with _TYPESCRIPT_SCRIPT.open() as script:
        ran = subprocess.run(command, cwd=folder, stdin=script, check=True, capture_output=True, text=True, timeout=600)
    said = json.loads(ran.stdout)
    turn, delta = (conversation["seconds"] for conversation in said["found"])
    return {"turn": turn / (turns + 1) * 1000, "delta": delta / DELTAS * 1e6}


def _floor(url: str) -> Callable[[], object]:
    import requests

    session = requests.Session()
    return lambda: floor.run_tool_loop(session, url)


def _agentcore(url: str) -> Callable[[], object]:
    from benchmarks.turn_cost import run_ours

    return lambda: run_ours(url)


def _openai_agents(url: str) -> Callable[[], object]:
    import asyncio

    from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled  # type: ignore[import-not-found]
    from openai import AsyncOpenAI  # type: ignore[import-not-found]

    set_tracing_disabled(True)
    look = function_tool(floor.look)

    async def run() -> None:
        client = AsyncOpenAI(base_url=f"{url}/v1", api_key="none")
        agent = Agent("bench", instructions=floor.SYSTEM, tools=[look], model=OpenAIChatCompletionsModel("bench", client))
        result = Runner.run_streamed(agent, "Travel.", max_turns=1000)
        async for _ in result.stream_events():
            pass

    return lambda: asyncio.run(run())


def _pydantic_ai(url: str) -> Callable[[], object]:
    import asyncio

    from pydantic_ai import Agent  # type: ignore[import-not-found]
    from pydantic_ai.models.openai import OpenAIChatModel  # type: ignore[import-not-found]
    from pydantic_ai.providers.openai import OpenAIProvider  # type: ignore[import-not-found]
    from pydantic_ai.usage import UsageLimits  # type: ignore[import-not-found]

    async def run() -> None:
        model = OpenAIChatModel("bench", provider=OpenAIProvider(base_url=f"{url}/v1", api_key="none"))
        agent = Agent(model, system_prompt=floor.SYSTEM, tools=[floor.look])

        async def on_events(context: Any, events: Any) -> None:
            async for _ in events:
                pass

        await agent.run("Travel.", event_stream_handler=on_events, usage_limits=UsageLimits(request_limit=None))

    return lambda: asyncio.run(run())


def _smolagents(url: str) -> Callable[[], object]:
    from smolagents import OpenAIServerModel, ToolCallingAgent, tool  # type: ignore[import-not-found]

    @tool
    def look(city: str) -> str:
        """Tell the weather in a city.

        Args:
            city: The city.
        """
        return floor.look(city)

    turns = int(url.rpartition("/")[2])

    def run() -> None:
        model = OpenAIServerModel("bench", api_base=f"{url}/v1", api_key="none")
        agent = ToolCallingAgent(tools=[look], model=model, max_steps=turns, stream_outputs=True, verbosity_level=0)
        for _ in agent.run("Travel.", stream=True):
            pass

    return run


def _langgraph(url: str) -> Callable[[], object]:
    from langchain_openai import ChatOpenAI  # type: ignore[import-not-found]
    from langgraph.prebuilt import create_react_agent  # type: ignore[import-not-found]

    model = ChatOpenAI(model="bench", base_url=f"{url}/v1", api_key="none", streaming=True)
    agent = create_react_agent(model, [floor.look], prompt=floor.SYSTEM)

    def run() -> None:
        for _ in agent.stream({"messages": [("user", "Travel.")]}, {"recursion_limit": 5000}, stream_mode="messages"):
            pass

    return run


def _strands(url: str) -> Callable[[], object]:
    from strands import Agent, tool  # type: ignore[import-not-found]
    from strands.models.openai import OpenAIModel  # type: ignore[import-not-found]

    look = tool(floor.look)

    def run() -> None:
        model = OpenAIModel(client_args={"base_url": f"{url}/v1", "api_key": "none"}, model_id="bench")
        Agent(model=model, tools=[look], system_prompt=floor.SYSTEM, callback_handler=None)("Travel.")

    return run


def _pp_agent_core(url: str) -> Callable[[], object]:
    import asyncio

    from pi_agent import Agent, AgentTool, AgentToolResult, MutableAgentState  # type: ignore[import-not-found]
    from pi_ai.api.openai_completions import stream_simple  # type: ignore[import-not-found]
    from pi_ai.types import Model, TextContent  # type: ignore[import-not-found]

    async def execute(call_id: str, arguments: Any, *more: Any) -> Any:
        return AgentToolResult(content=[TextContent(text=floor.look(**arguments))])

    function: Any = floor.TOOL["function"]

    async def run() -> None:
        state = MutableAgentState(system_prompt=floor.SYSTEM, model=Model("bench", provider="openai", base_url=f"{url}/v1"))
        state.tools = [AgentTool(function["name"], function["description"], function["parameters"], execute=execute)]
        agent = Agent(stream_simple, initial_state=state, get_api_key=lambda provider: "none")
        agent.subscribe(lambda event, signal: None)
        await agent.prompt("Travel.")
        if state.error_message:
            raise RuntimeError(state.error_message)

    return lambda: asyncio.run(run())


def main() -> None:
    """Run one library once; print what a turn and a delta of it cost."""
    name, url, turns = sys.argv[1], sys.argv[2], int(sys.argv[3])
    make: Callable[[str], Callable[[], object]] = globals()[f"_{name.replace('-', '_')}"]
    make(f"{url}/turns/2")()  # imports and connections
    found = {"turn": _spent(make(f"{url}/turns/{turns}")) / (turns + 1) * 1000}
    if name != "smolagents":  # an answer without a call is not the end for it: it asks again
        found["delta"] = _spent(make(f"{url}/text/{DELTAS}")) / DELTAS * 1e6
    print(json.dumps(found))


def _spent(run: Callable[[], object]) -> float:
    started = time.process_time()
    run()
    return time.process_time() - started


if __name__ == "__main__":
    main()
