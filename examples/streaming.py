"""Events as they happen: `agent.stream` is an iterator over a run, read in step with it.

The other way is a listener, `agent.subscribe(fn)`, which is called with each event on the run's thread. Leaving the loop early
aborts the run.
"""

from agentcore import Agent, tool
from agentcore.messages import content_text
from agentcore.testing import calls, says, scripted_stream


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


model = scripted_stream(says("Let me see. ") + calls("add", a=17, b=25), says("It", " is", " 42", "."))
agent = Agent(tools=[add], stream_fn=model)

with agent.stream("How much is 17 and 25?") as events:
    for event in events:
        if event.type == "message_update":
            said = event.assistant_message_event
            if said.type == "text_delta":
                print(said.delta, end="|")
            elif said.type == "text_end":
                print()
        elif event.type == "tool_execution_start":
            print(f"{event.tool_name}{event.args} …")
        elif event.type == "tool_execution_end":
            print(f"… {content_text(event.result.content)}")

# It prints:
# Let me see. |
# add{'a': 17, 'b': 25} …
# … 42
# It| is| 42|.|
