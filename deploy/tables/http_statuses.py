"""HTTP statuses of receivers, as docs/destinations/http.md shows them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from hilum.deliver.http_answers import meanings


def http_statuses_table(row: Callable[..., str]) -> Iterator[str]:
    """Each status, what becomes of the document, and the advice that goes with it."""
    yield "\n| status | the document | what it means, or what to do |\n|---|---|---|"
    for status, outcome, advice in sorted(meanings()):
        is_reason = outcome.endswith("_refused") or outcome == "not_authorised"
        yield row(status, f"dead, `{outcome}`" if is_reason else outcome, advice)
