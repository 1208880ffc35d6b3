"""What the documentation shows is what happens: its examples run, and their output is the one printed.

Blocks of a page run in sequence in a directory of their own. ``python`` blocks share a namespace and are doctests where
they have prompts; lines of ``console`` blocks that begin with ``$`` are commands, what follows them is their
output (stderr included), in which ``...`` stands for anything. A block after ``<!-- file: NAME -->`` is a file.
"""

from __future__ import annotations

import doctest
import os
import re
import runpy
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.published import ROOT, published, published_traces
from tests.shipped import shipped

PAGES = [ROOT / "README.md", ROOT / "datasets" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^(?:<!-- file: (?P<file>\S+) -->\n)?```(?P<language>\w+)\n(?P<body>.*?)^```$", re.M | re.S)
INSTALLING = ("scripts/quickstart", "scripts/test", "pip ")
# Pages whose examples are whole replays or imports, many of them.
LONG = (
    "README.md",
    *("campaigns.md", "import.md", "import-formats.md", "index.md", "integrations.md", "master.md", "objectives.md"),
    *("replay.md", "report.md", "server.md", "spot.md", "tasks.md", "tuned.md", "zeus.md"),
    *("tutorial-administrators.md", "tutorial-research.md", "tutorial-training.md"),
)
# Commands that need published files are left out where those are not found.
PUBLISHED = {"ndstat-10sdn6": published, "summary_train.csv": published_traces}
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@dataclass(frozen=True)
class Block:
    language: str
    body: str
    file: str | None
    where: str


def blocks(page):
    text = page.read_text(encoding="utf-8")
    for match in BLOCK.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        yield Block(match["language"], match["body"], match["file"], f"{page.name}:{line}")


def commands(body):
    """Commands of a console block, each with the output shown."""
    found = []
    for line in body.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        elif found and found[-1][0].endswith("\\"):
            found[-1] = (found[-1][0][:-1] + line.strip(), [])
        else:
            found[-1][1].append(line)
    return found


def run_command(command, shown, where):
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "COLUMNS": "120",
    }
    done = subprocess.run(
        command, shell=True, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    refused = done.stdout.startswith("Error: ") and any(line.startswith("Error: ") for line in shown)
    assert done.returncode == 0 or refused, f"{where}: $ {command}\n{done.stdout}"
    if shown:
        wanted, got = "\n".join(shown) + "\n", done.stdout
        assert doctest.OutputChecker().check_output(wanted, got, FLAGS), f"{where}: $ {command}\n{got}"


def run_python(block, names):
    if not block.body.startswith(">>>"):
        exec(compile(block.body, block.where, "exec"), names)
        return
    examples = doctest.DocTestParser().get_doctest(block.body, names, block.where, block.where, 0)
    said = []
    failed, _ = doctest.DocTestRunner(optionflags=FLAGS).run(examples, out=said.append, clear_globs=False)
    names.update(examples.globs)
    assert not failed, "".join(said)


@pytest.fixture
def ended(tmp_path):
    """Servers that an example has begun, and not ended as it failed, are ended."""
    yield
    for started in tmp_path.glob("server.txt"):
        with suppress(ProcessLookupError):
            os.kill(int(re.findall(r"process (\d+)", started.read_text())[0]), signal.SIGTERM)


@pytest.mark.usefixtures("ended")
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=str(page.relative_to(ROOT)), marks=[pytest.mark.slow] if page.name in LONG else [])
        for page in PAGES
    ],
)
def test_examples_run(page, tmp_path, monkeypatch):
    """Each example of a page does what the page says."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("scripts", "benchmarks"):
        (tmp_path / name).symlink_to(ROOT / name)
    given = published()
    for path in (*((given.node_log, given.bounds, given.scalability) if given else ()), *(published_traces() or ())):
        (tmp_path / path.name).symlink_to(path)
    missing = [name for name, find in PUBLISHED.items() if find() is None]
    names = {"__name__": "__main__"}
    for block in blocks(page):
        if block.file is not None:
            (tmp_path / block.file).write_text(block.body, encoding="utf-8")
        elif block.language == "python":
            run_python(block, names)
        elif block.language == "console":
            for command, shown in commands(block.body):
                if not command.startswith(INSTALLING) and not any(name in command for name in missing):
                    run_command(command, shown, block.where)


def test_blocks_are_found():
    """The pages hold examples, so that a change to their markup cannot silence the test above."""
    languages = [block.language for page in PAGES for block in blocks(page)]
    assert languages.count("python") >= 8
    assert languages.count("console") >= 12


def test_every_output_is_described(tmp_path):
    """docs/files.md names every column and every key of the summary that a run writes, docs/options.md the settings."""
    import json

    import pyarrow.parquet as pq

    from bftrainer import run_replay
    from bftrainer.files.opening import SAMPLE_TUNED_TASKS, sample_path
    from bftrainer.runs import write_run

    write_run(run_replay(solver="dp", max_events=20, tasks=sample_path(SAMPLE_TUNED_TASKS)), tmp_path)
    page = "".join((ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("files.md", "options.md"))
    summary = json.loads((tmp_path / "summary.json").read_text())
    nested = ("settings", "below_large_idle", "inputs")
    wanted = {*summary, *(key for name in nested for key in summary[name])}
    wanted |= {column for path in tmp_path.glob("*.parquet") for column in pq.read_schema(path).names}
    wanted |= set((tmp_path / "step-logs.csv").read_text().splitlines()[0].split(","))
    assert sorted(name for name in wanted if f"`{name}`" not in page) == []


def test_the_types_of_columns_are_described():
    """docs/files.md has the columns of each Parquet table of a run, in their order, with the types that they have."""
    from bftrainer.runs.run_files import ALLOCATION, ATTEMPTS, COUNTS, DECISIONS, POWER, TASKS, TEXTS

    page = (ROOT / "docs" / "files.md").read_text(encoding="utf-8")
    words = {str(TEXTS): "list of text", str(COUNTS): "list of int64", "string": "text", "double": "float64"}
    for table in (DECISIONS, TASKS, ALLOCATION, POWER, ATTEMPTS):
        section = page.partition(f"### `{table.file}`\n")[2].partition("\n### ")[0]
        rows = [line.split("|")[1:3] for line in section.splitlines() if line.startswith("| `")]
        told = [(name, kind.strip()) for names, kind in rows for name in re.findall(r"`(\w+)`", names)]
        assert told == [
            (column.name, words.get(str(column.kind), str(column.kind).partition("[")[0])) for column in table.columns
        ], table.file


def test_every_file_of_recurring_jobs_is_described():
    """docs/files.md names every column and key that recurring jobs are read from and written to."""
    from dataclasses import fields

    from bftrainer.zeus import Job
    from bftrainer.zeus.policies import trace
    from bftrainer.zeus.simulation import files as zeus_files
    from bftrainer.zeus.simulation import simulator
    from bftrainer.zeus.simulation.campaign import Simulation

    page = (ROOT / "docs" / "files.md").read_text(encoding="utf-8")
    wanted = {*zeus_files.RUN_COLUMNS, *(field.name for kind in (Job, Simulation) for field in fields(kind))}
    wanted |= {
        *trace.TRAIN_COLUMNS,
        *trace.POWER_COLUMNS,
        *simulator.TIMES,
        "group",
        "simulation",
        "failure",
        "runs",
        "inputs",
        "versions",
    }
    assert sorted(name for name in wanted if f"`{name}`" not in page) == []


def test_every_name_of_recurring_jobs_is_mapped():
    """docs/zeus.md has each public name, the signature of what has a published one, and all columns and fields."""
    import inspect

    from bftrainer import zeus
    from bftrainer.zeus.policies import trace
    from bftrainer.zeus.simulation import simulator

    page = (ROOT / "docs" / "zeus.md").read_text(encoding="utf-8")
    wanted = {*zeus.__all__, *zeus.Corrections.__slots__, *trace.TRAIN_COLUMNS, *trace.POWER_COLUMNS, *simulator.TIMES}
    wanted |= {*shipped("bftrainer.batch_size_optimizers"), *shipped("bftrainer.power_limit_optimizers")}
    assert sorted(name for name in wanted if not re.search(rf"[`.]{name}\b", page)) == []
    for known in (
        zeus.Simulator,
        zeus.PruningGTSBatchSizeOptimizer,
        zeus.GTSBatchSizeOptimizer,
        zeus.JITPowerLimitOptimizer,
        zeus.PruningExploreManager,
        zeus.GaussianTS,
        zeus.Job,
        zeus.HistoryEntry,
        zeus.zeus_cost,
    ):
        positional = [
            parameter.name if parameter.default is inspect.Parameter.empty else f"{parameter.name}={parameter.default}"
            for parameter in inspect.signature(known).parameters.values()
            if parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
        ]
        assert f"`{known.__name__}({', '.join(positional)})`" in page


def test_every_option_is_described():
    """docs/options.md is what `scripts/make_options_page` makes of the declarations, and names every option.

    Of a replay, of a harvest and of a watch; of the last two with what each means.
    """
    from bftrainer.cli.harvest.harvest import run
    from bftrainer.cli.harvest.watch import watch
    from bftrainer.cli.replay.replay import replay

    page = (ROOT / "docs" / "options.md").read_text(encoding="utf-8")
    assert runpy.run_path(str(ROOT / "scripts" / "make_options_page"))["page"]() == page
    others = [each for command in (run, watch) for each in command.params if each.opts[0][0] == "-"]
    options = [max(option.opts, key=len) for option in (*replay.params, *others)]
    assert [name for name in options if f"`{name}`" not in page] == []
    assert [option.name for option in others if not option.help] == []
