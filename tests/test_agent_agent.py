"""The `Agent`: how it is made, what it knows, its queues, hooks, listeners and session."""

from __future__ import annotations

import base64
import copy
import pickle
import queue
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agentcore.agent import Agent, AgentState
from agentcore.errors import AgentAbortedError, AgentBusyError, AgentRunError
from agentcore.loop import AgentLoopTurnUpdate, BeforeToolCallResult
from agentcore.messages import AssistantMessage, ImageContent, TextContent, ToolCall, ToolResultMessage, Usage, UserMessage
from agentcore.models import Model
from agentcore.session import MemorySessionStorage, Session
from agentcore.testing import SseServer, answer, calls, ends, fails, says, scripted_stream, waits
from agentcore.tools.agent_tool import AgentTool
from agentcore.tools.decorator import tool
from agentcore.transcript import dump_messages, load_messages

pytestmark = pytest.mark.pythons

PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")


@tool
def echo(text: str = "") -> str:
    """Say it again."""
    return text


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"before_tool_call": lambda a, b, c: None}, TypeError, "before_tool_call gets at most 2 arguments"),
        ({"prepare_next_turn": lambda context, signal: None}, TypeError, "prepare_next_turn gets at most 1 argument"),
        ({"convert_to_llm": 5}, TypeError, "convert_to_llm must be callable"),
        ({"stream_fn": "gpt"}, TypeError, "stream_fn must be callable, not str"),
        ({"tools": [lambda: None]}, TypeError, "decorate a function with @tool"),
        ({"tools": [echo, echo]}, ValueError, "two tools are called 'echo'"),
        ({"thinking_level": "very"}, ValueError, "unknown thinking level 'very'"),
        ({"steering_mode": "some"}, ValueError, "'one-at-a-time' or 'all'"),
        ({"tool_execution": "random"}, ValueError, "random"),
        ({"max_tool_workers": 0}, ValueError, "max_tool_workers must be 1 or more"),
        ({"tool_grace": -1}, ValueError, "tool_grace is in seconds"),
        ({"tool_grace": None}, ValueError, "tool_grace is in seconds"),
        ({"system_prompt": None}, TypeError, "system_prompt must be a text, not NoneType"),
        ({"messages": [{"role": "user", "content": "hi"}]}, TypeError, "messages must hold messages, not dict"),
        ({"messages": "hi"}, TypeError, "messages must hold messages, not str"),
        ({"model": 5}, TypeError, "model must be a Model or a string 'provider/id', not int"),
    ],
)
def test_bad_arguments_are_refused_when_the_agent_is_made(arguments: Any, error: type[Exception], text: str) -> None:
    """Each with one line that says what to do."""
    with pytest.raises(error, match=text.replace("(", r"\(")):
        Agent(**arguments)


def test_without_a_model_the_first_request_says_how_to_give_one() -> None:
    """No model is no error until it is needed; the agent is usable afterwards."""
    agent = Agent()
    with pytest.raises(AgentRunError, match=r"no model: pass Agent\(model='provider/id'\)") as raised:
        agent.run("hi")
    assert raised.value.kind == "setup" and "openai_compatible" in str(raised.value)
    agent.stream_fn = scripted_stream(says("ok"))
    assert agent.run("again").text == "ok"


def test_a_model_may_be_named() -> None:
    """A string is looked up when the agent is made."""
    assert Agent(model="openai/gpt-5-mini").state.model.provider == "openai"


@pytest.mark.parametrize("value", [5, None, {"role": "user"}, [5], b"text"])
def test_steer_and_prompt_take_texts_and_messages_only(value: Any) -> None:
    """A wrong prompt is refused where it is given, and nothing is queued."""
    agent = Agent(stream_fn=scripted_stream(says("ok")))
    for call in (agent.steer, agent.follow_up, agent.prompt):
        with pytest.raises(TypeError, match="prompt"):
            call(value)
    assert not agent.has_queued_messages() and agent.active_run is None


