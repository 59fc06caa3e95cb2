"""A real PostgreSQL for tests, in a temporary folder."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from testing.postgres import PostgresMissing, fresh_database, postgres_cluster, programs

__all__ = ["fresh_database", "postgres_server"]

# A crash of the test machine may lose this cluster; a test's kill -9 of a client may not, and does
# not need fsync for that.
_OPTIONS = {
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "16MB",
    "max_connections": "60",
}


@contextmanager
def postgres_server() -> Iterator[str]:
    """SQLAlchemy URL (postgresql+psycopg) of an empty database on a server that runs as long as the context.

    Skips the test when PostgreSQL is not installed; fails it when CI=true.
    """
    try:
        programs()
    except PostgresMissing as error:
        if os.environ.get("CI") == "true":
            pytest.fail(str(error))
        pytest.skip(str(error))
    # short: a socket's path may have 107 characters
    folder = Path(tempfile.mkdtemp(prefix="hilum-pg-"))
    try:
        with postgres_cluster(folder, _OPTIONS) as url:
            yield url
    finally:
        shutil.rmtree(folder, ignore_errors=True)
