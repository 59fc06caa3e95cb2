"""The command line of a measurement."""

from __future__ import annotations

import argparse


def parser(program: str, said: str | None) -> argparse.ArgumentParser:
    """A parser without arguments. `said`: the docstring of its module, which is its help."""
    return argparse.ArgumentParser(
        prog=program, description=said, formatter_class=argparse.RawDescriptionHelpFormatter
    )
