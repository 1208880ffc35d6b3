"""Whatever a file, an option or a place holds, it is used or refused in one line, and nothing else is touched."""

import os
import re
import resource
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import matplotlib.font_manager  # noqa: F401  # writes its cache when it is imported first
import pytest
import uvicorn
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bftrainer.cli.group import cli, guarded
from tests.fuzzing.commands import COMMANDS, changes_of, options_of, value
from tests.fuzzing.damages import HOSTILE, damage
from tests.fuzzing.world import Files, Special, pick_files, scheduler_logs, world, write_files
from tests.schedulers.conformance.histories import COUNTED, NAMED
from tests.tiny import Done

EXAMPLES = int(os.environ.get("BFTRAINER_FUZZ_EXAMPLES", "75"))
SLOWEST_S, MOST_KIB = 120, 2 << 20
HANG = Mock(side_effect=AssertionError(f"took more than {SLOWEST_S} s"))
SPECIALS = [Special("fifo"), Special("folder"), Special("link", "absent"), Special("link", "folder"), Special("hole")]
NAMES = ["\udcff{}", "\u202e{}", "a\nb{}", "-{}", "~{}", " {}", "{}\x1b[2J", "%s{}", "{}{}", "é{}", "'{}", "--{}"]
BESIDE = {"idle.csv": "idle.json", "evt2.csv": "evt2.json", "log.csv": "log.json"}
fuzzed = settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
pytestmark = [
    pytest.mark.long,
    pytest.mark.no_cover,
    pytest.mark.timeout(3600),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning"),
]


