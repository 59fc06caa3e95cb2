"""What the router knows: which images Hilum has answered with Success.

Every verdict is held against it.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field

from load_tests.proof.images import Image

_SUCCESS = "0x0000"


@dataclass(slots=True)
class Books:
    """Filled by the router's threads.

    `acknowledged`: SOP Instance UID to the digest of the data set that was sent.

    `acknowledged_at`: study to when its latest image was (`time.monotonic`), in the order of their first images.
    """

    acknowledged: dict[str, str] = field(default_factory=dict)
    images_of: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    acknowledged_at: dict[str, float] = field(default_factory=dict)
    answers: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, image: Image, answer: str) -> bool:
        """One attempt and its answer; whether that was Success."""
        with self.lock:
            self.answers[answer] += 1
            if answer == _SUCCESS:
                self.acknowledged[image.sop_instance_uid] = image.digest
                self.acknowledged_at[image.study_instance_uid] = time.monotonic()
                self.images_of[image.study_instance_uid].add(image.sop_instance_uid)
            return answer == _SUCCESS

    def studies(self) -> dict[str, frozenset[str]]:
        """Acknowledged images by study, now."""
        with self.lock:
            return {study: frozenset(images) for study, images in self.images_of.items()}
