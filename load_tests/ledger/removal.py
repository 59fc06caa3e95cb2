"""Rows of old studies leave a full ledger, in a process of its own, while others use it.

`python -m load_tests.ledger.removal URL FOLDER NOW STUDIES`: the server's own batches, with their
exports, until so many studies have left.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from hilum.services.forgotten_studies import Forgetting, rows_before
from hilum.settings import Settings
from hilum.store.retention.rows import RowRetention, StudyWalk

_MONTHS: Final = 36.0
_PAUSE_SECONDS: Final = 0.05  # as the housekeeper's


def begin(url: str, folder: Path, now: float, studies: int) -> subprocess.Popen[str]:
    """Begin in a process of its own."""
    words = [url, str(folder), repr(now), str(studies)]
    return subprocess.Popen(
        [sys.executable, "-m", "load_tests.ledger.removal", *words],
        stdout=subprocess.PIPE,
        text=True,
    )


def end(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Wait for its end, and return its figures."""
    said, _ = process.communicate()
    if process.returncode:
        raise RuntimeError("the removal of rows has failed")
    found: dict[str, Any] = json.loads(said)
    return found


def remove(url: str, folder: Path, now: float, studies: int) -> dict[str, Any]:
    """Let so many studies leave."""
    said = {"site": {"state_dir": str(folder)}, "ledger": {"url": url}}
    settings = Settings.model_validate({**said, "retention": {"days": 1, "row_months": _MONTHS}})
    before = rows_before(_MONTHS, now)
    assert before is not None, "the number of months is none"
    walk = StudyWalk()
    gone = 0
    looked_at = 0
    began = time.monotonic()
    with closing(RowRetention(url)) as rows:
        forgetting = Forgetting(settings, rows, time.time)
        while gone < studies:
            batch = forgetting.next_batch(before, walk)
            if not batch.looked_at:
                break
            gone += batch.studies
            looked_at += batch.looked_at
            time.sleep(_PAUSE_SECONDS)
    exports = list(settings.row_exports_dir.iterdir())
    return {
        "studies": gone,
        "looked_at": looked_at,
        "seconds": round(time.monotonic() - began, 1),
        "export_files": len(exports),
        "export_bytes": sum(file.stat().st_size for file in exports),
    }


if __name__ == "__main__":
    print(json.dumps(remove(sys.argv[1], Path(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]))))
