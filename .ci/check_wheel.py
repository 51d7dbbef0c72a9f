"""Uses the installed wheel as its first user would: every module, a tool, a scripted prompt. Run outside of the repository."""

import importlib
import pkgutil
from pathlib import Path

import agentcore

assert Path(agentcore.__file__).parent.parent.name == "site-packages", f"{agentcore.__file__} is not the installed package"

names = [module.name for module in pkgutil.walk_packages(agentcore.__path__, "agentcore.") if not module.name.endswith("__main__")]
for name in names:
    importlib.import_module(name)
for name in agentcore.__all__:
    getattr(agentcore, name)


@agentcore.tool
def add(a: int, b: int) -> str:
    """Add two numbers.

    Args:
        a: The first one.
        b: The second one.
    """
    return str(a + b)


stream = agentcore.testing.scripted_stream(agentcore.testing.calls("add", a=2, b=3), agentcore.testing.says("It is 5."))
agent = agentcore.Agent(tools=[add], stream_fn=stream)
assert agent.run("What is 2 + 3?", timeout=30).text == "It is 5."
assert [message.role for message in stream.requests[1]] == ["user", "assistant", "toolResult"]
assert stream.requests[1][2].text == "5"
print(f"{len(names)} modules, {len(agentcore.__all__)} names, one prompt with a tool: good")
