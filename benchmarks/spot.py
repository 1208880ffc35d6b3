"""Workloads *spot* and *generate*: training simulated on traces of nodes, and traces generated."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from time import perf_counter

import numpy as np

from benchmarks.workload import Case, Plan, Sample
from bftrainer.model import NodeLog
from bftrainer.spot import CheckpointedTraining, MinuteModel, SupercomputerModel, simulate
from bftrainer.spot.run import load_profile

__all__ = ["AT_ONCE", "generate_cases", "spot_cases"]

AT_ONCE = "at once"
_DAY_MIN = 1440


def spot_cases(plan: Plan) -> Iterator[Case]:
    """Days on at most 64 nodes with the embedded profile; everything noticed at once, or at ticks."""
    profile, _ = load_profile(None)
    for days in (1, 2) if plan.quick else (1, 10, 100):
        group = f"{days} {'day' if days == 1 else 'days'}, 64 nodes"
        draw = partial(_spot_log, plan.seed, days)
        for name, tick_s in ((AT_ONCE, None), ("ticks of 5 s", 5.0), ("ticks of 0.1 s", 0.1)):
            yield Case(group, name, partial(_simulate, CheckpointedTraining(profile, tick_s=tick_s)), draw)


def _spot_log(seed: int, days: int, run: int) -> NodeLog:
    rng = np.random.default_rng([seed, days, run])
    model = MinuteModel()
    return model.generate(rng, model.draw(rng, days * _DAY_MIN))


def _simulate(settings: CheckpointedTraining, log: NodeLog) -> Sample:
    began = perf_counter()
    simulate(log, settings)
    return Sample(perf_counter() - began)


def generate_cases(plan: Plan) -> Iterator[Case]:
    """Two weeks of a machine of 4,734 nodes; a million minutes of at most 64 spot nodes."""
    nodes, days, minutes = (100, 1, 10_000) if plan.quick else (4734, 14, 10**6)
    window_ns = (0, days * _DAY_MIN * 60 * 10**9)
    machine = SupercomputerModel(nodes=nodes)
    yield _generate_case(plan, f"{days} d of {nodes:,} nodes", "supercomputer", partial(_machine, machine, window_ns))
    yield _generate_case(plan, f"{minutes:,} min of 64 nodes", "minutes", partial(_minutes, MinuteModel(), minutes))


def _generate_case(plan: Plan, group: str, name: str, make: Callable[[np.random.Generator], NodeLog]) -> Case:
    def once(run: int) -> Sample:
        """Generate a trace of its own for each run, and time that."""
        rng = np.random.default_rng([plan.seed, run])
        began = perf_counter()
        make(rng)
        return Sample(perf_counter() - began)

    return Case(group, name, once, budget_s=60.0)


def _machine(model: SupercomputerModel, window_ns: tuple[int, int], rng: np.random.Generator) -> NodeLog:
    return model.generate(rng, window_ns)


def _minutes(model: MinuteModel, minutes: int, rng: np.random.Generator) -> NodeLog:
    return model.generate(rng, model.draw(rng, minutes))
