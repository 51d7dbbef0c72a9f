"""A session as a drawing in text."""

from __future__ import annotations

from agentcore.messages import AssistantMessage, TextContent, ToolCall, ToolResultMessage, UserMessage
from agentcore.session import MemorySessionStorage, Session


def test_branches_labels_and_leaf() -> None:
    """One line an entry, branches indented, labels in brackets, the leaf marked."""
    session = Session(MemorySessionStorage())

    def add(entry_id: str, **keys: object) -> None:
        session.append_entry({"id": entry_id, **keys})

    def message(entry_id: str, message: object) -> None:
        add(entry_id, type="message", message=message)

    assert session.tree() == "(before the first entry)  ◄ leaf"
    message("a", UserMessage("read\nthe   notes"))
    message("b", AssistantMessage([TextContent("I will."), ToolCall("1", "read"), ToolCall("2", "grep")], stop_reason="toolUse"))
    message("c", ToolResultMessage("1", "read", [TextContent("three lines")], is_error=True))
    message("d", AssistantMessage([], stop_reason="error", error_message="no connection"))
    message("e", AssistantMessage([ToolCall("3", "read")], stop_reason="toolUse"))
    session.move_to("b", "tried and failed")
    summary = session.get_leaf_id()
    add("l", type="label", targetId="a", label="start")
    add("t", type="thinking_level_change", thinkingLevel="high")
    add("m", type="model_change", provider="p", modelId="m")
    add("k", type="active_tools_change", activeToolNames=["read", "bash"])
    session.move_to("b")
    add("n", type="session_info", name="the name")
    add("p", type="compaction", summary="S", tokensBefore=1)
    add("q", type="custom", customType="note")
    add("r", type="custom_message", customType="note", content=[{"type": "text", "text": "x"}, {"type": "image"}])
    add("s", type="future")
    session.move_to("q")
    assert session.tree().split("\n") == [
        "a user: read the notes  [start]",
        "b assistant: I will. → read, grep",
        "├─ c toolResult read (error): three lines",
        "│  d assistant: no connection (error)",
        "│  e assistant → read",
        f"├─ {summary} branch summary: tried and failed",
        "│  l label start on a",
        "│  t thinking level: high",
        "│  m model: p/m",
        "│  k tools: read, bash",
        "└─ n name: the name",
        "   p compaction: S",
        "   q custom note  ◄ leaf",
        "   r custom message note: x [image]",
        "   s future",
    ]


def test_long_lines_are_cut() -> None:
    """A line is never wider than asked for, and keeps its label and mark."""
    session = Session(MemorySessionStorage())
    first = session.append_message(UserMessage("long " * 100))
    session.append_label(first, "here")
    session.move_to(first)
    first_line = session.tree(width=60).split("\n")[0]
    assert len(first_line) == 60
    assert first_line.endswith("…  [here]  ◄ leaf")


def test_a_deep_session_is_drawn() -> None:
    """Ten thousand entries in one line of descent are no recursion."""
    session = Session(MemorySessionStorage())
    for _ in range(10_000):
        session.append_custom_entry("n")
    assert session.tree().count("\n") == 9_999


def test_branches_within_branches_stay_in_the_width() -> None:
    """However deep branches lie in branches, a line has at most the width asked for, and the drawing grows with the entries."""
    session = Session(MemorySessionStorage())
    for number in range(1000):
        fork = session.append_message(UserMessage(f"fork {number}", timestamp=1))
        session.append_message(UserMessage(f"left {number}", timestamp=1))
        session.move_to(fork)
    last = session.append_message(UserMessage("here", timestamp=1))
    lines = session.tree(80).splitlines()
    assert len(lines) == 2001
    assert max(map(len, lines)) <= 80
    assert [line for line in lines if line.endswith("◄ leaf")] == [f"…{'   ' * 12}└─ {last} user: here  ◄ leaf"]
