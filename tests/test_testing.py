"""The scripted model: as a stream function, and as a server that the providers' own SDKs understand."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from typing import Any

import pytest

from agentcore.abort import AbortController
from agentcore.agent import Agent
from agentcore.errors import AgentRunError
from agentcore.llm import Context, StreamOptions, stream
from agentcore.messages import ToolCall, Usage, UserMessage
from agentcore.models import Model
from agentcore.testing import Request, SseServer, Turn, answer, calls, calls_raw, ends, fails, says, scripted_stream, thinks, waits

MODEL = Model("m", provider="p")
APIS = ("openai-completions", "openai-responses", "anthropic-messages", "google-generative-ai")


def play(stream_fn: Any, *messages: Any, signal: Any = None) -> list[Any]:
    return list(stream_fn(MODEL, Context("", list(messages)), StreamOptions(signal=signal)))


# --- the stream function ---------------------------------------------------------------------------------------------


def test_turns_are_played_in_order_and_requests_are_kept() -> None:
    """Each request gets the next turn; `requests` holds the messages as they were."""
    script = scripted_stream(calls("read", path="a"), says("done"))
    transcript: list[Any] = [UserMessage("hi")]
    first = play(script, *transcript)[-1].message
    transcript.append(first)
    second = play(script, *transcript)[-1].message
    assert (first.stop_reason, first.tool_calls) == ("toolUse", [ToolCall("call_1", "read", {"path": "a"})])
    assert (second.stop_reason, second.text) == ("done", "done")
    assert [len(request) for request in script.requests] == [1, 2]


def test_a_turn_has_its_events() -> None:
    """Text, thinking and calls come with their start, deltas and end; usage and stop reason are those given."""
    turn = thinks("hm", signature="s") + says("a", "b") + calls("x", n=1) + ends("length", usage=Usage(input=3))
    events = play(scripted_stream(turn))
    assert [event.type for event in events] == [
        "start", "thinking_start", "thinking_delta", "thinking_end", "text_start", "text_delta", "text_delta", "text_end",
        "toolcall_start", "toolcall_delta", "toolcall_end", "done",
    ]  # fmt: skip
    message = events[-1].message
    assert (message.stop_reason, message.usage.input, message.content[0].thinking_signature) == ("length", 3, "s")


def test_turns_can_be_lists_and_functions() -> None:
    """A list of turns is one turn; a function makes a turn of the request."""
    script = scripted_stream([says("a"), calls("x")], lambda context: says(f"{len(context.messages)} messages"))
    assert [block.type for block in play(script)[-1].message.content] == ["text", "tool"]
    assert play(script, UserMessage("1"), UserMessage("2"))[-1].message.text == "2 messages"


def test_a_request_too_many_says_so() -> None:
    """Behind its last turn a script fails with a text that says what to do."""
    script = scripted_stream(says("only"))
    play(script)
    message = play(script)[-1].message
    assert message.error_message == "request 2 came, but only 1 turn is scripted: add one to scripted_stream"


def test_a_script_says_what_is_left_of_it() -> None:
    """`remaining` is what a test asserts at its end; it is not below 0."""
    script = scripted_stream(says("a"), says("b"))
    assert (script.remaining, repr(script)) == (2, "<ScriptedStream: 0 requests, 2 turns scripted>")
    left = [(play(script), script.remaining)[1] for _ in range(3)]
    assert left == [1, 0, 0]


def test_a_server_is_shown_with_its_address_and_counts() -> None:
    """Never with what is in the requests."""
    with SseServer(says("x"), says("y")) as server:
        post(server, "/v1/chat/completions")
        assert repr(server) == f"<SseServer {server.url} open: 1 requests, 2 answers scripted>"
    assert " closed: " in repr(server)


def test_one_request_too_many_is_not_sent_again() -> None:
    """The text counts the requests of the program, without tries that would change nothing."""
    with SseServer(says("x")) as server:
        agent = Agent(model=server.model())
        agent.run("one")
        with pytest.raises(AgentRunError, match="request 2 came, but only 1 answer is scripted: add one to SseServer"):
            agent.run("two")
        assert len(server.requests) == 2


def test_a_turn_can_fail() -> None:
    """`fails` breaks off behind what was said; alone it is a request that failed, without a start."""
    events = play(scripted_stream(says("half") + fails("overloaded", retryable=True)))
    message = events[-1].message
    assert (events[0].type, message.text, message.error_message, message.error_retryable) == ("start", "half", "overloaded", True)
    assert [event.type for event in play(scripted_stream(fails("no", kind="auth")))] == ["error"]


def test_broken_arguments_are_kept_apart() -> None:
    """`calls_raw` streams text as it is; what is no JSON is kept as text."""
    message = play(scripted_stream(calls_raw("x", '{"a', '": 1', id="id9")))[-1].message
    assert message.tool_calls == [ToolCall("id9", "x", {"a": 1}, raw_arguments='{"a": 1')]


def test_an_abort_takes_hold_before_each_event_and_at_gates() -> None:
    """A signal that is set ends the turn before its next event, also while it waits; what was said is kept."""
    controller = AbortController()
    events = []
    for event in scripted_stream(says("a", "b"))(MODEL, Context(), StreamOptions(signal=controller.signal)):
        events.append(event)
        if event.type == "text_delta":
            controller.abort()
    assert [event.type for event in events] == ["start", "text_start", "text_delta", "error"]
    assert (events[-1].message.stop_reason, events[-1].message.text) == ("aborted", "a")

    waiting = AbortController()
    timer = threading.Timer(0.05, waiting.abort)
    timer.start()
    begun = time.monotonic()
    last = play(scripted_stream(says("a") + waits(threading.Event())), signal=waiting.signal)[-1]
    timer.join()
    assert last.message.stop_reason == "aborted" and time.monotonic() - begun < 2


def test_gates_are_passed_in_order() -> None:
    """A function in the script is called where it stands, an event is waited for."""
    gate = threading.Event()
    order: list[str] = []
    setter = threading.Timer(0.02, lambda: (order.append("set"), gate.set()))

    def called() -> None:
        order.append("called")
        setter.start()

    play(scripted_stream(says("a", called, "b") + waits(gate) + waits(lambda: order.append("after"))))
    setter.join()
    assert order == ["called", "set", "after"]


# --- the server ------------------------------------------------------------------------------------------------------


def post(server: SseServer, path: str = "/v1/chat/completions", body: str = "{}") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
    try:
        connection.request("POST", path, body, {"content-type": "application/json"})
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


@pytest.mark.parametrize("api", APIS)
def test_the_server_speaks_the_wire_format_of_the_path(api: str) -> None:
    """One turn, asked for in each wire format, is the same message."""
    usage = Usage(input=70, output=20, cache_read=30, reasoning=5)
    turn = thinks("hm", signature="c2ln") + says("Hel", "lo") + calls("read", path="a.txt") + calls("ls") + ends(usage=usage)
    with SseServer(turn) as server:
        *_, last = stream(server.model(api), Context("", [UserMessage("hi")]), StreamOptions(api_key="k"))
    message = last.message  # type: ignore[union-attr]
    assert (message.stop_reason, message.text) == ("toolUse", "Hello")
    assert [(call.name, call.arguments) for call in message.tool_calls] == [("read", {"path": "a.txt"}), ("ls", {})]
    assert [block.thinking for block in message.content if block.type == "thinking"] == ["hm"]  # type: ignore[union-attr]
    assert (message.usage.input, message.usage.cache_read, message.usage.output) == (70, 30, 20)


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("reason", ["length", "error"])
def test_the_server_ends_answers_in_each_wire_format(api: str, reason: Any) -> None:
    """The stop reasons and a failure in mid-stream are understood in each wire format."""
    with SseServer(says("a", stop_reason=reason), says("b") + fails("broke off")) as server:
        model = server.model(api)
        for expected, text in ((reason, "a"), ("error", "b")):
            *_, last = stream(model, Context("", [UserMessage("hi")]), StreamOptions(api_key="k"))
            assert (last.message.stop_reason, last.message.text) == (expected, text)  # type: ignore[union-attr]
        assert "broke off" in (last.message.error_message or "")  # type: ignore[union-attr]


def test_requests_are_recorded() -> None:
    """Method, path, headers in lower case and body of each request are kept."""
    with SseServer(says("x")) as server:
        post(server, "/v1/chat/completions?a=1", '{"b": 2}')
        (request,) = server.requests
    assert (request.method, request.path, request.json) == ("POST", "/v1/chat/completions?a=1", {"b": 2})
    assert request.headers["content-type"] == "application/json"


def test_answers_are_given_in_order_and_one_too_many_says_so() -> None:
    """Answers may be turns, texts, JSON and functions; behind the last one the server says so."""
    with SseServer({"a": 1}, "text", lambda request: {"path": request.path}) as server:
        assert [json.loads(post(server)[1]), post(server)[1], json.loads(post(server, "/p")[1])] == [
            {"a": 1},
            "text",
            {"path": "/p"},
        ]
        status, text = post(server)
    assert status == 400
    assert json.loads(text)["error"]["message"] == "request 4 came, but only 3 answers are scripted: add one to SseServer"


def raw_exchange(server: SseServer) -> bytes:
    """Return all bytes that the server sends for one request, up to the end of the connection."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as connection:
        connection.sendall(b"POST /x HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}")
        got = b""
        while piece := connection.recv(65536):
            got += piece
        return got


