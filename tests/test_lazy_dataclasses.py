"""The library's own `dataclass` makes what the standard one makes, only later."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import threading
from collections.abc import Callable
from dataclasses import field
from typing import Any

import pytest

import agentcore
from agentcore import AgentTool, AssistantMessage, Model, TextDeltaEvent, ToolCall, ToolResultMessage, UserMessage
from agentcore.lazy_dataclasses import dataclass

pytestmark = pytest.mark.pythons


def make(decorate: Callable[..., Any], **how: Any) -> Any:
    """Return a class with every sort of field, decorated."""

    class Everything:
        """One of each."""

        required: int
        plain: str = "x"
        made: list[int] = field(default_factory=list)
        hidden: int = field(default=3, repr=False)
        uncompared: int = field(default=4, compare=False)
        unasked: str = field(default="tag", init=False)
        later: int = field(init=False, repr=False, compare=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "later", self.required + 1)

    return decorate(**how)(Everything) if how else decorate(Everything)


@pytest.mark.parametrize("how", [{}, {"frozen": True}], ids=["mutable", "frozen"])
def test_it_is_like_the_standard_decorator(how: dict[str, Any]) -> None:
    """Signature, fields, defaults, `__post_init__`, repr, equality, replace, asdict and match arguments are the same."""
    ours, theirs = make(dataclass, **how), make(dataclasses.dataclass, **how)
    assert str(inspect.signature(ours)) == str(inspect.signature(theirs))
    assert [item.name for item in dataclasses.fields(ours)] == [item.name for item in dataclasses.fields(theirs)]
    assert ours.__match_args__ == theirs.__match_args__
    one, other = ours(1, made=[2]), theirs(1, made=[2])
    assert repr(one) == repr(other)
    assert dataclasses.asdict(one) == dataclasses.asdict(other)
    assert one.later == 2
    assert one == ours(1, made=[2], uncompared=9) and one != ours(1, made=[2], hidden=9) and one != other
    assert dataclasses.replace(one, plain="y") == ours(1, "y", [2])
    assert ours(1).made is not ours(1).made
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'required'"):
        ours()


def test_a_frozen_object_cannot_be_changed() -> None:
    """Fields and other attributes, set and deleted; equal ones have one hash, and mutable ones have none."""
    frozen = make(dataclass, frozen=True)(1, made=())
    for name in ("plain", "new"):
        with pytest.raises(dataclasses.FrozenInstanceError, match=f"cannot assign to field '{name}'"):
            setattr(frozen, name, 1)
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'plain'"):
        del frozen.plain
    assert hash(frozen) == hash(make(dataclass, frozen=True)(1, made=()))
    with pytest.raises(TypeError, match="unhashable"):
        hash(make(dataclass)(1))


def test_a_class_may_bring_its_own_methods() -> None:
    """An own `__init__` (`init=False`), repr or equality stays."""

    @dataclass(init=False)
    class Own:
        """A class that knows better."""

        x: int = 0

        def __init__(self, x: str) -> None:
            self.x = int(x)

        def __repr__(self) -> str:
            return "mine"

    assert Own("5").x == 5 and repr(Own("5")) == "mine" and Own("5") == Own("5")


def test_subclasses_work() -> None:
    """A subclass with an `__init__` of its own, one with more fields, and one by the standard decorator."""

    class Shouting(agentcore.TextContent):
        """A block that shouts."""

        def __init__(self, text: str) -> None:
            super().__init__(text.upper())

    assert Shouting("hi").text == "HI"

    @dataclasses.dataclass
    class Scored(agentcore.TextContent):
        """A block with a score."""

        score: int = 0

    assert Scored("x", score=3) == Scored("x", None, "text", 3)

    @dataclasses.dataclass(frozen=True)
    class Timed(TextDeltaEvent):
        """An event with a time."""

        at: float = 0.0

    event = Timed(0, "x", AssistantMessage(), at=1.5)
    assert (event.delta, event.at) == ("x", 1.5)
    with pytest.raises(dataclasses.FrozenInstanceError):
        event.at = 2.0  # type: ignore[misc]


def test_the_first_objects_may_be_made_by_many_threads() -> None:
    """Whoever comes first, every object is whole."""
    for _ in range(20):
        cls = make(dataclass)
        made: list[Any] = []
        together = threading.Barrier(8, timeout=5)

        def work(cls: Any = cls, made: list[Any] = made, together: threading.Barrier = together) -> None:
            together.wait()
            made.append(cls(1, made=[5]))

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=5)
        assert made == [cls(1, made=[5])] * 8


def test_objects_that_were_never_called_copy_and_pickle() -> None:
    """Unpickling calls no `__init__`; what it makes is frozen all the same."""
    event = TextDeltaEvent(0, "x", AssistantMessage(timestamp=1))
    for twin in (pickle.loads(pickle.dumps(event)), copy.deepcopy(event)):
        assert twin == event
        with pytest.raises(dataclasses.FrozenInstanceError):
            twin.delta = "y"


def test_the_library_shows_real_signatures() -> None:
    """`help` and completion see the parameters, also before the first object."""
    assert list(inspect.signature(ToolCall).parameters)[:3] == ["id", "name", "arguments"]
    assert list(inspect.signature(Model).parameters)[:3] == ["id", "name", "api"]
    assert list(inspect.signature(UserMessage).parameters) == ["content", "timestamp"]
    assert "run" not in inspect.signature(AgentTool).parameters
    assert dataclasses.is_dataclass(ToolResultMessage)


def test_matching_by_position() -> None:
    """A class pattern takes the fields in their order."""
    match ToolCall("c1", "read", {"path": "x"}):
        case ToolCall(id, name, {"path": path}):
            assert (id, name, path) == ("c1", "read", "x")
        case _:
            pytest.fail("no match")
