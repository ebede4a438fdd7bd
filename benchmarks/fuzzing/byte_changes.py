"""Changes that know nothing of what the bytes mean."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

Change = Callable[[bytearray, Random], str]


def flipped(data: bytearray, rng: Random) -> str:
    """A few bits are flipped."""
    count = rng.choice((1, 1, 2, 8, 64))
    for _ in range(count):
        place = rng.randrange(len(data))
        data[place] ^= 1 << rng.randrange(8)
    return f"{count} bits flipped"


def overwritten(data: bytearray, rng: Random) -> str:
    """A run of bytes becomes zeros, ones or noise."""
    length = min(len(data), rng.choice((1, 4, 16, 256, 4096)))
    place = rng.randrange(len(data) - length + 1)
    fill = rng.choice((b"\0" * length, b"\xff" * length, rng.randbytes(length)))
    data[place : place + length] = fill
    return f"{length} bytes overwritten at {place}"


def cut(data: bytearray, rng: Random) -> str:
    """The end is missing."""
    length = rng.choice((0, 1, len(data) // 2, len(data) - 1, rng.randrange(len(data))))
    del data[length:]
    return f"cut to {length} bytes"


def removed(data: bytearray, rng: Random) -> str:
    """A run of bytes is missing."""
    length = min(len(data), rng.choice((1, 2, 16, 256)))
    place = rng.randrange(len(data) - length + 1)
    del data[place : place + length]
    return f"{length} bytes removed at {place}"


def inserted(data: bytearray, rng: Random) -> str:
    """Noise or a copy of another part comes in between."""
    length = rng.choice((1, 2, 16, 256))
    start = rng.randrange(len(data))
    new = rng.choice((rng.randbytes(length), bytes(data[start : start + length])))
    place = rng.randrange(len(data) + 1)
    data[place:place] = new
    return f"{len(new)} bytes inserted at {place}"


CHANGES: tuple[Change, ...] = (flipped, flipped, flipped, overwritten, cut, removed, inserted)


def changed(data: bytes, rng: Random) -> tuple[bytes, str]:
    """Bytes with one to three changes, and what they were."""
    content, told = bytearray(data), list[str]()
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        if content:
            told.append(rng.choice(CHANGES)(content, rng))
    return bytes(content), "; ".join(told)
