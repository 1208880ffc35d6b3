"""Which values are kept in which file, and how each is measured."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.golden import imports, replays
from tests.golden.running import find_shared_data


@dataclass(frozen=True, slots=True)
class Golden:
    """Cases of one file, by name, and how each is measured in the folder of the shared data that they need, if any.

    `times` marks the cases that take seconds ("long") or minutes ("slow").
    """

    cases: Mapping[str, Any]
    measure: Callable[[Any, Path | None], dict[str, Any]]
    shared: str | None = None
    times: Mapping[str, str] = field(default_factory=dict)


GOLDENS = {
    "replays.json": Golden(replays.REPLAYS, replays.replay, times=dict.fromkeys(replays.SECONDS, "long")),
    "replays-published.json": Golden(
        replays.PUBLISHED, replays.replay, "bftrainer", dict.fromkeys(replays.PUBLISHED, "long")
    ),
    "imports.json": Golden(imports.IMPORTS, imports.import_log),
    "imports-shared.json": Golden(imports.SHARED, imports.import_log, ".", dict.fromkeys(imports.MINUTES_LONG, "slow")),
}


def measure(name: str, case: str) -> dict[str, Any]:
    """Values of one case of a file, as they are today."""
    golden = GOLDENS[name]
    data = find_shared_data() if golden.shared else None
    return golden.measure(golden.cases[case], data / golden.shared if data else None)
