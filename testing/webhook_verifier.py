"""A receiver of webhooks that verifies them with the reference library, `standardwebhooks`.

A program of its own for .venv/peers, which alone has that library: PORT FOLDER STATUS SECRET. It
keeps each verified body once, under its webhook-id, and answers with STATUS.
"""

from __future__ import annotations

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from standardwebhooks.webhooks import (  # type: ignore[import-not-found] # in .venv/peers
    Webhook,
    WebhookVerificationError,
)


def main(port: int, folder: Path, status: int, secret: str) -> None:
    """Serve for ever."""

    class Handler(BaseHTTPRequestHandler):
        """One connection."""

        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            """Verify, keep, answer."""
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            try:
                Webhook(secret).verify(body, dict(self.headers.items()))
            except WebhookVerificationError:
                self._answer(401)
                return
            if status < 300:
                (folder / self.headers["webhook-id"]).write_bytes(body)
            self._answer(status)

        def _answer(self, code: int) -> None:
            self.send_response(code)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *values: object) -> None:  # noqa: A002 - its name
            """Print nothing."""

    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
