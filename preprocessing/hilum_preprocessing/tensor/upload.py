"""Upload of stored values to a GPU, on a CUDA stream of their own.

One picture is copied while another one is computed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor

from hilum_preprocessing.tensor.stored_pixels import words_of

_HOST = torch.device("cpu")
_BUFFERS = 2


def on_device(arrays: Iterable[NDArray[Any]], device: torch.device) -> Iterator[Tensor]:
    """(rows, columns) each, in order; a GPU is sent the next one before this one is given out.

    Arrays may have any shapes.
    """
    if device.type != "cuda":
        yield from (words_of(array, device) for array in arrays)
        return
    upload = Upload(device)
    sent: deque[Sent] = deque()
    for array in arrays:
        sent.append(upload.send(array))
        if len(sent) == _BUFFERS:
            yield upload.received(sent.popleft())
    yield from (upload.received(item) for item in sent)


class Sent(NamedTuple):
    """A picture on its way."""

    words: Tensor
    arrival: torch.cuda.Event


class Upload:
    """Two page-locked buffers and a stream.

    Arrays that are in page-locked memory already (a shared slot) are sent from there.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # in torch's own types
        self._buffers: deque[tuple[Tensor, torch.cuda.Event]] = deque(
            (_page_locked(0), _event()) for _ in range(_BUFFERS)
        )

    def send(self, array: NDArray[Any]) -> Sent:
        """Returns at once, but for the copy into a page-locked buffer where one is needed."""
        words = words_of(array, _HOST)
        if words.is_pinned() and words.is_contiguous():
            return self._sent(words)
        buffer = self._free_buffer(words.nbytes)
        staged = buffer[: words.nbytes].view(words.dtype).view(words.shape)
        sent = self._sent(staged.copy_(words))
        self._buffers.append((buffer, sent.arrival))
        return sent

    def _free_buffer(self, size: int) -> Tensor:
        """The buffer that was used least recently, once its picture has left it."""
        buffer, left = self._buffers.popleft()
        left.synchronize()
        return buffer if buffer.numel() >= size else _page_locked(size)

    def received(self, sent: Sent) -> Tensor:
        """Return the picture for the current stream.

        Work on that stream waits for the copy; the caller does not.
        """
        current = torch.cuda.current_stream(self._device)
        current.wait_event(sent.arrival)
        sent.words.record_stream(
            current
        )  # or its memory would be given to the next upload too early
        return sent.words

    def _sent(self, locked: Tensor) -> Sent:
        with torch.cuda.stream(self._stream):
            words = locked.to(self._device, non_blocking=True)
            arrival = _event()
            arrival.record(self._stream)
        return Sent(words, arrival)


def _page_locked(size: int) -> Tensor:
    return torch.empty(size, dtype=torch.uint8, pin_memory=True)


def _event() -> torch.cuda.Event:
    return torch.cuda.Event()  # type: ignore[no-untyped-call]  # in torch's own types
