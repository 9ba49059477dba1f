"""Tensors and pictures of samples come back from bytes equal bit for bit, in any torch."""

import contextlib
import random
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given as holds_for
from hypothesis import strategies as st
from PIL import Image, ImagePalette

from lotus.inside.cache import entry_codec, entry_decoder
from lotus.inside.cache.entry_codec import EncodingError

DTYPES = sorted(
    (
        dtype
        for name, dtype in vars(torch).items()
        if isinstance(dtype, torch.dtype) and not name.startswith(("q", "bits"))
    ),
    key=str,
)
MODES = "1 L LA La I;16 I;16B RGB RGBX RGBA RGBa CMYK YCbCr LAB HSV I F".split()

REFUSED = r"^(?!AttributeError|TypeError)"  # in words, or by a check of the layout


def joined(value: Any) -> bytes:
    return b"".join(entry_codec.encode(value))


def again(value: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "B?Complex(Half|32)")  # as wherever such a tensor is made
        return entry_decoder.decode(memoryview(joined(value)))


def random_tensor(dtype: torch.dtype, sizes: list[int], seed: int) -> torch.Tensor:
    """A tensor of any bits."""
    bits = random.Random(seed).randbytes(int(np.prod(sizes)) * dtype.itemsize)
    if dtype is torch.bool:
        bits = bytes(byte & 1 for byte in bits)
    if not bits:
        return torch.empty(sizes, dtype=dtype)
    return torch.frombuffer(bytearray(bits), dtype=dtype).reshape(sizes)


def memory(tensor: torch.Tensor) -> bytes:
    """The elements' bytes, in the order of their indices."""
    bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.complex128}
    return bytes(tensor.view(bits[tensor.element_size()]).contiguous().numpy().tobytes())


def assert_same(decoded: torch.Tensor, tensor: torch.Tensor) -> None:
    assert type(decoded) is torch.Tensor
    assert decoded.dtype is tensor.dtype
    assert decoded.stride() == tensor.stride()
    assert decoded.shape == tensor.shape
    assert memory(decoded) == memory(tensor)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_tensors_of_each_dtype(dtype: torch.dtype) -> None:
    for sizes in ([], [0], [3], [2, 0, 3], [2, 3, 4]):
        tensor = random_tensor(dtype, sizes, 0)
        assert_same(again(tensor), tensor)


@st.composite
def strided(draw: st.DrawFn) -> torch.Tensor:
    """A tensor after operations that only change its strides."""
    sizes = draw(st.lists(st.integers(0, 5), max_size=4))
    dtype = draw(st.sampled_from([torch.float32, torch.bfloat16, torch.complex128, torch.bool]))
    tensor = random_tensor(dtype, sizes, draw(st.integers(0, 9)))
    tensor = tensor.permute(draw(st.permutations(range(len(sizes)))))
    for place, size in enumerate(tensor.shape):
        if size:
            start, step = draw(st.integers(0, size - 1)), draw(st.sampled_from([1, 1, 2]))
            tensor = tensor[(slice(None),) * place + (slice(start, None, step),)]
    if draw(st.booleans()):
        tensor = tensor.expand(draw(st.integers(1, 3)), *tensor.shape)
    return tensor


@holds_for(strided())
def test_tensors_with_any_strides(tensor: torch.Tensor) -> None:
    decoded = again([tensor, 1])[0]
    assert_same(decoded, tensor)
    # AND equal tensors have equal bytes
    assert joined(decoded) == joined(tensor)


def test_decoded_tensors_are_as_new_ones() -> None:
    data = bytearray(joined([torch.arange(6.0).reshape(2, 3), torch.arange(4.0)[::2]]))
    before = bytes(data)
    plain, spread = entry_decoder.decode(memoryview(data))
    # THEN they are no views, do not share the bytes, and can be resized
    for tensor in (plain, spread):
        assert not tensor._is_view()
        tensor.zero_()
        tensor.requires_grad_()
        assert tensor.is_leaf
    assert bytes(data) == before
    assert torch.equal(again(torch.arange(3.0)).resize_(4)[:3], torch.arange(3.0))
    assert again(torch.ones(5))[1:].storage_offset() == 1


def test_the_programs_default_device_changes_nothing() -> None:
    data = joined([torch.arange(6.0)[::2], torch.ones(0, 3), torch.ones(3)])
    torch.set_default_device("meta")
    try:
        decoded = entry_decoder.decode(memoryview(data))
        assert joined(decoded) == data
    finally:
        torch.set_default_device(None)
    assert [tensor.device.type for tensor in decoded] == ["cpu"] * 3


class OwnTensor(torch.Tensor):
    pass


def marked() -> torch.Tensor:
    tensor = torch.ones(3)
    tensor.label = 5  # type: ignore[attr-defined]
    return tensor


BASE = torch.arange(12.0)
with torch.inference_mode():
    INFERRED = torch.ones(3)


