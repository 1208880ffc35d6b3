"""Bad options, inputs and places: one table a command; each is refused in one line, and nothing is written.

Commands and options that earlier versions had say what replaces them.
"""

import json
import os
import pickle
import shlex
import sys
from pathlib import Path

import click
import pytest

from bftrainer.cli.group import cli, read_removed
from tests.cli.conftest import Call, all_commands, check_refusal
from tests.cli.test_import import SACCT, SWF
from tests.cli.test_master import JOB as MASTER_JOB
from tests.legacy.test_pickle import Payload
from tests.recurring import JOB, TRACES, write_world
from tests.tiny import TASKS_TOML, contents

GOALS = {"nan": "return counts * float('nan')", "shape": "return counts[1:]", "ending": "raise SystemExit(0)"}
"""Objectives that answer nonsense at their first decision."""
FILES = {
    "s.csv": "".join(f"0,add,n{number}\n" for number in range(20)) + "1800000,remove,n3\n7200000,remove,n9\n",
    "one.csv": "0,add,a\n",
    "t.csv": "timestamp,number\n2021-01-01T00:01:30Z,2\n2021-01-01T00:01:50Z,1\n",
    "p.toml": "schema = 1\nworld_size = [16]\niteration_s = [18.0]\nreconfiguration_s = 90.0\ncheckpoint_s = 80.0\n",
    "s.toml": 'schema = 1\n[base]\nsolver = "dp"\n[grid]\nforward_time_s = [10.0]\n',
    "old.json": "precious",
    "job.toml": MASTER_JOB,
    "target.toml": f"{MASTER_JOB}\ntarget = 1\n",
    "lamb.toml": MASTER_JOB.replace('"adam"', '"lamb"'),
    "limits.toml": MASTER_JOB.replace("grace_s", "set_power_limits = true\ngrace_s"),
    "pyhton.toml": MASTER_JOB.replace(json.dumps(sys.executable), '"pyhton"'),
    "sacct.txt": SACCT,
    "log.swf": SWF,
    "other.swf": SWF.replace("MaxNodes: 4", "MaxNodes: 9"),
    "typo.toml": TASKS_TOML.replace("grow_cost_s", "grow_cost"),
    "empty.pkl": "",
    "junk.parquet": "no table",
    "junk.tar.gz": "no archive",
    "leaving_goal.py": "raise SystemExit(0)\n",
    "broken_goal.py": "def credit(:\n",
    **{f"{name}_goal.py": f"def credit(task, counts, now_s):\n    {body}\n" for name, body in GOALS.items()},
}
PAGES = shlex.join(JOB)
MINUTES = "trace generate -o a.parquet --model minutes"
NO_EFFECT = "Options that have no effect:"
YEARS = "between the years 1678 and 2262"
UNREADABLE = {
    "absent.pkl": "No such file.",
    "folder": "Expected a file, got a directory.",
    "/": "Expected a file, got a directory.",
    "empty.pkl": "Expected data, got an empty file.",
    "junk.parquet": "",
    "junk.tar.gz": "",
    "noise": "",
    "hostile.pkl": "refused to load posix.system ",
}
"""What is neither a node log nor a task set, and what is said of it."""
REPLAY = {
    "-Tfwd 0": "Invalid value for '-Tfwd' / '--forward-time': 0.0 is not in the range x>0",
    "-Tfwd 1e308": "product is finite",
    "-maxj 5": "No such option '-maxj'. Did you mean '-maxJ'?",
    "-optTL inf": "finite time limit",
    "-nN 5": "the log's 4 nodes, got 5 nodes from 0",
    "--until 0": "--until after the window's start",
    "--until soon": "ISO time or seconds, got 'soon'",
    "-mip true": "either -mip or --solver",
    "--strict-published": "--strict-published with --solver equal-share, got dp",
    "--compat published --decide-on all": "Expected decide_on nodes with compat published, got all.",
    "--scaling cubic": "scaling linear, amdahl:F with F from 0 to 1 or, in replays, learned, got 'cubic'",
    "--scaling learned --profile-noise nan": "profile_noise >= 0, got nan",
    "--fallback cbcc": "Did you mean 'cbc'?",
    "--solver gorubi": "Expected a known solver or module:callable, got 'gorubi'. Did you mean 'gurobi'?",
    "--solver zzz --fallback dp -o deep/er": "got 'zzz'. Known: cbc, dp, ",
    "--objective throughputs": "Did you mean 'throughput'?",
    "--objective absent:credit": "objective absent:credit: Cannot import the module: ModuleNotFoundError",
    "--objective math:pi": "a callable, got float",
    "--objective math:sinn": "math to define 'sinn'. Did you mean 'sin'?",
    "--slover dp": "--solver",
    **{
        f"{option} {name}": f"{name}:" + (said and f" {said}")
        for option in ("-ndmap", "-bdfn")
        for name, said in UNREADABLE.items()
    },
    "-scfn absent.pkl": "Error: absent.pkl: No such file.\n",
    "-scfn hostile.pkl": "Error: hostile.pkl: refused to load posix.system ",
    "-bdfn typo.toml": "task J0: Unknown key 'grow_cost'. Did you mean 'grow_cost_s'?",
    "--objective nan_goal:credit": "objective credit, task J0: Expected finite credit, got nan for 0 nodes",
    "--objective shape_goal:credit": "Expected credit of shape (5,), got (4,)",
    "--objective ending_goal:credit": "task J0: raised SystemExit: 0 (ending_goal.py, line 2).",
    "--objective leaving_goal:credit": "objective leaving_goal:credit: Cannot import the module: SystemExit",
    "--objective broken_goal:credit": "objective broken_goal:credit: Cannot import the module: SyntaxError",
    "--objective quota:user=3": "objective quota: Expected tasks with a user, got none.",
    "-ndmap absent.pkl -o folder": "--output-dir",
    "-o old.json": "old.json: Expected a directory or nothing, found a file",
    "-o /proc/nowhere/results": "/proc/nowhere/results",
    f"-o {'x' * 300}": "x" * 300,
    "--open": "--open (there is no --report)",
    "--seed 3": f"{NO_EFFECT} --seed (nothing is drawn",
    "--sample plain": "--sample (-bdfn names the tasks)",
    "--policy grid --power-policy oracle": "--policy (no task is tuned), --power-policy (no task is tuned)",
    "--profile-noise 0.1": "--profile-noise (no curve is learned)",
    "--power-options all --carbon 3": "--power-options (no task is tuned), --carbon (no power is known",
}
WINDOW = "--start 2026-09-01 --end 2026-09-02 --tz Europe/Berlin --window asked -o idle.parquet"
IMPORT = {
    "slurm sacct.txt -o x.csv": "sacct.txt:2: Missing --tz: times such as 2026-09-01T08:00:00 are local",
    f"slurm sacct.txt --nodes n[1-999999999] {WINDOW}": "--nodes: Expected at most 1,000,000 nodes",
    f"slurm sacct.txt --nodes m1 {WINDOW}": "Expected an inventory with nodes of the log (n1, n2)",
    f"slurm sacct.txt --unseen idle {WINDOW}": "--unseen (without an inventory",
    f"slurm log.swf {WINDOW}": "log.swf:1: Expected columns between bars (sacct -P), got '; MaxNodes: 4'.",
    "swf log.swf --procs-per-node 12x -o x.csv": "--procs-per-node",
    "swf absent.swf -o .": ".: Expected a name ending in .parquet, .csv or .csv.gz.",
    "slrum sacct.txt -o x.csv": "Did you mean 'slurm'?",
}
ASSESS = {
    "none.parquet": "none.parquet",
    "evt.pkl evt.pkl --format node-log": "Expected one node log, got 2 files.",
    "evt.pkl --worth-share much": "a share such as 1% or 0.01, got 'much'",
    "s.csv --format table": "import the table first (bftrainer import --format table --map ... -o idle.parquet)",
    "s.csv --format absent:Importer": "absent",
    "log.swf other.swf": "other.swf:1: Expected logs of one machine, got MaxNodes 9 after 4.",
    "evt.pkl --gpus-per-node 0": "Expected --gpus-per-node of 1 to 1,000,000, got 0.",
    "evt.pkl --scalability JNPs.pkl": f"{NO_EFFECT} --scalability",
    "evt.pkl -o evt.pkl": "evt.pkl: Would overwrite",
    "evt.pkl -o x.html": "Expected --output-dir to name a directory",
}
CAMPAIGNS = {
    "sweep absent.toml": "absent.toml: ",
    "sweep s.toml --workers 1000000000": "'--workers': 1000000000 is not in the range 1<=x<=1000.",
    "sweep s.toml --engine local --scheduler tcp://x:1": f"{NO_EFFECT} --scheduler (of the engine dask alone)",
    "sweep s.toml --resume --force": f"{NO_EFFECT} --force (--resume",
    "advise --metric efficiencies": "got 'efficiencies'. Did you mean 'efficiency",
    "advise --trials 1": "Expected at least 2 trials",
    "forecast --deadline soon": "36h or 5d, or a weekday, got 'soon'",
    "forecast --deadline 9999-01-01 --solver dp": f"Expected a time {YEARS}",
    "forecast --deadline 36h --open": "--open (there is no --report)",
}
LOGS = {
    "convert Jbnd.pkl nowhere/tasks.toml": "nowhere/tasks.toml: No such directory: nowhere",
    "convert evt.pkl o.csv --scaling @": f"{NO_EFFECT} --scaling (a node log has no scaling)",
    "convert tasks.toml o.toml --scaling linear": "--scaling (all tasks of tasks.toml have a scaling)",
    "tasks generate --scenario hpo -o t.toml --count 2 --model resnet": "resnet",
    "tasks generate --scenario hpo -o tasks.toml --count 2": "tasks.toml: File exists",
    "tasks generate --scenario nas -o t.toml --count 2 --model resnet18": "--model (nas is a mix of all models)",
    "tasks fit tasks.toml": "tasks.toml",
    "trace stats evt.pkl --figure f.jpg": "f.jpg: Expected a figure's name to end in .pdf, .png, .svg.",
    "trace stats t.csv --additions a.csv --terminations b.csv": "a.csv: Expected a trace that tells additions",
    "trace generate": "Missing option '-o'",
    "trace generate -o a.txt": "a.txt: Expected a name ending in .parquet, .csv or .csv.gz.",
    "trace generate -o a.parquet --seed -1": "seed >= 0, got -1",
    "trace generate -o a.parquet --start 1500-01-01": f"'--start': Expected a time {YEARS}, got '1500-01-01'.",
    "trace generate -o a.parquet --preemption-scale 2": "--preemption-scale (of the model minutes alone)",
    "trace generate -o a.parquet --idle-share 1": "0 < idle share < 1",
    "trace generate -o a.parquet --set fragment-mean=10 --set fragment-median=20": "median <= mean",
    f"{MINUTES} --set addition-chance=1.5": "addition_chance from 0 to 1, got 1.5",
    f"{MINUTES} --nodes 4": "--nodes (of the model supercomputer alone)",
    "trace edit evt.pkl --tz UTC -o x.csv": "--tz (there is no --start or --end)",
    "trace edit evt.pkl --start 1612915200 --tz Europe/Berlin -o x.csv": "--tz (the times say theirs)",
    "trace edit evt.pkl --nodes z -o x.csv": "Expected nodes of the log (a, b, c, d), got z.",
    "trace edit evt.pkl --min-hole 10x -o x.csv": "length of time such as 90s, 10min or 2h, got '10x'",
    "trace edit evt.pkl --anonymise key --partition p -o x.csv": "Unknown partition 'p'",
    "trace edit evt.pkl ./evt.pkl -o x.csv": "Expected each log once, got evt.pkl again",
}
SPOT = {
    "simulate": "Missing option '--trace'",
    "simulate --trace s.csv --depth 65": "max_world_size >= depth, got 64 < 65",
    "simulate --trace s.csv --tick 0": "tick_s",
    "simulate --trace s.csv --initial-nodes 4": f"{NO_EFFECT} --initial-nodes (without --additions",
    "simulate --trace s.csv --profile p.toml --load-on-reconfigure": "--load-on-reconfigure (the profile has no",
    "simulate --trace s.csv --price 0": "a price from 1e-9 to 1e9, got 0.0",
    "sweep --preemption-scale 1;2": "numbers separated by commas, got '1;2'",
    "sweep --days nan": "days from one minute to 19 years, got nan",
    "sweep --like one.csv": "one.csv: Expected a trace that tells preemptions and additions over time",
    "sweep --on-demand-price 3": "--on-demand-price (without --price",
}
ZEUS = {
    "simulate": "Missing --job or --jobs. Known: pages,net,sgd; words,net,adam.",
    "simulate --job page,net,sgd --target 0.5": "got 'page,net,sgd'. Did you mean 'pages,net,sgd'?",
    "simulate --job pages,net,sgd": "Missing --target of --job pages,net,sgd. Known: 0.5, 0.6.",
    f"simulate {PAGES} --eta 1.01": "Expected eta from 0 (time) to 1 (energy), got 1.01.",
    f"simulate {PAGES} --policy zeuss": "got 'zeuss'. Did you mean 'zeus'?",
    f"simulate {PAGES} --policy absent:make": "No module named 'absent'",
    f"compare {PAGES} --policy zeus+": "Expected policies as BATCH_SIZE or BATCH_SIZE+POWER_LIMIT",
    f"simulate {PAGES} --output out.py": "out.py: Expected a name that ends in .json or .parquet, got .py.",
    f"compare {PAGES} --output old.json": "old.json: File exists; choose another name or give --force.",
    "groups --groups groups.csv --jobs jobs.toml --group d": "a group of the trace, got 'd'. Known: a, b, c.",
    "groups --groups groups.csv --jobs jobs.toml --dataset page": "got 'page'. Did you mean 'pages'?",
    f"groups --groups groups.csv {PAGES}": "Group c: No job for the dataset 'words'. Known: pages.",
}
MASTER = {
    "run target.toml": "Unknown key 'target' in job. Did you mean 'target_metric'?",
    "run lamb.toml": "LR scaling for 'lamb' is not supported. Known: adadelta, adam",
    "run limits.toml": "No GPU found whose power can be measured and limited.",
    "run pyhton.toml": "Expected a program that can be run in",
    "run job.toml --policy zuse": "got 'zuse'. Did you mean 'zeus'?",
    "run --resume logs --seed 1": "--seed (--resume goes on",
    "run job.toml --log-base job.toml": "cannot be made (Not a directory).",
    "status .": ".: Not the logs of a recurring job: journal.jsonl",
}
UNKNOWN = {
    "replya": "No such command 'replya'. Did you mean 'replay'?",
    "zeus xyz": "No such command 'xyz'. Known: compare, groups, simulate, traces.",
    "zeus traces --train train.csv": "Expected --train and --power together, got --train without --power.",
    "replay -o ''": ".: Expected a directory that can be replaced",
    "convert evt.pkl": "one place for the output",
    "convert evt.pkl a.csv -o b.csv": "one place for the output",
    "report ''": ".: Expected a result directory",
}
TABLES = {
    "replay -ndmap evt.pkl -bdfn Jbnd.pkl -scfn JNPs.pkl --solver dp": REPLAY,
    "": CAMPAIGNS | LOGS | UNKNOWN,
    "import --format": IMPORT,
    "assess": ASSESS,
    "spot": SPOT,
    f"zeus {{}} {shlex.join(TRACES)}": ZEUS,
    "master": MASTER,
}


