"""The string functions under the edit tool: what is matched, and that nothing else changes."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from agentcore.tools.text_edits import (
    EditError,
    TextEdit,
    apply_edits,
    generate_diff_string,
    generate_unified_patch,
    normalize_for_fuzzy_match,
    normalize_to_lf,
)
from tests.conformance.test_edit_diff import apply_patch

PIECES = ["a", "b", " ", "\t", "\n", "\r\n", "\r", "\u201c", '"', "\u2019", "'", "\u2014", "-", "\u00a0", "e\u0301", "\u00e9", "\ufb01", "\U0001f600", "\uff76\uff9e", "\u1112\u1161\u11ab", "\u2028", "\x85", "\x0c"]  # fmt: skip  # noqa: E501
texts = st.lists(st.sampled_from(PIECES), max_size=14).map("".join)


def edited(text: str, old: str, new: str) -> str:
    return apply_edits(text, [TextEdit(old, new)], "f")


@given(texts, texts, texts, texts)
def test_an_exact_edit_changes_its_range_and_nothing_else(before: str, old: str, after: str, new: str) -> None:
    """Every character before and after the one place where the old text stands is unchanged, whatever the line ends."""
    assume(old and not before.endswith("\r") and not old.endswith("\r"))  # else a line end would be cut in two
    text, view = before + old + after, normalize_to_lf(before + old + after)
    sought = normalize_to_lf(old)
    assume(view.find(sought) == view.rfind(sought))  # else it is not this place that is meant
    try:
        changed = edited(text, old, new)
    except EditError as error:
        assert "No changes made" in str(error)
        return
    assert changed.startswith(before) and changed.endswith(after)
    assert normalize_to_lf(changed[len(before) : len(changed) - len(after)]) == normalize_to_lf(new)


@given(
    texts, st.sampled_from(['"', "'", "-", " ", "a", "fi", "f", "i", "\u00e9", "e", "a\nb", "\n", '"\n', "\u30ac", "\ud55c"]), texts
)
def test_a_loose_edit_changes_a_range_that_means_the_same_and_nothing_else(text: str, old: str, new: str) -> None:
    """A match that is not exact replaces a range which reads like the old text; all around it stays."""
    try:
        changed = edited(text, old, f"<{new}>")
    except EditError:
        assert is_not_there_once(text, old)
        return
    wanted = normalize_to_lf(f"<{new}>")
    loose = normalize_for_fuzzy_match(old)
    for begin in range(len(text) + 1):
        for end in range(begin, len(text) + 1):
            inside = changed[begin : len(changed) - (len(text) - end)]
            if not (changed.startswith(text[:begin]) and changed.endswith(text[end:]) and normalize_to_lf(inside) == wanted):
                continue
            if loose in (normalize_for_fuzzy_match(normalize_to_lf(text[begin:end])), normalize_to_lf(text[begin:end])):
                return
            if normalize_to_lf(text[begin:end]) == old:
                return
    raise AssertionError(f"{text!r} with {old!r} became {changed!r}, which is more than one range changed")


def is_not_there_once(text: str, old: str) -> bool:
    """Whether it may be refused to edit: a text that is there once, exactly, is always found."""
    return normalize_to_lf(text).count(normalize_to_lf(old)) != 1


@given(texts, texts)
def test_a_patch_does_what_it_says(old: str, new: str) -> None:
    """Applied to the old text, the patch gives the new one."""
    assert apply_patch(
        normalize_to_lf(old), generate_unified_patch("f", normalize_to_lf(old), normalize_to_lf(new))
    ) == normalize_to_lf(new)


def test_byte_order_mark_and_line_ends_stay() -> None:
    """C103: an edit written with line feeds works in a file with CR LF, and the file keeps them."""
    assert edited("a\r\nb\r\n", "a\nb", "a\nc") == "a\r\nc\r\n"
    assert edited("a\r\nb\nc\n", "b", "x\ny") == "a\r\nx\ny\nc\n"
    assert edited("one\rtwo\rthree", "two", "2\n2") == "one\r2\r2\rthree"


def test_indentation_is_never_guessed() -> None:
    """C104: a text without the indentation is not found, rather than joined or stripped."""
    text = "  hello\n    world\n  end\n"
    with pytest.raises(EditError) as caught:
        edited(text, "hello\nworld", "goodbye\nmoon")
    assert (
        str(caught.value)
        == "Could not find the exact text in f. The old text must match exactly including all whitespace and newlines."
    )
    assert edited(text, "hello\n    world", "goodbye\n    moon") == "  goodbye\n    moon\n  end\n"


@pytest.mark.parametrize(
    ("text", "old", "wanted"),
    [
        ("say \u201chi\u201d now  \n", 'say "hi"', "X now  \n"),
        ("a \nb\u2019 \nc \n", "a\nb'\nc", "X \n"),
        ("\u201ca\u201d b \u201cc\u201d  \n", '"a" b', "X \u201cc\u201d  \n"),
        ("keep \n\u2014\nkeep \n", "\n-\n", "keep Xkeep \n"),
        ("cafe\u0301s", "caf\u00e9", "Xs"),
    ],
)
def test_a_loose_match_leaves_the_rest_of_its_lines_alone(text: str, old: str, wanted: str) -> None:
    """Blanks, quotes and accents beside a loose match stay as they are."""
    assert edited(text, old, "X") == wanted


@pytest.mark.parametrize("old", ["ine", "\u0301", "T"])
def test_a_loose_match_does_not_cut_a_character_in_two(old: str) -> None:
    """Part of a ligature, an accent or a sign is no place to begin or end."""
    with pytest.raises(EditError, match="Could not find"):
        edited("a \ufb01ne cafe\u0301 \u2122", old, "X") if old != "\u0301" else edited("caf\u00e9", old, "X")


def test_the_exact_text_wins_over_what_resembles_it() -> None:
    """One exact occurrence is the one that is meant; two are a question."""
    assert edited('\u201cx\u201d\n"x"\n', '"x"', "y") == "\u201cx\u201d\ny\n"
    with pytest.raises(EditError, match="Found 2 occurrences of the text in f"):
        edited("\u201cx\u201d\n\u201ex\u201f\n", '"x"', "y")


def test_a_large_rewrite_is_shown_in_time() -> None:
    """Files that have nothing in common are compared without taking minutes."""
    old = "".join(f"old {number}\n" for number in range(5000))
    new = "".join(f"new {number}\n" for number in range(5000))
    diff, first = generate_diff_string(old, new)
    assert (diff.count("\n-"), diff.count("\n+"), first) == (4999, 5000, 1)
    assert apply_patch(old, generate_unified_patch("f", old, new)) == new


def test_among_equal_lines_the_earliest_are_kept() -> None:
    """Of several shortest ways from one text to the other it is always the same one, whatever the texts end with."""
    old, new = "{\na\na\na\na\n}\n", "{\n{\na\na\na\n}\n"
    diff, first_changed_line = generate_diff_string(old, new)
    assert diff.split("\n") == [" 1 {", "+2 {", " 2 a", " 3 a", " 4 a", "-5 a", " 6 }"]
    assert first_changed_line == 2


def test_too_much_to_compare_is_replaced_as_a_whole() -> None:
    """What both texts begin and end with stays out of it."""
    old = "head\n" + "".join(f"old {n}\n" for n in range(600)) + "tail\n"
    new = "head\n" + "".join(f"new {n}\n" for n in range(600)) + "tail\n"
    diff, first_changed_line = generate_diff_string(old, new)
    lines = diff.split("\n")
    assert (len(lines), first_changed_line) == (1202, 2)
    assert (lines[0], lines[1], lines[601], lines[-1]) == ("   1 head", "-  2 old 0", "+  2 new 0", " 602 tail")


def test_overlapping_edits_are_named_in_the_order_of_the_file() -> None:
    """Those that begin at the same place in the order in which they were given, the longer one first or not."""
    for old_texts in (["abcd", "ab"], ["ab", "abcd"]):
        with pytest.raises(EditError) as caught:
            apply_edits("abcd", [TextEdit(old, "x") for old in old_texts], "f")
        assert str(caught.value) == "edits[0] and edits[1] overlap in f. Merge them into one edit or target disjoint regions."


def test_what_resembles_a_text_that_is_there_twice_is_counted_too() -> None:
    """The number tells how many places the model has to tell apart."""
    with pytest.raises(EditError, match="Found 3 occurrences of the text in f"):
        apply_edits("it's\nit\u2019s\nit's\n", [TextEdit("it's", "x")], "f")
    with pytest.raises(EditError, match="Found 2 occurrences of the text in f"):
        apply_edits("a  \nb  \n", [TextEdit("  ", "x")], "f")
