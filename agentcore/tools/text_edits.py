"""Find, apply and show edits of a text: pure functions on strings.

- Texts are compared with every line end (`\\r\\n`, `\\r`, `\\n`) as a line feed. What is replaced is the range of the original, so
  that every character outside of it stays as it is, mixed line ends included; new text gets the line end of its place.
- A text that is not there exactly is looked for once more without regard to trailing blanks, to the kind of quotes, dashes and
  spaces, and to compatible forms of characters. Such a match must be the only one, and must not begin or end inside a character.
- All edits of one call are found in the original, not in each other's results.

A line ends at a line feed and nothing else; U+0085, U+2028 and the form feed are characters like others.
"""

from __future__ import annotations

import bisect
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Literal

LineEnding = Literal["\n", "\r\n", "\r"]
BOM = "\ufeff"

_LINE_BREAK = re.compile("\r\n?|\n")
# What may trail a line unseen; str.rstrip() would also take U+001C to U+001F and U+0085, and leave U+FEFF.
_TRAILING = (
    "\t\n\v\f\r \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
)
_LOOK_ALIKES = str.maketrans(
    {
        **dict.fromkeys("\u2018\u2019\u201a\u201b", "'"),
        **dict.fromkeys("\u201c\u201d\u201e\u201f", '"'),
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-"),
        **dict.fromkeys("\u00a0\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000", " "),
    }
)


class EditError(ValueError):
    """An edit cannot be made. The text is written for the model."""


@dataclass(frozen=True)
class TextEdit:
    """Replace `old_text`, which must occur once, by `new_text`."""

    old_text: str
    new_text: str


@dataclass(frozen=True)
class TextMatch:
    """Where a text was found: `index` and `length` are positions in `content`, which is normalised if `is_loose`."""

    found: bool
    index: int
    length: int
    is_loose: bool
    content: str


# Line ends, byte order mark


def detect_line_ending(text: str) -> LineEnding:
    """Return the first line end of a text, of those that end with a line feed; a line feed where there is none."""
    at = text.find("\n")
    return "\r\n" if at > 0 and text[at - 1] == "\r" else "\n"


def normalize_to_lf(text: str) -> str:
    """Return the text with every line end as a line feed."""
    return _LINE_BREAK.sub("\n", text) if "\r" in text else text


def restore_line_endings(text: str, ending: str) -> str:
    """Return a text, whose line ends are line feeds, with `ending` in their place."""
    return text if ending == "\n" else text.replace("\n", ending)


def strip_bom(text: str) -> tuple[str, str]:
    """Return the byte order mark at the beginning, or "", and the rest."""
    return (BOM, text[1:]) if text.startswith(BOM) else ("", text)


# Loose matching


def normalize_for_fuzzy_match(text: str) -> str:
    """Return the text as it is compared when it is not found as it stands."""
    return "\n".join(map(_normalize_line, text.split("\n")))


def _normalize_line(line: str) -> str:
    if line.isascii():
        return line.rstrip(_TRAILING)
    return unicodedata.normalize("NFKC", line).rstrip(_TRAILING).translate(_LOOK_ALIKES)


def fuzzy_find_text(content: str, old_text: str) -> TextMatch:
    """Find the first occurrence of a text, exactly or, failing that, in normalised form."""
    index = content.find(old_text)
    if index >= 0:
        return TextMatch(True, index, len(old_text), False, content)
    loose_content, loose_text = normalize_for_fuzzy_match(content), normalize_for_fuzzy_match(old_text)
    index = loose_content.find(loose_text)
    if index >= 0:
        return TextMatch(True, index, len(loose_text), True, loose_content)
    return TextMatch(False, -1, 0, False, content)


