"""The protocols in docs/models/evaluate.md, and the systems in docs/models/leaderboard.md."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from hilum.evaluate.protocol.leaderboard import (
    DATA_SETS,
    LeaderboardRow,
    PublishedValue,
    leaderboard,
)
from hilum.evaluate.protocol.protocol import Protocol, ProtocolFile, load, names, policies


def protocols_table(row: Callable[..., str]) -> Iterator[str]:
    """Each protocol with its files and rules, then the policies for uncertain labels."""
    yield "| protocol | data set | `--labels` | a case | classes of the mean |\n|---|---|---|---|---|"
    for name in names():
        found = load(name)
        files = "; ".join(map(_file, found.files))
        classes = f"{len(found.classes)}" if found.classes else "each column of labels"
        yield row(f"`{name}`", found.title, files, _case(found), classes)
    yield "\n### What an uncertain label (-1) counts as\n\n| `--uncertain` | positive | others | source |"
    yield "|---|---|---|---|"
    for name, policy in policies().items():
        yield row(f"`{name}`", ", ".join(policy.ones) or "-", policy.other, policy.source)


def leaderboard_tables(row: Callable[..., str]) -> Iterator[str]:
    """Every system: its published numbers, its weights, and how to measure it again."""
    yield f"| system | {' | '.join(DATA_SETS.values())} |\n|---{'|--:' * len(DATA_SETS)}|"
    for item in leaderboard():
        values = {value.dataset: f"{value.auroc:.1f}" for value in item.values}
        yield row(item.system, *(values.get(key, "") for key in DATA_SETS))
    for item in leaderboard():
        yield from _system(row, item)


def _system(row: Callable[..., str], item: LeaderboardRow) -> Iterator[str]:
    yield f"\n### {item.system}\n\n{item.publication}.\n\n| | |\n|---|---|"
    yield row("weights", item.weights)
    yield row("from", item.owner)
    yield row("licence", item.licence)
    yield row("release", item.release)
    for value in item.values:
        yield row(f"{DATA_SETS[value.dataset]}, {value.auroc:.1f}", _how(value))
    yield row("cannot be repeated", item.missing)


def _how(value: PublishedValue) -> str:
    if not value.protocol:
        return f"no protocol measures it: {value.differs}"
    how = f"`hilum evaluate {value.protocol}`"
    return f"{how}; {value.differs}" if value.differs else how


def _file(item: ProtocolFile) -> str:
    return f"{item.file} ({item.role})"


def _case(found: Protocol) -> str:
    return f"study, {found.aggregation} over views" if found.unit == "study" else "image"
