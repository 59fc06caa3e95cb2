"""The token of this host, made at the first start in a file of the server's user alone."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path
from typing import Final

from hilum.settings import Settings
from hilum.store.audit.access_tokens import has_form, new_secret

NAME: Final = "local"


def local_token_file(settings: Settings) -> Path:
    """Where it is kept."""
    return settings.run_dir / "api-token"


def ensure_local_token(settings: Settings) -> str:
    """Return the local token; make one if there is none.

    A token file that others can read is replaced. Raises OSError.
    """
    file = local_token_file(settings)
    settings.run_dir.mkdir(parents=True, exist_ok=True)
    if (found := _read(file)) is not None:
        return found
    draft = file.with_name(f"api-token.{secrets.token_hex(8)}")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as sink:
        sink.write(new_secret())
    _put(draft, file)
    made = _read(file)
    if made is None:
        raise PermissionError(
            1, "others can read it; its folder must be of a file system that keeps modes", str(file)
        )
    return made


def _put(draft: Path, file: Path) -> None:
    """Put the file in its place, unless another process of ours was faster."""
    if file.exists() and _read(file) is None:
        draft.rename(file)
        return
    try:
        os.link(draft, file)
    except FileExistsError:
        pass
    finally:
        draft.unlink()


def _read(file: Path) -> str | None:
    """Return the token, if the file is whole, ours, and unreadable for other users."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with os.fdopen(descriptor) as source:
        content = source.read(200) if _is_private(os.fstat(descriptor)) else ""
    return content if has_form(content) else None


def _is_private(status: os.stat_result) -> bool:
    """Return whether it is a regular file of ours that is closed to other users."""
    is_open = status.st_mode & (stat.S_IRWXG | stat.S_IRWXO)
    return status.st_uid == os.geteuid() and not is_open and stat.S_ISREG(status.st_mode)
