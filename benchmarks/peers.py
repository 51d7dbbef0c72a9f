"""The turn cost of other agent libraries, side by side: the same conversation against the same server, in one run (`--peers`).

Each is optional: what is installed is measured, each in a process of its own, with its streaming interface and the setting that its
documentation shows for a plain tool loop. CPU of the process for one turn, after a first conversation that imports everything.
"""

from __future__ import annotations

import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from benchmarks import floor
from benchmarks.frame import Options, Row, in_turns

TITLE = "CPU per turn of a tool loop, beside other libraries (the floor is bare requests)"
PACKAGES = {
    "openai-agents": "agents",
    "pydantic-ai": "pydantic_ai",
    "smolagents": "smolagents",
    "langgraph": "langgraph",
    "strands": "strands",
    "pp-agent-core": "pi_agent",
}


def measure(options: Options) -> list[Row]:
    """Measure every library that is installed."""
    turns = 25 if options.is_quick else 100
    url = f"{options.url}/turns/{turns}"
    names = ["floor", "agentcore"] + [name for name, package in PACKAGES.items() if importlib.util.find_spec(package)]
    names = [name for name in names if _works(name, options.url)]

    def take(name: str) -> float:
        return _run(name, url, turns)

    found = dict(zip(names, in_turns(min(options.rounds, 3), *(lambda name=name: take(name) for name in names)), strict=True))  # type: ignore[misc]
    rows = [Row(f"{name}, {turns} turns", "ms", found[name], found["floor"]) for name in names if name != "floor"]
    ours = statistics.median(found["agentcore"])
    others = [statistics.median(values) for name, values in found.items() if name not in ("floor", "agentcore")]
    if others:
        rows[0].note = f"the best of the others takes {min(others) / ours:.0f} times as much"
    return rows


def _works(name: str, url: str) -> bool:
    try:
        _run(name, f"{url}/turns/2", 2)
    except subprocess.CalledProcessError as error:
        last = (error.stderr or "").strip().rpartition("\n")[2]
        print(f"{name} is left out: {last[:160]}", file=sys.stderr)
        return False
    return True


def _run(name: str, url: str, turns: int) -> float:
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.peers", name, url]
    env = {**os.environ, "OPENAI_API_KEY": "none", "OPENAI_AGENTS_DISABLE_TRACING": "1", "OTEL_SDK_DISABLED": "true"}
    ran = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600, env=env)
    seconds: float = json.loads(ran.stdout.strip().splitlines()[-1])
    return seconds / (turns + 1) * 1000


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
    """Run one library once; print the CPU time of its conversation."""
    name, url = sys.argv[1], sys.argv[2]
    make: Callable[[str], Callable[[], object]] = globals()[f"_{name.replace('-', '_')}"]
    first, _, _ = url.rpartition("/")
    make(f"{first}/2")()  # imports and connections
    run = make(url)
    started = time.process_time()
    run()
    print(json.dumps(time.process_time() - started))


if __name__ == "__main__":
    main()
