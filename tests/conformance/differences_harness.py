"""Where the harness does not do what the reference was seen to do, and why; the values are ours, grouped by kind.

What a rule says of any scenario is in `harness_rules`; here is what belongs to one of them. `TEXTS` are the error texts that the
reference itself makes, and ours in their place.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from typing import Any

from tests.conformance.cases import HERE, Difference
from tests.conformance.scenario_runner import write_out

TEXTS: list[tuple[str, str | None, str]] = [
    # the recorded text, the class of our error (None: a tool's result), our text (a pattern whose groups are put in)
    ("AgentHarness is busy", "HarnessBusyError", r"the harness is busy, since .*"),
    ("compact() requires idle harness", "HarnessBusyError", r"compact\(\) needs an idle harness, but .*"),
    ("navigateTree() requires idle harness", "HarnessBusyError", r"navigate_tree\(\) needs an idle harness, but .*"),
    ("Cannot steer while idle", "HarnessError", r"cannot steer while the harness is idle: .*"),
    ("Cannot follow up while idle", "HarnessError", r"cannot follow up while the harness is idle: .*"),
    (r"Duplicate tool name(s): \1", "HarnessError", r"two tools have the same name: (.*); rename one"),
    (r"Duplicate active tool name(s): \1", "HarnessError", r"an active tool is named twice: (.*); name it once"),
    (r"Unknown tool(s): \1", "HarnessError", r"no such tool: (.*); there are .*"),
    (r"Unknown skill: \1", "HarnessError", r"unknown skill '(.*)': there are .*"),
    (r"Unknown prompt template: \1", "HarnessError", r"unknown prompt template '(.*)': there are .*"),
    (r"Entry \1 not found", "HarnessError", r"the session has no entry '(.*)'; .*"),
    ("Nothing to compact", "HarnessError", r"nothing to compact: .*"),
    ("Compaction cancelled", "HarnessError", r"the compaction was cancelled by a session_before_compact handler"),
    ("Summarization failed: Unknown error", "HarnessError", r"the conversation could not be summarised: the model gave no reason"),
    (r"Summarization failed: \1", "HarnessError", r"the conversation could not be summarised: (.*)"),
    ("Summarization aborted", "HarnessError", r"summarising the conversation was aborted"),
    (r"Branch summary failed: \1", "HarnessError", r"the branch could not be summarised: (.*)"),
    (r"Tool \1 not found", None, r"Tool (\S+) not found\. (?:Available tools: .+|There are no tools)\."),
]


def recorded(name: str) -> Any:
    """Return what was recorded in a scenario of the repository's own copy, to build our values from."""
    return json.loads((HERE / "harness" / f"{name}.json").read_text("utf-8"))["expected"]


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": text}]}


def shift(value: Any, first: int, by: int = 1) -> Any:
    """Give the entries from `eN` on another number, anywhere."""

    def renumber(match: re.Match[str]) -> str:
        number = int(match.group(1))
        return f"e{number + by if number >= first else number}"

    return json.loads(re.sub(r'(?<=")e(\d+)(?=")', renumber, json.dumps(value)))


def merged(*parts: dict[str, Any]) -> dict[str, Any]:
    return {place: value for part in parts for place, value in part.items()}


# --- handlers --------------------------------------------------------------------------------------------------------


def _before_agent_start() -> dict[str, Any]:
    """The message of the first handler is there too, and the prompt of the second one holds for the whole run."""
    was = recorded("hook-before-agent-start")
    lost = user("lost")
    told = [{"type": "message_start", "message": lost}, {"type": "message_end", "message": lost}]
    events = [*was["events"][:8], *told, *was["events"][8:]]
    at = next(index for index, event in enumerate(events) if event["type"] == "agent_end")
    events[at] = {**events[at], "messages": [*events[at]["messages"][:2], lost, *events[at]["messages"][2:]]}
    entries = shift(was["session"]["entries"], 3)
    entries.insert(2, {"type": "message", "id": "e3", "parentId": "e2", "message": lost})
    entries[3]["parentId"] = "e3"
    roles = was["session"]["context"]["roles"]
    later = {f"hookCalls[{index}].at": call["at"] + 2 for index, call in enumerate(was["hookCalls"]) if call["at"] > 8}
    return merged(
        {
            "events": events,
            "session.entries": entries,
            "session.leaf": "e10",
            "session.context.roles": [*roles[:2], "user", *roles[2:]],
        },
        {
            f"requests[{index}].messages": [*request["messages"][:2], lost, *request["messages"][2:]]
            for index, request in enumerate(was["requests"])
        },
        {"requests[1].systemPrompt": "Replaced for this run."},
        {"hookCalls[1].event.systemPrompt": "Lost.", "hookCalls[1].event.messages": [lost]},
        later,
    )


