"""Operations on sound: pitches stay where they are, masks mask what they should, and the made
clips are what LJ Speech's are, the same each time."""

import hashlib
import math
import random
import wave
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("torchvision")

import torch

from lotus.workloads import audio as script
from lotus.workloads import speech


def tone(pitch: float, rate: int, seconds: float = 1.0) -> torch.Tensor:
    return torch.sin(2 * math.pi * pitch * torch.arange(int(rate * seconds)) / rate)


@pytest.mark.parametrize(("old", "new"), [(22_050, 16_000), (8_000, 16_000), (44_100, 16_000)])
def test_a_tone_is_the_same_tone_at_another_rate(old: int, new: int) -> None:
    resampled = script.Resample(old, new)(tone(1000, old))
    assert len(resampled) == new
    inner = slice(200, -200)  # what is before and after the sound is silence
    assert torch.allclose(resampled[inner], tone(1000, new)[inner], atol=0.01)


def test_a_tone_that_the_new_rate_cannot_hold_is_gone() -> None:
    resampled = script.Resample(22_050, 16_000)(tone(10_500, 22_050))
    assert resampled[200:-200].abs().max() < 0.02


def test_sound_at_the_right_rate_stays_as_it_is() -> None:
    sound = tone(100, 16_000)
    assert script.Resample(16_000, 16_000)(sound) is sound


def test_a_spectrogram_shows_a_tone_in_its_band() -> None:
    spectrogram = script.LogMelSpectrogram()(tone(1000, 16_000, 0.5))
    assert spectrogram.shape == (80, 51)
    band = int(spectrogram[:, 25].argmax())
    filters = script.mel_filters(16_000, 201, 80)
    assert filters[band, 25] > 0.4  # bin 25 of 201 is 1000 Hz
    assert spectrogram[band, 25] > spectrogram[70:, 25].max() + 4  # bels
    silence = script.LogMelSpectrogram()(torch.zeros(1600))
    assert silence.unique().tolist() == [-8]


def test_mel_filters_are_triangles_that_overlap_by_half() -> None:
    filters = script.mel_filters(16_000, 2001, 40)
    inner = filters[:, 60:1800].sum(0)
    assert torch.allclose(inner, torch.ones_like(inner), atol=1e-4)
    assert (filters.argmax(1).diff() > 0).all()


def test_a_spectrogram_is_brought_to_zero_mean_and_unit_variance() -> None:
    normal = script.Normalize()(torch.rand(80, 30, generator=torch.Generator().manual_seed(0)))
    assert abs(float(normal.mean())) < 1e-5
    assert abs(float(normal.std()) - 1) < 1e-3


@pytest.mark.parametrize(
    ("operation", "axis", "most"),
    [
        (script.FrequencyMasking(6, times=1), 0, 6),
        (script.TimeMasking(9, times=1), 1, 9),
        (script.TimeMasking(1000, times=1), 1, 20),  # a fifth of 100 frames
    ],
)
def test_masks_are_single_stripes_of_up_to_their_width(
    operation: script.TimeMasking, axis: int, most: int
) -> None:
    random.seed(0)
    whole, widths = torch.ones(30, 100), set()
    for _ in range(400):
        spectrogram = operation(whole)
        hidden = (spectrogram == 0).all(1 - axis)
        assert int((spectrogram == 0).sum()) == int(hidden.sum()) * whole.shape[1 - axis]
        assert int(hidden.int().diff().abs().sum()) <= 2  # one stripe
        widths.add(int(hidden.sum()))
    assert widths == set(range(most + 1))
    assert whole.min() == 1  # not changed in place


def test_batches_are_padded_to_the_longest() -> None:
    samples = [(torch.ones(80, 3), torch.tensor([4, 5])), (torch.ones(80, 5), torch.tensor([6]))]
    spectrograms, frames, texts, letters = script.collate(samples)
    assert spectrograms.shape == (2, 80, 5)
    assert spectrograms.sum((1, 2)).tolist() == [240, 400]
    assert (frames.tolist(), texts.tolist(), letters.tolist()) == ([3, 5], [4, 5, 6], [2, 1])
    output = script.SmallRecogniser()(spectrograms)
    assert output.shape == (int((frames.max() + 3) // 4), 2, 29)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "speech"
    list(speech.make(folder, 12))
    return folder


def test_clips_are_files_of_sound_and_the_same_each_time(made: Path) -> None:
    lines = (made / "metadata.csv").read_text().splitlines()
    assert [line.split("|")[0] for line in lines] == [f"LJ001-{n:04d}" for n in range(1, 13)]
    seconds = []
    for path in sorted((made / "wavs").iterdir()):
        with wave.open(str(path)) as file:
            assert file.getparams()[:3] == (1, 2, 22_050)
            seconds.append(file.getnframes() / 22_050)
        sound = script.load_wav(path)
        assert len(sound) == round(seconds[-1] * 22_050)
        assert 0.2 < sound.abs().max() < 0.99  # neither too soft nor cut off
    assert len(seconds) == 12
    assert 0.5 < min(seconds) < max(seconds) < 12
    assert lines[1].endswith("|".join(2 * ["suba zekule girida sunuki dediza lufi bo gi dusu se"]))
    files = [made / "metadata.csv", made / "wavs" / "LJ001-0002.wav"]
    digests = [hashlib.sha256(file.read_bytes()).hexdigest()[:16] for file in files]
    assert digests == ["9ab0fba7b3283d44", "e0efb66703a670dc"]


def test_vowels_are_heard_where_their_formants_are() -> None:
    spectrum = np.abs(np.fft.rfft(speech._vowel("i", 100, 0.5)))
    pitches = np.fft.rfftfreq(round(0.5 * speech.RATE), 1 / speech.RATE)
    for low, high, formant in ((0, 1000, 270), (1000, 11_000, 2290)):
        band = (pitches > low) & (pitches < high)
        assert abs(pitches[band][spectrum[band].argmax()] - formant) < 50  # half of the pitch


def test_a_sample_is_the_same_whoever_asks_and_another_in_each_epoch(made: Path) -> None:
    dataset = script.Speech(str(made), seed=0)
    (spectrogram, text), (again, _) = dataset[1], dataset[1]
    dataset.epoch = 1
    other, _ = dataset[1]
    assert spectrogram.shape[0] == 80
    assert torch.equal(spectrogram, again)
    assert not torch.equal(spectrogram, other)
    for number in range(len(dataset)):  # or CTC could not place the letters
        spectrogram, text = dataset[number]
        assert (spectrogram.shape[1] + 3) // 4 > len(text)
    text = dataset[1][1]
    sentence = "".join(script.LETTERS[number - 1] for number in text.tolist())
    assert sentence == speech.sentence(1)
