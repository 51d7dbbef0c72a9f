"""Inside an asyncio program: a run is a thread, so the loop goes on, and `run.future()` can be awaited."""

import asyncio

from agentcore import Agent
from agentcore.testing import says, scripted_stream


async def main() -> None:
    """Two agents at once, and a clock beside them."""
    agents = [Agent(stream_fn=scripted_stream(says(f"Hello from agent {number}."))) for number in (1, 2)]
    runs = [agent.prompt("Say hello.") for agent in agents]
    await asyncio.gather(*(asyncio.wrap_future(run.future()) for run in runs), asyncio.sleep(0.01))
    for run in runs:
        print(run.text)


asyncio.run(main())

# It prints:
# Hello from agent 1.
# Hello from agent 2.
