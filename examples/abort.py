"""Abort: a run ends in milliseconds, wherever it waits; and the agent goes on from there.

What was there stays: the call that was cut off has an error result, so the next request is well-formed.
"""

import threading
import time

from agentcore import AbortSignal, Agent, AgentAbortedError, tool
from agentcore.testing import calls, says, scripted_stream

waiting = threading.Event()


@tool
def wait_for_spring(signal: AbortSignal) -> str:
    """Wait for spring."""
    waiting.set()
    signal.wait(timeout=60)  # a tool that heeds its signal ends at once; one that does not is left behind after two seconds
    return "It is spring."


model = scripted_stream(
    calls("wait_for_spring"),
    says("It never gets to say this: the request is given up before it is sent."),
    says("Then let us go out anyway."),
)
agent = Agent(tools=[wait_for_spring], stream_fn=model)

run = agent.prompt("Tell me when it is spring.")
waiting.wait(timeout=10)
started = time.monotonic()
agent.abort("it gets dark")
try:
    run.result(timeout=10)
except AgentAbortedError as error:
    print(f"aborted: {error.reason}")
print("within 0.5 s:", time.monotonic() - started < 0.5)

print(agent.run("Let us not wait.").text)

# It prints:
# aborted: it gets dark
# within 0.5 s: True
# Then let us go out anyway.
