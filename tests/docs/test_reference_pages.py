"""Pages name what commands take and what they write: each option, key and column."""

import json
import re
import runpy

import pyarrow.parquet as pq
import pytest

from benchmarks.published import ROOT
from bftrainer import run_replay
from bftrainer.cli.imports import import_log
from bftrainer.files.opening import SAMPLE_TUNED_TASKS, sample_path
from bftrainer.model.summary import SummaryModel
from bftrainer.nodelogs.availability import AvailabilityTrace
from bftrainer.runs import write_run
from bftrainer.runs.run_files import ALLOCATION, ATTEMPTS, COUNTS, DECISIONS, POWER, TASKS, TEXTS
from bftrainer.schedulers.import_log import import_log as import_files
from bftrainer.schedulers.import_settings import LOG_FORMATS, OWN_SETTINGS, SETTINGS, settings_of
from bftrainer.spot import CheckpointedTraining, trace_statistics
from bftrainer.spot import simulate as simulate_training
from bftrainer.spot.generation import churn_log
from bftrainer.spot.run import load_profile, summarise_run
from bftrainer.zeus.master.script import JobFile, LaunchedJob

SHARED = set(SETTINGS) - set(OWN_SETTINGS)


def page(*names: str) -> str:
    """Text of pages."""
    return "".join((ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8") for name in names)


def assert_named(names: object, text: str) -> None:
    """Each name stands between backticks."""
    assert sorted(name for name in names if f"`{name}`" not in text) == []


def test_generated_pages_are_up_to_date():
    """`scripts/make_reference` makes tables of docs/options.md, keys in docs/files.md and the list of modules."""
    for name, text in runpy.run_path(str(ROOT / "scripts" / "make_reference"))["pages"]().items():
        assert text == page(name.removesuffix(".md")), name


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
    assert_named(vars(import_files("counts", [tmp_path / "counts.csv"]).quality), page("import"))
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


def test_every_key_of_a_job_file_is_described():
    """docs/master.md names them."""
    assert_named({*JobFile.model_fields, *LaunchedJob.model_fields} - {"schema_"}, page("master"))