def test_images_come_as_blocks_paths_or_bytes(tmp_path: Path) -> None:
    """Behind the text, in their order; what is no image is refused by name."""
    path = tmp_path / "pixel.png"
    path.write_bytes(PNG)
    block = ImageContent("AAAA", "image/gif")
    stream = scripted_stream(says("ok"))
    agent = Agent(stream_fn=stream)
    agent.run("look", images=[block, path, str(path), PNG])
    content = stream.requests[0][0].content
    encoded = base64.b64encode(PNG).decode()
    assert content == [TextContent("look"), block, *[ImageContent(encoded, "image/png")] * 3]
    agent.steer("and this", images=path)
    assert agent.steering_queue.messages()[0].content[1:] == [ImageContent(encoded, "image/png")]  # type: ignore[union-attr]
    (tmp_path / "a.txt").write_text("text")
    with pytest.raises(ValueError, match=r"a\.txt is no image that a model takes: it must be PNG, JPEG, GIF or WebP"):
        agent.prompt("look", images=[tmp_path / "a.txt"])
    with pytest.raises(TypeError, match="an image is an ImageContent, a path or bytes, not int"):
        agent.prompt("look", images=[5])  # type: ignore[list-item]
    with pytest.raises(FileNotFoundError):
        agent.prompt("look", images=tmp_path / "missing.png")
    assert agent.active_run is None


@pytest.mark.parametrize("images", [5, True, object()])
def test_images_that_are_none_are_refused(images: Any) -> None:
    """In all three places, with a line that says what they may be."""
    agent = Agent(stream_fn=scripted_stream(says("ok")))
    for give in (agent.prompt, agent.steer, agent.follow_up):
        with pytest.raises(TypeError, match="images must be an ImageContent, a path, bytes or a list"):
            give("look", images)
    assert not agent.has_queued_messages() and agent.messages == []


def test_the_state_refuses_what_no_run_could_use() -> None:
    """Where it is set, not in the next run; what was there stays."""
    state = Agent(model="openai/gpt-5-mini", tools=[echo], messages=[UserMessage("hi")], system_prompt="Be brief.").state
    for name, value in (("model", 5), ("model", "no/such"), ("tools", [5]), ("messages", [5]), ("system_prompt", 5)):
        with pytest.raises((TypeError, ValueError)):
            setattr(state, name, value)
    assert (state.model.id, state.tools, len(state.messages), state.system_prompt) == ("gpt-5-mini", [echo], 1, "Be brief.")
    state.model = "openai/gpt-5"
    assert state.model.id == "gpt-5"


def test_tools_and_messages_are_copied_when_they_are_set() -> None:
    """Lists of the caller's are not shared."""
    tools, messages = [echo], [UserMessage("one")]
    agent = Agent(tools=tools, messages=messages)
    tools.clear()
    messages.clear()
    assert len(agent.state.tools) == 1 and len(agent.state.messages) == 1
    assert agent.get_state() is agent.state
    agent.state.messages = (UserMessage("a"), UserMessage("b"))
    assert [message.text for message in agent.messages] == ["a", "b"]


def test_reset_is_refused_during_a_run() -> None:
    """C061: from a listener and from another thread mid-stream; the run goes on undisturbed."""
    reached, go_on = threading.Event(), threading.Event()
    agent = Agent(stream_fn=scripted_stream(says("one ", reached.set, go_on, "two")))
    refused: list[BaseException] = []

    def listener(event: Any) -> None:
        if event.type == "message_update":
            try:
                agent.reset()
            except AgentBusyError as error:
                refused.append(error)

    agent.subscribe(listener)
    run = agent.prompt("go")
    assert reached.wait(5)
    with pytest.raises(AgentBusyError, match=r"abort\(\) it or wait_for_idle\(\) before reset\(\)"):
        agent.reset()
    go_on.set()
    assert run.result(5)[-1].text == "one two"
    assert refused
    agent.steer("left over")
    agent.reset()
    assert agent.messages == [] and not agent.has_queued_messages()


