"""Inputs of simulations of recurring jobs: traces, and the jobs and groups chosen from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from bftrainer.errors import SettingsError, TuningInputError, suggestion
from bftrainer.files.opening import sample_path
from bftrainer.files.text_files import fault_text, toml_tables
from bftrainer.files.writing import file_source, versions
from bftrainer.zeus.policies.job import Job, JobSettings
from bftrainer.zeus.policies.trace import TrainingTrace
from bftrainer.zeus.simulation.simulator import Group, read_groups

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


def described_jobs(inputs: ZeusInputs, choice: JobChoice) -> tuple[list[Job], bool]:
    """Return the jobs to describe, and whether they have chosen targets; without one, a job has all of its runs'."""
    trace = inputs.trace
    if choice.file is not None or inputs.is_sample or "target_metric" in choice.changes:
        return choose_jobs(inputs, choice), True
    keys: Sequence[tuple[str, str, str]] = [job_key(trace, name) for name in choice.names] or trace.jobs
    fields = {"max_epochs": MAX_EPOCHS} | choice.changes
    return [Job(*key, target, **fields) for key in keys for target in trace.targets(*key)], False


def job_key(trace: TrainingTrace, name: str) -> tuple[str, str, str]:
    """Split a job's name ``dataset,network,optimizer``, and check that the traces have the job."""
    parts = tuple(part.strip() for part in name.split(","))
    if len(parts) != 3 or not all(parts):
        raise TuningInputError(f"Expected --job as dataset,network,optimizer, got {name!r}.")
    if parts not in trace.jobs:
        close = suggestion(",".join(parts), (",".join(key) for key in trace.jobs))
        raise TuningInputError(f"Expected a job of the traces, got {name!r}.{close}")
    return parts


def _complete_job(trace: TrainingTrace, candidates: list[Job], name: str, change: dict[str, Any]) -> Job:
    """Return the job of a name, completed from the other options and from the candidate jobs."""
    parts = job_key(trace, name)
    alike = [job for job in candidates if (job.dataset, job.network, job.optimizer) == parts]
    if len(alike) == 1:
        return replace(alike[0], **change)
    if "target_metric" not in change:
        shown = ", ".join(map(str, trace.targets(*parts)))
        raise TuningInputError(f"Missing --target of --job {name}. Known: {shown}.")
    return Job(*parts, **{"max_epochs": MAX_EPOCHS} | change)


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
