"""The `hilum` command.

Exit status: 0 done, 1 the answer is no (not found, not analysed, a check failed), 2 wrong use or
settings.
"""

import os
import signal
import sys

from hilum.cli import (
    audit,
    bench,
    build,
    conflicts,
    destinations,
    find,
    import_release,
    ingest,
    models,
    releases,
    resend,
    retention,
    rollouts,
    server,
    studies,
    tokens,
    transfer,
    triton,
)
from hilum.cli.campaigns import campaign, compare, export, reanalyse, sources, status
from hilum.cli.evaluation import evaluate
from hilum.cli.fleet import hosts, ledger, workitems
from hilum.cli.frame import app
from hilum.cli.rules import rules, worklist
from hilum.cli.transfer import parse_peer
from hilum.libraries import silence_libraries

__all__ = [
    "app",
    "audit",
    "bench",
    "build",
    "campaign",
    "compare",
    "conflicts",
    "destinations",
    "evaluate",
    "export",
    "find",
    "hosts",
    "import_release",
    "ingest",
    "ledger",
    "main",
    "models",
    "parse_peer",
    "reanalyse",
    "releases",
    "resend",
    "retention",
    "rollouts",
    "rules",
    "server",
    "sources",
    "status",
    "studies",
    "tokens",
    "transfer",
    "triton",
    "workitems",
    "worklist",
]


def main() -> None:
    """Run the command.

    It and its children write patient data, readable for the group and closed to other accounts. A
    release and a program are exceptions: another account may read them, by the umask of the user.
    """
    if sys.argv[1:2] not in (["models"], ["triton"]):
        os.umask(os.umask(0) | 0o027)
    silence_libraries()
    if os.getpid() == 1:  # of a container: the kernel passes it no signal without a handler
        signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    app()
