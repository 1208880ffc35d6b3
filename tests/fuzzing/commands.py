"""Commands that read the small files, by what is damaged for them; options and their values."""

# ruff: noqa: SIM905
from __future__ import annotations

from functools import cache
from random import Random

import click

from bftrainer.cli._shared.group import cli
from tests.fuzzing.mutations import NUMBERS, hostile
from tests.recurring import JOB

_TRACES = f"--train train.csv --power power.csv {' '.join(JOB)}"
# Behind a bar stand files that others name. {world} is a node log of the small world, {log} one of any form, {bounds}
# and {scaling} are pickles of any pandas.
COMMANDS = {
    "node logs": """
trace stats {log}
trace stats {log} --json --additions add.csv --terminations term.csv
convert {log} out.csv
convert {log} out.csv --to spot
convert {log} out.pkl
trace edit {world} --start 2021-02-10T00:00:05 --end 2021-02-10T00:00:35 -o out.parquet
trace edit {world} --nodes a,b --min-hole 5 -o out.csv
trace edit {world} --nodes nodes.csv -o out.parquet
trace edit {world} evt2.csv -o out.csv
convert {log} -o out.csv
trace edit {log} --anonymise key -o out.csv
trace generate --like busy.csv --days 0.05 --seed 1 -o out.csv
trace stats busy.csv --json --figure out.svg
replay -ndmap {log} -bdfn tasks.toml --solver dp --output-dir out
replay -ndmap {log} -bdfn tasks.toml --dry-run
replay -ndmap {log} -bdfn tasks.toml --solver dp --since 5 --until 20 --skip-events 1 --report page.html
trace edit busy.csv --nodes inventory.txt --exclude-nodes n[2-3] -o out.csv
spot simulate --trace {log} -o out
replay -ndmap {log} -bdfn tasks.toml --solver dp --json
replay -ndmap {log} -bdfn tasks.toml --solver equal-share --compat published --json
bound -ndmap {world} -bdfn tasks.toml --solver dp --notices 5,20 --json
reproduce bftrainer --quick --workers 1 --log {world} -o out
advise -ndmap {log} -bdfn tasks.toml --solver dp --trials 2
forecast --deadline 20s --horizon 30 -ndmap {log} -bdfn tasks.toml --solver dp --stretches 2 --workers 1
""",
    "task sets": """
replay -ndmap idle.csv -bdfn tasks.toml --solver dp --output-dir out
replay -ndmap idle.csv -bdfn tasks.toml --dry-run
replay -ndmap idle.csv -bdfn native.toml --solver dp --json
replay -ndmap idle.csv -bdfn {bounds} -scfn {scaling} --solver dp --json
replay -ndmap idle.csv -bdfn {bounds} --scaling amdahl:0.1 --solver dp --dry-run
replay -ndmap idle.csv -bdfn sample-tasks.toml --max-events 2 --solver dp --dry-run
replay -ndmap idle.csv -bdfn tuned.toml --solver dp --power-cap cap.csv --carbon carbon.csv | train.csv power.csv
replay -ndmap idle.csv -bdfn tuned.toml --solver dp --policy grid --power-policy oracle --json | train.csv power.csv
replay -ndmap idle.csv -bdfn saving.toml --solver dp --json
replay -ndmap idle.csv -bdfn tasks.toml --solver dp --scaling learned --profile-noise 0.1 --json
bound -ndmap idle.csv -bdfn saving.toml --solver dp --notices 5,20
convert {bounds} out.toml -scfn {scaling}
convert tasks.toml out.toml
convert native.toml out.toml
tasks fit throughput.csv
""",
    "zeus": f"""
zeus simulate {_TRACES} --recurrences 3
zeus simulate {_TRACES} --recurrences 2 --output out.json --json
zeus simulate --train train.csv --power power.csv --jobs jobs.toml --recurrences 2 --output out.parquet
zeus compare {_TRACES} --recurrences 2 --policy default --policy zeus --seeds 1 --workers 1
zeus traces --train train.csv --power power.csv
zeus traces {_TRACES} --json
zeus traces --train zeus-train.csv --power zeus-power.csv
zeus groups --groups groups.csv --train train.csv --power power.csv --jobs jobs.toml --group a --workers 1
master status logs/m
master status logs/m --json
""",
    "spot": """
spot simulate --trace spot.csv --profile profile.toml --json
spot simulate --trace spot.csv --profile profile.toml -o out --price 2
spot simulate --trace spot.csv --profile sample-spot-profile.toml
spot sweep --like spot.csv --repeats 1 --days 0.05 --jobs 1 --profile profile.toml -o out
trace stats spot.csv
trace generate --like spot.csv --days 0.02 --seed 1 -o out.csv
import --format spot spot.csv -o out.csv
reproduce bamboo --quick --workers 1 --log spot.csv -o out
""",
    "sweeps": """
sweep sweep.toml -o out --workers 1 | idle.csv tasks.toml
sweep sweep.toml --resume -o swept --workers 1 | idle.csv tasks.toml
sweep axes.toml -o out --workers 1 --paired seed --metric work_done | idle.csv tasks.toml
sweep axes.toml -o out --workers 1 --json --paired window | idle.csv tasks.toml
""",
    "runs": """
audit run | idle.csv tasks.toml
audit power | idle.csv tuned.toml cap.csv train.csv power.csv
audit run power --json | idle.csv tasks.toml tuned.toml cap.csv train.csv power.csv
compare run power
compare run power --json
compare run {point} --csv
report run -o out.html
report power -o out.html
report {point} -o out.html
plot pool run -o out.svg
plot losses run {point} -o out.svg
plot setting run {point} -o out.svg --against policy --metric work_done
plot gantt run -o out.svg
plot paired swept --against forward_time_s -o out.svg
replay --resume unfinished | .unfinished.new idle.csv tasks.toml
replay -ndmap idle.csv -bdfn tasks.toml --solver dp --output-dir run --force
sweep sweep.toml --resume -o swept --workers 1 | idle.csv tasks.toml
""",
    "inventories": """
import --format slurm sacct.txt --nodes inventory.txt --max-bad 1 {window} -o out.csv
import --format slurm sacct.txt --nodes n[1-4] {window} -o out.csv
import --format slurm sacct.txt --nodes scontrol.txt --partition batch --unseen idle -o out.csv {window}
import sacct.txt --nodes n[1-4] --reservations reservations.csv --downtimes downtimes.csv -o out.csv {window}
import --format slurm sacct-2026-09-01.txt --downtimes sacctmgr-events.txt --nodes seen -o out.csv {window}
import --format slurm sacct-spring.txt sacct-autumn.txt --tz Europe/Berlin -o out.csv --start 2026-01-01 --window asked
import --format pbs 20260901 --nodes seen -o out.csv --window asked
import sacct.txt --exclude-nodes n[1-2] -o out.csv {window}
""",
    "harvest": """
harvest run live.toml --dry-run --max-nodes 3 -o out
harvest run live.toml --dry-run --pool {world} --speed 200 --json -o out
harvest run live.toml --dry-run -o out
harvest run live.toml --dry-run -o harvest
harvest status harvest
harvest status harvest --json
harvest add harvest live.toml
watch command --once -- cat states.txt
watch command --once --json -- cat states.json
""",
    "others": """
trace generate --days 0.2 --nodes 6 --seed 1 -o out.csv
tasks generate --scenario hpo --count 2 --seed 1 -o out.toml
replay --sample tuned --max-events 2 --dry-run
reproduce zeus --quick --workers 1 -o out
tasks generate --scenario nas --count 2 --seed 1 --checkpoint-s 5 --restart-s 9 -o out.toml
""",
    "servers": """
bso serve --host 127.0.0.1 --port 0 --database sqlite:///absent/x.db
bso jobs --server http://127.0.0.1:1 --token-file tokens
bso jobs job --server http://127.0.0.1:1
bso jobs job -o out.csv --server http://127.0.0.1:1
bso jobs job --delete --server http://127.0.0.1:1 --yes
bso jobs job --void 1 --reason why --server http://127.0.0.1:1
bso jobs --import sqlite:///zeus.db --database sqlite:///x.db | zeus.db
master run job.toml --log-base logs --recurrences 1 --quiet
master run --resume logs/m
""",
}
# What a command may change, as it says so.
CHANGES = {
    "replay --resume": (".unfinished", "unfinished"),
    "--force": ("run", "swept"),
    "sweep.toml --resume": ("swept", ".swept"),
    "master run --resume": ("logs",),
    "harvest add": ("harvest",),
}
OUTPUTS = frozenset(
    "output output_dir directory target report figure figures name additions terminations key_file database log_base "
    "logdir place".split()
)
_PLACES = [*"out2.csv out . fifo folder link no/such/out.csv idle.csv -".split(), "", "x" * 300, "\udcff.csv"]
_COUNTS = {"workers", "jobs", "gpus"}
_FILES = [*"idle.csv tasks.toml fifo folder link /dev/null /dev/zero . absent run".split(), "x" * 300]
_WORDS = (
    "dp cbc highs exhaustive equal-share energy deadline fair-share 1h 10 a,b zeus gts grid "
    "oracle pool learned amdahl:0.1 work_done max_nodes policy json:loads os:path re:x"
).split()


