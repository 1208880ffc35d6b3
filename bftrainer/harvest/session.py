"""Run a harvest: wait for what happens, keep it in the journal, have the controller decide, and do what it says."""

from __future__ import annotations

import json
import os
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bftrainer.errors import InvalidTaskError, OutputError
from bftrainer.files.writing import replacing
from bftrainer.harvest import harvest_events as ev
from bftrainer.harvest.controller import Controller, HarvestLimits
from bftrainer.harvest.harvest_directory import (
    STATUS,
    EventJournal,
    describe_status,
    harvest_result,
    requests,
    write_harvest,
)
from bftrainer.harvest.live_tasks import LiveTask, check_places, live_task
from bftrainer.harvest.task_life import TaskStatus
from bftrainer.objectives import get_objective
from bftrainer.runs import ReplayConfig, RunResult

if TYPE_CHECKING:
    from bftrainer.harvest.local_engine import LocalCarriers
    from bftrainer.harvest.slurm_carriers import SlurmCarriers

    CarrierEngine = LocalCarriers | SlurmCarriers

_TICK_S = 0.5
_STATUS_S = 2.0
_REPORTS_S = 60.0
_NOTES = 50
_LOG_IS_OVER = "The node log is over. Tasks that are left go on with a longer one, or without --pool."


@dataclass(slots=True)
class HarvestSession:
    """One process's part of a harvest, which may have been begun by an earlier one.

    The process has claimed the directory. It stops `until_s` seconds after the harvest's start, or when `interrupted`;
    its `first` step takes in these tasks, unless the harvest is over already, for a `reason`.
    """

    directory: Path
    journal: EventJournal
    controller: Controller
    config: ReplayConfig
    say: Callable[[str], object]
    interrupted: Callable[[], bool] = lambda: False
    until_s: float = float("inf")
    command: str = ""
    first: list[ev.Submitted] = field(default_factory=list)
    reason: str | None = None
    _origin_s: float = 0.0
    _reports: dict[tuple[str, int, bool], ev.Progressed] = field(default_factory=dict)
    _notes: deque[str] = field(default_factory=lambda: deque(maxlen=_NOTES))
    _due_s: dict[str, float] = field(default_factory=dict)

    def run(self, engine: CarrierEngine) -> RunResult:
        """Wait, decide and act until all tasks are over, or the harvest is to stop."""
        events: list[ev.HarvestEvent] = [*self.first]
        reason, stopping, refused = None, False, set[Path]()
        with closing(engine):  # whatever happens, carriers end, after their ranks have saved
            while reason is None:
                handled = []
                for path, request in requests(self.directory):
                    if not isinstance(request, str):
                        handled.append(path)
                        events += [request] if self._may_add(request) else []
                    elif path not in refused:
                        refused.add(path)
                        self.tell(request)
                causes = {"stop": self.interrupted(), "log": engine.is_over, "time": self.now_s >= self.until_s}
                if not stopping and any(causes.values()):
                    stopping = True
                    if causes["log"]:
                        self.tell(_LOG_IS_OVER)
                    events.append(ev.Asked(next(name for name, is_so in causes.items() if is_so)))
                if events or self._is_due("tick", _TICK_S):
                    reason = self.take_in(engine, self.now_s, events)
                if handled or self._is_due("status", _STATUS_S):
                    self._write_status(None)
                for path in handled:  # once the status, by which a later one is checked, knows of it
                    path.unlink(missing_ok=True)
                events = [] if reason else engine.poll(0.0 if self.controller.pool.later else _TICK_S)
        self.journal.append({"end": reason})
        return self.finish(reason)

    def rehearse(self, idle: Sequence[str]) -> list[str]:
        """What would be done with nodes that have been idle for long enough, in words; nothing is started."""
        step, now_s = self.controller.step, self.now_s
        added = [event for _, event in requests(self.directory) if isinstance(event, ev.Submitted)]
        effects = [*step(now_s, [*self.first, *added, ev.PoolChanged(tuple(idle))])]
        effects += step(now_s + self.controller.pool.limits.offer_after_s)
        nodes = [node for effect in effects if isinstance(effect, ev.Request) for node in effect.nodes]
        effects += step(self.controller.time_s, [ev.CarrierUp(node, node) for node in nodes])
        lines = [f"would take {' '.join(nodes)}"] if nodes else ["would take no node"]
        for effect in effects:
            if isinstance(effect, ev.Note):
                lines.append(effect.text)
            elif isinstance(effect, ev.StartRank):
                rank = f"rank {effect.rank} of {effect.world_size}"
                lines.append(f"would start {effect.task.name} on {effect.node}, {rank}")
        return lines

    def _may_add(self, request: ev.HarvestEvent) -> bool:
        """Whether what was asked is no task that cannot be, or would save where another one does; that is told."""
        if isinstance(request, ev.Submitted):
            try:
                self._check_places([live_task(Path(request.file), 1, request.table)])
            except InvalidTaskError as fault:
                self.tell(f"Not added: {fault}")
                return False
        return True

    def _check_places(self, new: Sequence[LiveTask]) -> None:
        """Refuse new tasks that would save where another one of the harvest does: `InvalidTaskError`."""
        names = {task.name for task in new}
        lives = [life for life in self.controller.tasks.values() if not (life.is_over or life.name in names)]
        check_places([*(life.task for life in lives), *new], self.directory)

    def new_tasks(self, tasks: Sequence[LiveTask], file: Path) -> list[ev.Submitted]:
        """Those of a task file that are to be added, or tried again.

        An `OutputError` if the harvest has others only; an `InvalidTaskError` if two would save at one place.
        """
        lives = self.controller.tasks
        if lives and not any(task.name in lives for task in tasks):
            expected = f"Expected tasks of the harvest there ({', '.join(sorted(lives))}), found none in {file}"
            raise OutputError(f"{self.directory}: {expected}; see -o, and harvest add.")
        new = [task for task in tasks if task.name not in lives or lives[task.name].status is TaskStatus.PARKED]
        self._check_places(new)
        return [ev.Submitted(str(file.resolve()), task.table) for task in new]

    def finish(self, reason: str) -> RunResult:
        """Close the books, and write the files of the run."""
        is_over = all(life.is_over for life in self.controller.tasks.values())
        self.controller.finish("finished" if is_over else "interrupted")
        result = harvest_result(self.controller, self.config, self.directory, self.command)
        write_harvest(result, self.directory)
        self._write_status(reason)
        return result

    @property
    def statuses(self) -> Counter[str]:
        """How many tasks stand where."""
        return Counter(str(life.status) for life in self.controller.tasks.values())

    @property
    def now_s(self) -> float:
        """Seconds since the harvest was begun, which do not go back."""
        if not self._origin_s:
            self._origin_s = time.monotonic() - max(time.time() - self.controller.epoch_s, self.controller.time_s)
        return time.monotonic() - self._origin_s

    def _is_due(self, what: str, every_s: float) -> bool:
        now_s = time.monotonic()
        if now_s < self._due_s.get(what, 0.0):
            return False
        self._due_s[what] = now_s + every_s
        return True

    def take_in(self, engine: CarrierEngine, time_s: float, events: Sequence[ev.HarvestEvent]) -> str | None:
        """Let the controller take a step, and do what it says; why the harvest is over, None if it is not."""
        controller, reason = self.controller, None
        effects = controller.step(time_s, events)
        for event in () if controller.changed else events:
            if isinstance(event, ev.Progressed):
                # Of many reports the last one counts, and that which a generation begins with.
                generation = controller.tasks[event.task].current
                is_first = generation is not None and generation.first is event
                self._reports[event.task, event.generation, is_first] = event
        if controller.changed or (self._reports and self._is_due("reports", _REPORTS_S)):
            earlier = [*self._reports.values()]
            self._reports.clear()
            self.journal.add(controller, earlier, events if controller.changed else None, effects)
        for effect in effects:
            match effect:
                case ev.Request():
                    engine.request(effect.nodes)
                case ev.Release():
                    engine.release(effect.carrier, for_others=effect.for_others)
                case ev.StartRank():
                    engine.start(effect)
                case ev.StopRank():
                    engine.stop(effect)
                case ev.Note():
                    self.tell(effect.text)
                case ev.HarvestEnded():
                    reason = effect.reason
        return reason

    def tell(self, text: str) -> None:
        """Tell people something, now and in the status."""
        self._notes.append(text)
        self.say(text)

    def _write_status(self, reason: str | None) -> None:
        about = {"notes": list(self._notes), "over": reason, "process": os.getpid()}
        with replacing(self.directory / STATUS) as stream:
            stream.write(json.dumps(describe_status(self.controller) | about).encode(errors="backslashreplace"))


