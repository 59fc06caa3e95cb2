"""Studies to a Hilum in a container and reports back; runs in the container's network.

Prints one JSON object: what was sent, what came.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

import httpx

from load_tests.proof.images import Supply
from load_tests.proof.line import Line
from testing.network.receiver import Receiver

DICOM_PORT: Final = 11112
PACS_PORT: Final = 11113
API: Final = "http://127.0.0.1:8640"
_LOOK_SECONDS: Final = 0.5


class NotReady(Exception):
    """What was not there in time."""


def main() -> int:
    """Exit status 0: it was visited; what came is for the reader to judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--token", type=Path, required=True, help="file that holds the API's token")
    parser.add_argument("--studies", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True, help="patience for each step")
    options = parser.parse_args()
    try:
        with Receiver(PACS_PORT) as pacs:
            seconds = await_ready(options.token, options.seconds)
            answers = send(options.studies, options.seed)
            came = await_reports(pacs, options.studies, options.seconds)
    except NotReady as reason:
        print(f"visit: {reason}", file=sys.stderr)
        return 1
    seen = {"seconds_to_ready": seconds, "answers": Counter(answers), "reports": came}
    print(json.dumps(seen))
    return 0


def await_ready(token: Path, patience: float) -> float:
    """Seconds until all roles are ready. Raises NotReady."""
    begin = time.monotonic()
    said: Any = "no answer"
    while time.monotonic() < begin + patience:
        try:
            headers = {"Authorization": f"Bearer {token.read_text()}"} if token.exists() else {}
            answer = httpx.get(f"{API}/health/ready", headers=headers, timeout=10)
            if answer.is_success:
                return round(time.monotonic() - begin, 1)
            said = answer.text[:2000]
        except httpx.TransportError as error:
            said = str(error)
        time.sleep(_LOOK_SECONDS)
    raise NotReady(f"not ready after {patience:.0f} s: {said}")


def send(studies: int, seed: int) -> list[str]:
    """The answers to each C-STORE."""
    supply = Supply(seed)
    line = Line(DICOM_PORT)
    answers = [line.store(image) for _ in range(studies) for image in supply.study()]
    line.close()
    return answers


def await_reports(pacs: Receiver, studies: int, patience: float) -> int:
    """Studies with a report; at most as many as were sent."""
    end = time.monotonic() + patience
    while pacs.arrivals.count() < studies and time.monotonic() < end:
        time.sleep(_LOOK_SECONDS)
    return pacs.arrivals.count()


if __name__ == "__main__":
    sys.exit(main())
