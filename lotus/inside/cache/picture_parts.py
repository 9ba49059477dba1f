"""The parts of a picture of Pillow besides its pixels, and the number of its bytes."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Bytes of a pixel, as `tobytes` gives it. Of mode "1" a pixel is a bit, and a row whole bytes.
_PIXEL = {
    **dict.fromkeys(("L", "P"), 1),
    **dict.fromkeys(("LA", "PA", "La", "I;16", "I;16L", "I;16B", "I;16N"), 2),
    **dict.fromkeys(("RGB", "YCbCr", "LAB", "HSV"), 3),
    **dict.fromkeys(("RGBX", "RGBA", "RGBa", "CMYK", "I", "F"), 4),
}


def byte_count(mode: str, width: int, height: int) -> int:
    """Return how many bytes a picture has; -1 if it is empty or its mode is not cached."""
    if not width or not height:
        return -1
    if mode == "1":
        return (width + 7) // 8 * height
    return _PIXEL[mode] * width * height if mode in _PIXEL else -1


def usual_attributes(images: Any) -> set[str]:
    """Return the attributes that every picture has in this version of Pillow."""
    return set(vars(images.new("L", (1, 1)))) | {"pyaccess"}


def palette_of(picture: Any) -> tuple[Any, ...]:
    """Return all parts of a palette: as Python has it, then as the picture's memory has it."""
    shown, core = picture.palette, picture.im
    held = core.getpalettemode() if picture.mode in ("P", "PA") else ""
    colours = core.getpalette(held, "RGBA") if held else b""
    if shown is None:
        return (None, None, b"", held, colours)
    return (shown.mode, shown.rawmode, bytes(shown.palette), held, colours)


def set_palette(picture: Any, palette: Any) -> Any:
    """Give a new picture a palette, which is what `palette_of` returns."""
    mode, raw, shown, held, colours = palette
    palettes = sys.modules["PIL.ImagePalette"]
    if held:
        picture.palette = palettes.raw("RGBA" if held == "RGBA" else "RGBX", colours)
        picture.palette.mode = held
        picture.load()  # brings it into the picture's memory
    picture.palette = None
    if mode is not None:
        picture.palette = palettes.ImagePalette(mode, shown)
        picture.palette.rawmode = raw
    return picture
