"""The imports of `hilum campaign status`: they are most of its time."""

from __future__ import annotations

import subprocess
import sys

_CODE = """
import sys
import hilum.cli
from hilum.cli.campaigns import status_view
from hilum.services.campaigns import estimate
from hilum.store.queries import campaign_views
print([name for name in {names} if name in sys.modules])
"""
_HEAVY = ("hilum.store.queries.views", "pydicom", "pynetdicom", "numpy", "torch", "alembic")


def test_a_status_loads_no_other_query_and_no_library_for_images() -> None:
    found = subprocess.run(
        [sys.executable, "-c", _CODE.format(names=_HEAVY)],
        capture_output=True,
        text=True,
        check=True,
    )

    assert found.stdout == "[]\n"
