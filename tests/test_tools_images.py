"""Images: told by their content, scaled down and converted by Pillow where it is there."""

from __future__ import annotations

import base64
import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agentcore.tools.images import MAX_BYTES, MAX_SIDE, detect_image_type, process_image


def pillow() -> Any:
    return pytest.importorskip("PIL.Image")


def encoded(image: Any, kind: str, **options: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def decoded(data: str) -> Any:
    return pillow().open(io.BytesIO(base64.b64decode(data)))


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "WEBP", "BMP"])
def test_real_images_are_told_by_their_content(kind: str) -> None:
    """What Pillow writes is recognised, and cut short to a few bytes it is not."""
    content = encoded(pillow().new("RGB", (3, 2), "red"), kind)
    assert detect_image_type(content) == f"image/{kind.lower()}"
    assert detect_image_type(content[:2]) is None


@pytest.mark.parametrize("content", [b"", b"GIFT ideas", b"BMW", b"RIFF1234WAVE", b"\x89PNG\r\n\x1a\n", b"\xff\xd8"])
def test_what_only_begins_like_an_image_is_none(content: bytes) -> None:
    """A few letters in common with an image are not enough."""
    assert detect_image_type(content) is None


def test_a_small_image_goes_through_unchanged() -> None:
    """The bytes of an image that models take are sent as they are."""
    content = encoded(pillow().new("RGB", (MAX_SIDE, 10), "red"), "PNG")
    made = process_image(content, "image/png", auto_resize=True)
    assert (base64.b64decode(made.data), made.mime_type, made.hints) == (content, "image/png", [])


def test_a_large_image_is_scaled_down_and_says_so() -> None:
    """The longer side is brought to the limit, and the hint gives the factor for coordinates."""
    content = encoded(pillow().new("RGBA", (4000, 1000), (255, 0, 0, 128)), "PNG")
    made = process_image(content, "image/png", auto_resize=True)
    assert (decoded(made.data).size, decoded(made.data).mode, made.mime_type) == ((2000, 500), "RGBA", "image/png")
    assert made.hints == ["Resized from 4000x1000 to 2000x500: multiply coordinates by 2.00 to get those in the file."]
    assert base64.b64decode(process_image(content, "image/png", auto_resize=False).data) == content


def test_an_image_of_too_many_bytes_is_made_smaller() -> None:
    """Noise that no PNG can hold small enough becomes a JPEG under the limit."""
    import random

    noise = pillow().frombytes("RGB", (1500, 1500), random.Random(1).randbytes(1500 * 1500 * 3))
    made = process_image(encoded(noise, "PNG"), "image/png", auto_resize=True)
    assert (made.ok, made.mime_type) == (True, "image/jpeg")
    assert len(base64.b64decode(made.data)) <= MAX_BYTES


def test_a_bmp_becomes_a_png_and_a_turned_photo_stands_upright() -> None:
    """What is encoded anew keeps how it looks: the pixels, and the orientation that only its EXIF data told."""
    image = pillow().new("RGB", (3, 2), "red")
    made = process_image(encoded(image, "BMP"), "image/bmp", auto_resize=False)
    assert (made.mime_type, decoded(made.data).size, decoded(made.data).getpixel((0, 0))) == ("image/png", (3, 2), (255, 0, 0))
    exif = image.getexif()
    exif[0x0112] = 6
    photo = encoded(pillow().new("RGB", (3000, 1500), "red"), "JPEG", exif=exif)
    assert decoded(process_image(photo, "image/jpeg", auto_resize=True).data).size == (1000, 2000)


def test_a_broken_image_goes_through_as_it_is() -> None:
    """Pillow's opinion of broken bytes is no error of the tool."""
    content = encoded(pillow().new("RGB", (3000, 3000), "red"), "PNG")[:200]
    made = process_image(content, "image/png", auto_resize=True)
    assert (made.ok, base64.b64decode(made.data)) == (True, content)


def test_an_image_that_no_request_could_hold_is_left_out() -> None:
    """Rather than a request that is refused, and each later one with it, the model reads why there is no image."""
    made = process_image(b"GIF89a" + bytes(21_000_000), "image/gif", auto_resize=False)
    assert (made.ok, made.message) == (
        False,
        "[Image omitted: it has 21.0 MB; make it smaller, or install Pillow (agentcore-sync[images]).]",
    )


def test_without_pillow_images_go_through(tmp_path: Path) -> None:
    """The extra is not needed: a large image is then sent as it is, and a BMP says what is missing."""
    script = (
        "import sys; sys.modules['PIL'] = None\n"
        "from agentcore.tools.images import process_image\n"
        "print(process_image(b'\\xff\\xd8\\xff', 'image/jpeg', auto_resize=True).data)\n"
        "print(process_image(b'BM', 'image/bmp', auto_resize=True).message)\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=False, cwd=tmp_path)
    assert (ended.stdout.splitlines(), ended.stderr) == (
        ["/9j/", "[Image omitted: BMP images are converted by Pillow (agentcore-sync[images]) or an image_processor.]"],
        "",
    )