def command_lines() -> list[tuple[str, str]]:
    """Each row of the tables as it is typed, and what is said of it."""
    lines = []
    for before, table in TABLES.items():
        for words, said in table.items():
            command, _, more = words.partition(" ")
            line = f"{before.format(command)} {more}" if "{}" in before else f"{before} {words}"
            lines.append((line.strip(), said))
    return lines


@pytest.fixture
def world(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files that the commands need to come as far as their fault."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    write_world(here)
    (here / "folder").mkdir()
    (here / "folder" / "thesis.tex").touch()
    (here / "hostile.pkl").write_bytes(pickle.dumps({"a": [(Payload(os.system, "touch pwned"),)]}))
    for name, text in FILES.items():
        (here / name).write_text(text)
    (here / "noise").write_bytes(b"\x00\x01\x02")
    return here


@pytest.mark.parametrize(("line", "said"), command_lines(), ids=lambda text: text[-60:])
def test_refusals(call: Call, world: Path, line: str, said: str) -> None:
    """One line that says what was expected and what came, status 2, and nothing is written."""
    before = contents(world)
    check_refusal(call(*shlex.split(line)), said)
    assert contents(world) == before


def test_numbers_that_nothing_foresaw(monkeypatch: pytest.MonkeyPatch, call: Call) -> None:
    """What follows from numbers may be too large although each of them is fine: that is bad input, in one line."""

    def grows(*_: object, **__: object) -> float:
        return float(10**400)

    monkeypatch.setattr(cli.get_command(click.Context(cli), "convert"), "callback", grows)
    check_refusal(call("convert", "evt.pkl", "out.csv"))


@pytest.mark.parametrize(("words", "instead"), read_removed().items())
def test_what_was_removed_names_what_replaces_it(call: Call, words: str, instead: str) -> None:
    """Status 2 and one line for a command, and for an option of one that is still there, also with arguments."""
    words = words.replace("*", "convert")
    before, mark, option = words.partition(" -")
    if option:
        assert f"{mark[1:]}{option}" not in [flag for param in all_commands()[before].params for flag in param.opts]
    else:
        assert words not in all_commands()
    check_refusal(call(*words.split(), "some.file", "-o", "x.csv"), f"was removed: {instead}")
