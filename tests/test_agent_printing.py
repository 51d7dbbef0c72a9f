"""`print_events`: a run as a person reads it."""

from __future__ import annotations

import io

from agentcore.agent import Agent, print_events
from agentcore.events import RetryEvent
from agentcore.loop import RetryPolicy
from agentcore.messages import ImageContent
from agentcore.testing import calls, ends, fails, says, scripted_stream, thinks
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
    assert lines[5:8] == ["It i", "[error] overloaded", "[retry 1 of 1 in 0.0 s]"]
    assert lines[8:] == ["It is sunny.", "[error] gone"]


def test_thinking_is_printed_on_demand() -> None:
    """It is left out by default."""
    file = io.StringIO()
    agent = Agent(stream_fn=scripted_stream(thinks("let ", "me\n", "think") + says("done")))
    agent.subscribe(print_events(file, thinking=True))
    agent.run("go")
    assert file.getvalue().splitlines() == ["[thinking] let me", "think", "done"]


def test_an_output_that_lacks_characters_does_not_fail_the_run() -> None:
    """A file in ASCII gets question marks."""
    raw = io.BytesIO()
    agent = Agent(tools=[weather], stream_fn=scripted_stream(calls("weather", city="Atlantis"), says("Grüße")))
    agent.subscribe(print_events(io.TextIOWrapper(raw, "ascii")))
    assert agent.run("go").text == "Grüße"
    assert b"Gr??e" in raw.getvalue() and b"? weather" in raw.getvalue()


def test_a_result_that_is_not_right_below_its_call_says_which_one_it_is() -> None:
    """Calls at the same time end in any order."""
    file = io.StringIO()
    agent = Agent(
        tools=[weather],
        stream_fn=scripted_stream(calls("gone") + calls("weather", city="Atlantis") + calls("weather", city="x" * 90)),
    )
    agent.subscribe(print_events(file))
    agent.prompt("go").wait(5)
    lines = file.getvalue().splitlines()
    assert lines[:2] == ["→ gone {}", "✗ gone Tool gone not found. Available tools: weather."]
    assert lines[2:4] == ['→ weather {"city":"Atlantis"}', f'→ weather {{"city":"{"x" * 90}"}}']
    assert '✗ weather {"city":"Atlantis"}: no such city' in lines[4:6]
    assert any(line.startswith(f'← weather {{"city":"{"x" * 43}…: sunny in xxx') for line in lines[4:6])


def test_messages_that_come_in_between_images_nothings_and_cut_answers() -> None:
    """What a person would ask about: who said that, was there no output, why does it end here."""

    @tool
    def look(what: str) -> ImageContent | str:
        """Look at something."""
        return ImageContent("AAAA", "image/png") if what == "sky" else ""

    file = io.StringIO()
    agent = Agent(
        tools=[look],
        stream_fn=scripted_stream(
            calls("look", what="sky"), calls("look", what="sea"), says("blue") + ends("length"), says("grey")
        ),
    )
    agent.subscribe(print_events(file))
    agent.follow_up("and\nthe sea?")
    agent.run("go")
    assert file.getvalue().splitlines() == [
        '→ look {"what":"sky"}',
        "← look [image/png]",
        '→ look {"what":"sea"}',
        "← look (nothing)",
        "blue",
        "[length] the answer was cut at the token limit",
        "> and the sea?",
        "grey",
    ]


def test_a_result_cannot_colour_the_terminal_and_a_huge_one_costs_nothing() -> None:
    """Control characters are replaced, and only the beginning is looked at."""

    @tool
    def show() -> str:
        """Show much."""
        return "\x1b[31mred\x07 " + "much " * 2_000_000

    file = io.StringIO()
    agent = Agent(tools=[show], stream_fn=scripted_stream(calls("show"), says("ok")))
    agent.subscribe(print_events(file))
    agent.run("go")
    line = file.getvalue().splitlines()[1]
    assert line.startswith("← show \ufffd[31mred\ufffd much much") and line.endswith("…") and len(line) < 220


def test_a_request_that_is_tried_again_says_why() -> None:
    """There no answer has broken off that would have told it."""
    file = io.StringIO()
    listen = print_events(file)
    listen(RetryEvent(attempt=1, max_retries=2, delay=0.5, error_message="429: slow down", kind="rate_limit", source="request"))
    assert file.getvalue() == "[retry 1 of 2 in 0.5 s] 429: slow down\n"
