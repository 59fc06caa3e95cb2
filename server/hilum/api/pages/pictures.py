"""Pictures of stored images and of heat maps.

Looked up in the ledger each time, painted once, kept in memory only.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

from hilum.api.pages.render_process import NoPicture, Painter
from hilum.api.pages.render_worker import GONE
from hilum.domain import kind_of
from hilum.errors import Retry
from hilum.settings import Settings
from hilum.store.archive.archives import open_archive
from hilum.store.archive.store_errors import StoreAway
from hilum.store.audit.log import Deed
from hilum.store.queries.views import LedgerViews

_CACHE_BYTES = 64 << 20
_RETRY_SECONDS = 300.0  # a file that hung its decoder is not tried at each look
Picture = bytes | NoPicture
_GONE = NoPicture(GONE)
_REJECTED = NoPicture(
    "rejected"
)  # perhaps because it shows another patient (IHE IOCM): not shown by us either


class Cache:
    """The newest pictures, at most `limit_bytes` of them; a failure is kept for a while.

    Thread-safe.
    """

    def __init__(
        self, limit_bytes: int = _CACHE_BYTES, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._limit = limit_bytes
        self._clock = clock
        self._kept: OrderedDict[str, tuple[Picture, float]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: str) -> Picture | None:
        """Return the value under the key, if it is still valid."""
        with self._lock:
            found, since = self._kept.get(key, (None, 0.0))
            if isinstance(found, NoPicture) and self._clock() - since > _RETRY_SECONDS:
                return None
            if found is not None:
                self._kept.move_to_end(key)
            return found

    def put(self, key: str, picture: Picture) -> None:
        """Keep it; the oldest make room."""
        with self._lock:
            self._kept[key] = picture, self._clock()
            self._kept.move_to_end(key)
            while (
                len(self._kept) > 1
                and sum(_size(kept) for kept, _ in self._kept.values()) > self._limit
            ):
                self._kept.popitem(last=False)


class Pictures:
    """The pictures of images and documents on the pages.

    Pixels never touch the disk here. The row is read each time, so an erased image is gone at once.
    """

    def __init__(
        self, settings: Settings, views: LedgerViews, painter: Painter | None = None
    ) -> None:
        self._views = views
        self._maximum_pixels = settings.analyse.maximum_pixels
        self._archive = open_archive(settings)
        self._painter = painter or Painter()
        self._cache = Cache()

    def image(self, study_instance_uid: str, sop_instance_uid: str) -> Picture | None:
        """Return the PNG of a stored image, or the reason without one; None: no such image.

        Raises Retry.
        """
        row = self._views.stored_image(study_instance_uid, sop_instance_uid)
        if row is None:
            return None
        if row["is_removed"] or row["pixels_removed_at"] is not None:
            return _REJECTED if row["is_removed"] else _GONE
        return self._cached(
            f"image {row['digest']} {row['path']}", lambda: self._paint_file(row["path"])
        )

    def document(self, document_id: int, deed: Deed | None = None) -> Picture | None:
        """Return the PNG of a document, or the reason without one; None: it is no picture.

        It adds the study to `deed`. Raises Retry.
        """
        row = self._views.document(document_id)
        if row is None or not kind_of(row["kind"]).is_picture:
            return None
        if deed is not None:
            deed.study_instance_uid = row["study_instance_uid"]
        return self._cached(
            f"document {row['sop_instance_uid']}",
            lambda: self._painter.paint(row["content"], self._maximum_pixels),
        )

    def _cached(self, key: str, paint: Callable[[], Picture]) -> Picture:
        if (kept := self._cache.get(key)) is not None:
            return kept
        picture = paint()
        if picture != _GONE:
            self._cache.put(key, picture)
        return picture

    def _paint_file(self, path: str) -> Picture:
        """Twice: the object may be moved to its place between look and open."""
        for _ in range(2):
            with contextlib.ExitStack() as held:
                if (place := self._place(path, held)) is None:
                    break
                if (picture := self._painter.paint(place, self._maximum_pixels)) != _GONE:
                    return picture
        return _GONE

    def _place(self, path: str, held: contextlib.ExitStack) -> Path | None:
        """Return a path for the painting process, which it may read until `held` is closed."""
        try:
            return held.enter_context(self._archive.local(path))
        except StoreAway as away:
            raise Retry(away.said, after_seconds=5) from away
        except OSError:
            return None


def _size(picture: Picture) -> int:
    return len(picture) if isinstance(picture, bytes) else 100