@pytest.mark.parametrize(
    "value",
    [
        torch.ones(3, requires_grad=True),
        torch.ones(3, requires_grad=True) * 2,
        torch.nn.Parameter(torch.ones(3)),
        torch.ones(3).as_subclass(OwnTensor),
        marked(),
        INFERRED,
        torch.ones(3, device="meta"),
        torch.eye(3).to_sparse(),
        torch.ones(3, dtype=torch.complex64).conj(),
        torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8),
        BASE.unfold(0, 3, 1),
        torch.zeros(100, 1000)[:, 0],
        [BASE, BASE],
        [BASE[:7], BASE[6:]],
        [BASE, BASE.numpy()],
        {BASE: 1},
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_would_not_come_back_equal_is_refused(value: Any) -> None:
    with pytest.raises(EncodingError, match=REFUSED):
        entry_codec.encode([value])


def random_picture(mode: str, size: tuple[int, int]) -> Image.Image:
    length = len(Image.new(mode, size).tobytes())
    return Image.frombytes(mode, size, random.Random(0).randbytes(length))


def assert_same_picture(decoded: Image.Image, picture: Image.Image) -> None:
    assert type(decoded) is Image.Image
    assert (decoded.mode, decoded.size) == (picture.mode, picture.size)
    assert decoded.tobytes() == picture.tobytes()
    assert decoded.info == picture.info
    assert decoded.getpalette("RGBA") == picture.getpalette("RGBA")
    if picture.mode in ("P", "PA"):
        assert decoded.convert("RGBA").tobytes() == picture.convert("RGBA").tobytes()


@pytest.mark.parametrize("mode", MODES)
def test_pictures_of_each_mode(mode: str) -> None:
    for size in ((1, 1), (17, 5), (64, 64)):
        picture = random_picture(mode, size)
        picture.info = {"dpi": (72, 72), "icc_profile": b"profile", "gamma": 0.5}
        decoded = again(picture)
        assert_same_picture(decoded, picture)
        # AND it can be written to
        data = bytearray(joined(picture))
        before, decoded = bytes(data), entry_decoder.decode(memoryview(data))
        decoded.putpixel((0, 0), picture.getpixel((0, 0)))
        decoded.paste(picture.crop((0, 0, 1, 1)), (0, 0))
        assert bytes(data) == before


def palette_pictures() -> list[Image.Image]:
    indices = random_picture("L", (8, 8))
    colours = bytes(random.Random(1).randbytes(768))
    pictures = [random_picture("RGB", (9, 9)).quantize(16)]
    for raw, data in (("RGB", colours), ("RGB", colours[:30]), ("RGBA", colours)):
        picture = Image.frombytes("P", (8, 8), indices.tobytes())
        picture.putpalette(data, raw)
        pictures.append(picture)
    pictures.append(pictures[1].resize((5, 5), Image.Resampling.NEAREST))
    picture = pictures[1].copy()
    picture.info["transparency"] = 3
    return [*pictures, picture, pictures[0].convert("PA"), Image.new("P", (3, 3))]


@pytest.mark.parametrize("place", range(8))
def test_pictures_with_a_palette(place: int) -> None:
    picture = palette_pictures()[place]
    decoded = again(picture)
    assert_same_picture(decoded, picture)
    assert joined(decoded) == joined(picture)
    # AND to encode a picture does not change it
    encoded = palette_pictures()[place]
    joined(encoded)
    assert_same_picture(encoded, palette_pictures()[place])


def test_pictures_with_more_than_pixels_are_refused(tmp_path: Any) -> None:
    path = tmp_path / "picture.png"
    random_picture("RGB", (4, 4)).save(path)
    own = random_picture("L", (2, 2))
    own.label = 5  # type: ignore[attr-defined]
    with_text = random_picture("L", (2, 2))
    with_text.info["page"] = object()
    with_exif = random_picture("RGB", (2, 2))
    with_exif.getexif()[1] = 2
    with_palette = random_picture("RGB", (2, 2))
    with_palette.palette = ImagePalette.ImagePalette("RGB", bytes(9))
    with Image.open(path) as opened:
        for picture in (opened, own, with_text, with_exif, Image.new("RGB", (0, 5))):
            with pytest.raises(EncodingError, match=REFUSED):
                entry_codec.encode(picture)
        # WHEN it is what a data set usually makes of a file
        picture = opened.convert("RGB")
        # THEN it is kept
        assert_same_picture(again(picture), picture)


def test_damaged_bytes_of_tensors_and_pictures() -> None:
    sample = (torch.arange(12.0)[::2], random_picture("P", (3, 3)), torch.ones(2, 2).T)
    data = joined(sample)
    for place in range(len(data)):
        for byte in (0, 0xFF, data[place] ^ 1, data[place] ^ 0x40):
            changed = data[:place] + bytes((byte,)) + data[place + 1 :]
            with contextlib.suppress(ValueError):
                entry_decoder.decode(memoryview(changed))
    for length in range(len(data)):
        with pytest.raises(ValueError, match="damaged"):
            entry_decoder.decode(memoryview(data[:length]))