def test_data_can_be_copied_and_pickled_and_the_agent_says_why_not() -> None:
    """C076: messages, events, results and the state copy and pickle; an agent owns threads and refuses with a way out."""
    agent = Agent(model=Model("m"), stream_fn=scripted_stream(says("ok")))
    events: list[Any] = []
    agent.subscribe(events.append)
    agent.run("go")
    for value in (agent.messages, events, agent.state):
        for made in (copy.copy(value), copy.deepcopy(value), pickle.loads(pickle.dumps(value))):
            assert type(made) is type(value)
    assert copy.deepcopy(agent.messages) == agent.messages == pickle.loads(pickle.dumps(agent.messages))
    assert pickle.loads(pickle.dumps(agent.state)).messages == agent.messages
    for refused in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match=r"cannot be copied or pickled.*Agent\(messages="):
            refused(agent)


def test_a_refused_key_is_what_the_user_sees() -> None:
    """C076: a 401 comes through as it is, whatever looks at the state on its way."""
    agent = Agent(stream_fn=scripted_stream(fails("401: the key was refused", kind="auth")))
    agent.subscribe(lambda event: copy.deepcopy(agent.state))
    with pytest.raises(AgentRunError, match="401: the key was refused"):
        agent.run("go")


def test_a_conversation_is_saved_and_loaded_without_a_session() -> None:
    """`dump_messages` and `load_messages`: the next request has the same messages."""
    stream = scripted_stream(calls("echo", text="x"), says("done"))
    agent = Agent(tools=[echo], stream_fn=stream)
    agent.run("go")
    text = dump_messages(agent.messages)
    again = scripted_stream(says("more"))
    Agent(messages=load_messages(text), stream_fn=again).run("go on")
    assert again.requests[0][:-1] == agent.messages


def test_usage_adds_up_and_context_tokens_are_those_of_the_last_good_answer() -> None:
    """Answers and tool results count; a failed answer says nothing of the context."""
    agent = Agent(
        messages=[
            AssistantMessage(usage=Usage(10, 5, total_tokens=15)),
            ToolResultMessage("c", "t", [], usage=Usage(1, 1, total_tokens=2)),
            AssistantMessage(usage=Usage(20, 5, total_tokens=25)),
            AssistantMessage(usage=Usage(3, 0, total_tokens=3), stop_reason="error"),
        ]
    )
    assert (agent.usage.input, agent.usage.output, agent.usage.total_tokens) == (34, 11, 45)
    assert agent.context_tokens == 25
    assert Agent().context_tokens == 0 and Agent().usage == Usage()


def test_hooks_may_take_fewer_arguments_and_can_be_set_later() -> None:
    """Also by attribute; a hook reads back as it was given, and a wrong one is refused when it is set."""
    seen: list[Any] = []
    agent = Agent(tools=[echo], stream_fn=scripted_stream(calls("echo", text="x"), says("ok"), calls("echo"), says("ok")))

    def block() -> BeforeToolCallResult:
        return BeforeToolCallResult(block=True, reason="not now")

    agent.before_tool_call = block
    assert agent.before_tool_call is block
    agent.after_tool_call = lambda context: seen.append(context.result.content[0].text)
    agent.get_api_key = lambda: None
    agent.run("go")
    assert agent.messages[2].text == "not now"
    agent.before_tool_call = None
    agent.run("go")
    assert seen == [""]
    with pytest.raises(TypeError, match="after_tool_call gets at most 2"):
        agent.after_tool_call = lambda a, b, c: None
    assert agent.after_tool_call is not None