@pytest.fixture(scope="module", autouse=True)
def _alone() -> Iterator[None]:
    """Reach no network, serve nothing, take little memory; a command that hangs is ended."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", Mock(side_effect=ConnectionRefusedError(111, "Connection refused")))
        patch.setattr(uvicorn, "run", lambda *_, **__: None)
        patch.setenv("BFTRAINER_MAX_GIB", "0.0625")
        yield
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < MOST_KIB


def run(words: list[str]) -> Done:
    """Run a command in this process, as its entry point does."""
    with pytest.MonkeyPatch.context() as patch, CliRunner().isolation() as (out, err, _):
        patch.setattr(sys, "argv", ["bftrainer", *words])
        sys.stdout.reconfigure(errors="backslashreplace")  # as the entry point does
        before = (signal.signal(signal.SIGALRM, HANG), signal.setitimer(signal.ITIMER_REAL, SLOWEST_S))
        try:
            status = guarded(cli, "bftrainer")
        finally:
            signal.signal(signal.SIGALRM, before[0])
            signal.setitimer(signal.ITIMER_REAL, *before[1])
        sys.stdout.flush()
        return Done(status, out.getvalue().decode(errors="replace"), err.getvalue().decode(errors="replace"))


def play(words: list[str], files: Files, changes: tuple[str, ...] = ()) -> Done:
    """Run a command on these files; what it may not do it has not done."""
    words = [word.replace("\0", "\1") for word in words]  # the system hands over no NUL
    with tempfile.TemporaryDirectory() as place, pytest.MonkeyPatch.context() as patch:
        here, home = Path(place, "here"), Path(place, "home")
        for folder in (here, home):
            folder.mkdir()
        write_files(Path(place), {"beside/kept": b"a canary"})
        patch.setenv("HOME", str(home))
        patch.setenv("XDG_STATE_HOME", str(home))
        patch.chdir(here)
        write_files(here, files)
        before = state(here.parent)
        done = run(words)
        check(words, done)
        after = state(here.parent)
        mine = (*(f"here/{name}" for name in changes), "\0")
        touched = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
        touched = {name for name in touched if not name.startswith(mine) and not name.endswith((".writing", "here"))}
        assert not {name for name in touched if name in before or not name.startswith("here/")}, "changed what it read"
        assert done.status != 2 or not touched or "they are in" in done.err, "left behind after a refusal"
        return done


def state(folder: Path) -> dict[str, tuple[int, ...]]:
    """What stands below a folder, and when files were changed."""
    stand = {}
    for path in folder.rglob("*"):
        status = path.lstat()
        times = (status.st_ino, status.st_size, status.st_mtime_ns) if path.is_file() else ()
        stand[str(path.relative_to(folder))] = (status.st_mode, *times)
    return stand


def check(words: list[str], done: Done) -> None:
    """A status that shells know, and a line that says why it is not 0."""
    errors = [line for line in done.err.splitlines() if line.startswith("Error: ")]
    judges = words[:1] in (["audit"], ["sweep"])  # tell what is wrong with some of their subjects, by a status of 1
    assert done.status in (0, 1, 2), done
    assert len(errors) <= (len(words) if judges else 1), done
    assert bool(errors) == (done.status != 0) or (judges and done.status == 1), done
    assert not re.search(r"Traceback|Out of memory|\.py:\d+: \w*Warning: ", done.err), done


def split(line: str) -> tuple[list[str], Files]:
    """Words of a command, and the files that it names, or that stand behind a bar as these name them."""
    typed, _, named = line.partition(" | ")
    words = typed.split()
    names = [*words, *named.split()]
    return words, pick_files(*names, *(BESIDE[name] for name in names if name in BESIDE))


def damage_some(data: st.DataObject, files: Files) -> Files:
    """The files, of which one or two are damaged."""
    names = data.draw(st.lists(st.sampled_from(sorted(files)), min_size=1, max_size=2)) if files else []
    plain = {name: content for name in names if isinstance(content := files[name], bytes)}
    return files | {name: data.draw(damage(name, content)) for name, content in plain.items()}


LINES = st.sampled_from(COMMANDS)


@pytest.mark.parametrize("line", COMMANDS)
def test_commands_work_before_damage(line):
    """What they refuse afterwards is the damage."""
    words, files = split(line)
    assert play(words, files, changes_of(words)).status == 0


@fuzzed
@given(LINES, st.data())
def test_damaged_files(line, data):
    """A file that is damaged in any way is read or refused."""
    words, files = split(line)
    files = damage_some(data, files)
    sweep = files.get("sweep.toml", b"idle.csv")
    if isinstance(sweep, bytes) and b"idle.csv" not in sweep:  # else all of the sample is replayed, which takes minutes
        files["sweep.toml"] = world()["sweep.toml"]
    play(words, files, changes_of(words))


@fuzzed
@given(st.sampled_from(sorted(NAMED | COUNTED)), st.data())
def test_damaged_scheduler_logs(kind, data):
    """So is a scheduler's log, by its format or recognised."""
    files: Files = dict(scheduler_logs()[kind])
    words = ["import", "--format", data.draw(st.sampled_from([kind.split()[0], "auto"])), *sorted(files)]
    words += ["--nodes", data.draw(st.sampled_from(["n[1-4]", "seen", "4"]) | HOSTILE), "-o", "out.parquet"]
    words += data.draw(st.sampled_from([[], ["--max-bad", "1"], ["--tz", "Europe/Berlin"]]))
    play(words, damage_some(data, files))


@fuzzed
@given(LINES, st.data())
def test_odd_options(line, data):
    """Options with values that they do not like, or that contradict others, are refused."""
    words, files = split(line)
    for _ in range(data.draw(st.integers(1, 3))):
        option = data.draw(st.sampled_from(options_of(words)))
        name = data.draw(st.sampled_from(option.opts))
        words += [name] if option.is_flag else [name, value(data.draw, option)]
    files |= {"fifo": Special("fifo"), "folder": Special("folder"), "link": Special("link", "absent")}
    play(words, files, ("link", *changes_of(words)))


@fuzzed
@given(LINES, st.data())
def test_odd_places(line, data):
    """Something else stands in a file's place, or its name is odd."""
    words, files = split(line)
    name = data.draw(st.sampled_from([name for name in sorted(files) if name in words] or [""]))
    if not name or data.draw(st.booleans()):
        play(words, files | ({name: data.draw(st.sampled_from(SPECIALS))} if name else {}), changes_of(words))
        return
    other = data.draw(st.sampled_from(NAMES)).replace("{}", name)[-200:]
    files[other] = files.pop(name)
    play([other if word == name else word for word in words], files, changes_of(words))