class _Lines:
    """A text by lines, to get from positions in its normalised form back to its own."""

    def __init__(self, text: str) -> None:
        self._lines = text.split("\n")
        self._starts = [0, *accumulate(len(line) + 1 for line in self._lines)]
        self._loose_starts = [0, *accumulate(len(_normalize_line(line)) + 1 for line in self._lines)]

    def original_range(self, begin: int, end: int) -> tuple[int, int] | None:
        """Return the range that a range of the normalised text comes from; None if it begins or ends inside a character."""
        first, last = self._original(begin, is_end=False), self._original(end, is_end=True)
        return None if first is None or last is None else (first, last)

    def _original(self, position: int, *, is_end: bool) -> int | None:
        number = bisect.bisect_right(self._loose_starts, position) - 1
        column = self._column(self._lines[number], position - self._loose_starts[number], is_end=is_end)
        return None if column is None else self._starts[number] + column

    def _column(self, line: str, loose_column: int, *, is_end: bool) -> int | None:
        loose_length = len(_normalize_line(line))
        if loose_column == loose_length and not is_end:
            return len(line)  # the match begins with the line feed: blanks before it are not part of it
        if line.isascii() or loose_column == 0:
            return loose_column
        done = column = 0
        for cluster in _clusters(line):
            if done == loose_column:
                return column
            if done > loose_column:
                return None
            done += len(unicodedata.normalize("NFKC", cluster))
            column += len(cluster)
        return column if done == loose_column else None


def _clusters(line: str) -> list[str]:
    """Cut a line into pieces that normalise each by itself; one single piece where that cannot be told."""
    clusters: list[str] = []
    for character in line:
        if clusters and _joins_the_one_before(character):
            clusters[-1] += character
        else:
            clusters.append(character)
    whole = unicodedata.normalize("NFKC", line)
    return clusters if "".join(unicodedata.normalize("NFKC", cluster) for cluster in clusters) == whole else [line]


def _joins_the_one_before(character: str) -> bool:
    # Combining marks, half-width voice marks (which turn into such), and the vowels and finals of Hangul.
    return unicodedata.combining(unicodedata.normalize("NFKC", character)[0]) != 0 or "\u1160" <= character <= "\u11ff"


# Applying edits


def apply_edits(text: str, edits: Sequence[TextEdit], shown_path: str) -> str:
    """Return the text with all edits made.

    Args:
        text: As it is in the file, without its byte order mark.
        edits: At least one. Their line ends may differ from those of the text.
        shown_path: How errors name the file.

    Raises:
        EditError: A text is empty, not there, there more than once, overlaps with another, or nothing would change.
    """
    for index, edit in enumerate(edits):
        if not edit.old_text:
            which = "oldText" if len(edits) == 1 else f"edits[{index}].oldText"
            raise EditError(f"{which} must not be empty in {shown_path}.")
    view = normalize_to_lf(text)
    found = []
    for index, edit in enumerate(edits):
        begin, end = _find_only(view, normalize_to_lf(edit.old_text), shown_path, index, len(edits))
        found.append((begin, end, index))
    found.sort(key=lambda place: place[0])  # two that begin at the same place stay in the order in which they were given
    for (_, end, index), (begin, _, next_index) in pairwise(found):
        if begin < end:
            raise EditError(
                f"edits[{index}] and edits[{next_index}] overlap in {shown_path}. Merge them into one edit or target disjoint "
                "regions."
            )
    original = _Positions(text)
    parts: list[str] = []
    done = 0
    for begin, end, index in found:
        first, last = original.of(begin), original.of(end)
        parts += text[done:first], restore_line_endings(normalize_to_lf(edits[index].new_text), _ending_at(text, first, last))
        done = last
    changed = "".join([*parts, text[done:]])
    if changed == text:
        raise EditError(
            f"No changes made to {shown_path}. The replacement produced identical content. This might indicate an issue with "
            "special characters or the text not existing as expected."
            if len(edits) == 1
            else f"No changes made to {shown_path}. The replacements produced identical content."
        )
    return changed


