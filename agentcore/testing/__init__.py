"""A model that plays a script, for tests: as a stream function, and as a real server on the loopback.

A *turn* is one answer of the model. It is put together from parts:

    says("The file ", "is empty.")             a text block, one delta for each string
    thinks("Let me see …")                     a thinking block
    calls("read", path="a.txt")                a tool call
    calls("read", path="a.txt") + calls("ls")  two calls in one answer
    says("one") + waits(event) + says("two")   waits in between until the event is set
    ends("length", usage=Usage(input=10))      why it ends, what it took
    fails("overloaded")                        breaks off with an error

`scripted_stream` plays turns without any network:

    stream = scripted_stream(calls("read", path="a.txt"), says("It is empty."))
    agent = Agent(tools=[read], stream_fn=stream)
    agent.run("What is in a.txt?")
    assert [message.role for message in stream.requests[1]] == ["user", "assistant", "toolResult"]

`SseServer` sends them over HTTP in the wire format that the request's path asks for, whole or broken in every way:

    with SseServer(says("hello"), answer(says("hello"), cut_at=100), answer("busy", status=503)) as server:
        model = server.model()                  # Model(base_url=server.url + "/v1", …)
        agent = Agent(model=model)              # the provider `scripted` needs no key
        agent.run("hi")
        assert server.requests[0].json["messages"][-1]["content"] == "hi"
"""

from agentcore.testing.server import Answer as Answer
from agentcore.testing.server import Request as Request
from agentcore.testing.server import SseServer as SseServer
from agentcore.testing.server import answer as answer
from agentcore.testing.stream import ScriptedStream as ScriptedStream
from agentcore.testing.stream import scripted_stream as scripted_stream
from agentcore.testing.turns import Gate as Gate
from agentcore.testing.turns import ScriptedTurn as ScriptedTurn
from agentcore.testing.turns import Turn as Turn
from agentcore.testing.turns import calls as calls
from agentcore.testing.turns import calls_raw as calls_raw
from agentcore.testing.turns import ends as ends
from agentcore.testing.turns import fails as fails
from agentcore.testing.turns import says as says
from agentcore.testing.turns import thinks as thinks
from agentcore.testing.turns import waits as waits