# --- nothing is lost -------------------------------------------------------------------------------------------------


def _next_turn_kept() -> dict[str, Any]:
    """The message waits again when the handler has raised, and goes before the next prompt."""
    was = recorded("hook-before-agent-start-raises")
    queued = user("queued")
    update = {"type": "queue_update", "steer": [], "followUp": []}
    waits, taken = {**update, "nextTurn": [queued]}, {**update, "nextTurn": []}
    told = [{"type": "message_start", "message": queued}, {"type": "message_end", "message": queued}]
    rest = was["events"][2:]
    events = [*was["events"][:2], waits, taken, *rest[:2], *told, *rest[2:]]
    at = next(index for index, event in enumerate(events) if event["type"] == "agent_end")
    events[at] = {**events[at], "messages": [queued, *events[at]["messages"]]}
    entries = shift(was["session"]["entries"], 1)
    entries[0]["parentId"] = "e1"
    return {
        "events": events,
        "hookCalls[1].at": 4,
        "requests[0].messages": [queued, *was["requests"][0]["messages"]],
        "session.entries": [{"type": "message", "id": "e1", "parentId": None, "message": queued}, *entries],
        "session.leaf": "e3",
        "session.context.roles": ["user", "user", "assistant"],
    }


def _stored_after_compaction() -> dict[str, Any]:
    """The setting is stored when the compaction is over."""
    was = recorded("compact-busy")
    entries = was["session"]["entries"]
    setting = {**entries[13], "id": "e11", "parentId": "e10"}
    between = shift(entries[10:13], 11)
    between[0]["parentId"] = "e11"
    last = copy.deepcopy(entries[14:])
    last[0]["parentId"] = "e14"
    return {
        "events[17].hadPendingMutations": False,
        "ops[13].value.entryTypes": [*was["ops"][13]["value"]["entryTypes"], "thinking_level_change"],
        "session.entries": [*entries[:10], setting, *between, *last],
    }


def _label_stored() -> dict[str, Any]:
    """A label entry behind the summary; all later entries have the next number."""
    ours = shift(recorded("tree-summary"), 10)
    entries = ours["session"]["entries"]
    label = {"type": "label", "id": "e10", "parentId": "e9", "targetId": "e9", "label": "my label"}
    entries[9]["parentId"] = "e10"
    ours["session"]["entries"] = [*entries[:9], label, *entries[9:]]
    ours["events"][0]["newLeafId"] = "e10"
    preparation = ours["hookCalls"][1]["event"]["preparation"]
    preparation["entriesToSummarize"] = ["e9", "e10", *preparation["entriesToSummarize"][1:]]
    return {"": ours}


# --- compactions -----------------------------------------------------------------------------------------------------

MODEL = {"provider": "test-provider", "modelId": "test-model"}
NOTHING = "a session with nothing to summarise is refused before any model is asked"


def _refused(error_at: int) -> dict[str, Any]:
    return {
        f"ops[{error_at}]": {"op": "compact", "outcome": "error", "error": {"code": "compaction", "message": "Nothing to compact"}}
    }


def _nothing_to_compact() -> dict[str, Any]:
    was = recorded("compact-nothing")
    return merged(
        _refused(2),
        {
            "events": was["events"][:-1],
            "requests": was["requests"][:1],
            "ops[4].value.entryTypes": ["message:user", "message:assistant"],
            "session.entries": was["session"]["entries"][:2],
            "session.leaf": "e2",
            "session.context.roles": ["user", "assistant"],
            "session.context.model": MODEL,
        },
    )


def _short_text() -> dict[str, Any]:
    was = recorded("compact-text-length")
    return merged(
        _refused(0),
        {
            "events": [],
            "requests": [],
            "hookCalls[0].event.preparation.tokensBefore": 19,
            "session.entries": was["session"]["entries"][:2],
            "session.leaf": "e2",
            "session.context.roles": ["user", "assistant", "toolResult"],
            "session.context.model": MODEL,
        },
    )


def _old_kept_text() -> str:
    """The question and the answer that the first compaction kept, as a summary request shows them."""
    raw = json.loads((HERE / "harness" / "compact-twice.json").read_text("utf-8"))
    kept = [write_out(step["message"]) for step in raw["harness"]["session"][-2:]]
    speakers = {"user": "User", "assistant": "Assistant"}
    return "\n\n".join(f"[{speakers[one['role']]}]: {''.join(block['text'] for block in one['content'])}" for one in kept)


