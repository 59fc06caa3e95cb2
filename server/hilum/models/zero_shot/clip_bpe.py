"""CLIP's tokenizer: byte-pair encoding by the vocabulary file that a person brings.

After `simple_tokenizer.py` of OpenAI's CLIP (MIT). Texts are printable ASCII, for which the
authors' clean-up of broken Unicode (ftfy) changes nothing.
"""

from __future__ import annotations

import gzip
import html
import itertools
import re
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from hilum.errors import ConfigurationError
from hilum.models.formats import identity

PUBLISHED_SHA256: Final = "924691ac288e54409236115652ad4aa250f48203de50a9e4722a6ecd48d6804a"
"""Of `bpe_simple_vocab_16e6.txt.gz`, as OpenAI's CLIP and OpenCLIP have it."""
_NAME: Final = "bpe_simple_vocab_16e6.txt.gz"
_GZIP: Final = b"\x1f\x8b"
_LARGEST: Final = (
    1 << 26
)  # bytes of a vocabulary that are read, unpacked; the published one has 3 MB
_END: Final = "</w>"
# Two special tokens, and every byte twice: inside of a word, and at its end.
_BESIDE_MERGES: Final = 2 + 2 * 256
_PIECES: Final = re.compile(r"'s|'t|'re|'ve|'m|'ll|'d|[a-z]+|[0-9]|[^\sa-z0-9]+")
_SPECIAL: Final = "<|"


class ClipBpe:
    """Texts → token ids, as CLIP's `tokenize` gives them without the zeros behind."""

    def __init__(self, merges: Sequence[tuple[str, str]]) -> None:
        symbols = _byte_symbols()
        tokens = [
            *symbols,
            *(f"{symbol}{_END}" for symbol in symbols),
            *(f"{first}{second}" for first, second in merges),
        ]
        self._ids = {token: number for number, token in enumerate(tokens)}
        self._ranks = {pair: rank for rank, pair in enumerate(merges)}
        self._begin = len(tokens)
        self._finish = len(tokens) + 1

    def tokens(self, text: str) -> tuple[int, ...]:
        """Return the ids, with those of the beginning and the end.

        Raises ConfigurationError where this reader would not read it as the authors do.
        """
        plain = html.unescape(html.unescape(text))
        if _SPECIAL in plain or not (plain.isascii() and plain.replace("\n", " ").isprintable()):
            raise ConfigurationError(
                [f"prompt {text!r}: write it in printable ASCII, without {_SPECIAL}"]
            )
        pieces = _PIECES.findall(plain.lower())
        if not pieces:
            raise ConfigurationError([f"prompt {text!r}: it has no word"])
        inside = [self._ids[token] for piece in pieces for token in self._split(piece)]
        return (self._begin, *inside, self._finish)

    def _split(self, piece: str) -> Sequence[str]:
        """Return the tokens of one piece: the earliest merge of the file first."""
        word = [*piece[:-1], f"{piece[-1]}{_END}"]
        while len(word) > 1:
            pairs = set(itertools.pairwise(word)) & set(self._ranks)
            if not pairs:
                break
            word = list(_merged(word, min(pairs, key=self._ranks.__getitem__)))
        return word


def read(path: Path, sha256: str, size: int) -> ClipBpe:
    """Return the tokenizer of a vocabulary file, for a text tower of `size` tokens.

    Raises ConfigurationError: another file than the one with this digest, damaged, or too short.
    """
    if not path.is_file():
        raise ConfigurationError([f"{path}: no such file; the tokenizer is CLIP's {_NAME}"])
    if (found := identity.file_sha256(path)) != sha256:
        raise ConfigurationError(
            [
                (
                    f"{path} has sha256 {found}, not {sha256}: another tokenizer gives other"
                    " tokens, and with them other scores. Bring that file"
                )
            ]
        )
    lines = _text(path).split("\n")[1:]  # the first says its version
    merges = [tuple(line.split()) for line in lines[: size - _BESIDE_MERGES]]
    if len(merges) < size - _BESIDE_MERGES or any(len(pair) != 2 for pair in merges):
        problem = f"it makes fewer tokens than the {size} of the text tower"
        raise ConfigurationError([f"{path} is no vocabulary of this network: {problem}"])
    return ClipBpe([(pair[0], pair[1]) for pair in merges])


def _text(path: Path) -> str:
    try:
        with path.open("rb") as source:
            is_packed = source.read(2) == _GZIP
        with gzip.open(path) if is_packed else path.open("rb") as source:
            return source.read(_LARGEST).decode("utf-8")
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise ConfigurationError([f"{path} is no readable vocabulary: {error}"]) from error


def _byte_symbols() -> list[str]:
    """Return the character that stands for each byte, in the order of the first 256 ids."""
    seen = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAC + 1), *range(0xAE, 0xFF + 1)]
    unseen = 256 - len(seen)
    return [*map(chr, seen), *(chr(256 + number) for number in range(unseen))]


def _merged(word: Sequence[str], pair: tuple[str, str]) -> Iterator[str]:
    """Yield the tokens with each such pair made one."""
    place = 0
    while place < len(word):
        if tuple(word[place : place + 2]) == pair:
            yield pair[0] + pair[1]
            place += 2
        else:
            yield word[place]
            place += 1
