"""The agent: a conversation with its settings, its queues, and one run at a time.

    caller's thread           run thread                        tool workers
    prompt() ── starts ─────► run_agent_loop
    steer(), follow_up() ─q─► drained at turn boundaries
                              execute_tool_calls ── submit ───► execute(…)
                              hooks, listeners ◄──── q ──────── updates, results
    wait_for_idle() ◄──────── settled

Every listener, every hook and every stream function runs on the run's thread, one at a time, in order. Only a tool's `execute` runs
on tool workers. So a listener needs no lock. While a hook or listener runs, nothing else of the run moves: it must not wait for a
later event of its own run.

May import `loop`, `llm`, `tools` and the words. A session is seen as a `Protocol` alone.
"""

from agentcore.agent import at_exit as at_exit
from agentcore.agent.agent import Agent as Agent
from agentcore.agent.agent import AgentSession as AgentSession
from agentcore.agent.printing import print_events as print_events
from agentcore.agent.queues import PendingMessageQueue as PendingMessageQueue
from agentcore.agent.queues import QueueMode as QueueMode
from agentcore.agent.state import AgentState as AgentState
from agentcore.loop.event_stream import RunStream as RunStream
from agentcore.loop.run import Run as Run
