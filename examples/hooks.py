"""Hooks: refuse a tool call, change a result, end a run.

A hook takes as many of its arguments as it wants to: `before_tool_call` may be a function of `(context, signal)`, of `(context)`,
or of nothing. All hooks run on the run's thread, one at a time.
"""

from agentcore import (
    AfterToolCallContext,
    AfterToolCallResult,
    Agent,
    BeforeToolCallContext,
    BeforeToolCallResult,
    TextContent,
    ToolResultMessage,
    tool,
)
from agentcore.messages import content_text
from agentcore.testing import calls, says, scripted_stream


@tool
def query(table: str) -> str:
    """Read a table."""
    return f"{table}: ada@example.org, bob@example.org"


def keep_out(context: BeforeToolCallContext) -> BeforeToolCallResult | None:
    """Refuse what must not be read; the model reads the reason."""
    if context.args["table"] == "salaries":
        return BeforeToolCallResult(block=True, reason="salaries are none of your business")
    return None


def hide_addresses(context: AfterToolCallContext) -> AfterToolCallResult | None:
    """Change what the model gets to see."""
    if context.is_error:
        return None
    words = content_text(context.result.content).split()
    text = " ".join("***" if "@" in word else word for word in words)
    return AfterToolCallResult(content=[TextContent(text)])


model = scripted_stream(calls("query", table="people") + calls("query", table="salaries"), says("never asked for"))
agent = Agent(
    tools=[query],
    stream_fn=model,
    before_tool_call=keep_out,
    after_tool_call=hide_addresses,
    should_stop_after_turn=lambda context: len(context.tool_results) == 2,
)
agent.prompt("Who works here, and for how much?").result(timeout=30)

for message in agent.messages:
    if isinstance(message, ToolResultMessage):
        print(message.text)
print(f"{len(model.requests)} request")

# It prints:
# people: *** ***
# salaries are none of your business
# 1 request
