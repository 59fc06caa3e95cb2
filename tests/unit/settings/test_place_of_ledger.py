"""Where a ledger is, in words for people."""

from __future__ import annotations

import pytest

from hilum.store.database.engines import place_of_ledger


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("sqlite:////var/lib/hilum/ledger.sqlite", "/var/lib/hilum/ledger.sqlite"),
        ("postgresql+psycopg://hilum:secret@db1:5433/hilum", "PostgreSQL, hilum on db1"),
        (
            "postgresql+psycopg://hilum:secret@/hilum?host=db1:5432&host=db2:5432&target_session_attrs=read-write",
            "PostgreSQL, hilum on db1,db2",
        ),
        ("postgresql+psycopg:///hilum", "PostgreSQL, hilum on this host"),
    ],
)
def test_all_servers_of_it_are_named_and_no_secret(url: str, place: str) -> None:
    assert place_of_ledger(url) == place