def _kept_is_summarised() -> dict[str, Any]:
    was = recorded("compact-twice")
    return {
        "requests[3].prompt.conversation": f"{_old_kept_text()}\n\n{was['requests'][3]['prompt']['conversation']}",
        "hookCalls[1].event.preparation.messagesToSummarize": ["user", "assistant", "user", "assistant"],
        "requests[4].messages": _answered(was["requests"][4]["messages"], 4),
        "session.context.roles": ["compactionSummary", "user", "assistant", "assistant", "toolResult", "user", "assistant"],
    }


def _answered(messages: list[Any], at: int) -> list[Any]:
    """Put the answer to a call in that never got one."""
    call = messages[at - 1]["content"][-1]
    result = {
        "role": "toolResult",
        "toolCallId": call["id"],
        "toolName": call["name"],
        "content": [{"type": "text", "text": "Operation aborted"}],
        "isError": True,
    }
    return [*messages[:at], result, *messages[at:]]


EXTRA_COMPLETIONS = {"compact-twice-split": [{"text": "THIRD"}]}
"""Where we ask for one summary more."""


def _kept_is_summarised_beside_a_split_turn() -> dict[str, Any]:
    """Two requests: the earlier summary is brought up to date, and the beginning of the turn is summarised."""
    was = recorded("compact-twice-split")
    first = was["ops"][0]["value"]["summary"]
    split = was["requests"][2]
    history = {
        **split,
        "prompt": {"conversation": _old_kept_text(), "previousSummary": first, "instructions": "update"},
        "options": was["requests"][0]["options"],
    }
    said = was["ops"][4]["value"]["summary"]
    assert said.startswith("No prior history.") and "SECOND" in said
    summary = said.replace("SECOND", "THIRD").replace("No prior history.", "SECOND")
    sent = was["requests"][3]["messages"]
    sent[0]["content"][0]["text"] = sent[0]["content"][0]["text"].replace(said, summary)
    return {
        "ops[4].value.summary": summary,
        "events[14].compactionEntry.summary": summary,
        "hookCalls[1].event.preparation.messagesToSummarize": ["user", "assistant"],
        "requests": [*was["requests"][:2], history, split, {**was["requests"][3], "messages": sent}],
        "session.entries[14].summary": summary,
    }


# --- runs -----------------------------------------------------------------------------------------------------------


def _not_idle_yet() -> dict[str, Any]:
    was = recorded("idle-in-agent-end")
    return {
        "events": [*was["events"][:12], {"type": "settled", "nextTurnCount": 0}],
        "requests": was["requests"][:1],
        "ops[2]": {"op": "prompt", "outcome": "error", "error": {"code": "busy", "message": "AgentHarness is busy"}},
        "session.entries": was["session"]["entries"][:2],
        "session.leaf": "e2",
        "session.context.roles": ["user", "assistant"],
    }


ANSWERED = "C037: a call without a result is answered"
SEEN = "C112, C113: each handler sees what the one before it left"

_MAKERS: dict[str, tuple[str, Callable[[], dict[str, Any]]]] = {
    # handlers
    "hook-before-agent-start": (
        f"{SEEN}; the messages of all are added; and a replaced system prompt holds for the whole run, not for one request of it",
        _before_agent_start,
    ),
    # nothing is lost
    "hook-before-agent-start-raises": ("a handler that raises does not lose the messages for the next turn", _next_turn_kept),
    "compact-busy": (
        "a setting is stored when the compaction is over, so that it is not lost with the process",
        _stored_after_compaction,
    ),
    "tree-summary": ("the label is stored", _label_stored),
    # compactions
    "compact-nothing": (NOTHING, _nothing_to_compact),
    "compact-text-length": (
        f"{NOTHING}; lengths are code points, not UTF-16 units; C037: a call without a result is answered",
        _short_text,
    ),
    "compact-twice": (
        "C086: what the first compaction kept is summarised by the second; C037: a call without a result is answered",
        _kept_is_summarised,
    ),
    "compact-twice-split": (
        "C086: the earlier summary and what was kept with it are not lost",
        _kept_is_summarised_beside_a_split_turn,
    ),
    # runs
    "idle-in-agent-end": ("a run lets go of the harness when it has settled; until then a prompt is refused", _not_idle_yet),
    "fail-listener-always": (
        "if reporting the failure failed too, the listener's own exception comes through, as for an agent",
        lambda: {"ops[0].error": {"message": "second"}},
    ),
}

DIFFERENCES = {name: Difference(reason, make()) for name, (reason, make) in _MAKERS.items()}
