"""Cutting long texts: what holds for every text and every limit."""

from __future__ import annotations

import time

from hypothesis import given, settings
from hypothesis import strategies as st

from agentcore.tools.truncate import format_size, sanitize_binary_output, truncate_head, truncate_line, truncate_tail

texts = st.text(st.sampled_from("ab\n\r€😀\u2028"), max_size=60)
limits = st.integers(0, 30)


@settings(max_examples=300, deadline=None)
@given(texts, limits, limits)
def test_what_is_kept_lies_at_the_end_that_was_asked_for(text: str, max_lines: int, max_bytes: int) -> None:
    """Head and tail are such, keep within both limits, and count what they keep and what there was."""
    for result, is_there in (
        (truncate_head(text, max_lines=max_lines, max_bytes=max_bytes), text.startswith),
        (truncate_tail(text, max_lines=max_lines, max_bytes=max_bytes), text.removesuffix("\n").endswith),
    ):
        assert result.truncated == (result.total_lines > max_lines or result.total_bytes > max_bytes)
        if not result.truncated:
            assert result.content == text
            continue
        assert is_there(result.content)
        assert len(result.content.encode()) == result.output_bytes <= max_bytes
        assert result.output_lines <= max(max_lines, 0)
        assert result.output_lines == (result.content.count("\n") + 1 if result.output_lines else 0)
        assert result.total_bytes == len(text.encode())
        assert result.total_lines == len(text.removesuffix("\n").split("\n")) if text else result.total_lines == 0


@settings(max_examples=200, deadline=None)
@given(texts, limits, limits)
def test_no_line_more_would_have_fitted(text: str, max_lines: int, max_bytes: int) -> None:
    """As much is kept as the limits take: one more line would pass one of them."""
    lines = text.removesuffix("\n").split("\n")
    head = truncate_head(text, max_lines=max_lines, max_bytes=max_bytes)
    tail = truncate_tail(text, max_lines=max_lines, max_bytes=max_bytes)
    if head.truncated and head.output_lines < len(lines):
        one_more = "\n".join(lines[: head.output_lines + 1])
        assert head.output_lines == max_lines or len(one_more.encode()) > max_bytes
    if tail.truncated and not tail.last_line_partial and tail.output_lines < len(lines):
        one_more = "\n".join(lines[len(lines) - tail.output_lines - 1 :])
        assert tail.output_lines == max_lines or len(one_more.encode()) > max_bytes


def test_a_partial_last_line_begins_with_a_whole_character() -> None:
    """C101: never half a character: of characters of four bytes, ten bytes hold two."""
    result = truncate_tail("x\n" + "😀" * 4, max_bytes=10)
    assert (result.content, result.output_bytes, result.last_line_partial) == ("😀😀", 8, True)


def test_a_long_text_is_cut_in_a_few_passes() -> None:
    """50 MB of short lines take well under a second, since they are counted, not taken apart."""
    text = "0123456\n" * 6_000_000
    began = time.process_time()
    assert truncate_head(text).output_lines == truncate_tail(text).output_lines == 2000
    assert time.process_time() - began < 2


def test_sizes_are_rounded_half_up() -> None:
    """Not half to even, as formatting does."""
    assert [format_size(size) for size in (0, 1023, 1280, 51200, 1_310_720, 5 << 30)] == [
        "0B",
        "1023B",
        "1.3KB",
        "50.0KB",
        "1.3MB",
        "5120.0MB",
    ]


def test_a_line_is_cut_on_characters() -> None:
    """A limit counts characters, also those outside the basic plane."""
    assert truncate_line("😀😀😀", 2) == ("😀😀... [truncated]", True)
    assert truncate_line("😀😀😀", 3) == ("😀😀😀", False)


def test_control_characters_go_and_layout_stays() -> None:
    """Tab, line feed and carriage return are kept."""
    assert sanitize_binary_output("a\tb\r\n\0\x07\x1b[1mc\ufff9\x7f") == "a\tb\r\n[1mc\x7f"
