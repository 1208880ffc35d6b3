"""Pages name what commands take and what they write: each option, key, column and published signature."""

from __future__ import annotations

import inspect
import json
import re
import runpy
from dataclasses import fields
from typing import get_args

import click
import pyarrow.parquet as pq
import pytest

from benchmarks.published import ROOT
from bftrainer import run_replay, zeus
from bftrainer.cli.harvest import run as run_harvest
from bftrainer.cli.harvest import watch
from bftrainer.cli.imports import import_log
from bftrainer.cli.master import run, status
from bftrainer.cli.replay import replay
from bftrainer.cli.spot import simulate, sweep
from bftrainer.cli.trace import generate, stats
from bftrainer.files.opening import SAMPLE_TUNED_TASKS, sample_path
from bftrainer.nodelogs.availability import AvailabilityTrace, churn_log
from bftrainer.report.summary_model import SummaryModel
from bftrainer.runs import write_run
from bftrainer.runs.run_files import ALLOCATION, ATTEMPTS, COUNTS, DECISIONS, POWER, TASKS, TEXTS
from bftrainer.schedulers.import_log import import_log as import_files
from bftrainer.schedulers.import_settings import LOG_FORMATS, OWN_SETTINGS, SETTINGS, settings_of
from bftrainer.spot import CheckpointedTraining, trace_statistics
from bftrainer.spot import simulate as simulate_training
from bftrainer.spot.run import load_profile, summarise_run
from bftrainer.zeus.master import ZeusMaster
from bftrainer.zeus.master.script import JobFile, LaunchedJob, Measure, RunEnvironment
from bftrainer.zeus.policies import trace
from bftrainer.zeus.policies.policy_registry import BATCH_SIZES
from bftrainer.zeus.simulation import simulator
from bftrainer.zeus.simulation.campaign import RUN_COLUMNS, Simulation
from tests.shipped import shipped

PUBLISHED = (
    *(zeus.Simulator, zeus.PruningGTSBatchSizeOptimizer, zeus.GTSBatchSizeOptimizer, zeus.JITPowerLimitOptimizer),
    *(zeus.PruningExploreManager, zeus.GaussianTS, zeus.Job, zeus.HistoryEntry, zeus.zeus_cost),
)
SHARED = set(SETTINGS) - set(OWN_SETTINGS)
TRACES = {*trace.TRAIN_COLUMNS, *trace.POWER_COLUMNS, *simulator.TIMES}


