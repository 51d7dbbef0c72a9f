"""Callbacks that take fewer arguments than they could get.

A hook of `(context, signal)` may be written as `lambda: …`, `lambda context: …` or in full. How many arguments a callback
takes is looked up once, when it is set; what needs more than there is to give is refused then, with a `TypeError`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def fit_callback(callback: Callable[..., Any], names: Sequence[str], *, what: str, is_listener: bool = False) -> Callable[..., Any]:
    """Return a function of exactly `len(names)` positional arguments that calls `callback` with those it takes.

    - Required positional parameters are filled in order, whatever their names.
    - An optional parameter is filled only if it bears one of `names`.
    - `*args` gets all that is left; a listener's gets only the first argument.
    - A callable without a readable signature gets all; as a listener only the first argument.

    Args:
        callback: The user's function.
        names: The names of the arguments that there are to give, in order.
        what: What the callback is set as, for the error text: `"before_tool_call"`.
        is_listener: Whether `*args` means the first argument alone.

    Raises:
        TypeError: `callback` is not callable, is a coroutine function, or needs more than `names`.
    """
    if not callable(callback):
        raise TypeError(f"{what} must be callable, not {type(callback).__name__}: pass a function of ({_join(names)})")
    if inspect.iscoroutinefunction(callback):
        raise TypeError(f"{what} is a coroutine function, which nobody would await: pass a plain function (def, not async def)")
    try:
        parameters = list(inspect.signature(callback).parameters.values())
    except (TypeError, ValueError):
        return _take(callback, 1 if is_listener else len(names), len(names), {})
    count = sum(p.kind in _POSITIONAL and p.default is p.empty for p in parameters)
    by_keyword: dict[str, int] = {}
    for parameter in parameters:
        is_optional = parameter.default is not parameter.empty
        if parameter.kind is parameter.VAR_POSITIONAL:
            count = max(count, 1 if is_listener else len(names))
        elif parameter.kind is parameter.KEYWORD_ONLY or (parameter.kind is parameter.POSITIONAL_OR_KEYWORD and is_optional):
            if parameter.name in names:
                by_keyword[parameter.name] = names.index(parameter.name)
            elif not is_optional:
                raise TypeError(f"{what} has no argument {parameter.name!r} to give: it can take ({_join(names)})")
    if count > len(names):
        raise TypeError(f"{what} gets at most {len(names)} arguments ({_join(names)}), but this function needs {count}")
    return _take(callback, count, len(names), {name: index for name, index in by_keyword.items() if index >= count})


def _take(callback: Callable[..., Any], count: int, total: int, keywords: dict[str, int]) -> Callable[..., Any]:
    if keywords:
        return lambda *values: callback(*values[:count], **{name: values[index] for name, index in keywords.items()})
    if count == total:
        return callback
    if count == 0:
        return lambda *values: callback()
    if count == 1:
        return lambda first, *rest: callback(first)
    return lambda *values: callback(*values[:count])


def _join(names: Sequence[str]) -> str:
    return ", ".join(names)