def lines(family: str) -> list[str]:
    """The commands of a family."""
    return COMMANDS[family].strip().splitlines()


def changes_of(words: list[str]) -> tuple[str, ...]:
    """Beginnings of the names that a command may change."""
    text = " ".join(words)
    return tuple(name for said, names in CHANGES.items() if said in text for name in names)


@cache
def parameters(path: tuple[str, ...]) -> list[click.Option]:
    """Options of the command that these words begin with."""
    command: click.Command = cli
    for word in path:
        if not isinstance(command, click.Group):
            break
        found = command.get_command(click.Context(command), word)
        if found is None:
            return []
        command = found
    return [one for one in command.params if isinstance(one, click.Option) and one.name not in ("large", "help")]


def option(rng: Random, words: list[str]) -> list[str]:
    """An option of the command, with a value that it may not like; words that end with a fitting choice, mostly."""
    known = parameters(tuple(words[:2]))
    if not known:
        return [f"--{hostile(rng)}"]
    one = rng.choice(known)
    name = rng.choice(one.opts)
    if one.is_flag:
        return [name]
    return [name, value(rng, one)]


def value(rng: Random, one: click.Option) -> str:
    """A value of an option."""
    if one.name in OUTPUTS:
        return rng.choice(_PLACES)
    if one.name == "for_s":  # nothing else ends a harvest in which nothing is started
        return rng.choice(("0", "-1s", "x", "nan", "1e-3", "0.1s"))
    if one.name in _COUNTS:
        return rng.choice(("0", "-1", "1", "x", "nan", "9223372036854775808"))
    if isinstance(one.type, click.Choice) and rng.random() < 0.7:
        return str(rng.choice(list(one.type.choices)))
    if isinstance(one.type, click.Path):
        return rng.choice((*_FILES, *_FILES, hostile(rng)))
    if one.type.name in ("integer", "float", "integer range"):
        return rng.choice((*NUMBERS, "1", "2", "3", "0.5", "10"))
    return rng.choice((hostile(rng), hostile(rng), rng.choice(_WORDS), rng.choice(_FILES)))
