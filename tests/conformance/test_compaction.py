"""The recorded cases of token estimates, cut points, compactions and branch summaries (`functions/compaction.json`)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from agentcore import (
    AssistantMessage,
    Context,
    DoneEvent,
    ErrorEvent,
    HarnessError,
    Model,
    RetryPolicy,
    SessionError,
    StartEvent,
    StreamOptions,
    Usage,
)
from agentcore.codec import decode, decode_tagged, encode
from agentcore.events import AssistantMessageEvent
from agentcore.harness import branch_summaries, compaction, file_operations, summaries, tokens
from agentcore.session.entries import decode_entry
from tests.conformance.cases import HERE, case_params, check, expand

Given = dict[str, Any]


# --- where we differ on purpose: each rule takes the input and the recording, and gives what we expect ---------------------------


def lengths_are_characters(given: Given, recorded: Any) -> Any:
    """Lengths are code points for us, UTF-16 units in the reference: a character outside of the basic plane counts as any other."""
    outside = sorted({char for char in str(given) if ord(char) > 0xFFFF})
    if not outside or given["fn"] not in ("estimateTokens", "serializeConversation", "estimateContextTokens", "findCutPoint"):
        return recorded
    inside = {char: chr(0xE000 + number) for number, char in enumerate(outside)}
    back = {replaced: char for char, replaced in inside.items()}
    return _replaced(FUNCTIONS[given["fn"]](_replaced(given, inside)), back)


def _replaced(value: Any, characters: dict[str, str]) -> Any:
    if isinstance(value, str):
        return value.translate({ord(char): other for char, other in characters.items()})
    if isinstance(value, list):
        return [_replaced(member, characters) for member in value]
    return {key: _replaced(member, characters) for key, member in value.items()} if isinstance(value, dict) else value


def files_sort_by_character(given: Given, recorded: Any) -> Any:
    """Paths are sorted by code points, not by UTF-16 units."""
    if given["fn"] == "computeFileLists":
        return {key: sorted(paths) for key, paths in recorded.items()}
    return recorded


def kept_answers_say_nothing_of_the_size(given: Given, recorded: Any) -> Any:
    """C088: the usage of an answer that a compaction kept is that of another context, so it counts as none."""
    if given["fn"] != "estimateContextTokens":
        return recorded
    messages: list[dict[str, Any]] = []
    youngest = -1
    for message in given["messages"]:
        is_summary = message["role"] in ("compactionSummary", "branchSummary")
        is_stale = message["role"] == "assistant" and message.get("timestamp", 0) < youngest
        messages.append({**message, "usage": {}} if is_stale else message)
        youngest = max(youngest, message.get("timestamp", 0)) if is_summary else youngest
    return _sizes(tokens.estimate_context_tokens(_messages(messages))) if messages != given["messages"] else recorded


def cut_before_a_large_end(given: Given, recorded: Any) -> Any:
    """C085: where the end is so large that no cut is possible behind that point, the last one before it is taken, not the first."""
    if given["fn"] != "findCutPoint" or not given["entries"]:
        return recorded
    entries, start = given["entries"], given.get("start", 0)
    end = given.get("end", len(entries))
    roles = [entry["message"]["role"] if entry["type"] == "message" else entry["type"] for entry in entries]
    no_cuts = ("toolResult", "compaction", "custom", "label", "leaf", "session_info")
    cuts = [index for index in range(start, end) if roles[index] not in no_cuts and not roles[index].endswith("_change")]
    size, point = 0, end
    for index in range(end - 1, start - 1, -1):
        if entries[index]["type"] == "message":
            size += tokens.estimate_tokens(decode_tagged(entries[index]["message"]))
            if size >= given["keepRecentTokens"]:
                point = index
                break
    if point == end or not cuts or cuts[-1] >= point:
        return recorded
    cut = cuts[-1]
    while cut > start and entries[cut - 1]["type"] not in ("message", "compaction"):
        cut -= 1
    begins = ("user", "bashExecution", "custom_message", "branch_summary")
    turn = next((index for index in range(cut, start - 1, -1) if roles[index] in begins), -1)
    is_split = roles[cut] != "user" and turn != -1
    return {"firstKeptEntryIndex": cut, "turnStartIndex": turn if is_split else -1, "isSplitTurn": is_split}


def kept_tail_is_summarised(given: Given, recorded: Any) -> Any:
    """C086: what an earlier compaction kept is summarised in front of what came after it; the reference loses it."""
    earlier = [entry for entry in given.get("entries", ()) if entry["type"] == "compaction"][-1:]
    tail = earlier[0].get("retainedTail") if earlier else None
    if not tail or not recorded:
        return recorded
    if given["fn"] == "compact" and recorded.get("requests"):
        plain = {**earlier[0], "retainedTail": None, "firstKeptEntryId": "none"}
        entries = [plain if entry is earlier[0] else entry for entry in given["entries"]]
        place = entries.index(plain) + 1
        head = {"type": "message", "parentId": None, "timestamp": earlier[0]["timestamp"]}
        entries[place:place] = [{**head, "id": f"tail-{number}", "message": message} for number, message in enumerate(tail)]
        asked = FUNCTIONS["compact"]({**given, "entries": entries})["requests"]
        prompts = [{**request, "prompt": other["prompt"]} for request, other in zip(recorded["requests"], asked, strict=True)]
        return {**recorded, "requests": prompts}
    if given["fn"] != "prepareCompaction":
        return recorded
    return {**recorded, "messagesToSummarize": [*tail, *recorded["messagesToSummarize"]]}


def entries_have_ids(given: Given, recorded: Any) -> Any:
    """An entry without an id is refused by our reader of entries."""
    is_whole = all("id" in entry for entry in given.get("entries", ()))
    return recorded if is_whole else {"code": "invalid_entry", "message": recorded.get("message", "")}


def no_room_is_no_room(given: Given, recorded: Any) -> Any:
    """A budget below nothing is not the same as no limit."""
    if given["fn"] == "prepareBranchEntries" and (given.get("tokenBudget") or 0) < 0:
        return {**recorded, "messages": [], "totalTokens": 0}
    return recorded


def half_of_a_small_window(given: Given, recorded: Any) -> Any:
    """Where the reserve is as large as the window, half of it is left for the conversation: without a limit nothing would fit."""
    window = given["model"].get("contextWindow") or 128_000 if given["fn"] == "generateBranchSummary" else 0
    reserve = given.get("reserveTokens", branch_summaries.DEFAULT_RESERVE_TOKENS)
    if not window or reserve < window or not recorded.get("requests"):
        return recorded
    asked = FUNCTIONS["generateBranchSummary"]({**given, "reserveTokens": window - window // 2})["requests"]
    prompts = [{**request, "prompt": other["prompt"]} for request, other in zip(recorded["requests"], asked, strict=True)]
    return {**recorded, "requests": prompts}


def empty_summaries_are_refused(given: Given, recorded: Any) -> Any:
    """An empty summary would stand for the history, which would be lost."""
    if given["fn"] not in ("compact", "generateBranchSummary") or not recorded.get("requests"):
        return recorded
    for number, answer in enumerate(given["responses"][: len(recorded["requests"])], 1):
        texts = [block.get("text", "") for block in answer.get("content") or () if block["type"] == "text"]
        if answer.get("stopReason") not in ("error", "aborted") and not "".join(map(str, texts)).strip():
            rest = {key: value for key, value in recorded.items() if key != "result"}
            return {**rest, "requests": recorded["requests"][:number], "code": "summarization_failed", "message": ""}
    return recorded


RULES: tuple[Callable[[Given, Any], Any], ...] = (
    lengths_are_characters,
    files_sort_by_character,
    kept_answers_say_nothing_of_the_size,
    cut_before_a_large_end,
    kept_tail_is_summarised,
    entries_have_ids,
    no_room_is_no_room,
    half_of_a_small_window,
    empty_summaries_are_refused,
)


@pytest.mark.parametrize("case", case_params("compaction.json"))
def test_recorded(case: dict[str, Any]) -> None:
    """Each function gives what the reference gives; error texts are our own, but hold what the service said."""
    given = expand(case["input"])
    recorded = case["expected"] if "expected" in case else case["error"]
    expected = recorded
    for rule in RULES:
        expected = rule(given, expected)
    expected = _strings_as_blocks(expected)
    try:
        actual = FUNCTIONS[given["fn"]](given)
    except (HarnessError, SessionError) as error:
        actual = {"code": error.code, **vars(error).get("seen", {})}
        for said in filter(None, (answer.get("errorMessage") for answer in given.get("responses", ()))):
            assert said not in recorded.get("message", "") or error.code == "aborted" or said in str(error)
        assert str(error)[0].islower()
        expected = {key: value for key, value in expected.items() if key not in ("name", "message")}
    check(expected, _strings_as_blocks(actual))


def test_every_rule_is_needed() -> None:
    """A rule that no recorded case calls for any more is noticed."""
    cases = json.loads((HERE / "functions" / "compaction.json").read_text("utf-8"))
    recordings = [(expand(case["input"]), case["expected"] if "expected" in case else case["error"]) for case in cases]
    assert [rule.__name__ for rule in RULES if all(rule(given, recorded) == recorded for given, recorded in recordings)] == []


def _strings_as_blocks(value: Any) -> Any:
    """Write a content that is a text as one block: in memory it always is."""
    if isinstance(value, list):
        return [_strings_as_blocks(member) for member in value]
    if not isinstance(value, dict):
        return value
    made = {key: _strings_as_blocks(member) for key, member in value.items()}
    if "role" in made and isinstance(made.get("content"), (str, dict)):
        made["content"] = [{"type": "text", "text": made["content"]}]
    return made


# --- tokens ----------------------------------------------------------------------------------------------------------


def _messages(raws: Sequence[dict[str, Any]]) -> list[Any]:
    return [decode_tagged(raw) for raw in raws]


def _sizes(size: tokens.ContextTokens) -> dict[str, Any]:
    return {
        "tokens": size.tokens,
        "usageTokens": size.usage_tokens,
        "trailingTokens": size.trailing_tokens,
        "lastUsageIndex": size.last_usage_index,
    }


class _Spec:
    """A tool as a request has it."""

    def __init__(self, raw: dict[str, Any]) -> None:
        self.name, self.description, self.parameters = raw["name"], raw["description"], raw["parameters"]


def _request_tokens(given: dict[str, Any]) -> Any:
    raw = given["context"]
    if isinstance(raw, list):
        return _sizes(tokens.estimate_request_context_tokens(_messages(raw)))
    listed = [_Spec(tool) for tool in raw["tools"]] if "tools" in raw else None
    return _sizes(tokens.estimate_request_context_tokens(Context(raw.get("systemPrompt", ""), _messages(raw["messages"]), listed)))


# --- cuts and preparations -------------------------------------------------------------------------------------------


def _entries(given: dict[str, Any]) -> list[Any]:
    return [decode_entry(raw) for raw in given["entries"]]


def _settings(given: dict[str, Any]) -> compaction.CompactionSettings:
    return compaction.CompactionSettings.from_dict(given["settings"])


def _ids(messages: Sequence[Any], entries: Sequence[Any]) -> list[Any]:
    """Return messages as the ids of their entries, those of no entry written out."""
    known = {id(entry.message): entry.id for entry in entries if entry.type == "message"}
    return [known.get(id(message), encode(message)) for message in messages]


def _cut(given: dict[str, Any]) -> Any:
    cut = compaction.find_cut_point(_entries(given), given["keepRecentTokens"], given.get("start", 0), given.get("end"))
    return {
        "firstKeptEntryIndex": cut.first_kept_entry_index,
        "turnStartIndex": cut.turn_start_index,
        "isSplitTurn": cut.is_split_turn,
    }


def _file_ops(ops: file_operations.FileOperations) -> dict[str, list[str]]:
    return {"read": [*ops.read], "written": [*ops.written], "edited": [*ops.edited]}


def _lists(ops: file_operations.FileOperations) -> dict[str, list[str]]:
    read_files, modified_files = ops.lists()
    return {"readFiles": read_files, "modifiedFiles": modified_files}


def _extract(given: dict[str, Any]) -> Any:
    ops = file_operations.extract_file_operations(_messages(given["messages"]))
    return {"ops": _file_ops(ops), "lists": _lists(ops)}


def _given_lists(given: dict[str, Any]) -> Any:
    return _lists(file_operations.FileOperations(**{key: dict.fromkeys(paths) for key, paths in given["ops"].items()}))


def _prepare(given: dict[str, Any]) -> Any:
    entries = _entries(given)
    made = compaction.prepare_compaction(entries, _settings(given))
    if made is None:
        return None
    return {
        "firstKeptEntryId": made.first_kept_entry_id,
        "messagesToSummarize": _ids(made.messages_to_summarize, entries),
        "turnPrefixMessages": _ids(made.turn_prefix_messages, entries),
        "retainedTail": _ids(made.retained_tail, entries),
        "isSplitTurn": made.is_split_turn,
        "tokensBefore": made.tokens_before,
        "previousSummary": made.previous_summary,
        "fileOps": _file_ops(made.file_ops),
        "settings": encode(made.settings),
    }


def _prepare_branch(given: dict[str, Any]) -> Any:
    entries = _entries(given)
    made = branch_summaries.prepare_branch_entries(entries, given.get("tokenBudget"))
    return {
        "messages": _ids(made.messages, entries),
        "fileOps": _file_ops(made.file_ops),
        "totalTokens": made.total_tokens,
    }


class _Tree:
    """The entries of a case, looked up by id."""

    def __init__(self, given: dict[str, Any]) -> None:
        self._by_id = {entry.id: entry for entry in _entries(given)}

    def get_entry(self, entry_id: str) -> Any:
        return self._by_id.get(entry_id)


def _collect(given: dict[str, Any]) -> Any:
    made = branch_summaries.collect_branch_entries(_Tree(given), given["oldLeafId"], given["targetId"])
    return {"entries": [entry.id for entry in made.entries], "commonAncestorId": made.common_ancestor_id}


# --- summaries -------------------------------------------------------------------------------------------------------


class _Model:
    """A stream function that gives the answers of a case and writes the requests down as the recording has them."""

    def __init__(self, given: dict[str, Any]) -> None:
        self._answers = [decode(AssistantMessage, raw) for raw in given["responses"]]
        self._custom = given.get("customInstructions")
        self._session_ids: list[str | None] = []
        self.requests: list[dict[str, Any]] = []

    def __call__(self, model: Model, context: Context, options: StreamOptions) -> Iterator[AssistantMessageEvent]:
        self.requests.append(
            {
                "model": model.id,
                "system_prompt": bool(context.system_prompt),
                "tools": "none" if context.tools is None else "some",
                "roles": [message.role for message in context.messages],
                "content_types": [[block.type for block in message.content] for message in context.messages],
                "prompt": self._parts(context.messages[0].text),
                "options": self._options(options),
            }
        )
        answer = self._answers[len(self.requests) - 1]
        yield StartEvent(answer)
        yield ErrorEvent(answer) if answer.stop_reason in ("error", "aborted") else DoneEvent(answer)

    def _parts(self, text: str) -> list[dict[str, Any]]:
        parts: list[dict[str, Any]] = []
        while match := re.match(r"<([a-z-]+)>\n(.*?)\n</\1>\n\n", text, re.DOTALL):
            parts.append({"tag": match[1], "text": match[2]})
            text = text[match.end() :]
        instructions: dict[str, Any] = {"instructions": True}
        if self._custom is not None:
            instructions["ends_with_custom_instructions"] = text.endswith(self._custom)
            instructions["only_custom_instructions"] = text == self._custom
        assert text, "a summary request says what to do"
        return [*parts, instructions]

    def _options(self, options: StreamOptions) -> dict[str, Any]:
        assert options.session_id is not None and re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f-]{21}", options.session_id)
        seen = options.session_id in self._session_ids
        number = self._session_ids.index(options.session_id) + 1 if seen else 0
        self._session_ids.append(options.session_id)
        return {
            "maxTokens": options.max_tokens,
            "reasoning": options.reasoning,
            "cacheRetention": options.cache_retention,
            "sessionId": f"<same uuid as request {number}>" if seen else "<fresh uuid v7>",
            "signal": "none",  # ours always has one; whether it is the caller's is tested elsewhere
        }


class _ExactPauses(RetryPolicy):
    """A policy without the jitter."""

    def pause(self, attempt: int) -> float:
        return self.base_delay * 2.0 ** (attempt - 1)


def _summarize(given: dict[str, Any], work: Callable[[summaries.Summarizer], dict[str, Any]]) -> dict[str, Any]:
    asked = _Model(given)
    events: list[list[Any]] = []
    policy = given.get("retry")
    summarizer = summaries.Summarizer(
        model=Model.from_dict(given["model"]),
        stream_fn=asked,
        thinking_level=given.get("thinkingLevel", "off"),
        retry=_ExactPauses(policy["maxRetries"], policy["baseDelayMs"] / 1000) if policy and policy["enabled"] else None,
        listener=summaries.RetryListener(
            lambda event: events.append(["scheduled", event.attempt, event.max_retries, event.delay * 1000, event.error_message]),
            lambda: events.append(["start"]),
            lambda success, attempt, error: events.append(["finished", success, attempt, *([] if error is None else [error])]),
        ),
    )
    seen: dict[str, Any] = {"requests": asked.requests, **({"retry_events": events} if policy else {})}
    try:
        return {"result": work(summarizer), **seen}
    except HarnessError as error:
        vars(error)["seen"] = seen
        raise


def _usage(usage: Usage | None) -> Any:
    return None if usage is None else encode(usage)


def _compact(given: dict[str, Any]) -> Any:
    entries = _entries(given)
    preparation = compaction.prepare_compaction(entries, _settings(given))
    assert preparation is not None

    def work(summarizer: summaries.Summarizer) -> dict[str, Any]:
        made = compaction.compact(preparation, summarizer, given.get("customInstructions"))
        return {
            "summary": made.summary,
            "firstKeptEntryId": made.first_kept_entry_id,
            "tokensBefore": made.tokens_before,
            "usage": _usage(made.usage),
            "retainedTail": _ids(made.retained_tail, entries),
            "details": made.details,
        }

    return _summarize(given, work)


def _branch_summary(given: dict[str, Any]) -> Any:
    def work(summarizer: summaries.Summarizer) -> dict[str, Any]:
        made = branch_summaries.generate_branch_summary(
            _entries(given),
            summarizer,
            given.get("customInstructions"),
            replace_instructions=given.get("replaceInstructions", False),
            reserve_tokens=given.get("reserveTokens", branch_summaries.DEFAULT_RESERVE_TOKENS),
        )
        return {
            "summary": made.summary,
            "usage": _usage(made.usage),
            "readFiles": made.read_files,
            "modifiedFiles": made.modified_files,
        }

    return _summarize(given, work)


FUNCTIONS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "calculateContextTokens": lambda given: tokens.calculate_context_tokens(Usage.from_dict(given["usage"])),
    "estimateTokens": lambda given: tokens.estimate_tokens(decode_tagged(given["message"])),
    "estimateContextTokens": lambda given: _sizes(tokens.estimate_context_tokens(_messages(given["messages"]))),
    "estimateRequestContextTokens": _request_tokens,
    "shouldCompact": lambda given: compaction.should_compact(given["contextTokens"], given["contextWindow"], _settings(given)),
    "findCutPoint": _cut,
    "findTurnStartIndex": lambda given: compaction.find_turn_start_index(_entries(given), given["index"], given["start"]),
    "prepareCompaction": _prepare,
    "serializeConversation": lambda given: summaries.serialize_conversation(_messages(given["messages"])),
    "extractFileOps": _extract,
    "computeFileLists": _given_lists,
    "formatFileOperations": lambda given: file_operations.format_file_operations(given["readFiles"], given["modifiedFiles"]),
    "prepareBranchEntries": _prepare_branch,
    "collectEntriesForBranchSummary": _collect,
    "compact": _compact,
    "generateBranchSummary": _branch_summary,
}
