"""The loop: the turns of a run, one answer of the model, tool calls.

It knows no state beyond what it is given: a context, a config, and somebody to tell. May import `llm`, `tools` and the words.
"""

from agentcore.loop.config import AfterToolCallContext as AfterToolCallContext
from agentcore.loop.config import AfterToolCallResult as AfterToolCallResult
from agentcore.loop.config import AgentContext as AgentContext
from agentcore.loop.config import AgentEventSink as AgentEventSink
from agentcore.loop.config import AgentLoopConfig as AgentLoopConfig
from agentcore.loop.config import AgentLoopTurnUpdate as AgentLoopTurnUpdate
from agentcore.loop.config import BeforeToolCallContext as BeforeToolCallContext
from agentcore.loop.config import BeforeToolCallResult as BeforeToolCallResult
from agentcore.loop.config import PrepareNextTurnContext as PrepareNextTurnContext
from agentcore.loop.config import RetryPolicy as RetryPolicy
from agentcore.loop.config import ShouldStopAfterTurnContext as ShouldStopAfterTurnContext
from agentcore.loop.event_stream import RunStream as RunStream
from agentcore.loop.response import default_stream as default_stream
from agentcore.loop.response import stream_assistant_response as stream_assistant_response
from agentcore.loop.run import Run as Run
from agentcore.loop.tool_calls import ExecutedToolCallBatch as ExecutedToolCallBatch
from agentcore.loop.tool_calls import ExecutedToolCallOutcome as ExecutedToolCallOutcome
from agentcore.loop.tool_calls import FinalizedToolCallOutcome as FinalizedToolCallOutcome
from agentcore.loop.tool_calls import ImmediateToolCallOutcome as ImmediateToolCallOutcome
from agentcore.loop.tool_calls import PreparedToolCall as PreparedToolCall
from agentcore.loop.tool_calls import create_tool_result_message as create_tool_result_message
from agentcore.loop.tool_calls import execute_prepared_tool_call as execute_prepared_tool_call
from agentcore.loop.tool_calls import execute_tool_calls as execute_tool_calls
from agentcore.loop.tool_calls import execute_tool_calls_parallel as execute_tool_calls_parallel
from agentcore.loop.tool_calls import execute_tool_calls_sequential as execute_tool_calls_sequential
from agentcore.loop.tool_calls import finalize_executed_tool_call as finalize_executed_tool_call
from agentcore.loop.tool_calls import prepare_tool_call as prepare_tool_call
from agentcore.loop.tool_calls import prepare_tool_call_arguments as prepare_tool_call_arguments
from agentcore.loop.tool_calls import validate_tool_arguments as validate_tool_arguments
from agentcore.loop.turns import agent_loop as agent_loop
from agentcore.loop.turns import agent_loop_continue as agent_loop_continue
from agentcore.loop.turns import run_agent_loop as run_agent_loop
from agentcore.loop.turns import run_agent_loop_continue as run_agent_loop_continue
