"""Run many simulations of recurring jobs in parallel: jobs, groups, policies and seeds; their inputs and files.

Inputs are traces, and the jobs and groups chosen from them. Runs are written as JSON or Parquet, histories as JSON.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

import numpy as np
from pydantic import ValidationError

from bftrainer.errors import BftrainerError, InputError, OutputError, SettingsError, TuningInputError, suggestion
from bftrainer.files.opening import sample_path
from bftrainer.files.text_files import toml_tables
from bftrainer.files.writing import file_source, replacing, versions
from bftrainer.model.type_checks import fault_text
from bftrainer.parallel import map_in_order, usable_processors
from bftrainer.zeus.policies.job import HistoryEntry, Job, JobSettings, check_knobs
from bftrainer.zeus.policies.policy_registry import PolicyContext, batch_size_optimizer, power_limit_optimizer
from bftrainer.zeus.policies.trace import JobKey, TrainingTrace
from bftrainer.zeus.simulation.simulator import (
    MAX_GROUP_RETRIES,
    Corrections,
    Group,
    Run,
    SimulationObserver,
    Simulator,
    read_groups,
)

MAX_EPOCHS = 100

SAMPLE_JOBS = (
    Job("synth-images", "convnet", "adadelta", 0.65, max_epochs=100, default_bs=512, default_lr=0.1),
    Job("synth-speech", "recurrent", "adamw", 0.8, max_epochs=20, default_bs=128, default_lr=0.001),
    Job("synth-text", "transformer", "adamw", 0.84, max_epochs=10, default_bs=48, default_lr=0.00005),
    Job("synth-ratings", "factors", "adam", 0.41, max_epochs=60, default_bs=512, default_lr=0.001),
)
"""One job a dataset of the traces; each reaches its target with its default batch size in every measured run."""

PUBLISHED_JOBS = (
    Job("cifar100", "shufflenetv2", "adadelta", 0.6, max_epochs=100, default_bs=1024),
    Job("imagenet", "resnet50", "adadelta", 0.65, max_epochs=100, default_bs=256),
    Job("squad", "bert_base_uncased", "adamw", 84.0, max_epochs=6, default_bs=32),
    Job("librispeech", "deepspeech2", "adamw", 40.0, max_epochs=16, default_bs=192),
    Job("movielens-1m", "ncf", "adam", 0.41, max_epochs=100, default_bs=1024),
    Job("sentiment140", "bert_base_uncased", "adamw", 0.84, max_epochs=10, default_bs=128),
)
"""The jobs of the published traces, with targets and defaults that are usual for them."""


class ZeusSample(NamedTuple):
    """Paths of the embedded traces: inputs of `TrainingTrace`, and of `read_groups`."""

    train: Path
    power: Path
    groups: Path


def zeus_sample() -> ZeusSample:
    """Return the paths of the embedded traces: `InputError` if the installation lacks one of the files."""
    return ZeusSample(*(sample_path(f"zeus-{name}.csv") for name in ZeusSample._fields))


@dataclass(frozen=True, slots=True, eq=False)
class ZeusInputs:
    """Traces that were read, whether they are the embedded ones, and path and SHA-256 of each file."""

    trace: TrainingTrace
    is_sample: bool
    sources: dict[str, Any]

    def about(self, **more: Any) -> dict[str, Any]:
        """Describe the inputs and the version, for a file of results."""
        return {"inputs": self.sources | more, "versions": versions()}


@dataclass(frozen=True, slots=True)
class JobChoice:
    """The user's choice of jobs: a file, names ``dataset,network,optimizer`` (none: all), and fields that differ."""

    file: Path | None = None
    names: tuple[str, ...] = ()
    changes: dict[str, Any] = field(default_factory=dict)


def load_traces(train: Path | None = None, power: Path | None = None) -> ZeusInputs:
    """Read the traces; without files, read the embedded synthetic ones: `SettingsError` if only one is given."""
    if (train is None) != (power is None):
        present, missing = ("--train", "--power") if power is None else ("--power", "--train")
        raise SettingsError(f"Expected --train and --power together, got {present} without {missing}.")
    is_sample = train is None
    if train is None or power is None:
        train, power, _ = zeus_sample()
    trace = TrainingTrace(train, power)
    return ZeusInputs(trace, is_sample, {"train": file_source(train), "power": file_source(power)})


