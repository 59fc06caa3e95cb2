"""The API as a process of its own: `python -m tests.support.server.api_process FOLDER PORT`.

SIGTERM ends it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path


def main(folder: Path, port: int) -> None:
    """Serve the ledger in `folder` until SIGTERM."""
    metrics = folder / "metrics"
    metrics.mkdir(exist_ok=True)
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(
        metrics
    )  # before the first import of prometheus_client
    from hilum.api.app import create_app
    from hilum.api.auth.access import open_access
    from hilum.api.dependencies import Dependencies
    from hilum.api.serve import serve_api
    from hilum.processes.sockets import bind
    from hilum.settings import Api
    from hilum.store.audit.access_tokens import AccessTokens
    from hilum.store.queries.views import LedgerViews
    from tests.support.server.api_client import settings_for

    settings = settings_for(folder).model_copy(update={"api": Api(port=port)})
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    listening = bind("api", settings.api.host, settings.api.port)
    url = f"sqlite:///{folder / 'ledger.sqlite'}"
    views = LedgerViews(url)
    app = create_app(
        Dependencies(
            settings, views, str(metrics), {}, open_access(settings, views, AccessTokens(url))
        )
    )
    serve_api(app, listening, stop)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
