"""The towers of CLIP beside torch's own layers, and the tokenizer beside tokens counted by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from hilum.errors import ConfigurationError
from hilum.models.formats import identity
from hilum.models.networks import clip_shape, state_dict
from hilum.models.networks.clip import ClipImageTower
from hilum.models.zero_shot import clip_bpe, embeddings
from tests.support.models.clip import (
    SMALL_VOCABULARY,
    ClipSizes,
    checkpoint,
    image_forward,
    text_forward,
    write_vocabulary,
)

BEGIN = SMALL_VOCABULARY - 2
END = SMALL_VOCABULARY - 1


def _tokenizer(folder: Path) -> clip_bpe.ClipBpe:
    path = write_vocabulary(folder / "vocabulary.txt.gz")
    return clip_bpe.read(path, identity.file_sha256(path), SMALL_VOCABULARY)


@pytest.mark.parametrize("sizes", [ClipSizes(), ClipSizes(side=320, patch=80, layers=3)])
@torch.no_grad()
def test_the_image_tower_computes_what_its_paper_says(sizes: ClipSizes) -> None:
    given = checkpoint(sizes)
    tower = ClipImageTower(clip_shape.image_shape(given), 3)
    names = {name.removeprefix("visual."): given[name] for name in given if "visual." in name}
    state_dict.load_into(tower, names, "theirs")
    pixels = torch.randn(2, 3, sizes.side, sizes.side, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(tower(pixels), image_forward(pixels, given), atol=1e-5, rtol=0)


@torch.no_grad()
def test_the_text_tower_computes_what_its_paper_says() -> None:
    given = checkpoint()
    texts = {name: each for name, each in given.items() if not name.startswith("visual.")}
    texts.pop("logit_scale")
    tower = embeddings.text_tower(texts, "theirs")
    ids = torch.tensor([[BEGIN, 70, 300, END, 0, 0], [BEGIN, 5, 6, 7, 512, END]])
    expected = torch.cat([text_forward(ids[0, :4], given), text_forward(ids[1], given)])
    torch.testing.assert_close(tower(ids), expected, atol=1e-5, rtol=0)


def test_the_earliest_merge_of_the_file_comes_first(tmp_path: Path) -> None:
    tokenizer = _tokenizer(tmp_path)
    no = 512  # "n o</w>" is the first merge
    edema = 518  # "ed ema</w>" the seventh
    assert tokenizer.tokens("No Edema") == (BEGIN, no, edema, END)
    assert tokenizer.tokens("  no&#32;\n EDEMA ") == (BEGIN, no, edema, END)


def test_digits_stand_alone_and_marks_together(tmp_path: Path) -> None:
    def at_end(letter: str) -> int:
        return 256 + ord(letter) - ord("!")

    found = _tokenizer(tmp_path).tokens("12 ?!")
    marks = (ord("?") - ord("!"), at_end("!"))
    assert found == (BEGIN, at_end("1"), at_end("2"), *marks, END)


@pytest.mark.parametrize("text", ["œdema", "edema <|endoftext|>", "edema\x00", "&eacute;"])
def test_a_text_that_the_authors_would_clean_first_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigurationError, match="write it in printable ASCII"):
        _tokenizer(tmp_path).tokens(text)


def test_an_empty_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="it has no word"):
        _tokenizer(tmp_path).tokens("  ")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"\x1f\x8bnot packed", "no readable vocabulary"),
        (b"\xff\xfe", "no readable vocabulary"),
        (b"version\na b\nc d\n", "fewer tokens than the 529 of the text tower"),
        (b"version\n" + b"a b c\n" * 20, "no vocabulary of this network"),
    ],
)
def test_a_file_that_is_no_vocabulary_is_refused(
    tmp_path: Path, content: bytes, problem: str
) -> None:
    path = tmp_path / "vocabulary.txt"
    path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=problem):
        clip_bpe.read(path, identity.file_sha256(path), SMALL_VOCABULARY)
