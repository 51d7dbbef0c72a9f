"""Extensions: what adds tools, handlers, skills and templates to a harness, and can be taken out again.

    class Notes:
        def register(self, harness):
            harness.add_tools([take_note])
            harness.on("before_agent_start", self.add_notes)

    remove = harness.use(Notes())

A function `register(harness)`, in a module or by itself, will do. Whatever it adds is noted, so `remove()` takes all of it out.
If it raises, what it had added is taken out at once. A function that it returns is called at the end, for what the harness does not
know of.
"""

from __future__ import annotations

import contextvars
import logging
from collections.abc import Callable
from typing import Any

from agentcore.errors import HarnessError

_log = logging.getLogger("agentcore")

_registering: contextvars.ContextVar[list[Callable[[], object]] | None] = contextvars.ContextVar(
    "agentcore_registering", default=None
)


def note_removal(remove: Callable[[], None]) -> Callable[[], None]:
    """Note how something is taken out again, if an extension is being registered; returns the same function."""
    noted = _registering.get()
    if noted is not None:
        noted.append(remove)
    return remove


def register_extension(extension: Any, harness: Any) -> Callable[[], None]:
    """Let an extension register itself, and return what takes it out again.

    Raises:
        TypeError: It has no `register`.
        HarnessError: Its `register` raised (`extension`). Nothing of it is left.
    """
    name = extension_name(extension)
    if isinstance(extension, type):
        raise TypeError(f"the extension {name} is a class: pass an object of it, {name}()")
    register = getattr(extension, "register", extension if callable(extension) else None)
    if not callable(register):
        raise TypeError(
            f"the extension {name} has no function register(harness): an object or a module with one, or such a function, "
            "is an extension"
        )
    removals: list[Callable[[], object]] = []
    token = _registering.set(removals)
    try:
        made = register(harness)
        if made is not None and not callable(made):
            raise TypeError(f"register returned a value of type {type(made).__name__}: it must return a function or None")
    except BaseException as error:
        _remove_all(removals, name)
        if not isinstance(error, Exception):
            raise
        raise HarnessError(f"the extension {name} could not be registered: {error}", code="extension") from error
    finally:
        _registering.reset(token)
    if made is not None:
        removals.append(made)

    def remove() -> None:
        _remove_all(removals, name)

    return note_removal(remove)


def extension_name(extension: Any) -> str:
    """Return how an extension is spoken of."""
    return str(getattr(extension, "name", None) or getattr(extension, "__name__", None) or type(extension).__qualname__)


def _remove_all(removals: list[Callable[[], object]], name: str) -> None:
    while removals:
        try:
            removals.pop()()
        except Exception:
            _log.exception("something of the extension %s could not be taken out", name)
