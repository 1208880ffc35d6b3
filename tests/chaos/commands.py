"""Long commands, in a world small enough that they take a second: what they write, and how they go on."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from bftrainer.nodelogs import read_node_log, write_node_log
from tests.recurring import TRACES, write_world
from tests.tiny import write_inputs
from tests.zeus.master.driven import FAKE, PYTHON

SACCT = """\
JobIDRaw|Partition|Start|End|NNodes|NodeList|JobName
1|batch|2026-09-01T08:00:00|2026-09-01T09:00:00|2|n[1-2]|a
2|batch|2026-09-01T10:00:00|2026-09-01T11:00:00|1|n1|c
"""
SWEEP = """\
schema = 1
[base]
node_log = "evt.pkl"
tasks = "tasks.toml"
solver = "dp"
[grid]
Tfwd = [{}, 30, 40]
"""
JOB = f"""\
schema = 1
recurrences = 3
batch_sizes = [16, 32, 64]
log_base = "logs"
max_power_w = 250.0
grace_s = 0.3
[job]
dataset = "d"
network = "n"
optimizer = "adam"
target_metric = 0.5
max_epochs = 7
default_bs = 32
default_lr = 0.1
command = {json.dumps([*PYTHON, str(FAKE), "{bs}", "{lr}", "{seed}", "{epochs}", "ok"])}
"""
VARIANTS = ("10", "20")


@dataclass(frozen=True)
class Command:
    """A command whose results depend on what stands for {v}, one of `VARIANTS`.

    Parameters
    ----------
    words : str
    results : tuple of str
        What belongs together of what it writes; the first is what readers look for. Nothing: it only prints.
    resume : str
        How an unfinished one goes on, if it can.
    folder : str
        The working directory within the world.
    """

    words: str
    results: tuple[str, ...] = ()
    resume: str = ""
    folder: str = "."

    def given(self, variant: str) -> list[str]:
        """The command line of a variant."""
        return ["bftrainer", *self.words.format(v=variant).split()]


_OFTEN = "--checkpoint-every 0.000001s --output-dir out --force"
_TINY = "-ndmap evt.pkl -bdfn tasks.toml --solver dp"
_SAMPLE = "replay -Tfwd {v} --no-baseline " + _OFTEN
_RESUME = "replay --resume out"
COMMANDS = {
    "replay": Command(f"replay {_TINY} -Tfwd {{v}} {_OFTEN}", ("out",), _RESUME),
    "replay, cbc": Command(f"{_SAMPLE} --max-events 40", ("out",), _RESUME),
    "replay, tuned": Command(f"{_SAMPLE} --sample tuned --solver dp --max-events 60", ("out",), _RESUME),
    "replay, capped": Command(f"{_SAMPLE} --sample tuned --power-cap 15kW --max-events 20", ("out",), _RESUME),
    "sweep": Command(
        "sweep sweep-{v}.toml -o out --workers 2 --force", ("out",), "sweep sweep-{v}.toml -o out --resume"
    ),
    "forecast": Command(f"forecast {_TINY} -Tfwd {{v}} --deadline 10 --horizon 20 --stretches 4 --workers 2"),
    "advise": Command(f"advise {_TINY} --trials 3 -Tfwd {{v}}"),
    "zeus": Command(
        f"zeus simulate {' '.join(TRACES)} --jobs jobs.toml --recurrences {{v}} --seeds 3 --workers 2 "
        "--output runs.json --force",
        ("runs.json",),
    ),
    "spot": Command("spot simulate --trace nodes.csv --preparation {v} -o out --force", ("out",)),
    "spot sweep": Command("spot sweep --days 0.05 --repeats 2 --seed {v} --jobs 2 -o out --force", ("out",)),
    "import": Command(
        "import sacct.txt --tz UTC --start 2026-09-01 --end 2026-09-{v} -o idle.csv --force --window asked",
        ("idle.csv", "idle.json"),
    ),
    "generate": Command(
        "trace generate --model minutes --days 0.1 --seed {v} -o made.csv.gz --force",
        ("made.csv.gz", "made.json"),
    ),
    "convert": Command("convert tasks-{v}.toml made-Jbnd.pkl --force", ("made-Jbnd.pkl", "made-JNPs.pkl")),
    "report": Command("report run-{v} -o page.html --force", ("page.html",)),
    "master": Command("master run job.toml --seed {v} --quiet", (), "master run --resume {logs} --quiet"),
}


def make_world(folder: Path) -> None:
    """Write what commands read; runs to report on are made by commands."""
    write_inputs(folder)
    write_world(folder)
    (folder / "inner").mkdir()
    write_node_log(folder / "nodes.csv", read_node_log(folder / "evt.pkl"))
    (folder / "sacct.txt").write_text(SACCT)
    (folder / "job.toml").write_text(JOB)
    for number, variant in enumerate(VARIANTS):
        (folder / f"sweep-{variant}.toml").write_text(SWEEP.format(variant))
        dated = (folder / "tasks.toml").read_text().replace("min_nodes", f"submit = 2026-01-0{number + 1}\nmin_nodes")
        (folder / f"tasks-{variant}.toml").write_text(dated)