def choose_jobs(inputs: ZeusInputs, choice: JobChoice, *, one: bool = False) -> list[Job]:
    """Return the jobs that the user chose, in the order of the names, or of the file if there are no names.

    With the embedded traces and no file, names are looked up among the embedded jobs; with `one`, the first of these is
    returned alone if no name is given. `TuningInputError` names the closest jobs where one is missing.
    """
    candidates = read_jobs(choice.file) if choice.file is not None else list(SAMPLE_JOBS) if inputs.is_sample else []
    if one and choice.file is None and not choice.names:
        candidates = candidates[:1]
    if not choice.names and not candidates:
        shown = "; ".join(",".join(key) for key in inputs.trace.jobs)
        raise TuningInputError(f"Missing --job or --jobs. Known: {shown}.")
    jobs = [replace(job, **choice.changes) for job in candidates]
    if choice.names:
        jobs = [_complete_job(inputs.trace, candidates, name, choice.changes) for name in choice.names]
    for number, job in enumerate(jobs):
        inputs.trace.of(job)
        if job in jobs[:number]:
            raise TuningInputError(f"Expected each job once, got {job} again.")
    return jobs


def jobs_to_describe(inputs: ZeusInputs, choice: JobChoice) -> tuple[list[Job], bool]:
    """Return the jobs to describe, and whether they have chosen targets; without one, a job has all of its runs'."""
    trace = inputs.trace
    if choice.file is not None or inputs.is_sample or "target_metric" in choice.changes:
        return choose_jobs(inputs, choice), True
    keys = [job_key(trace, name) for name in choice.names] or trace.jobs
    fields = {"max_epochs": MAX_EPOCHS} | choice.changes
    return [Job(*key, target, **fields) for key in keys for target in trace.targets(*key)], False


def job_key(trace: TrainingTrace, name: str) -> JobKey:
    """Split a job's name ``dataset,network,optimizer``, and check that the traces have the job."""
    parts = [part.strip() for part in name.split(",")]
    if len(parts) != 3 or not all(parts):
        raise TuningInputError(f"Expected --job as dataset,network,optimizer, got {name!r}.")
    if (key := JobKey(*parts)) not in trace.jobs:
        close = suggestion(",".join(key), map(",".join, trace.jobs))
        raise TuningInputError(f"Expected a job of the traces, got {name!r}.{close}")
    return key


def _complete_job(trace: TrainingTrace, candidates: list[Job], name: str, change: dict[str, Any]) -> Job:
    """Return the job of a name, completed from the other options and from the candidate jobs."""
    key = job_key(trace, name)
    alike = [job for job in candidates if (job.dataset, job.network, job.optimizer) == key]
    if len(alike) == 1:
        return replace(alike[0], **change)
    if "target_metric" not in change:
        shown = ", ".join(map(str, trace.targets(*key)))
        raise TuningInputError(f"Missing --target of --job {name}. Known: {shown}.")
    return Job(*key, **{"max_epochs": MAX_EPOCHS} | change)


def load_groups(path: Path | None) -> tuple[dict[str, Group], dict[str, str]]:
    """Read a trace of groups, by default the embedded one; also return its path and hash."""
    path = zeus_sample().groups if path is None else path
    return read_groups(path), file_source(path)


def choose_groups(
    groups: dict[str, Group], jobs: list[Job], names: tuple[str, ...] = (), datasets: tuple[str, ...] = ()
) -> list[tuple[Group, Job]]:
    """Choose groups by names and datasets, all without any, each with the one job that represents its dataset."""
    by_dataset: dict[str, Job] = {}
    for job in jobs:
        if by_dataset.setdefault(job.dataset, job) != job:
            raise TuningInputError(f"Expected one job a dataset, got {by_dataset[job.dataset]} and {job}.")
    for what, requested, present in (
        ("group", names, set(groups)),
        ("dataset", datasets, {group.dataset for group in groups.values()}),
    ):
        for name in requested:
            if name not in present:
                raise TuningInputError(f"Expected a {what} of the trace, got {name!r}.{suggestion(name, present)}")
    chosen = []
    for name, group in groups.items():
        if (names and name not in names) or (datasets and group.dataset not in datasets):
            continue
        if group.dataset not in by_dataset:
            close = suggestion(group.dataset, by_dataset)
            raise TuningInputError(f"Group {name}: No job for the dataset {group.dataset!r}.{close}")
        chosen.append((group, by_dataset[group.dataset]))
    if not chosen:
        raise TuningInputError("No group matches both the names and the datasets.")
    return chosen


def read_jobs(path: Path) -> list[Job]:
    """Read the jobs of a TOML file: `TuningInputError` names file and job if there is none, one twice, or a bad key."""
    jobs: list[Job] = []
    for number, table in enumerate(toml_tables(path, "job", TuningInputError), start=1):
        try:
            job = JobSettings.model_validate(table).to_job()
        except ValidationError as fault:
            reason = fault_text(fault, lambda at: [] if at else list(JobSettings.model_fields))
            raise TuningInputError(f"{path}, job {number}: {reason}") from None
        except TuningInputError as error:
            raise TuningInputError(f"{path}: {error}") from None
        if job in jobs:
            raise TuningInputError(f"{path}, job {number}: Expected each job once, found {job} again.")
        jobs.append(job)
    if not jobs:
        raise TuningInputError(f"{path}: Expected at least one [[job]], found none.")
    return jobs