def make_controller(config: ReplayConfig, start_ns: int, limits: HarvestLimits) -> Controller:
    """A controller with the settings of a replay; an `InputError` if one of them cannot be."""
    settings = config.settings(get_objective(str(config.objective)), str(config.solver))
    return Controller(settings, start_ns, limits, config.profile_noise)


def open_session(
    directory: Path,
    journal: EventJournal,
    tasks: Sequence[LiveTask],
    file: Path,
    config: ReplayConfig,
    limits: HarvestLimits,
    speed: float | None = None,
    **more: Any,
) -> HarvestSession:
    """A session of a new harvest, or of the one that a directory holds, as long as there is something left to do.

    `speed` is how many times as fast as its time a node log is played, if one is. An `OutputError` if the harvest
    there was begun with other settings, or has none of these tasks; an `InvalidTaskError` if two would save at one
    place.
    """
    settings = json.loads(json.dumps({name: getattr(config, name) for name in SETTINGS}))
    settings |= {} if speed is None else {"speed": speed}
    header = journal.header
    before = header.get("settings", settings)
    if others := ", ".join(sorted(name for name, value in settings.items() if before.get(name, value) != value)):
        expected = "Expected the options that its harvest was begun with"
        raise OutputError(f"{directory}: {expected}; these differ: {others}.")
    start_ns = header["start_ns"] if header else time.time_ns()
    stays = header["stays"] if header else limits.stays
    controller = make_controller(config, start_ns, replace(limits, stays=stays))
    reason = journal.replay(controller) if header else None
    for path, event in requests(directory):
        if isinstance(event, ev.Asked):  # of a controller that is gone
            path.unlink(missing_ok=True)
    session = HarvestSession(directory, journal, controller, config, **more)
    session.first = session.new_tasks(tasks, file)
    added = any(isinstance(event, ev.Submitted) for _, event in requests(directory))
    if added or session.first or not all(life.is_over for life in controller.tasks.values()):
        reason = None
    if not header:
        journal.begin({"start_ns": start_ns, "settings": settings, "stays": stays})
    elif reason is None:
        restarted = [ev.Restarted(limits.stays)]
        controller.step(controller.time_s, restarted)
        journal.add(controller, (), restarted)
    session.reason = reason
    return session


SETTINGS: tuple[str, ...] = (
    *("solver", "fallback", "objective", "forward_time_s", "max_tasks", "time_limit_s", "startup_cost"),
    "profile_noise",
)
"""Fields of `ReplayConfig` that a harvest has."""
