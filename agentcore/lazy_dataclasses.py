"""`dataclass` as in the standard library, but the methods that it writes are made when they are first wanted.

The standard decorator compiles up to six small functions for each class, which takes 0.2 to 0.6 ms. With the seventy classes that
come with `import agentcore` that was a third of the whole import. Here equality, repr and immutability are functions that all
classes share, and `__init__` is compiled when a class is first called or looked at (0.2 ms, once).

To a type checker this is `dataclasses.dataclass` itself.
"""

from __future__ import annotations

import dataclasses
import reprlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls=None, /, *, init=True, frozen=False):
        """Make a class a dataclass. Other parameters of the standard decorator are not there."""

        def decorate(cls):
            dataclasses.dataclass(init=False, repr=False, eq=False)(cls)
            cls.__dataclass_params__.init = init
            cls.__dataclass_params__.repr = True
            cls.__dataclass_params__.eq = True
            cls.__dataclass_params__.frozen = frozen
            if init:
                cls.__init__ = _Init(cls, frozen)
            if "__repr__" not in cls.__dict__:
                cls.__repr__ = _repr
            if "__eq__" not in cls.__dict__:
                cls.__eq__ = _eq
            if frozen:
                cls.__setattr__ = _refuse_to_set
                cls.__delattr__ = _refuse_to_delete
            if cls.__dict__.get("__hash__") is None:
                cls.__hash__ = _hash if frozen else None
            return cls

        return decorate if cls is None else decorate(cls)


class _Init:
    """Stands in a class for its `__init__` until that is wanted, then puts it in its own place.

    Threads:
        Two threads may make it at the same time; one of the two equal functions stays.
    """

    def __init__(self, cls: Any, is_frozen: bool) -> None:
        self._cls = cls
        self._is_frozen = is_frozen

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        cls = self._cls
        # A double of the class is decorated, not the class itself: that must be whole at every moment.
        fields = {item.name: item for item in dataclasses.fields(cls)}
        members: dict[str, Any] = {
            **fields,
            "__annotations__": {name: item.type for name, item in fields.items()},
            "__module__": cls.__module__,
            "__qualname__": cls.__qualname__,
        }
        if hasattr(cls, "__post_init__"):
            members["__post_init__"] = cls.__post_init__
        double = type(cls.__name__, (), members)
        made: Any = dataclasses.dataclass(repr=False, eq=False, frozen=self._is_frozen)(double).__init__  # type: ignore[misc]
        cls.__init__ = made
        return made if instance is None else made.__get__(instance, owner)


def _eq(self: Any, other: Any) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    return all(getattr(self, item.name) == getattr(other, item.name) for item in dataclasses.fields(self) if item.compare)


def _hash(self: Any) -> int:
    return hash(tuple(getattr(self, item.name) for item in dataclasses.fields(self) if item.compare))


@reprlib.recursive_repr()
def _repr(self: Any) -> str:
    shown = (f"{item.name}={getattr(self, item.name)!r}" for item in dataclasses.fields(self) if item.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _refuse_to_set(self: Any, name: str, value: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: Any, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
