"""AbortController and AbortSignal: set once, heard by everybody, from any thread."""

from __future__ import annotations

import threading

import pytest

from agentcore import AbortController, AgentAbortedError

pytestmark = pytest.mark.pythons


def test_a_signal_is_set_once_and_keeps_the_first_reason() -> None:
    """A second abort changes nothing and calls nobody."""
    controller = AbortController()
    heard: list[object] = []
    controller.signal.on_abort(heard.append)
    assert not controller.signal.aborted
    assert controller.signal.reason is None
    controller.abort("first")
    controller.abort("second")
    assert controller.signal.aborted
    assert controller.signal.reason == "first"
    assert heard == ["first"]


def test_a_callback_added_late_is_called_at_once() -> None:
    """`on_abort` on a signal that is set calls the callback on the thread that adds it."""
    controller = AbortController()
    controller.abort("why")
    heard: list[tuple[object, int]] = []
    controller.signal.on_abort(lambda reason: heard.append((reason, threading.get_ident())))
    assert heard == [("why", threading.get_ident())]


def test_a_removed_callback_is_not_called() -> None:
    """What `on_abort` returns takes out just that registration, once; the same function may be there twice."""
    controller = AbortController()
    heard: list[object] = []
    remove = controller.signal.on_abort(heard.append)
    controller.signal.on_abort(heard.append)
    remove()
    remove()
    controller.abort("x")
    assert heard == ["x"]


def test_callbacks_may_add_and_remove_callbacks() -> None:
    """No lock is held while a callback runs."""
    controller = AbortController()
    signal = controller.signal
    heard: list[str] = []
    remove_other = signal.on_abort(lambda reason: heard.append("other"))

    def nosy(reason: object) -> None:
        remove_other()
        signal.on_abort(lambda late: heard.append("late"))

    signal.on_abort(nosy)
    controller.abort()
    assert heard == ["other", "late"]


def test_all_callbacks_run_and_the_first_failure_is_raised() -> None:
    """A callback that raises does not keep the others from hearing; the signal is set all the same."""
    controller = AbortController()
    heard: list[object] = []

    def fail(reason: object) -> None:
        raise RuntimeError("first failure")

    controller.signal.on_abort(fail)
    controller.signal.on_abort(heard.append)
    with pytest.raises(RuntimeError, match="first failure"):
        controller.abort("x")
    assert heard == ["x"]
    assert controller.signal.aborted


def test_wait_ends_when_another_thread_aborts() -> None:
    """`wait` gives False when the time is up and True as soon as the signal is set."""
    controller = AbortController()
    assert controller.signal.wait(timeout=0) is False
    waiting = threading.Event()
    seen: list[bool] = []

    def work() -> None:
        waiting.set()
        seen.append(controller.signal.wait(timeout=5))

    thread = threading.Thread(target=work)
    thread.start()
    assert waiting.wait(timeout=5)
    controller.abort()
    thread.join(timeout=5)
    assert seen == [True]


def test_raise_if_aborted_carries_the_reason() -> None:
    """Before the abort nothing happens, after it the error has the reason."""
    controller = AbortController()
    controller.signal.raise_if_aborted()
    controller.abort("stop")
    with pytest.raises(AgentAbortedError, match="the operation was aborted") as caught:
        controller.signal.raise_if_aborted()
    assert caught.value.reason == "stop"


def test_a_controller_follows_an_outer_signal() -> None:
    """The inner one is aborted with the outer one's reason, not the other way round, and not after it was let go."""
    outer, inner, freed = AbortController(), AbortController(), AbortController()
    inner.follow(outer.signal)
    let_go = freed.follow(outer.signal)
    let_go()
    outer.abort("outer")
    assert (inner.signal.aborted, inner.signal.reason) == (True, "outer")
    assert not freed.signal.aborted


def test_abort_from_many_threads_calls_each_callback_once() -> None:
    """Whoever comes first wins; callbacks added meanwhile are called once, too."""
    for _ in range(50):
        controller = AbortController()
        heard: list[int] = []
        together = threading.Barrier(8, timeout=5)

        def act(
            number: int, controller: AbortController = controller, heard: list[int] = heard, together: threading.Barrier = together
        ) -> None:
            together.wait()
            if number % 2:
                controller.abort(number)
            else:
                controller.signal.on_abort(lambda reason: heard.append(number))

        threads = [threading.Thread(target=act, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=5)
        # A callback that was taken along by the winner may still be running on the winner's thread; all are joined here.
        assert sorted(heard) == [0, 2, 4, 6]


def test_waits_end_with_the_abort_or_with_their_time() -> None:
    """Many threads may wait; those whose time is up first are not kept, and a time without end is one."""
    controller = AbortController()
    signal = controller.signal
    assert signal.wait(0) is False and signal.wait(0.01) is False and signal.wait(-1) is False
    ended: list[bool] = []
    waiting = [
        threading.Thread(target=lambda timeout=timeout: ended.append(signal.wait(timeout))) for timeout in (None, 20, float("inf"))
    ]
    for thread in waiting:
        thread.start()
    controller.abort()
    for thread in waiting:
        thread.join(5)
    assert ended == [True] * 3
    assert signal.wait() is True and signal.wait(0) is True


def test_a_callback_may_take_no_argument() -> None:
    """`on_abort(event.set)` is what comes to mind; what needs more than there is, is refused at once."""
    controller = AbortController()
    event, heard = threading.Event(), list[object]()

    class Thing:
        def hear(self, reason: object) -> None:
            heard.append(reason)

        def hear_of_it(self) -> None:
            heard.append("it")

    def hear_all(*reasons: object) -> None:
        heard.extend(reasons)

    def hear_or_not(other: object = None, *, reason: object = None) -> None:
        heard.append((other, reason))

    for callback in (event.set, Thing().hear, Thing().hear_of_it, hear_all, hear_or_not, lambda: heard.append("no"), heard.append):
        controller.signal.on_abort(callback)
    with pytest.raises(TypeError, match="on_abort gets at most 1 argument"):
        controller.signal.on_abort(lambda reason, more: None)
    with pytest.raises(TypeError, match="on_abort must be callable"):
        controller.signal.on_abort(5)  # type: ignore[arg-type]
    controller.abort("why")
    assert event.is_set()
    assert heard == ["why", "it", "why", (None, "why"), "no", "why"]
