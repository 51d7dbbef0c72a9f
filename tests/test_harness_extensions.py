"""Extensions: what they add, how it is taken out, and one that fails."""

from __future__ import annotations

import types
from typing import Any

import pytest

from agentcore import AgentHarness, HarnessError, Model, PromptTemplate, Skill, tool
from agentcore.testing import says, scripted_stream


@tool
def note(text: str) -> str:
    """Note a text."""
    return text


class Notes:
    """Adds one of everything."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def register(self, harness: AgentHarness) -> Any:
        harness.add_tools([note])
        harness.add_skills([Skill("review", "Review code", "Read it.", "/skills/review/SKILL.md")])
        harness.add_prompt_templates([PromptTemplate("fix", "Fix $1.")])
        harness.on("settled", lambda event: self.told.append(event.type))
        harness.subscribe(lambda event: self.told.append(event.type) if event.type == "agent_start" else None)
        return lambda: self.told.append("gone")


def make(*turns: Any, **options: Any) -> AgentHarness:
    return AgentHarness(model=Model("m", provider="p"), stream_fn=scripted_stream(*turns), **options)


def names(harness: AgentHarness) -> list[list[str]]:
    resources = harness.resources
    there = (harness.tools, harness.active_tools, resources.skills, resources.prompt_templates)
    return [[one.name for one in members] for members in there]


def test_all_that_an_extension_adds_is_there_and_can_be_taken_out() -> None:
    """Tools, handlers, listeners, skills and templates; what `use` returns takes them all out again."""
    harness = make(says("ok"), says("ok"))
    notes = Notes()
    remove = harness.use(notes)
    assert names(harness) == [["note"], ["note"], ["review"], ["fix"]]
    harness.run("go", timeout=10)
    assert notes.told == ["agent_start", "settled"]
    remove()
    assert names(harness) == [[], [], [], []]
    assert notes.told[2:] == ["gone"]
    harness.run("again", timeout=10)
    remove()
    assert notes.told[3:] == []


def test_a_module_is_an_extension() -> None:
    """Whatever has a function `register` is one."""
    module = types.ModuleType("my_extension")
    module.register = lambda harness: harness.add_tools([note]) and None  # type: ignore[attr-defined]
    harness = make()
    harness.use(module)
    assert names(harness)[0] == ["note"]


def test_one_extension_that_fails_does_not_block_the_others() -> None:
    """C113: D raises while loading; it is reported by name, nothing of it is left, and the others are in use."""

    class D:
        def register(self, harness: AgentHarness) -> None:
            harness.add_skills([Skill("half", "d", "c", "/half/SKILL.md")])
            raise RuntimeError("no network")

    harness = make(extensions=[D(), Notes()])
    assert names(harness) == [["note"], ["note"], ["review"], ["fix"]]
    [(name, error)] = harness.extension_errors.items()
    assert name.endswith("D")
    assert str(error).endswith("D could not be registered: no network")
    assert isinstance(error, HarnessError) and error.code == "extension"


def test_use_raises_for_one_that_fails() -> None:
    """Called by hand, the failure is raised, with its cause."""
    harness = make()
    with pytest.raises(TypeError, match=r"the extension object has no function register\(harness\)"):
        harness.use(object())
    broken = types.SimpleNamespace(name="broken", register=lambda harness: 42)
    with pytest.raises(HarnessError, match="the extension broken could not be registered: register returned a value of type int"):
        harness.use(broken)


def test_an_extension_may_use_another_one() -> None:
    """What the inner one added goes with the outer one."""
    harness = make()
    outer = types.SimpleNamespace(name="outer", register=lambda harness: harness.use(Notes()) and None)
    remove = harness.use(outer)
    assert names(harness)[0] == ["note"]
    remove()
    assert names(harness) == [[], [], [], []]


def test_what_was_replaced_meanwhile_is_left_alone() -> None:
    """Taking an extension out takes out its own tools, not those that the user set since."""
    harness = make()
    remove = harness.use(Notes())

    @tool(name="note")
    def other(text: str) -> str:
        """Another one."""
        return text

    harness.set_tools([other])
    remove()
    assert harness.tools == [other]


def test_tools_of_extensions_are_not_stored() -> None:
    """The session holds no trace of them: each harness adds them anew."""
    harness = make()
    harness.use(Notes())()
    assert harness.session.get_entries() == []


def test_a_function_is_an_extension() -> None:
    """It is its own `register`."""
    harness = make()

    def notes(harness: AgentHarness) -> None:
        harness.add_tools([note])

    remove = harness.use(notes)
    assert names(harness)[0] == ["note"]
    remove()
    assert names(harness)[0] == []


def test_a_class_is_none() -> None:
    """Who forgot to make an object is told so."""
    with pytest.raises(TypeError, match=r"^the extension Notes is a class: pass an object of it, Notes\(\)$"):
        make().use(Notes)


def test_two_that_fail_are_both_reported() -> None:
    """Also when they have one name; the second one of a kind finds the tools of the first one there."""
    harness = make(extensions=[Notes(), Notes(), Notes()])
    assert [type(error) for error in harness.extension_errors.values()] == [HarnessError, HarnessError]
    assert list(harness.extension_errors)[1] == f"{next(iter(harness.extension_errors))} (2)"
    assert "two tools have the same name: note" in str(next(iter(harness.extension_errors.values())))
    assert names(harness) == [["note"], ["note"], ["review"], ["fix"]]


def test_an_interrupted_registration_leaves_nothing() -> None:
    """Ctrl-C in `register` comes through, and what had been added is taken out."""

    def slow(harness: AgentHarness) -> None:
        harness.add_tools([note])
        raise KeyboardInterrupt

    harness = make()
    with pytest.raises(KeyboardInterrupt):
        harness.use(slow)
    assert names(harness) == [[], [], [], []]