def _find_only(view: str, old_text: str, shown_path: str, index: int, count: int) -> tuple[int, int]:
    match = fuzzy_find_text(view, old_text)
    span = (match.index, match.index + match.length) if match.found else None
    looked_for = old_text
    if span is not None and match.is_loose:
        looked_for = normalize_for_fuzzy_match(old_text)
        span = _Lines(view).original_range(*span) if looked_for else None
    if span is None:
        what, name = ("the exact text", "old text") if count == 1 else (f"edits[{index}]", "oldText")
        raise EditError(
            f"Could not find {what} in {shown_path}. The {name} must match exactly including all whitespace and newlines."
        )
    occurrences = match.content.count(looked_for)
    if occurrences > 1:
        loose_text = normalize_for_fuzzy_match(old_text)
        # Named are all that look like it: what is to be added must tell it apart from each of them.
        occurrences = max(occurrences, normalize_for_fuzzy_match(view).count(loose_text) if loose_text else 0)
        what, name = ("the text", "The text") if count == 1 else (f"edits[{index}]", "Each oldText")
        raise EditError(
            f"Found {occurrences} occurrences of {what} in {shown_path}. {name} must be unique. Please provide more context to "
            "make it unique."
        )
    return span


class _Positions:
    """Positions in a text, from positions in its form with line feeds: each `\\r\\n` before it is one character more."""

    def __init__(self, text: str) -> None:
        self._pairs = [match.start() - count for count, match in enumerate(re.finditer("\r\n", text))]

    def of(self, position: int) -> int:
        """Return the position in the text. One after a line end is after both of its characters."""
        return position + bisect.bisect_left(self._pairs, position)


def _ending_at(text: str, begin: int, end: int) -> str:
    """Return the line end of a place: the first one inside it, else the next one after it, else the last one before it."""
    match = _LINE_BREAK.search(text, begin, end) or _LINE_BREAK.search(text, end)
    if match is not None:
        return match.group()
    before = max(text.rfind("\n", 0, begin), text.rfind("\r", 0, begin))
    if before < 0:
        return "\n"
    return "\r\n" if text[before - 1 : before + 1] == "\r\n" else text[before]


# Showing what changed

_MAX_EDITS = 1000
"""Lines that may be added and removed before a comparison is given up (its time grows with the square)."""

_Op = tuple[Literal[" ", "-", "+"], str]


def _split_lines(text: str) -> list[str]:
    parts = text.split("\n")
    lines = [part + "\n" for part in parts[:-1]]
    return [*lines, parts[-1]] if parts[-1] else lines


def _diff_lines(old: list[str], new: list[str]) -> list[_Op]:
    """Return the shortest way from `old` to `new`, in each place removals before additions.

    Of several shortest ways the one is taken that keeps lines as early as it can, so lines that both texts end with are not set
    aside first: among lines that occur several times that would be another way.
    """
    head = _common_length(old, new)
    return [*((" ", line) for line in old[:head]), *_shortest_script(old[head:], new[head:])]


def _common_length(one: Sequence[str], other: Sequence[str]) -> int:
    """Return how many lines both begin with."""
    count = 0
    while count < min(len(one), len(other)) and one[count] == other[count]:
        count += 1
    return count


def _shortest_script(old: list[str], new: list[str]) -> list[_Op]:
    """Myers' greedy comparison; all that differs removed and added anew where there is too much to compare."""
    reach = {1: 0}  # by diagonal (position in old minus that in new): how far in old one gets
    trace: list[dict[int, int]] = []
    for count in range(min(len(old) + len(new), _MAX_EDITS) + 1):
        trace.append(reach)
        reach = dict(reach)
        for diagonal in range(-count, count + 1, 2):
            removed, added = reach.get(diagonal - 1, -1), reach.get(diagonal + 1, -1)
            is_added = diagonal == -count or (diagonal != count and removed < added)
            at = added if is_added else removed + 1
            while at < len(old) and at - diagonal < len(new) and old[at] == new[at - diagonal]:
                at += 1
            reach[diagonal] = at
            if at >= len(old) and at - diagonal >= len(new):
                return _walk_back(old, new, trace, count)
    tail = _common_length(old[::-1], new[::-1])
    old, kept, new = old[: len(old) - tail], old[len(old) - tail :], new[: len(new) - tail]
    return [*(("-", line) for line in old), *(("+", line) for line in new), *((" ", line) for line in kept)]