@pytest.mark.parametrize(
    ("scripted", "expected"),
    [
        pytest.param(
            answer("abcdef", framing="close"),
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\nabcdef",
            id="without a length",
        ),
        pytest.param(
            answer("abcdef", cut_at=4, chunk_size=3),
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n1\r\nd\r\n",
            id="cut inside the body",
        ),
        pytest.param(
            answer("abcdef", cut=True, split_at=[1, 4]),
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
            b"1\r\na\r\n3\r\nbcd\r\n2\r\nef\r\n",
            id="cut behind the body, split at places",
        ),
        pytest.param(
            answer("no", status=529, reason="Busy", headers={"Retry-After": "3"}, framing="close"),
            b"HTTP/1.1 529 Busy\r\ncontent-type: text/event-stream\r\nconnection: close\r\nretry-after: 3\r\n\r\nno",
            id="another status",
        ),
        pytest.param(answer(drop=True), b"", id="closed without a byte"),
    ],
)
def test_faults_are_as_scripted(scripted: Any, expected: bytes) -> None:
    """What is on the wire is exactly what the fault says."""
    with SseServer(scripted) as server:
        assert raw_exchange(server) == expected


def test_closing_the_server_ends_everything() -> None:
    """A server that holds connections, waits at gates and pauses is closed at once, without leaving threads."""
    before = set(threading.enumerate())
    server = SseServer(answer(never=True), answer(["x", threading.Event()]), answer(["x", 60.0]), answer("x", hold_open=True))
    clients = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(4)]
    for client in clients:
        client.sendall(b"POST /x HTTP/1.1\r\ncontent-length: 0\r\n\r\n")
    assert server.wait_for_requests(4)
    begun = time.monotonic()
    server.close()
    assert time.monotonic() - begun < 1
    for client in clients:
        client.close()
    assert set(threading.enumerate()) <= before
    server.close()


def test_an_answer_that_cannot_be_made_says_why() -> None:
    """A function of the script that raises, and a path that belongs to no wire format, are seen by the client, in words."""

    def refuse(request: Request) -> Turn:
        assert request.json["model"] == "another", "wrong model"
        return says("never")

    with SseServer(refuse, says("never")) as server:
        model = server.model()
        assert "400 Bad Request: the scripted answer could not be made: AssertionError: wrong model" in error_of(model)
        model.base_url += "/more"
        model.api = "proxy"
        assert "the scripted answer could not be made: no wire format has the path /v1/more/api/stream: use" in error_of(model)


def error_of(model: Model) -> str:
    *_, last = stream(model, Context("", [UserMessage("hi")]), StreamOptions(max_retries=0))
    return str(last.message.error_message)  # type: ignore[union-attr]
