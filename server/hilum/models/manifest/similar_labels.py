"""Names close to a known one: "Atelectsis", "Nodules", "PLEURAL_EFFUSION"."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Final

from hilum.models.manifest import terminology
from hilum.models.manifest.label_names import plain

_SHORTEST: Final = (
    5  # least letters of a word with one wrong letter: "mass" and "mask" are two words
)
_LONG: Final = 10  # least letters of a word with two wrong letters
_PLURALS: Final = ("es", "s")


def concept_near(name: str) -> str | None:
    """Return the key of the concept with this name, but for case, marks, a plural or a letter.

    None: there is none.
    """
    known = _spellings()
    word = plain(name)
    singular = next((known[each] for each in _singulars(word) if each in known), None)
    if singular or len(word) < _SHORTEST:
        return singular
    distances = {each: distance(word, each) for each in known if len(each) >= _SHORTEST}
    nearest = min(distances, key=distances.__getitem__)
    return known[nearest] if distances[nearest] <= _allowed(min(word, nearest, key=len)) else None


def are_alike(one: str, other: str) -> bool:
    """Whether two names differ by case, marks or a plural at most."""
    return not {*_singulars(plain(one))}.isdisjoint(_singulars(plain(other)))


def distance(one: str, other: str) -> int:
    """Return the letters to insert, remove, replace or swap (optimal string alignment)."""
    earlier = list[int]()
    above = list(range(len(other) + 1))
    for i, letter in enumerate(one, start=1):
        row = [i]
        for j, wanted in enumerate(other, start=1):
            steps = [above[j] + 1, row[j - 1] + 1, above[j - 1] + (letter != wanted)]
            if i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == wanted:
                steps.append(earlier[j - 2] + 1)
            row.append(min(steps))
        earlier = above
        above = row
    return above[-1]


def _allowed(word: str) -> int:
    return 2 if len(word) >= _LONG else 1


def _singulars(word: str) -> list[str]:
    """Return the word, and those of which it may be the plural."""
    return [word, *(word.removesuffix(ending) for ending in _PLURALS if word.endswith(ending))]


@functools.cache
def _spellings() -> Mapping[str, str]:
    """Return every spelling of a concept, in small letters and digits alone, with its key."""
    table = terminology.load()
    labels = (pair for known in table.label_sets.values() for pair in known.labels)
    named = [
        *labels,
        *((concept.text, key) for key, concept in table.concepts.items()),
        *((key, key) for key in table.concepts),
    ]
    return {plain(name): key for name, key in named if plain(name)}
