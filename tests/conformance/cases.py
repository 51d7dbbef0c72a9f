"""What all runners of recorded cases share: reading them, writing out their short forms, comparing.

`AGENTCORE_CONFORMANCE` names another folder of the same layout (`agent/`, `harness/`, `functions/`). A runner parametrises over
whatever cases that folder holds; a file that is no list of well-formed cases fails the run.

A deliberate difference is a `Difference`: why, and which values at which places are ours. It never skips a case: the rest of
the case is compared as it is, and our own values are compared too.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
KEEP_NULLS_BELOW = frozenset({"args", "arguments", "data", "rawArguments", "input"})
DELETE: Any = object()
"""As a replaced value: the key is not there."""

CASE_KEYS = frozenset({"name", "input", "expected", "error", "note", "tags", "memory_same"})
TAGS = frozenset({"quirk", "text", "utf16", "js", "yaml"})
FUNCTIONS = {
    # the functions of the files that several runners share, so that none is passed over by all of them
    "retry.json": ("classify", "retryAssistantCall", "retryProviderRequest"),
    "validation.json": (
        "validateToolArguments",
        "validateToolCall",
        "parseStreamingJson",
        "parseStreamingJson_prefixes",
        "parseJsonWithRepair",
        "repairJson",
    ),
}

WILDCARDS = {
    "<time>": r"\d{4}-\d\d-\d\dT\d\d[:-]\d\d[:-]\d\d[.-]\d{3}Z",
    "<time-ms>": r"\d{10,}",
    "<uuid>": r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
    "<random>": r"[A-Za-z0-9_-]+",
}


@dataclass(frozen=True)
class Difference:
    """A place where we do not follow the reference, and why.

    `ours` maps places of `expected` (`"result.content[0].text"`, `""` for all of it) to our values, `DELETE` for none.
    """

    reason: str
    ours: Mapping[str, Any] = field(default_factory=dict)


def data_folder() -> Path:
    """Return the folder with the recordings."""
    return Path(os.environ.get("AGENTCORE_CONFORMANCE") or HERE)


def load_cases(file: str) -> list[dict[str, Any]]:
    """Read a file of `functions/`, such as `"truncate.json"`; every case is checked for its form."""
    path = data_folder() / "functions" / file
    cases = json.loads(path.read_text("utf-8"))
    assert isinstance(cases, list), f"{path} is no list of cases"
    for case in cases:
        assert isinstance(case, dict) and isinstance(case.get("name"), str), f"{path}: a case without a name: {case!r:.200}"
        where = f"{path}: {case['name']}"
        assert isinstance(case.get("input"), dict) and ("expected" in case) != ("error" in case), (
            f"{where}: no input or no expectation"
        )
        assert not (unknown := set(case) - CASE_KEYS), f"{where}: unknown keys: {', '.join(sorted(unknown))}"
        assert not (unknown := set(case.get("tags") or ()) - TAGS), f"{where}: unknown tags: {', '.join(sorted(unknown))}"
        assert file not in FUNCTIONS or case["input"].get("fn") in FUNCTIONS[file], f"{where}: unknown function"
    names = [case["name"] for case in cases]
    assert len(set(names)) == len(names), f"{path}: two cases of one name"
    return cases


def case_params(file: str, select: Callable[[dict[str, Any]], bool] = lambda case: True) -> list[Any]:
    """Return the cases of a file as pytest parameters, each with its name as its id."""
    if not (data_folder() / "functions" / file).exists() and data_folder() != HERE:
        return []  # another folder need not hold every file
    return [pytest.param(case, id=case["name"]) for case in load_cases(file) if select(case)]


def expand(value: Any) -> Any:
    """Write out `repeat`, `concat` and `lines` anywhere in an input."""
    if isinstance(value, list):
        return [expand(member) for member in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((key, spec),) = value.items()
        if key == "repeat" and isinstance(spec, list) and len(spec) == 2 and isinstance(spec[1], int):
            return str(expand(spec[0])) * spec[1]
        if key == "concat" and isinstance(spec, list):
            return "".join(expand(part) for part in spec)
        if key == "lines" and isinstance(spec, list) and len(spec) == 3:
            return "".join(spec[0].replace("{n}", str(n)) for n in range(spec[1], spec[2] + 1))
        if key == "$number":
            return float(spec.replace("Infinity", "inf"))
    return {key: expand(member) for key, member in value.items()}


def put_tokens(value: Any, tokens: Mapping[str, str]) -> Any:
    """Replace texts (paths, addresses, keys) by their tokens, longest first, anywhere in what came back."""
    pairs = sorted(tokens.items(), key=lambda pair: -len(pair[0]))

    def put(member: Any) -> Any:
        if isinstance(member, str):
            for text, token in pairs:
                member = member.replace(text, token)
            return member
        if isinstance(member, list):
            return [put(item) for item in member]
        if isinstance(member, dict):
            return {put(key): put(item) for key, item in member.items()}
        return member

    return put(value)


def with_difference(expected: Any, difference: Difference | None) -> Any:
    """Return what we expect: the recording with our own values in the listed places."""
    if difference is None:
        return expected
    assert difference.reason, "a difference needs a reason"
    ours = copy.deepcopy(expected)
    for place, value in difference.ours.items():
        steps = [int(index) if index else name for name, index in re.findall(r"([^.\[\]]+)|\[(\d+)\]", place)]
        if not steps:
            ours = value
            continue
        target = ours
        for step in steps[:-1]:
            target = target[step]
        if value is DELETE:
            del target[steps[-1]]
        elif isinstance(target, list) and steps[-1] == len(target):
            target.append(value)
        else:
            target[steps[-1]] = value
    return ours


def check(expected: Any, actual: Any, *, keep_nulls_below: Iterable[str] = KEEP_NULLS_BELOW) -> None:
    """Fail with the first difference, in its context."""
    difference = first_difference(expected, actual, frozenset(keep_nulls_below))
    if difference is not None:
        whole = f"whole recording: {_show(expected, 4000)}\n\nwhole result:    {_show(actual, 4000)}"
        pytest.fail(f"{difference}\n\n{whole}", pytrace=False)


def first_difference(
    expected: Any, actual: Any, keep_nulls_below: frozenset[str] = KEEP_NULLS_BELOW, path: str = "$", keep: bool = False
) -> str | None:
    """Return where and how the two differ first, None where they do not."""

    def differ(why: str) -> str:
        return f"at {path}: {why}\n  recorded: {_show(expected)}\n  ours:     {_show(actual)}"

    if isinstance(expected, dict) and len(expected) == 1:
        ((key, spec),) = expected.items()
        if key == "$long":
            return None if isinstance(actual, str) and _is_long(spec, actual) else differ("another long text")
        if key == "$number":
            number = float(spec.replace("Infinity", "inf"))
            same = isinstance(actual, (int, float)) and not isinstance(actual, bool)
            same = same and (actual == number or (math.isnan(actual) and math.isnan(number)))
            return None if same else differ("another number")
        if key == "$undefined":
            return None if actual is None else differ("should be nothing")
    if isinstance(expected, dict):
        if not isinstance(actual, dict):
            return differ("should be an object")
        wanted, got = (expected, actual) if keep else (_without_nulls(expected), _without_nulls(actual))
        for key in wanted:
            if key not in got:
                return differ(f"no key {key!r}")
        for key in got:
            if key not in wanted:
                return differ(f"a key too many: {key!r}")
        for key in wanted:
            found = first_difference(wanted[key], got[key], keep_nulls_below, f"{path}.{key}", keep or key in keep_nulls_below)
            if found is not None:
                return found
        return None
    if isinstance(expected, list):
        if not isinstance(actual, list):
            return differ("should be a list")
        for index, (one, other) in enumerate(zip(expected, actual, strict=False)):
            found = first_difference(one, other, keep_nulls_below, f"{path}[{index}]", keep)
            if found is not None:
                return found
        if len(expected) != len(actual):
            extra = (expected if len(expected) > len(actual) else actual)[min(len(expected), len(actual))]
            return differ(f"{len(expected)} members recorded, {len(actual)} ours; the first extra one: {_show(extra)}")
        return None
    if isinstance(expected, bool) or isinstance(actual, bool) or expected is None or actual is None:
        return None if expected is actual else differ("another value")
    if isinstance(expected, (int, float)) and isinstance(actual, (int, float)):
        return None if expected == actual or math.isclose(expected, actual, rel_tol=1e-9) else differ("another number")
    if isinstance(expected, str):
        if any(token in expected for token in WILDCARDS) and isinstance(actual, (str, int)):
            pattern = re.escape(expected)
            for token, meaning in WILDCARDS.items():
                pattern = pattern.replace(re.escape(token), meaning)
            return None if expected == actual or re.fullmatch(pattern, str(actual), re.DOTALL) else differ("another text")
        return None if expected == actual else differ("another text")
    return None if expected == actual else differ("another value")


def _without_nulls(value: dict[str, Any]) -> dict[str, Any]:
    return {key: member for key, member in value.items() if member is not None}


def _is_long(spec: dict[str, Any], text: str) -> bool:
    encoded = text.encode("utf-8", "surrogatepass")
    size = spec.get("utf8_bytes")
    return hashlib.sha256(encoded).hexdigest() == spec["sha256"] and size in (None, len(encoded))


def _show(value: Any, limit: int = 600) -> str:
    text = json.dumps(value, ensure_ascii=True, default=repr)
    return text if len(text) <= limit else f"{text[: limit // 2]} … {text[-limit // 2 :]}"