def test_both_hooks_after_a_turn_are_asked() -> None:
    """Where both are set, the fields of the one with the context go before."""
    one, two = Model("one"), Model("two")
    stream = scripted_stream(calls("echo"), says("ok"))
    agent = Agent(
        model=Model("zero"),
        tools=[echo],
        stream_fn=stream,
        prepare_next_turn=lambda: AgentLoopTurnUpdate(model=one, thinking_level="high"),
        prepare_next_turn_with_context=lambda context: AgentLoopTurnUpdate(model=two) if context.tool_results else None,
    )
    agent.run("go")
    assert [model.id for model in stream.models] == ["zero", "two"]
    assert stream.options[1].reasoning == "high"
    assert agent.state.model.id == "zero"


def test_listeners_of_all_shapes() -> None:
    """`queue.put`, a default argument, `*args`, none at all: each gets what it can take."""
    box: queue.Queue[Any] = queue.Queue()
    seen: list[Any] = []
    agent = Agent(stream_fn=scripted_stream(says("ok")))
    agent.subscribe(box.put)
    agent.subscribe(lambda event, i=7: seen.append(i))
    agent.subscribe(lambda *args: seen.append(len(args)))
    agent.subscribe(lambda: seen.append("none"))
    agent.subscribe(lambda event, signal: seen.append(signal.aborted))
    with pytest.raises(TypeError, match="a listener gets at most 2"):
        agent.subscribe(lambda a, b, c: None)
    agent.run("go")
    assert box.get_nowait().type == "agent_start"
    assert seen[:4] == [7, 1, "none", False]


def test_listeners_come_and_go_during_a_run() -> None:
    """One added during an event gets it too; one that is removed gets no more; nothing is left over after the run."""
    agent = Agent(stream_fn=scripted_stream(says("ok"), says("ok")))
    log: list[str] = []

    def second(event: Any) -> None:
        log.append(f"second {event.type}")
        if event.type == "turn_start":
            remove[0]()

    def first(event: Any) -> None:
        if event.type == "agent_start":
            remove.append(agent.subscribe(second))

    remove: list[Any] = []
    remove_first = agent.subscribe(first)
    agent.run("go")
    assert log == ["second agent_start", "second turn_start"]
    remove_first()
    remove_first()
    agent.run("go")
    assert len(log) == 2 and agent._listeners == []


class StoredSession:
    """The least that a session must do."""

    def __init__(self, messages: list[Any], **more: Any) -> None:
        self.stored: list[Any] = []
        self.context = SimpleNamespace(messages=messages, model=None, thinking_level=None, active_tool_names=None)
        vars(self.context).update(more)

    def append_message(self, message: Any) -> str:
        self.stored.append(message)
        return f"e{len(self.stored)}"

    def build_context(self) -> Any:
        return self.context


def test_a_session_stores_before_anybody_hears() -> None:
    """Each message is stored when its message_end is told; the agent starts from the session's conversation."""
    session = StoredSession([UserMessage("before")], thinking_level="low")
    stream = scripted_stream(calls("echo", text="x"), says("done"))
    agent = Agent(tools=[echo], stream_fn=stream, session=session)
    seen: list[bool] = []
    agent.subscribe(lambda event: seen.append(event.message in session.stored) if event.type == "message_end" else None)
    agent.run("go")
    assert seen == [True] * 4
    assert [message.role for message in session.stored] == ["user", "assistant", "toolResult", "assistant"]
    assert [message.role for message in stream.requests[0]] == ["user", "user"]
    assert agent.state.thinking_level == "low"
    with pytest.raises(ValueError, match="messages or a session, not both"):
        Agent(session=session, messages=[UserMessage("x")])


@pytest.mark.parametrize(("active", "offered"), [(None, ["echo", "other"]), (["other"], ["other"]), ([], [])])
def test_the_active_tools_of_a_session_are_heeded(active: list[str] | None, offered: list[str]) -> None:
    """If the session says which tools are active, only those are offered."""
    other = AgentTool("other", "", "", {"type": "object"}, lambda: None)  # type: ignore[arg-type, return-value]
    agent = Agent(tools=[echo, other], session=StoredSession([], active_tool_names=active))
    assert [tool.name for tool in agent.state.tools] == offered


