"""fit_callback: a callback may take fewer arguments than there are, and one that needs more is refused when it is set."""

from __future__ import annotations

import functools
import queue
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest

from agentcore.callbacks import fit_callback

pytestmark = pytest.mark.pythons

HOOK = ("context", "signal")


def given(callback: Callable[..., Any], names: tuple[str, ...] = HOOK, *, is_listener: bool = False) -> Any:
    """Return what a callback gives when it is called with its names as values: `"context"`, `"signal"`."""
    return fit_callback(callback, names, what="the hook", is_listener=is_listener)(*names)


class Methods:
    """Callables of every kind."""

    def bound(self, context: str) -> tuple[str, ...]:
        """Take one argument beside self."""
        return (context,)

    @staticmethod
    def static(context: str, signal: str) -> tuple[str, ...]:
        """Take both."""
        return (context, signal)

    @classmethod
    def of_class(cls, context: str) -> tuple[str, ...]:
        """Take one argument beside the class."""
        return (context,)

    def __call__(self, context: str, signal: str) -> tuple[str, ...]:
        """Take both."""
        return (context, signal)


@pytest.mark.parametrize(
    ("callback", "values"),
    [
        pytest.param(lambda: (), (), id="none"),
        pytest.param(lambda a: (a,), ("context",), id="one, whatever its name"),
        pytest.param(lambda signal: (signal,), ("context",), id="required ones are filled in order"),
        pytest.param(lambda a, b: (a, b), ("context", "signal"), id="both"),
        pytest.param(lambda *args: args, ("context", "signal"), id="star takes all"),
        pytest.param(lambda a, *args: (a, *args), ("context", "signal"), id="star takes the rest"),
        pytest.param(lambda a, i=7: (a, i), ("context", 7), id="an optional one of another name stays"),
        pytest.param(lambda a, signal=None: (a, signal), ("context", "signal"), id="an optional one of the name is filled"),
        pytest.param(lambda signal=None: (signal,), ("signal",), id="only the optional one"),
        pytest.param(lambda a, *, signal: (a, signal), ("context", "signal"), id="keyword only"),
        pytest.param(lambda a, *, signal=None, x=1: (a, signal, x), ("context", "signal", 1), id="keyword only, optional"),
        pytest.param(lambda a, **rest: (a, rest), ("context", {}), id="two stars get nothing"),
        pytest.param(lambda a, context=5: (a, context), ("context", 5), id="what was given in order is not given again"),
        pytest.param(Methods().bound, ("context",), id="bound method"),
        pytest.param(Methods.static, ("context", "signal"), id="static method"),
        pytest.param(Methods.of_class, ("context",), id="class method"),
        pytest.param(Methods(), ("context", "signal"), id="object with __call__"),
        pytest.param(functools.partial(lambda x, a: (x, a), "first"), ("first", "context"), id="partial"),
    ],
)
def test_a_callback_gets_what_it_takes(callback: Callable[..., Any], values: tuple[Any, ...]) -> None:
    """Required positional parameters in order; an optional one only if it bears the name; `*args` all."""
    assert given(callback) == values


def test_a_listener_star_gets_only_the_event() -> None:
    """`*args` of a listener is the event alone, so that `print` prints just it."""
    assert given(lambda *args: args, ("event", "signal"), is_listener=True) == ("event",)
    assert given(lambda event, signal, *args: (event, signal, *args), ("event", "signal"), is_listener=True) == ("event", "signal")


def test_print_is_a_listener(capsys: pytest.CaptureFixture[str]) -> None:
    """`subscribe(print)` prints the event, on Pythons where `print` has a signature and where it has none."""
    given(print, ("event", "signal"), is_listener=True)
    assert capsys.readouterr().out == "event\n"


def test_the_put_of_a_queue_is_a_listener() -> None:
    """`subscribe(queue.put)` puts the event; its `block` and `timeout` keep their defaults."""
    events: queue.Queue[str] = queue.Queue(maxsize=1)
    given(events.put, ("event", "signal"), is_listener=True)
    assert events.get_nowait() == "event"


def test_the_append_of_a_list_is_a_listener() -> None:
    """A builtin method of one argument gets the event."""
    seen: list[str] = []
    given(seen.append, ("event", "signal"), is_listener=True)
    assert seen == ["event"]


def test_lambdas_with_bound_loop_variables_do_what_they_look_like() -> None:
    """`lambda event, i=i: …` keeps its own `i`."""
    assert [given(lambda event, i=i: (event, i), ("event", "signal"), is_listener=True) for i in range(2)] == [
        ("event", 0),
        ("event", 1),
    ]


def test_a_mock_gets_all() -> None:
    """A callable that takes anything is given everything there is; as a listener only the event."""
    hook, listener = Mock(), Mock()
    given(hook)
    given(listener, ("event", "signal"), is_listener=True)
    hook.assert_called_once_with("context", "signal")
    listener.assert_called_once_with("event")


class NoSignature:
    """A callable whose signature cannot be read, as some builtins have it."""

    __signature__ = "none"

    def __call__(self, *args: Any) -> tuple[Any, ...]:
        """Give back what came."""
        return args


def test_without_a_readable_signature_a_hook_gets_all_and_a_listener_the_event() -> None:
    """There is nothing to count, so a hook gets everything."""
    assert given(NoSignature()) == ("context", "signal")
    assert given(NoSignature(), ("event", "signal"), is_listener=True) == ("event",)


def test_one_that_needs_more_is_refused_when_it_is_set() -> None:
    """The error says what there is and what is needed, at once and not during a run."""
    with pytest.raises(TypeError) as caught:
        fit_callback(lambda a, b, c: None, HOOK, what="before_tool_call")
    assert str(caught.value) == "before_tool_call gets at most 2 arguments (context, signal), but this function needs 3"
    with pytest.raises(TypeError) as caught:
        fit_callback(lambda a, *, budget: None, HOOK, what="before_tool_call")
    assert str(caught.value) == "before_tool_call has no argument 'budget' to give: it can take (context, signal)"


def test_what_cannot_be_called_is_refused() -> None:
    """The error names the type and what to pass."""
    with pytest.raises(TypeError) as caught:
        fit_callback(5, HOOK, what="a listener")  # type: ignore[arg-type]
    assert str(caught.value) == "a listener must be callable, not int: pass a function of (context, signal)"


def test_the_signature_is_looked_up_once() -> None:
    """A call costs no reflection: the callback itself is used where it takes everything."""

    def hook(context: str, signal: str) -> None:
        """Take both."""

    assert fit_callback(hook, HOOK, what="the hook") is hook


def test_a_coroutine_function_is_refused() -> None:
    """Nobody would await what it gives back."""

    async def later(event: object) -> None: ...

    with pytest.raises(TypeError, match=r"a listener is a coroutine function, which nobody would await: pass a plain function"):
        fit_callback(later, ("event", "signal"), what="a listener", is_listener=True)