# Same seed as published.
SEED = 123456
# Number of recurrences that one process simulates while another process would still be starting.
RECURRENCES_PER_WORKER = 20_000
# Pieces of work for each worker: enough to even out long and short ones.
CHUNKS_PER_WORKER = 8


@dataclass(frozen=True, slots=True)
class Simulation:
    """All that the result of one simulation depends on, besides the traces: a job's recurrences, or a group's jobs."""

    job: Job
    recurrences: int | None = 100  # times that the job must reach its target
    group: Group | None = None  # jobs that may overlap, each a recurrence of `job`
    policy: str = "zeus"  # names of policies, or ``module:callable``
    power_policy: str = "jit"
    eta_knob: float = 0.5  # weight of energy in costs
    beta_knob: float = 2.0  # multiple of the lowest cost at which a run stops; inf: never
    seed: int = SEED  # for drawing paths, and of the policies
    corrections: Corrections = field(default_factory=Corrections)
    max_group_retries: int = MAX_GROUP_RETRIES  # of a group's job before the simulation gives up

    def __post_init__(self) -> None:
        if (self.recurrences is None) == (self.group is None):
            raise SettingsError(f"{self.job}: Expected either recurrences or a group, got both or neither.")
        for name in ("recurrences", "seed", "max_group_retries"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise SettingsError(f"Expected {name} >= 0, got {value}.")
        check_knobs(self.eta_knob, self.beta_knob)

    @property
    def length(self) -> int:
        """Number of recurrences to simulate."""
        return len(self.group.jobs) if self.group is not None else self.recurrences or 0

    @property
    def policies(self) -> str:
        """Names of both policies, in the form of the option ``--policy``."""
        return f"{self.policy}+{self.power_policy}"

    def __str__(self) -> str:
        group = f", group {self.group.name}" if self.group is not None else ""
        return f"{self.job}{group}, {self.policies}, seed {self.seed}"


@dataclass(frozen=True, slots=True, eq=False)
class SimulationResult:
    """All runs of a simulation in the order of their ends, and why it ended early, if it did."""

    simulation: Simulation
    runs: tuple[Run, ...]
    failure: str | None = None

    @property
    def is_partial(self) -> bool:
        """Whether the simulation ended early."""
        return self.failure is not None

    @property
    def history(self) -> list[HistoryEntry]:
        """The runs that started, as the simulator returns them."""
        return [run.entry() for run in self.runs if run.started]


class _Recorder(SimulationObserver):
    """Records the runs, so that they survive a simulation that fails."""

    def __init__(self) -> None:
        self.runs: list[Run] = []

    def ran(self, run: Run) -> None:
        """Record a run."""
        self.runs.append(run)


def simulate(trace: TrainingTrace, simulation: Simulation) -> SimulationResult:
    """Simulate a job or a group; the result is partial if tuning could not go on, `InputError` if it cannot start."""
    recorder, failure, job, group = _Recorder(), None, simulation.job, simulation.group
    knobs = (simulation.beta_knob, simulation.eta_knob)
    try:
        context = PolicyContext(trace, job, *knobs[::-1], simulation.seed, concurrency=group is not None)
        simulator = Simulator(
            trace,
            None,
            batch_size_optimizer(simulation.policy, context),
            power_limit_optimizer(simulation.power_policy, context),
            simulation.seed,
            verbose=False,
            corrections=simulation.corrections,
            observers=[recorder],
            max_group_retries=simulation.max_group_retries,
        )
        if group is None:
            simulator.job_runs(job, simulation.length, *knobs)
        else:
            simulator.group_runs(job, group, *knobs)
    except BftrainerError as error:
        if isinstance(error, InputError) and not recorder.runs:
            raise
        failure = str(error)
    except MemoryError:
        raise
    except Exception as error:  # A user's policy may raise anything; the runs so far are kept.
        failure = " ".join(f"{simulation}: {type(error).__name__}: {error}".split())
    return SimulationResult(simulation, tuple(recorder.runs), failure)


def simulate_all(
    trace: TrainingTrace,
    simulations: Iterable[Simulation],
    workers: int | None = None,
    progress: Callable[[SimulationResult], None] = lambda result: None,  # noqa: ARG005
) -> list[SimulationResult]:
    """Run all simulations in processes, by default one per 20,000 recurrences; results are in the same order.

    `progress` is called with each result. The error of the first simulation that cannot start is raised.
    """
    simulations = list(simulations)
    if workers is not None and workers < 1:
        raise SettingsError(f"Expected at least one worker, got {workers}.")
    if workers is None:
        recurrences = sum(simulation.length for simulation in simulations)
        workers = min(math.ceil(recurrences / RECURRENCES_PER_WORKER), usable_processors())
    workers = max(1, min(workers, len(simulations)))
    chunk = max(1, math.ceil(len(simulations) / (workers * CHUNKS_PER_WORKER)))
    results = []
    with closing(map_in_order(partial(simulate, trace), simulations, workers, chunk)) as outcomes:
        for result in outcomes:
            results.append(result)
            progress(result)
    return results


def with_seeds(simulation: Simulation, number: int) -> list[Simulation]:
    """Repeat a simulation with `number` seeds: its own and those that follow."""
    return [replace(simulation, seed=simulation.seed + offset) for offset in range(number)]


def group_seed(seed: int, name: str) -> int:
    """Draw a seed from a campaign's and a group's name: with one seed for all, equal jobs would draw equal paths."""
    return int(np.random.SeedSequence([seed, *name.encode()]).generate_state(1)[0])


SCHEMA = 1
SUFFIXES = (".json", ".parquet")
_META = b"bftrainer.zeus"

# Columns of a run and their kinds, in the order in which they are written: its fields, and what they come to.
RUN_COLUMNS = {
    name: get_type_hints(Run).get(name, float) for name in (*Run._fields[:7], "energy_j", "time_s", *Run._fields[7:])
}


def check_suffix(path: Path) -> None:
    """Check that a file name ends in .json or .parquet; otherwise raise `OutputError`."""
    if path.suffix not in SUFFIXES:
        raise OutputError(f"{path}: Expected a name that ends in {' or '.join(SUFFIXES)}, got {path.suffix or 'none'}.")


def write_results(path: Path, results: Sequence[SimulationResult], about: Mapping[str, Any] | None = None) -> None:
    """Write results with all runs to .json or .parquet, whole or not at all; `about` are further values to store."""
    check_suffix(path)
    document = results_document(results, about)
    runs = [simulation.pop("runs") for simulation in document["simulations"]]
    if path.suffix == ".json":
        parts = [_append_rows(*each, "runs") for each in zip(document.pop("simulations"), runs, strict=True)]
        text = f'{json.dumps(document, allow_nan=False)[:-1]}, "simulations": [\n' + ",\n".join(parts) + "\n]}\n"
        with replacing(path) as stream:
            stream.write(text.encode())
        return
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
    schema = pa.schema([("simulation", pa.int64()), *((name, kinds[kind]) for name, kind in RUN_COLUMNS.items())])
    rows = [{"simulation": number, **row} for number, own in enumerate(runs) for row in own]
    table = pa.Table.from_pylist(rows, schema.with_metadata({_META: json.dumps(document, allow_nan=False)}))
    with replacing(path) as stream:
        pq.write_table(table, stream, compression="zstd")


def results_document(results: Sequence[SimulationResult], about: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Convert results to plain values, in the form of the JSON file."""
    simulations = []
    for result in results:
        simulation = asdict(result.simulation)
        if (group := result.simulation.group) is not None:
            simulation["group"] = group._asdict() | {"jobs": [list(job) for job in group.jobs]}
        # JSON has no infinity: null means that no run is stopped.
        simulation["beta_knob"] = None if math.isinf(simulation["beta_knob"]) else simulation["beta_knob"]
        # A user's policy may choose NumPy integers.
        runs = [{name: kind(getattr(run, name)) for name, kind in RUN_COLUMNS.items()} for run in result.runs]
        simulations.append(simulation | {"failure": result.failure, "runs": runs})
    is_partial = any(result.is_partial for result in results)
    return {"schema": SCHEMA, "partial": is_partial, **(about or {}), "simulations": simulations}


def write_history(path: Path, history: Sequence[HistoryEntry]) -> None:
    """Write a history as JSON: bs, pl, energy (J), reached and time (s) of each run."""
    text = f"{_append_rows({'schema': SCHEMA}, [asdict(entry) for entry in history], 'history')}\n"
    with replacing(path) as stream:
        stream.write(text.encode())


def _append_rows(document: dict[str, Any], rows: Sequence[dict[str, Any]], name: str) -> str:
    """Convert a document to JSON text that ends with rows, a line for each."""
    lines = ",\n".join(json.dumps(row, allow_nan=False) for row in rows)
    return f'{json.dumps(document, allow_nan=False)[:-1]}, "{name}": [\n{lines}\n]}}'