def page(*names: str) -> str:
    """Text of pages."""
    return "".join((ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8") for name in names)


def assert_named(names: object, text: str) -> None:
    """Each name stands between backticks."""
    assert sorted(name for name in names if f"`{name}`" not in text) == []


def signature(callable_: object) -> str:
    """Name and arguments that may be positional, with their defaults, as published."""
    parameters = inspect.signature(callable_).parameters.values()
    shown = [
        each.name if each.default is inspect.Parameter.empty else f"{each.name}={each.default}"
        for each in parameters
        if each.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    ]
    return f"`{callable_.__name__}({', '.join(shown)})`"


@pytest.mark.parametrize(
    ("name", "commands"),
    [
        ("master", (run, status)),
        ("spot", (generate, simulate, stats, sweep)),
        ("options", (replay, run_harvest, watch)),
    ],
)
def test_every_option_is_described(name: str, commands: tuple[click.Command, ...]) -> None:
    """Each option of these commands stands on the page."""
    text, params = page(name), [param for command in commands for param in command.params]
    options = [max(param.opts, key=len) for param in params if isinstance(param, click.Option)]
    assert [option for option in options if f"`{option}" not in text and f" {option}" not in text] == []


def test_generated_pages_are_up_to_date():
    """docs/options.md, and the keys of a summary in docs/files.md, are made by `scripts/make_options_page`."""
    script = runpy.run_path(str(ROOT / "scripts" / "make_options_page"))
    assert (script["page"](), script["files_page"]()) == (page("options"), page("files"))


@pytest.mark.parametrize("name", LOG_FORMATS)
def test_every_format_has_a_section(name):
    """It shows how a log is imported, the common page leads to it, and its options stand on either."""
    shared, sections = page("import"), page("import-formats")
    assert f"](import-formats.md#{name})" in shared
    (section,) = re.findall(rf"^## {name}\n(.*?)(?=^## |\Z)", sections, re.MULTILINE | re.DOTALL | re.IGNORECASE)
    assert re.search(rf"bftrainer import (--format {name} )?", section)
    flags = [f"--{option.replace('_', '-')}" for option in settings_of(name)]
    flags += [max(param.opts, key=len) for param in import_log.params if param.name in SHARED]
    assert [flag for flag in flags if flag not in section and flag not in shared] == []


def test_every_figure_is_described(tmp_path):
    """Figures beside a node log, of a trace of nodes and of a run on it stand on their pages."""
    (tmp_path / "counts.csv").write_text("timestamp,count\n2026-09-01T08:00:00,1\n2026-09-01T09:00:00,2\n")
    assert_named(import_files("counts", [tmp_path / "counts.csv"]).quality.summary(), page("import"))
    log, settings = churn_log((0, 60 * 10**9), 2, []), CheckpointedTraining(load_profile(None))
    assert_named(trace_statistics(AvailabilityTrace.from_log(log)).as_json(), page("spot"))
    assert_named(summarise_run(simulate_training(log, settings), None, {}), page("spot"))


def test_every_output_of_a_run_is_described(tmp_path):
    """The model declares every key of a summary; docs/files.md has every column, docs/options.md the settings."""
    write_run(run_replay(solver="dp", max_events=20, tasks=sample_path(SAMPLE_TUNED_TASKS)), tmp_path)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert SummaryModel.model_validate(summary).model_extra == {}
    wanted = {key for name in ("settings", "below_large_idle", "inputs") for key in summary[name]}
    wanted |= {column for path in tmp_path.glob("*.parquet") for column in pq.read_schema(path).names}
    assert_named(
        wanted | set((tmp_path / "step-logs.csv").read_text().splitlines()[0].split(",")), page("files", "options")
    )


def test_the_types_of_columns_are_described():
    """docs/files.md has the columns of each Parquet table of a run, in their order, with the types that they have."""
    words = {str(TEXTS): "list of text", str(COUNTS): "list of int64", "string": "text", "double": "float64"}
    for table in (DECISIONS, TASKS, ALLOCATION, POWER, ATTEMPTS):
        section = page("files").partition(f"### `{table.file}`\n")[2].partition("\n### ")[0]
        rows = [line.split("|")[1:3] for line in section.splitlines() if line.startswith("| `")]
        shown = [(name, kind.strip()) for names, kind in rows for name in re.findall(r"`(\w+)`", names)]
        kinds = [
            (column.name, words.get(str(column.kind), str(column.kind).partition("[")[0])) for column in table.columns
        ]
        assert shown == kinds, table.file


def test_every_name_of_recurring_jobs_is_described():
    """Columns and keys of files in docs/files.md; public names and published signatures in docs/zeus.md."""
    keys = {*RUN_COLUMNS, *(field.name for kind in (zeus.Job, Simulation) for field in fields(kind))}
    assert_named({*keys, *TRACES, "group", "simulation", "failure", "runs", "inputs", "versions"}, page("files"))
    names = {*zeus.__all__, *zeus.Corrections.__slots__, *TRACES}
    names |= {*shipped("bftrainer.batch_size_optimizers"), *shipped("bftrainer.power_limit_optimizers")}
    assert sorted(name for name in names if not re.search(rf"[`.]{name}\b", page("zeus"))) == []
    assert [signature(each) for each in PUBLISHED if signature(each) not in page("zeus")] == []


def test_every_name_of_the_master_is_described():
    """Keys of the job file, policies, meters, variables and the published signature are in docs/master.md."""
    wanted = {*JobFile.model_fields, *LaunchedJob.model_fields, *BATCH_SIZES.names(), *get_args(Measure)}
    wanted -= {"schema_", "oracle"}
    assert_named({*wanted, *RunEnvironment(target_metric=0.5, max_power_w=1.0, gpus=1).variables()}, page("master"))
    assert signature(ZeusMaster) in page("master")
    parameters = inspect.signature(ZeusMaster).parameters.values()
    by_name = {each.name for each in parameters if each.kind is inspect.Parameter.KEYWORD_ONLY}
    assert_named(by_name, page("master"))
