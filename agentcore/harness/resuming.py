"""Going on where a session's file ends."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from agentcore.agent.agent import Agent
from agentcore.models import Model
from agentcore.session.jsonl import JsonlSessionStorage
from agentcore.session.session import Session
from agentcore.tools.agent_tool import AgentTool


def resume(
    path: str | os.PathLike[str], *, model: Model | str | None = None, tools: Iterable[AgentTool] = (), **options: Any
) -> Agent:
    """Make an agent that goes on where a session's file ends.

    It has the conversation, the model and the thinking level of the session, and stores what it does there. Calls that were cut off
    are answered with an error result: nothing is run a second time. `continue_()` asks for the answer that is missing, `prompt()`
    says something new. The session is `agent.session`; close it, or leave that to the end of the process.

    Args:
        path: A file that a `JsonlSessionStorage` wrote.
        model: In place of the session's; needed where that is none that the library knows.
        tools: What the model may call. If the session says which tools were active, only those of them are offered.
        options: As for `Agent`, but for `session` and `messages`.

    Raises:
        SessionError: There is no such file, or it cannot be read as a session.
        TypeError: `Agent` does not know one of the options.

    Example:
        >>> with agentcore.resume("chat.jsonl", tools=[read]) as agent:
        ...     print(agent.run("Where were we?").text)
    """
    for name in ("session", "messages"):
        if name in options:
            raise TypeError(f"resume() takes no {name}: they come from the file; use Agent(…) for anything else")
    session = Session(JsonlSessionStorage.open(path))
    names = session.build_context().active_tool_names
    offered = [tool for tool in tools if names is None or tool.name in names]
    options.setdefault("session_id", session.id)
    return Agent(session=session, model=model, tools=offered, **options)
