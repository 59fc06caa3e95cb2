"""Damaged codestreams by the thousand, decoded in a process of limited memory.

Each is refused or decoded, and nothing else happens.

python -m tests.support.objects.codec_fuzz --cases 100000 --seed 7        prints what became of them; the unit test runs a thousand
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np

from hilum_preprocessing import NotAnalysable, decode, reducible
from tests.support.objects.encoders import ENCODERS, enclosed
from tests.support.objects.radiograph import scene

MEMORY_BYTES: Final = 512 << 20
"""On top of what the process has when it starts: a picture of 60 x 50 needs some kilobytes."""

Damage = Callable[[bytes, np.random.Generator], bytes]


def flip(whole: bytes, random: np.random.Generator) -> bytes:
    """Some bits, anywhere."""
    damaged = bytearray(whole)
    for position in random.integers(0, len(whole), random.integers(1, 9)):
        damaged[position] ^= 1 << int(random.integers(8))
    return bytes(damaged)


def lie(whole: bytes, random: np.random.Generator) -> bytes:
    """Other bytes in the headers: sizes, lengths, depths, table selectors."""
    damaged = bytearray(whole)
    start = int(random.integers(0, min(200, len(whole) - 4)))
    damaged[start : start + 2] = random.choice(
        [b"\xff\xff", b"\x00\x00", b"\x00\x01", b"\x7f\xff", b"\x80\x00"]
    )
    return bytes(damaged)


def cut(whole: bytes, random: np.random.Generator) -> bytes:
    """The end is missing."""
    return whole[: int(random.integers(1, len(whole) - 3))]


def cut_and_ended(whole: bytes, random: np.random.Generator) -> bytes:
    """The end is missing, but for its marker."""
    return cut(whole, random) + b"\xff\xd9"


def splice(whole: bytes, random: np.random.Generator) -> bytes:
    """A piece of it stands in another place."""
    start, stop, place = sorted(random.integers(0, len(whole), 3))
    return whole[:place] + whole[start:stop] + whole[place:]


def noise(whole: bytes, random: np.random.Generator) -> bytes:
    """A run of random bytes."""
    start = int(random.integers(0, len(whole)))
    run = random.bytes(int(random.integers(1, 64)))
    return whole[:start] + run + whole[start + len(run) :]


DAMAGES: Final[tuple[Damage, ...]] = (flip, lie, cut, cut_and_ended, splice, noise)


def run(cases: int, seed: int, trace: Path | None) -> Counter[str]:
    """How many ended how, as `damage ending`.

    The case at hand stands in `trace`, so that a crash says which it was.
    """
    ended: Counter[str] = Counter()
    originals = [(uid, encoder.bits[-1]) for uid, encoder in ENCODERS.items()]
    arrays = {
        bits: scene(60, 50, bits).astype(np.uint8 if bits == 8 else np.uint16)
        for _, bits in originals
    }
    codestreams = {uid: ENCODERS[uid].encode(arrays[bits], bits) for uid, bits in originals}
    for case in range(cases):
        random = np.random.default_rng((seed, case))
        uid, bits = originals[case % len(originals)]
        damage = DAMAGES[case // len(originals) % len(DAMAGES)]
        if trace is not None:
            trace.write_text(f"--seed {seed}, case {case}: {uid}, {damage.__name__}")
        damaged = damage(codestreams[uid], random)
        ended[
            f"{damage.__name__} {_ending(damaged, codestreams[uid], arrays[bits], uid, bits)}"
        ] += 1
    return ended


def _ending(damaged: bytes, whole: bytes, array: np.ndarray, uid: str, bits: int) -> str:  # type: ignore[type-arg]
    dataset = enclosed(damaged, array, uid, bits)
    try:
        stored = decode(dataset)
        if reducible(dataset):
            decode(dataset, reduce=1)
    except NotAnalysable:
        return "refused"
    is_same = np.array_equal(stored.array, decode(enclosed(whole, array, uid, bits)).array)
    return "decoded" if is_same else "decoded to something else"


def main() -> int:
    """Limit the memory, run, and print the counts as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--trace", type=Path)
    given = parser.parse_args()
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.stdout.write(json.dumps(run(given.cases, given.seed, given.trace)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
