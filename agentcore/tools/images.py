"""Images, told by their content: recognise, convert and shrink them for a model.

With Pillow (the extra `images`) a large image is scaled down and a BMP becomes a PNG; without it, images go through as they are.
"""

from __future__ import annotations

import base64
import io
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL.Image import Image

MAX_SIDE = 2000
"""Pixels of the longer side, over which an image is scaled down: more than this is scaled down by most providers anyway."""

MAX_BYTES = 3_500_000
"""Bytes of an image file, over which it is made smaller: in base64 these are under the 5 MB that providers take."""

MAX_BYTES_AS_IT_IS = 20_000_000
"""Bytes over which an image that cannot be made smaller is left out: a request with it would be refused, and each one after it."""

_JPEG_QUALITIES = (85, 70, 55, 40)
_SMALLEST_SIDE = 200


@dataclass
class ReadImageProcessorResult:
    """An image as the model gets it: `data` in base64, and what to tell about it; or, if not `ok`, the text that stands for it."""

    ok: bool = True
    data: str = ""
    mime_type: str = ""
    hints: list[str] = field(default_factory=list)
    message: str = ""


def detect_image_type(content: bytes) -> str | None:
    """Return the MIME type of an image that models take, or of a BMP, told by its first bytes; None for anything else.

    An animated PNG is none of them.
    """
    if content[:3] == b"\xff\xd8\xff":
        return None if content[3:4] == b"\xf7" else "image/jpeg"  # 0xF7: JPEG-LS
    if content[:8] == b"\x89PNG\r\n\x1a\n":
        return "image/png" if content[8:16] == b"\0\0\0\rIHDR" and not _is_animated_png(content) else None
    if content[:6] in (b"GIF87a", b"GIF89a"):
        return "image/gif"
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "image/webp"
    if content[:2] == b"BM" and _has_bmp_header(content):
        return "image/bmp"
    return None


def _is_animated_png(content: bytes) -> bool:
    position = 8
    while position + 8 <= len(content):
        size, kind = struct.unpack_from(">I4s", content, position)
        if kind == b"acTL":
            return True
        if kind == b"IDAT":
            return False
        position += 12 + size
    return False


def _has_bmp_header(content: bytes) -> bool:
    if len(content) < 26:
        return False
    (header_size,) = struct.unpack_from("<I", content, 14)
    if header_size == 12:
        planes, depth = struct.unpack_from("<HH", content, 22)
    elif 40 <= header_size <= 124 and len(content) >= 30:
        planes, depth = struct.unpack_from("<HH", content, 26)
    else:
        return False
    return planes == 1 and depth in (1, 4, 8, 16, 24, 32)


def process_image(content: bytes, mime_type: str, *, auto_resize: bool) -> ReadImageProcessorResult:
    """Make an image fit for a model, as far as Pillow is there and reads it.

    Args:
        content: The bytes of the file.
        mime_type: As `detect_image_type` tells it.
        auto_resize: Whether a large image is scaled down.
    """
    image = _open(content) if auto_resize or mime_type == "image/bmp" else None
    if image is not None:
        with image:
            made = _convert(image, content, mime_type, auto_resize)
        if made is not None:
            return made
    if mime_type == "image/bmp":
        return ReadImageProcessorResult(
            False, message="[Image omitted: BMP images are converted by Pillow (agentcore-sync[images]) or an image_processor.]"
        )
    if len(content) > MAX_BYTES_AS_IT_IS:
        size = len(content) / 1_000_000
        return ReadImageProcessorResult(
            False, message=f"[Image omitted: it has {size:.1f} MB; make it smaller, or install Pillow (agentcore-sync[images]).]"
        )
    return ReadImageProcessorResult(True, base64.b64encode(content).decode("ascii"), mime_type)


def _open(content: bytes) -> Image | None:
    try:
        from PIL import Image
    except ImportError:
        return None
    try:
        return Image.open(io.BytesIO(content))
    except Exception:  # a foreign decoder on foreign bytes: what it cannot read goes through as it is
        return None


def _convert(image: Image, content: bytes, mime_type: str, auto_resize: bool) -> ReadImageProcessorResult | None:
    """Return the image in a form and size that models take; None where it is that already, or cannot be decoded."""
    is_large = auto_resize and (max(image.size) > MAX_SIDE or len(content) > MAX_BYTES)
    if not is_large and mime_type != "image/bmp":
        return None
    from PIL import ImageOps

    try:
        upright = ImageOps.exif_transpose(image)  # a new encoding has no EXIF data that would turn it
        return _encode(upright, auto_resize)
    except Exception:  # as in _open: broken or monstrous images
        return None


def _encode(image: Image, auto_resize: bool) -> ReadImageProcessorResult:
    has_alpha = "A" in image.getbands() or "transparency" in image.info
    image = image.convert("RGBA" if has_alpha else "RGB")
    original, side = image.size, MAX_SIDE
    while True:
        smaller = image
        if auto_resize and max(image.size) > side:
            smaller = image.copy()
            smaller.thumbnail((side, side))
        data, mime_type = _smallest_encoding(smaller, has_alpha)
        if not auto_resize or len(data) <= MAX_BYTES or side <= _SMALLEST_SIDE:
            break
        side = int(min(side, max(image.size)) * 0.75)
    hints = []
    if smaller.size != original:
        (width, height), (new_width, new_height) = original, smaller.size
        hints.append(
            f"Resized from {width}x{height} to {new_width}x{new_height}: multiply coordinates by {width / new_width:.2f} to get "
            "those in the file."
        )
    return ReadImageProcessorResult(True, base64.b64encode(data).decode("ascii"), mime_type, hints)


def _smallest_encoding(image: Image, has_alpha: bool) -> tuple[bytes, str]:
    """Return the image as PNG, or as the best JPEG that is small enough where the PNG is too large."""
    data = _save(image, "PNG", optimize=False)
    if len(data) <= MAX_BYTES or has_alpha:
        return data, "image/png"
    for quality in _JPEG_QUALITIES:
        data = _save(image, "JPEG", quality=quality)
        if len(data) <= MAX_BYTES:
            break
    return data, "image/jpeg"


def _save(image: Image, kind: str, **options: int | bool) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()
