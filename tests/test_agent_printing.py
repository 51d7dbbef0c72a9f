"""`print_events`: a run as a person reads it."""

from __future__ import annotations

import io

from agentcore.agent import Agent, print_events
from agentcore.loop import RetryPolicy
from agentcore.testing import calls, fails, says, scripted_stream, thinks
from agentcore.tools.decorator import tool


@tool
def weather(city: str) -> str:
    """Look up the weather."""
    if city == "Atlantis":
        raise LookupError("no such city")
    return f"sunny\nin {city} " + "." * 300


def test_a_run_is_printed_as_it_happens() -> None:
    """Text as it streams, each call and its result on a line, cut; a new try and a failure too."""
    file = io.StringIO()
    stream = scripted_stream(
        says("Let me", " see.") + calls("weather", city="Oslo") + calls("weather", city="Atlantis"),
        says("It i") + fails("overloaded", retryable=True),
        thinks("hm") + says("It is sunny.\n"),
        fails("gone"),
    )
    agent = Agent(tools=[weather], stream_fn=stream, tool_execution="sequential", retry=RetryPolicy(1, 0.001))
    agent.subscribe(print_events(file))
    agent.prompt("go").wait(5)
    agent.prompt("more").wait(5)
    lines = file.getvalue().splitlines()
    assert lines[0] == "Let me see."
    assert lines[1] == '→ weather {"city":"Oslo"}'
    assert lines[2].startswith("← weather sunny in Oslo ....") and lines[2].endswith("…") and len(lines[2]) < 220
    assert lines[3:5] == ['→ weather {"city":"Atlantis"}', "✗ weather no such city"]
    assert lines[5:8] == ["It i", "[error] overloaded", "[retry 1 of 1 in 0.0 s] overloaded"]
    assert lines[8:] == ["It is sunny.", "[error] gone"]


def test_thinking_is_printed_on_demand() -> None:
    """It is left out by default."""
    file = io.StringIO()
    agent = Agent(stream_fn=scripted_stream(thinks("let me think") + says("done")))
    agent.subscribe(print_events(file, thinking=True))
    agent.run("go")
    assert file.getvalue().splitlines() == ["let me think", "done"]


def test_an_output_that_lacks_characters_does_not_fail_the_run() -> None:
    """A file in ASCII gets question marks."""
    raw = io.BytesIO()
    agent = Agent(tools=[weather], stream_fn=scripted_stream(calls("weather", city="Atlantis"), says("Grüße")))
    agent.subscribe(print_events(io.TextIOWrapper(raw, "ascii")))
    assert agent.run("go").text == "Grüße"
    assert b"Gr??e" in raw.getvalue() and b"? weather" in raw.getvalue()