def _walk_back(old: list[str], new: list[str], trace: list[dict[int, int]], count: int) -> list[_Op]:
    at_old, at_new = len(old), len(new)
    ops: list[_Op] = []
    for step in range(count, -1, -1):
        reach, diagonal = trace[step], at_old - at_new
        removed, added = reach.get(diagonal - 1, -1), reach.get(diagonal + 1, -1)
        is_added = diagonal == -step or (diagonal != step and removed < added)
        before = diagonal + 1 if is_added else diagonal - 1
        start_old = reach.get(before, 0) if step else 0
        start_new = start_old - before if step else 0
        while at_old > start_old and at_new > start_new:
            at_old, at_new = at_old - 1, at_new - 1
            ops.append((" ", old[at_old]))
        if step:
            if is_added:
                at_new -= 1
                ops.append(("+", new[at_new]))
            else:
                at_old -= 1
                ops.append(("-", old[at_old]))
    return list(_removals_first(ops[::-1]))


def _removals_first(ops: list[_Op]) -> Iterator[_Op]:
    added: list[_Op] = []
    for op in ops:
        if op[0] == "+":
            added.append(op)
            continue
        if op[0] == " ":
            yield from added
            added = []
        yield op
    yield from added


@dataclass(frozen=True)
class _Hunk:
    """Changes that lie close together, with the lines around them; where it starts in both texts, counted from 0."""

    old_start: int
    new_start: int
    ops: list[_Op]

    @property
    def old_count(self) -> int:
        return sum(op[0] != "+" for op in self.ops)

    @property
    def new_count(self) -> int:
        return sum(op[0] != "-" for op in self.ops)


def _hunks(ops: list[_Op], context: int) -> list[_Hunk]:
    changed = [index for index, op in enumerate(ops) if op[0] != " "]
    ranges: list[list[int]] = []
    for index in changed:
        if ranges and index - ranges[-1][1] <= 2 * context:
            ranges[-1][1] = index + 1
        else:
            ranges.append([index, index + 1])
    hunks = []
    old_line = new_line = done = 0
    for first, last in ranges:
        begin, end = max(first - context, 0), min(last + context, len(ops))
        for kind, _ in ops[done:begin]:
            old_line += kind != "+"
            new_line += kind != "-"
        hunk = _Hunk(old_line, new_line, ops[begin:end])
        hunks.append(hunk)
        old_line, new_line, done = old_line + hunk.old_count, new_line + hunk.new_count, end
    return hunks


def generate_diff_string(old: str, new: str, context: int = 4) -> tuple[str, int | None]:
    """Show the difference of two texts for people, with line numbers, and return the number of the first changed line.

    Removed and unchanged lines bear the number that they have in `old`, added ones that in `new`.
    """
    ops = _diff_lines(_split_lines(old), _split_lines(new))
    width = len(str(max(old.count("\n"), new.count("\n")) + 1))
    gap = f" {'':{width}} ..."
    lines: list[str] = []
    first_changed: int | None = None
    shown = 0
    total = sum(op[0] != "+" for op in ops)
    for hunk in _hunks(ops, context):
        if hunk.old_start > shown:
            lines.append(gap)
        old_line, new_line = hunk.old_start, hunk.new_start
        for kind, line in hunk.ops:
            if kind != " " and first_changed is None:
                first_changed = new_line + 1
            number = (new_line if kind == "+" else old_line) + 1
            lines.append(f"{kind}{number:{width}} {line.removesuffix(chr(10))}")
            old_line += kind != "+"
            new_line += kind != "-"
        shown = old_line
    if lines and shown < total:
        lines.append(gap)
    return "\n".join(lines), first_changed


def generate_unified_patch(path: str, old: str, new: str, context: int = 4) -> str:
    """Return a unified patch that turns `old` into `new`."""
    parts = [f"--- {path}\n+++ {path}\n"]
    for hunk in _hunks(_diff_lines(_split_lines(old), _split_lines(new)), context):
        old_start = hunk.old_start + (hunk.old_count > 0)
        new_start = hunk.new_start + (hunk.new_count > 0)
        parts.append(f"@@ -{old_start},{hunk.old_count} +{new_start},{hunk.new_count} @@\n")
        for kind, line in hunk.ops:
            parts.append(kind + line)
            if not line.endswith("\n"):
                parts.append("\n\\ No newline at end of file\n")
    return "".join(parts)