def test_a_session_made_without_a_model_opens_without_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """With a stream function of one's own no model is needed, neither the first time nor when the session is opened again."""
    storage = MemorySessionStorage()
    Agent(session=Session(storage), stream_fn=scripted_stream(says("one"))).run("a", timeout=5)
    again = Agent(session=Session(storage), stream_fn=scripted_stream(says("two")))
    assert again.run("b", timeout=5).text == "two" and len(again.messages) == 4
    assert caplog.records == []


def test_a_failed_try_is_not_stored() -> None:
    """C014: the file has only the answer that stayed."""
    from agentcore.loop import RetryPolicy

    session = StoredSession([])
    stream = scripted_stream(says("half") + fails("overloaded", retryable=True), says("whole"))
    Agent(stream_fn=stream, session=session, retry=RetryPolicy(base_delay=0.001)).run("go")
    assert [message.text for message in session.stored] == ["go", "whole"]


def test_a_session_that_cannot_store_fails_the_run() -> None:
    """Its own exception comes through, since the failure cannot be stored either; nothing unstored is shown."""

    class Full(StoredSession):
        def append_message(self, message: Any) -> str:
            raise OSError("no space left on device")

    agent = Agent(stream_fn=scripted_stream(says("ok")), session=Full([]))
    with pytest.raises(OSError, match="no space left"):
        agent.run("go")
    assert agent.messages == [] and agent.active_run is None


def test_a_model_of_a_session_is_looked_up_and_an_unknown_one_is_left_open() -> None:
    """The session says provider and id; a server of one's own cannot be known from that."""
    known = StoredSession([], model=SimpleNamespace(provider="openai", model_id="gpt-5-mini"))
    assert Agent(session=known).state.model.id == "gpt-5-mini"
    unknown = StoredSession([], model=SimpleNamespace(provider="my-own-box", model_id="m"))
    assert Agent(session=unknown).state.model.id == "unknown"
    given = Model("mine")
    assert Agent(session=known, model=given).state.model is given


def test_continue_from_each_kind_of_tail() -> None:
    """A user message or a tool result is answered; behind an answer, what is queued comes first, or there is nothing to do."""
    stream = scripted_stream(says("a"), says("b"), says("c"), says("d"))
    agent = Agent(stream_fn=stream)
    with pytest.raises(ValueError, match="no messages to continue from"):
        agent.continue_()
    agent.state.messages = [UserMessage("q")]
    agent.continue_().result(5)
    with pytest.raises(ValueError, match="nothing queued"):
        agent.continue_()
    agent.follow_up("later")
    agent.steer("first")
    agent.continue_().result(5)
    texts = [message.text for message in agent.messages]
    assert texts == ["q", "a", "first", "b", "later", "c"]
    agent.state.messages = [*agent.messages, ToolResultMessage("c", "t", [TextContent("r")])]
    assert [message.role for message in agent.continue_().result(5)] == ["assistant"]


def test_a_failed_or_aborted_answer_is_asked_for_anew() -> None:
    """`continue_` after an error is the new try that one would expect: the same request, once more."""
    gate = threading.Event()
    with SseServer(answer("bad", status=400), says("half") + waits(gate), calls("echo", text="x"), says("done")) as server:
        agent = Agent(model=server.model(), tools=[echo])
        with pytest.raises(AgentRunError):
            agent.run("go", timeout=10)
        half = threading.Event()
        agent.subscribe(lambda event: half.set() if event.type == "message_update" else None)
        run = agent.continue_()
        assert half.wait(5)
        run.abort()
        assert isinstance(run.exception(5), AgentAbortedError)
        gate.set()
        agent.continue_().result(10)
        bodies = [request.json["messages"] for request in server.requests]
        assert bodies[0] == bodies[1] == bodies[2] == [{"role": "user", "content": "go"}]
        assert [message["role"] for message in bodies[3]] == ["user", "assistant", "tool"]
    reasons = [message.stop_reason for message in agent.messages if isinstance(message, AssistantMessage)]
    assert reasons == ["error", "aborted", "toolUse", "done"]
    with pytest.raises(ValueError, match="cannot continue from an assistant message"):
        agent.continue_()


