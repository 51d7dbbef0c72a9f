"""Steering: another thread puts a message into a run that is at work.

The message reaches the model with its next request, behind the results of the tools that are running; a follow-up waits until the
model would stop. Both may be sent from any thread.
"""

import threading

from agentcore import Agent, convert_to_llm, tool
from agentcore.testing import calls, says, scripted_stream

digging, steered = threading.Event(), threading.Event()


@tool
def dig(place: str) -> str:
    """Dig a hole."""
    digging.set()
    steered.wait(timeout=10)
    return f"A hole in {place}."


model = scripted_stream(
    calls("dig", place="the garden"),
    says("I stop at one hole, then."),
    says("One hole, in the garden."),
)
agent = Agent(tools=[dig], stream_fn=model)


def change_your_mind() -> None:
    """What a person does at a keyboard, while the tool is at work."""
    digging.wait(timeout=10)
    agent.steer("One hole is enough.")
    agent.follow_up("Now sum up what you did.")
    steered.set()


threading.Thread(target=change_your_mind).start()
run = agent.prompt("Dig holes all over the place.")
run.result(timeout=30)

for message in convert_to_llm(agent.messages):
    print(f"{message.role:>10}: {message.text or 'calls dig'}")

# It prints:
#       user: Dig holes all over the place.
#  assistant: calls dig
# toolResult: A hole in the garden.
#       user: One hole is enough.
#  assistant: I stop at one hole, then.
#       user: Now sum up what you did.
#  assistant: One hole, in the garden.
