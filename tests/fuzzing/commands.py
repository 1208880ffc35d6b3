"""Commands that read the small files, and options and values that they may not like."""

# ruff: noqa: SIM905
import click
from hypothesis import strategies as st

from bftrainer.cli.group import cli
from tests.fuzzing.damages import HOSTILE, NUMBERS, Draw
from tests.recurring import JOB

_ZEUS = f"--train train.csv --power power.csv {' '.join(JOB)}"
_RUN = "-ndmap idle.csv -bdfn tasks.toml --solver dp"
_WINDOW = "--tz UTC --start 2026-09-01T00:01:40Z --end 2026-09-01T00:06:40Z --window asked -o out.csv"
# Behind a bar stand files that others name.
COMMANDS = f"""
trace stats spot.csv --json --additions add.csv --terminations term.csv | idle.csv
trace edit evt.tar.gz --start 2021-02-10T00:00:05 --end 2021-02-10T00:00:35 -o out.parquet
trace edit idle.parquet evt2.csv --nodes nodes.csv --min-hole 5 -o out.csv
trace edit busy.csv --nodes inventory.txt --exclude-nodes n[2-3] --anonymise key -o out.csv
convert evt.pkl out.csv
convert sample-idle.parquet out.csv.gz
convert Jbnd.pkl out.toml -scfn JNPs.pkl
tasks fit throughput.csv
replay {_RUN} --since 5 --until 20 --skip-events 1 --report page.html
replay -ndmap made.parquet -bdfn tasks.toml --dry-run
replay -ndmap evt.pkl -bdfn Jbnd.pkl -scfn JNPs.pkl --solver equal-share --compat published --json
replay -ndmap idle.csv -bdfn tuned.toml --solver dp --power-cap cap.csv --carbon carbon.csv | train.csv power.csv
replay -ndmap idle.csv -bdfn saving.toml --solver dp --scaling learned --profile-noise 0.1 --json
replay {_RUN} --output-dir run --force | run
replay --resume unfinished | .unfinished.new idle.csv tasks.toml
bound {_RUN} --notices 5,20 --json
forecast --deadline 20s --horizon 30 {_RUN} --stretches 2 --workers 1
sweep sweep.toml -o out --workers 1 | idle.csv tasks.toml
sweep sweep.toml --resume -o swept --workers 1 | swept idle.csv tasks.toml
sweep axes.toml -o out --workers 1 --paired seed --metric work_done | idle.csv tasks.toml
audit run power --json | idle.csv tasks.toml tuned.toml cap.csv train.csv power.csv
compare run power
report power -o out.html
plot losses run power -o out.svg
plot paired swept --against forward_time_s -o out.svg
import sacct.txt --nodes n[1-4] --reservations reservations.csv --downtimes downtimes.csv {_WINDOW}
import --format slurm sacct.txt --nodes scontrol.txt --partition batch --unseen idle {_WINDOW}
import --format pbs 20260901 --nodes seen -o out.csv --window asked
import --format spot spot.csv -o out.csv
spot simulate --trace spot.csv --profile profile.toml --price 2 -o out
spot sweep --like spot.csv --repeats 1 --days 0.05 --jobs 1 --profile profile.toml
zeus simulate {_ZEUS} --recurrences 2 --output out.json --json
zeus compare {_ZEUS} --recurrences 2 --policy default --policy zeus --seeds 1 --workers 1
zeus traces --train train.csv --power power.csv
zeus groups --groups groups.csv --train train.csv --power power.csv --jobs jobs.toml --group a --workers 1
master status logs/m
harvest run live.toml --dry-run --pool idle.csv --max-nodes 4 --speed 200 --json -o out
harvest status harvest --json
watch command --once -- cat states.txt
""".strip().splitlines()
# What a command may change, as it says so.
CHANGES = {
    "replay --resume": (".unfinished", "unfinished"),
    "--force": ("run",),
    "--resume -o swept": ("swept", ".swept"),
}
_FILES = [*"idle.csv tasks.toml fifo folder link /dev/null /dev/zero . absent run no/such/out.csv -".split(), "x" * 300]
_WORDS = "dp cbc energy deadline 1h 10 a,b zeus grid oracle pool learned amdahl:0.1 json:loads re:x".split()


def changes_of(words: list[str]) -> tuple[str, ...]:
    """Beginnings of the names that a command may change."""
    text = " ".join(words)
    return tuple(name for typed, names in CHANGES.items() if typed in text for name in names)


def options_of(words: list[str]) -> list[click.Option]:
    """Options of the command that these words begin with."""
    command: click.Command = cli
    for word in words:
        if not isinstance(command, click.Group):
            break
        command = command.get_command(click.Context(command), word) or cli
    return [each for each in command.params if isinstance(each, click.Option)]


def value(draw: Draw, option: click.Option) -> str:
    """A value of an option, such that a command that takes it ends."""
    if option.name == "for_s":  # nothing else ends a harvest in which nothing is started
        return str(draw(st.sampled_from(["0", "-1s", "x", "nan", "1e-3", "0.1s"])))
    if option.name in ("workers", "jobs", "gpus", "days", "stretches", "repeats", "seeds", "trials"):
        return str(draw(st.sampled_from(["0", "-1", "1", "x", "nan"])))
    if isinstance(option.type, click.Choice):
        return str(draw(st.sampled_from(list(option.type.choices)) | HOSTILE))
    if isinstance(option.type, click.Path):
        return str(draw(st.sampled_from(_FILES) | HOSTILE))
    if option.type.name in ("integer", "float", "integer range", "float range"):
        return str(draw(st.sampled_from([*NUMBERS, "3", "0.5", "10"])))
    return str(draw(HOSTILE | st.sampled_from([*_WORDS, *_FILES])))
