"""Import damaged logs, one after the other, and judge what becomes of them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from bftrainer.errors import InputError
from bftrainer.schedulers.data_quality import DataQuality
from bftrainer.schedulers.import_log import Imported, import_log
from bftrainer.schedulers.import_settings import ImportSettings
from tests.fuzzing.mutations import damaged
from tests.schedulers.conformance.histories import END, NODES, START, History
from tests.schedulers.conformance.test_conformance import WINDOW, dense, importer_of
from tests.schedulers.mutated.damage import MUTATIONS, Content, Damage
from tests.schedulers.mutated.forms import FORMS

WILD = "wild"
"""Any damage at all: nothing is known of what it does."""
NOTHING = "nothing"
"""Of damage for which a form has no place."""
MOST_SAID = {"duplicated": 1, "reordered": 2}
"""How much may be said of damage without harm: a record is there twice; how many lines were sorted, now and before."""
WHOLE_LOG = ("Expected an inventory with nodes of the log", "Expected jobs on at most")
"""Refusals of what all records together tell; they have no place."""
WORLDS = 3


@dataclass(eq=False)
class World:
    """A log of some form, as it was before any damage.

    Parameters
    ----------
    name : str
        Of the form.
    seed : str
    folder : Path
        An empty one.
    """

    name: str
    seed: str
    folder: Path

    def __post_init__(self) -> None:
        self.form = FORMS[self.name]
        self.history: History = self.form.world(Random(self.seed))
        self.written = self.form.write(self.folder, self.history)
        self.path = self.form.which(self.written)
        self.clean = self.path.read_bytes()
        self.content = Content.of(self.form, self.clean)
        self.whole = self.imported()
        self.is_counted = "placement" in self.whole.log.provenance
        truth = (~self.history.idle()).astype(int)
        self.truth = np.asarray(truth.sum(axis=0)) if self.is_counted else truth
        assert np.array_equal(self.busy(self.whole), self.truth), "The whole log is not like its history."

    def imported(self, **changes: Any) -> Imported:
        """Import the log as it is now, however much of it is bad."""
        settings = WINDOW | {"max_bad": 1.0} | self.written.settings | changes
        return import_log(importer_of(self.name), self.written.paths, ImportSettings(**settings))

    def busy(self, done: Imported) -> np.ndarray:
        """Busy cells by node and second; of logs that count nodes the number of them by second."""
        log = done.log
        grid = (~dense(log)).astype(int)
        if self.is_counted:
            return np.asarray(grid.sum(axis=0)) + (len(NODES) - len(log.nodes))
        full = np.ones((len(NODES), END - START), dtype=int)  # what was never there, or is absent, is not idle
        known = NODES if self.form.of == "nodes" else self.whole.log.nodes
        for row, name in zip(grid, log.nodes, strict=True):
            if name in known:
                full[known.index(name)] = row
        return full

    def suffer(self, mutation: str, rng: Random) -> tuple[str, list[str]]:
        """Damage the log; what became of it, in a word, and what is wrong with that."""
        damage: Damage | None = None
        if mutation == WILD:
            self.path.write_bytes(damaged(rng, self.path.name, self.clean))
        elif (damage := MUTATIONS[mutation](rng, self.content)) is not None:
            self.path.write_bytes(damage.data)
        else:
            return NOTHING, []
        try:
            done = self.imported()
        except InputError as fault:
            return "refused", [*self.refusal(damage, str(fault))]
        wrong = [*_inconsistent(done.quality)]
        if damage is None:
            return "read", wrong
        said = _account(self.whole.quality, done.quality)
        if self.path not in self.written.paths:
            # Beside a log, a row without nodes is about the cluster, and one without an end is open: that is no damage.
            said |= {"downtimes"} if damage.outcome == "accounted" else set()
        wrong += self.lost(damage, done, said)
        wrong += self.silent(damage, done, said, mutation)
        wrong += self.bad_record(damage, done.quality) if done.quality.bad else ()
        return "counted" if said else "same" if np.array_equal(self.busy(done), self.truth) else "changed", wrong

    def refusal(self, damage: Damage | None, message: str) -> Iterator[str]:
        """What is wrong with a refusal."""
        if "\n" in message:
            yield f"more than one line: {message}"
        if damage is not None and damage.outcome != "accounted":
            yield f"refused without need: {message}"
        place = str(self.path) if damage is None or self.form.of == "nodes" else self.place(damage)
        if damage is not None and place not in message and not message.startswith(WHOLE_LOG):
            yield f"refused without its place {damage.line}: {message}"

    def place(self, damage: Damage) -> str:
        """How messages name the damage: by file and line, or by the file where it has no lines."""
        return str(self.path) if damage.line is None else f"{self.path}:{damage.line}:"

    def lost(self, damage: Damage, done: Imported, said: set[str]) -> Iterator[str]:
        """What is missing of undamaged records."""
        mine = np.zeros((len(NODES), END - START), dtype=int)
        if damage.at is not None:
            mine = self.form.cells(self.history, damage.at, self.content.text(damage.at)).astype(int)
        mine = np.asarray(mine.sum(axis=0)) if self.is_counted else mine
        others = np.maximum(self.truth - mine, 0)
        busy = self.busy(done)
        if (busy < others).any():
            yield f"{int((others - np.minimum(busy, others)).sum())} busy node-seconds of others are lost"
        # Of a change that is not there nothing can be said: what was before it goes on.
        is_gap = self.form.is_event and damage.records < 0
        if not said and not is_gap and (busy != self.truth)[mine == 0].any():
            yield "node-seconds of others changed in silence"
        if damage.outcome == "without" and not np.array_equal(busy, others):
            yield "more than the record is missing"

    def silent(self, damage: Damage, done: Imported, said: set[str], mutation: str) -> Iterator[str]:
        """What changed without a word."""
        before, after = self.whole.quality, done.quality
        is_same = np.array_equal(self.busy(done), self.truth)
        more = damage.records if self.path in self.written.paths else 0
        if after.records != before.records + more and not (damage.outcome == "accounted" and said):
            yield f"{after.records} records of {before.records + more}"
        if damage.outcome == "same" and not (is_same and not after.bad and len(said) <= MOST_SAID.get(mutation, 0)):
            yield f"read in another way: {said} {after.bad_examples}"
        if damage.outcome == "accounted" and not is_same and not said and mutation != "deleted":
            yield f"{int((self.busy(done) != self.truth).sum())} node-seconds changed in silence"

    def bad_record(self, damage: Damage, after: DataQuality) -> Iterator[str]:
        """What is wrong with how a bad record is told of, and refused where bad ones are not let pass."""
        place = self.place(damage)
        if not any(place in example for example in after.bad_examples):
            yield f"told without its place {damage.line}: {after.bad_examples}"
        try:
            self.imported(max_bad=0.01)
        except InputError as fault:
            message = str(fault)
            if place not in message or "\n" in message:
                yield f"refused by default without its place: {message}"
        else:
            yield "not refused by default"


def _account(before: DataQuality, after: DataQuality) -> set[str]:
    """What the account says of the damage."""
    changed = Counter(after.dropped)
    changed.subtract(before.dropped)
    found = {reason for reason, count in changed.items() if count}
    told = [
        name
        for name in ("unknown", "nodes_outside", "nodes_unseen", "bad")
        if getattr(before, name) != getattr(after, name)
    ]
    notes = {note for note in set(after.notes) ^ set(before.notes) if "can be trusted" not in note}
    return found | set(told) | notes


def _inconsistent(quality: DataQuality) -> Iterator[str]:
    """What does not add up in an account."""
    if quality.records != quality.kept + sum(quality.dropped.values()) or quality.kept < 0:
        yield f"{quality.records} records are not {quality.kept} and {dict(quality.dropped)}"
    if quality.bad > sum(quality.dropped.values()):
        yield "more bad records than dropped ones"
    json.dumps(quality.summary(), allow_nan=False)


def cases(count: int, seed: int, root: Path) -> Iterator[tuple[str, str, str, list[str]]]:
    """So many cases: form, mutation, what became of it, and what is wrong; all forms in turn, with all mutations."""
    names, changes = list(FORMS), [*MUTATIONS, WILD, WILD]
    worlds: dict[str, World] = {}
    number = made = 0
    while made < count:
        turn, at = divmod(number, len(names))
        name, mutation = names[at], changes[(turn + at) % len(changes)]
        key = f"{seed}:{name}:{turn % WORLDS}"
        if key not in worlds:
            (root / str(len(worlds))).mkdir()
            worlds[key] = World(name, key, root / str(len(worlds)))
        world = worlds[key]
        outcome, wrong = world.suffer(mutation, Random(f"{seed}:{number}"))
        world.path.write_bytes(world.clean)
        if outcome != NOTHING:
            made += 1
            yield name, mutation, outcome, [f"{name}, {mutation}, seed {seed}:{number}: {each}" for each in wrong]
        number += 1
