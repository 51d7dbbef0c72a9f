"""A model reads a file of this repository and says what it found.

No key and no network: it runs on the embedded model (README, *Install*), which is tiny, so do not expect too much of the answer.
Any other model is one word away: `Agent(model="anthropic/claude-sonnet-4-5", …)`.
"""

from pathlib import Path

import agentcore
from agentcore import Agent, create_read_tool

root = Path(__file__).resolve().parent.parent

agent = Agent(model=agentcore.local.model(), tools=[create_read_tool(cwd=root)])
agent.subscribe(agentcore.print_events())
answer = agent.run("Read setup.cfg and tell me what this project is.")

print(f"[{answer.model}: {answer.usage.input} tokens in, {answer.usage.output} out]")
