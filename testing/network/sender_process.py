"""One process of the generator.

`python -m testing.network.sender_process JSON`, with the fields of `Task`.

It says `ready`, begins with the line `go MOMENT` of standard input, writes a line for each study,
and at its end
`cpu SECONDS`: what it has used since it began.
Further orders are `permit N` and `stop`; it stops when standard input ends, so that it never
outlives who started it.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from load_tests.load.arrivals import Schedule, starts
from load_tests.load.mix import Mix
from testing.network.peer_address import Peer
from testing.network.sending import Manners, OnPermit, OnTime, Sending, Sent


@dataclass(frozen=True, slots=True)
class Task:
    """What one process does: every `of`th study of the schedule from number `share`.

    No schedule: studies on permit.
    """

    peer: str
    mix: str
    manners: dict[str, float]
    schedule: Schedule | None
    share: int = 0
    of: int = 1


_OUTPUT = threading.Lock()


def say(line: str) -> None:
    """To who started this process."""
    with _OUTPUT:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def main() -> None:
    """Do the task, unless its beginning never comes."""
    task = Task(**json.loads(sys.argv[1]))
    mix = Mix.load(Path(task.mix))
    say("ready")
    if go := sys.stdin.readline().split():
        used = time.process_time()
        _send(task, mix, float(go[1]))
        say(f"cpu {time.process_time() - used!r}")


def _send(task: Task, mix: Mix, begin: float) -> None:
    orders = _orders(task, begin)
    manners = Manners(**task.manners)  # type: ignore[arg-type]
    sending = Sending(Peer.parse(task.peer), mix, manners, orders, lambda sent: say(_line(sent)))
    threading.Thread(target=_obey, args=(orders,), daemon=True).start()
    sending.start()
    sending.join()


def _orders(task: Task, begin: float) -> OnTime | OnPermit:
    if task.schedule is None:
        return OnPermit()
    return OnTime(islice(enumerate(starts(task.schedule)), task.share, None, task.of), begin)


def _obey(orders: OnTime | OnPermit) -> None:
    for line in sys.stdin:
        word, _, value = line.strip().partition(" ")
        if word == "permit" and isinstance(orders, OnPermit):
            orders.permit(int(value))
        elif word == "stop":
            orders.stop()
    orders.stop()


def _line(sent: Sent) -> str:
    return f"sent {json.dumps(sent)}"


if __name__ == "__main__":
    main()
