"""Open questions of a valid manifest: guesses, empty words, labels close to a known one.

A question is no problem: the release may be built and served. `hilum models check` ends with 1
until it is answered.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from hilum.models.facts import Fact, FactVerdict, Places
from hilum.models.manifest import terminology
from hilum.models.manifest.labels import LabelTable
from hilum.models.manifest.manifest import Manifest
from hilum.models.manifest.messages import EDIT
from hilum.models.manifest.similar_labels import are_alike, concept_near

_WORDED: Final = frozenset(
    {
        "manufacturer",
        "intended_use",
        "licence",
        "source",
        "citation",
        "measured_on",
        "criterion",
        "cites",
        "text",
    }
)
"""Fields that a person writes for other people to read, in any table."""
_NOUNS: Final = "name|company|vendor|manufacturer|author|licen[cs]e|source|hospital"
_EMPTY_WORDS: Final = re.compile(
    rf"((still )?unknown|unnamed|your|the|my)?( ?({_NOUNS}))*|({_NOUNS}|it)( is)?"
    r" (unknown|missing|not known)|unk|unspecified|undefined"
    r"|n[/.]?a|n\.n|none( known| yet)?|null|nil|not( yet)?"
    r" (known|specified|stated|given|available|applicable|sure|decided)|not yet"
    r"|missing|empty|unavailable|to ?do|(please )?edit( me)?|insert (name|text) here|later|tbc|fix"
    r" me|text|string|some(one|body)|me"
    r"|to be (done|defined|determined|decided|announced|confirmed|added|filled in)|nobody|no"
    r" idea|anonymous|blah?|lorem|x+"
    r"|foo|bar|foobar|asdf|qwerty|abc|dummy|unbekannt|nicht bekannt|keine?("
    r" angabe)?|inconnue?|desconocid[oa]|desconhecid[oa]"
    r"|sconosciut[oa]|onbekend|okänd|ukjent|ukendt|nieznan[yae]|неизвестно|未知|不明|不詳"
)
_EMPTY_BEGINNING: Final = re.compile(
    r"(edit|todo|tbd|tba|fixme|xxx|placeholder|change ?me|fill (me )?in|lorem ipsum)\b",
    re.IGNORECASE,
)
_IN_BRACKETS: Final = re.compile(r"<[^<>]*>|\[[^\[\]]*\]|\{[^{}]*\}")
_RESERVED: Final = re.compile(r"\bexample\.(com|org|net)\b", re.IGNORECASE)  # RFC 2606 3
_NUMBERED: Final = re.compile(
    r"(output|label|class|finding|logit|category|target|column|unnamed)[ _.-]*\d+", re.IGNORECASE
)
_MARKS: Final = " \t.,:;-_?!*#\"'`/…"
_STRINGS_AND_COMMENTS: Final = re.compile(
    r'"""(?:\\.|[^\\])*?"""|\'\'\'.*?\'\'\'|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'|#[^\n]*', re.DOTALL
)
_MARKED: Final = re.compile(rf"#\s*({EDIT}\b.*)")


def guesses(text: str) -> Iterator[Fact]:
    """Yield the guesses: comments that `hilum models new` began with EDIT."""
    for number, line in enumerate(_STRINGS_AND_COMMENTS.sub(_comment, text).splitlines(), start=1):
        if found := _MARKED.search(line):
            said = found.group(1).strip()
            yield (
                FactVerdict.QUESTION,
                (
                    f"manifest: line {number} is a guess still marked {said!r}: correct it if it is"
                    " wrong, then remove the mark"
                ),
            )


def questions(read: Manifest, _places: Places) -> Iterator[Fact]:
    """Yield the questions about the manifest's words, then those about its labels."""
    shown = {index: label for index, label in enumerate(read.table.labels) if not label.is_masked}
    content = read.table.model_dump(exclude_none=True)
    for question in itertools.chain(_about_words(content), _about_labels(shown), _alike(shown)):
        yield FactVerdict.QUESTION, f"manifest: {question}"


def _about_words(content: Mapping[str, Any]) -> Iterator[str]:
    for place, text in _worded(content):
        if why := _says_nothing(text, place.rpartition(".")[2]):
            yield f"{place} is {text!r}, {why}"


def _about_labels(shown: Mapping[int, LabelTable]) -> Iterator[str]:
    for index, label in shown.items():
        yield from (f"labels.{index}: {question}" for question in _of_label(label))


def _alike(shown: Mapping[int, LabelTable]) -> Iterator[str]:
    """Yield a question for each two private labels with nearly the same text."""
    private = {index: label.text for index, label in shown.items() if label.private and label.text}
    for (first, one), (second, other) in itertools.combinations(private.items(), 2):
        if are_alike(one, other):
            yield (
                f"labels.{first} is {one!r} and labels.{second} {other!r}: are they two findings?"
                " name them apart"
            )


def _comment(found: re.Match[str]) -> str:
    """Return a comment as it is; of a string only the line ends, because its text is no comment."""
    return found.group() if found.group().startswith("#") else "\n" * found.group().count("\n")


def _worded(content: Any, place: str = "") -> Iterator[tuple[str, str]]:  # noqa: ANN401 - whatever TOML holds
    if isinstance(content, Mapping | list | tuple):
        for key, value in content.items() if isinstance(content, Mapping) else enumerate(content):
            yield from _worded(value, f"{place}.{key}".removeprefix("."))
    elif isinstance(content, str) and place.rpartition(".")[2] in _WORDED:
        yield place, content


def _says_nothing(text: str, field: str) -> str | None:
    """Return why these words say nothing to a reader; None where they do."""
    word = text.strip(_MARKS).casefold()
    is_empty = (
        len(word) < 2
        or word in {field, field.replace("_", " ")}
        or _EMPTY_WORDS.fullmatch(word)
        or _IN_BRACKETS.fullmatch(text.strip())
    )
    if is_empty or _EMPTY_BEGINNING.match(word):
        return f"which says nothing: {_WANTED.get(field, 'write what a reader needs to know')}"
    if field == "text" and _NUMBERED.fullmatch(word):
        return "which says nothing: write what this output means, or is_masked = true"
    return (
        "an address that belongs to nobody (RFC 2606): write where it is found"
        if _RESERVED.search(text)
        else None
    )


_WANTED: Final[Mapping[str, str]] = {
    "manufacturer": "write who stands behind the weights; reports name them",
    "intended_use": "write for what and for whom it is, and how good it is known to be",
    "licence": "write the licence of the weights, or that their source states none",
    "source": "write where somebody else finds this very file",
    "measured_on": "write which cases, or that there were none",
    "criterion": "write by which rule, or that it is a convention",
    "text": "write what this output means, or is_masked = true",
}


def _of_label(label: LabelTable) -> Iterator[str]:
    if label.private:
        names = (label.text or "", label.private)
        near = next((key for name in names if (key := concept_near(name))), None)
        if near is not None:
            known = terminology.load().concepts[near]
            code = f"{known.code.scheme} {known.code.value}"
            yield (
                f"{label.text!r} (private {label.private}) is, or almost is, {known.text!r} with"
                f' the code {code}: write concept = "{near}", or name it apart'
            )
    elif label.concept and label.text:
        near = concept_near(label.text)
        if near not in {None, label.concept}:
            yield (
                f"its concept is {label.concept!r}, its text {label.text!r} means {near!r}: which"
                " one is it?"
            )
