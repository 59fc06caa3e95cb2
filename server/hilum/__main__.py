"""The `hilum` command, and `python -m hilum`: where an extra is missing it says which one."""

from __future__ import annotations

import sys

from hilum import missing_extra


def main() -> None:
    """Entry point of the command. Exit status 2 where an extra is missing."""
    try:
        from hilum.cli import main as run  # noqa: PLC0415 - all that it imports may be missing

        run()
    except ModuleNotFoundError as error:
        if (said := missing_extra.sentence(error)) is None:
            raise
        sys.stderr.write(f"hilum: {said}\n")
        sys.exit(2)


if __name__ == "__main__":
    main()
