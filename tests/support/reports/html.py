"""A strict look at HTML: what browsers forgive and people with a screen reader do not."""

from __future__ import annotations

from html.parser import HTMLParser

_VOID = {"meta", "link", "img", "input", "br"}
_LABELLED = {"input", "select"}


class Strict(HTMLParser):
    """Collects what is wrong with a page, and what is in it."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.problems: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        self.problems += [f"<{tag}> is not closed" for tag in self._open]
        self._check_ids()
        self._check_labels()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        self.problems += [
            f"{name} twice in <{tag}>" for name in set(names) if names.count(name) > 1
        ]
        self.problems += [
            f"{name} in <{tag}>: the policy forbids it"
            for name in names
            if name.startswith("on") or name == "style"
        ]
        if tag == "img" and "alt" not in names:
            self.problems.append("<img> without alt")
        if tag == "th" and "scope" not in names:
            self.problems.append("<th> without scope")
        self.tags.append((tag, dict(attrs)))
        if tag not in _VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in _VOID:
            self._open.pop()

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open.pop() != tag:
            self.problems.append(f"</{tag}> closes something else")

    def handle_data(self, data: str) -> None:
        if not {"style", "script"} & set(self._open):
            self.words.append(data)

    def attributes(self, tag: str) -> list[dict[str, str | None]]:
        """Attributes of every such element."""
        return [attributes for name, attributes in self.tags if name == tag]

    def _check_ids(self) -> None:
        ids = [attributes["id"] for _, attributes in self.tags if "id" in attributes]
        self.problems += [f"id {each} twice" for each in set(ids) if ids.count(each) > 1]
        for name in ("for", "aria-labelledby", "aria-describedby"):
            self.problems += [
                f"{name} names no id"
                for _, found in self.tags
                if name in found and found[name] not in ids
            ]

    def _check_labels(self) -> None:
        labelled = {attributes.get("for") for attributes in self.attributes("label")}
        for tag, attributes in self.tags:
            if (
                tag in _LABELLED
                and attributes.get("type") != "hidden"
                and attributes.get("id") not in labelled
            ):
                self.problems.append(f"<{tag}> without a label")
