"""A deterministic data set of speech, in the layout and the format of LJ Speech.

`wavs/LJ001-0001.wav` and so on (22,050 Hz, 16 bit, one channel, 1 to 10 seconds) and
`metadata.csv`, whose lines are `LJ001-0001|what is said|the same, written out`. Nobody speaks: a
vowel is a buzz through two formants, a consonant is noise of its own pitch, as long as they are in
speech.
"""

import wave
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lotus.workloads import making

RATE = 22_050
VOWELS = {"a": (730, 1090), "e": (530, 1840), "i": (270, 2290), "o": (570, 840), "u": (300, 870)}
CONSONANTS = "bdfgklmnprstvz"  # noise from 1 kHz (b) to 7.5 kHz (z)


def sentence(number: int) -> str:
    """Return the text of clip `number`: 2 to 20 words, the same each time."""
    random = np.random.Generator(np.random.PCG64((number, 0)))
    words = []
    for _ in range(int(random.integers(2, 21))):
        syllables = [
            CONSONANTS[random.integers(len(CONSONANTS))] + "aeiou"[random.integers(5)]
            for _ in range(int(random.integers(1, 4)))
        ]
        words.append("".join(syllables))
    return " ".join(words)


def clip(number: int) -> NDArray[np.int16]:
    """Return the samples of clip `number`, at 22,050 Hz."""
    random = np.random.Generator(np.random.PCG64((number, 1)))
    pitch, pace = random.uniform(90, 220), random.uniform(0.8, 1.2)
    pieces = [_silence(random, 0.1)]
    for letter in sentence(number):
        seconds = pace * random.uniform(0.8, 1.2)
        if letter == " ":
            pieces.append(_silence(random, 0.07 * seconds))
        elif letter in VOWELS:
            pieces.append(_vowel(letter, pitch * random.uniform(0.95, 1.05), 0.11 * seconds))
        else:
            pieces.append(_consonant(letter, random, 0.06 * seconds))
    pieces.append(_silence(random, 0.1))
    return (np.concatenate(pieces) * 12_000).astype(np.int16)


def _silence(random: np.random.Generator, seconds: float) -> NDArray[np.float64]:
    return 0.003 * random.standard_normal(round(seconds * RATE))


def _vowel(letter: str, pitch: float, seconds: float) -> NDArray[np.float64]:
    """Return the harmonics of a pitch, stronger the nearer they are to a formant."""
    times = np.arange(round(seconds * RATE)) / RATE
    sound = np.zeros(len(times))
    for frequency in pitch * np.arange(1, int(4000 / pitch)):
        strength = sum(1 / (1 + ((frequency - formant) / 90) ** 2) for formant in VOWELS[letter])
        sound += strength * np.sin(2 * np.pi * frequency * times)
    return sound * _swell(len(times)) * 0.5


def _consonant(letter: str, random: np.random.Generator, seconds: float) -> NDArray[np.float64]:
    """Return noise around the letter's own pitch."""
    times = np.arange(round(seconds * RATE)) / RATE
    centre = 1000 + 500 * CONSONANTS.index(letter)
    noise = np.repeat(random.standard_normal(len(times) // 16 + 1), 16)[: len(times)]
    return noise * np.sin(2 * np.pi * centre * times) * _swell(len(times)) * 0.25


def _swell(count: int) -> NDArray[np.float64]:
    return np.sqrt(np.sin(np.pi * (np.arange(count) + 0.5) / count))


def _name(number: int) -> str:
    return f"LJ{number // 200 + 1:03d}-{number % 200 + 1:04d}"


def save(directory: Path, number: int) -> None:
    folder = directory / "wavs"
    folder.mkdir(exist_ok=True)
    with wave.open(str(folder / f"{_name(number)}.wav"), "wb") as file:
        file.setparams((1, 2, RATE, 0, "NONE", "not compressed"))
        file.writeframes(clip(number).astype("<i2").tobytes())


def transcribe(directory: Path, count: int) -> None:
    """Write metadata.csv of `count` clips."""
    spoken = ((_name(number), sentence(number)) for number in range(count))
    lines = "".join(f"{name}|{text}|{text}\n" for name, text in spoken)
    (directory / "metadata.csv").write_text(lines)


def make(directory: Path, count: int) -> Iterator[int]:
    """Make `count` clips and their transcripts unless they exist; as `making.make`."""
    return making.make(directory, count, save, transcribe)