def test_a_failure_behind_a_good_answer_leaves_nothing_to_continue() -> None:
    """A listener raised when all was said: there is no question any more. But calls without results can be gone on from."""
    failed = AssistantMessage(stop_reason="error")
    called = AssistantMessage([ToolCall("c", "echo", {})], stop_reason="toolUse")
    tails: list[list[Any]] = [[failed], [UserMessage("q"), AssistantMessage(), failed, failed], [UserMessage("q"), called]]
    for messages in tails:
        with pytest.raises(ValueError, match="cannot continue from an assistant message"):
            Agent(messages=messages).continue_()
    agent = Agent(messages=[UserMessage("q"), called, failed], stream_fn=scripted_stream(says("ok")))
    agent.continue_().result(5)
    assert agent.messages[-1].text == "ok"


def test_options_reach_the_request() -> None:
    """What the agent was given, with the settings of the moment."""
    from agentcore.llm.request import StreamOptions

    given = StreamOptions(temperature=0.5, timeout=7)
    stream = scripted_stream(says("ok"), says("ok"))
    agent = Agent(
        stream_fn=stream,
        stream_options=given,
        session_id="s",
        thinking_budgets={"low": 9},
        max_retry_delay_ms=5,
        thinking_level="low",
    )
    agent.get_api_key = lambda provider: f"key for {provider}"
    agent.run("go")
    options = stream.options[0]
    assert (options.temperature, options.timeout, options.session_id, options.thinking_budgets) == (0.5, 7, "s", {"low": 9})
    assert (options.reasoning, options.api_key, options.max_retry_delay_ms) == ("low", "key for unknown", 5)
    assert given.api_key is None and given.signal is None


def test_the_state_says_what_goes_on() -> None:
    """Reprs name the state and never a message's content."""
    agent = Agent(system_prompt="secret", stream_fn=scripted_stream(says("ok") + ends()))
    assert "idle" in repr(agent) and "idle" in repr(agent.state)
    run = agent.prompt("secret too")
    assert run.wait(5)
    assert "secret" not in repr(agent) + repr(agent.state) + repr(run)
    assert isinstance(agent.state, AgentState)


def test_a_tool_needs_an_object_of_the_class() -> None:
    """Tools set later are looked at too."""
    agent = Agent()
    with pytest.raises(TypeError, match="AgentTools, not str"):
        agent.state.tools = ["read"]  # type: ignore[list-item]
    agent.state.tools = [echo]
    assert isinstance(agent.state.tools[0], AgentTool)


def test_a_result_is_in_the_file_when_a_listener_raises(tmp_path: Path) -> None:
    """C062 with a file: an agent that opens it again neither loses the result nor makes the call a second time."""
    from agentcore.session import JsonlSessionRepo

    count: list[int] = []

    @tool
    def counter() -> str:
        """Count."""
        count.append(1)
        return "counted"

    repo = JsonlSessionRepo(tmp_path)
    session = repo.create(cwd=tmp_path)
    agent = Agent(tools=[counter], stream_fn=scripted_stream(calls("counter")), session=session)

    def listener(event: Any) -> None:
        if event.type == "tool_execution_end":
            raise ValueError("listener broke")

    agent.subscribe(listener)
    with pytest.raises(AgentRunError, match="listener broke"):
        agent.run("go")
    session.close()
    stream = scripted_stream(says("fine"))
    with repo.open(session.id) as opened:
        again = Agent(tools=[counter], stream_fn=stream, session=opened)
        again.run("go on")
        assert len(opened.build_context().messages) == len(again.messages)
    assert count == [1]
    assert [message.role for message in stream.requests[0]] == ["user", "assistant", "toolResult", "assistant", "user"]
