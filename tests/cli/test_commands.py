"""The commands as a whole: their help, flags, number, completion and pages; convert, broken libraries."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from bftrainer.cli.replay import replay as replay_command
from tests.cli.conftest import all_commands, check_refusal
from tests.tiny import spawn

HEAVY = {
    *("gurobipy", "highspy", "matplotlib", "mip", "numpy", "pandas", "pyarrow", "pydantic", "rich", "scipy", "solvers"),
}
ALL = all_commands()
COMMANDS = {name: command for name, command in ALL.items() if not isinstance(command, click.Group)}
HELPS = f"""
import sys
from bftrainer.cli.group import cli, guarded
for line in {["", "zeus", *(f"{name} --help" for name in ALL)]}:
    sys.argv = ["bftrainer", *line.split()]
    assert guarded(cli, "bftrainer") == 0
"""


READS = """
from bftrainer.files.opening import sample_path, SAMPLE_NODE_LOG, SAMPLE_TASKS
from bftrainer.nodelogs import read_node_log
from bftrainer.tasksets import read_task_set
read_node_log(sample_path(SAMPLE_NODE_LOG)), read_task_set(sample_path(SAMPLE_TASKS))
"""
DESCRIBES = """
from solvers import registry, supervised
assert [registry.get_solver(name).exact for name in registry.names()] and not supervised._idle
"""


@pytest.mark.parametrize(
    ("code", "heavy"),
    [
        ("import bftrainer", HEAVY | {"click"}),
        # Help answers at once.
        (HELPS, HEAVY),
        # Native files are read without libraries that take as long to load as a small replay.
        (READS, {"pandas", "pydantic"}),
        # Names, capabilities and availability of solvers are told without their libraries and another process.
        (DESCRIBES, {"mip", "highspy", "gurobipy", "pandas"}),
    ],
    ids=["import", "help", "reading", "solvers"],
)
def test_nothing_heavy_is_imported_for_nothing(code, heavy):
    """Neither data libraries nor solvers are loaded where they are not asked."""
    report = "\nimport sys, json; print('\\n' + json.dumps(sorted({m.partition('.')[0] for m in sys.modules})))"
    done = subprocess.run([sys.executable, "-c", code + report], capture_output=True, text=True, check=True)
    assert not set(json.loads(done.stdout.splitlines()[-1])) & heavy


@pytest.mark.parametrize("name", ALL)
def test_help_is_plain_text_and_ends_with_an_example(name, tmp_path, monkeypatch):
    """No escapes, control characters and markup; the example of a command takes one narrow line, and parses."""
    monkeypatch.chdir(tmp_path)
    command, path = ALL[name], name.split()
    with click.Context(command, info_name=name, max_content_width=500, terminal_width=400) as ctx:
        text = command.get_help(ctx)
    assert text.replace("\n", "").isprintable()
    assert not re.search(r"\\\w|``|:[a-z]+:`|\*\*", text)
    if name in COMMANDS:
        assert len(command.epilog) <= 100
        words = shlex.split(command.epilog.removeprefix("Example: bftrainer "))
        assert words[: len(path)] == path
        command.make_context("bftrainer", words[len(path) :])


def test_help_shows_common_options(call, monkeypatch):
    """The help of replays shows fifteen options, the whole help each option once, with a sentence, in 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    common = [
        *("-ndmap", "-bdfn", "--sample", "--since", "--until", "-Tfwd", "-maxJ", "--solver", "--objective"),
        *("-o", "--report", "--open", "--force", "--json", "--resume"),
    ]
    short, whole = (call("replay", option).out for option in ("--help", "--help-all"))
    shown, all_shown = (re.findall(r"^  (-[^\s,]+)", text, re.MULTILINE) for text in (short, whole))
    assert shown == common
    assert short.count("--help-all") == 1
    assert max(map(len, whole.splitlines())) <= 80
    assert all(getattr(option, "help", "") for option in replay_command.params)
    options = [option.opts[0] for option in replay_command.params]
    # click keeps the option of help as the first context named it.
    assert sorted({*all_shown} - {"-h", "--help"}) == sorted(["--help-all", *options])


def test_commands_and_options_are_few():
    """Whoever adds one takes one away, or says why this is worth raising."""
    assert len(COMMANDS) <= 36
    assert sum(isinstance(param, click.Option) for command in COMMANDS.values() for param in command.params) <= 450


def test_one_flag_for_one_thing():
    """Commands that write take -o; all take --json that do not say in a line what they have made."""
    flags = {name: {flag for param in command.params for flag in param.opts} for name, command in COMMANDS.items()}
    assert [name for name, some in flags.items() if some & {"--output", "--output-dir"} and "-o" not in some] == []
    assert {name for name, some in flags.items() if "--json" not in some} == {
        *("bso serve", "convert", "plot", "report"),
        *("harvest add", "harvest stop", "tasks generate", "trace edit"),
    }


def test_every_command_stands_on_a_page():
    """The examples of pages run, and so each command that there is."""
    root = Path(__file__).parents[2]
    pages = "".join(path.read_text(encoding="utf-8") for path in (root / "README.md", *(root / "docs").rglob("*.md")))
    assert [name for name in COMMANDS if f"bftrainer {name}" not in pages] == []


@pytest.mark.parametrize(
    ("source", "target", "beside"), [("evt.pkl", "log.csv.gz", "log.json"), ("tasks.toml", "x-Jbnd.pkl", "x-JNPs.pkl")]
)
def test_convert_spares_what_lies_beside(call, here, source, target, beside):
    """A file that would be written beside the target is replaced only if told to as well."""
    (here / beside).write_text("precious")
    check_refusal(call("convert", source, target), f"{beside}: ", "--force")
    assert (here / beside).read_text() == "precious"
    assert not (here / target).exists()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("bftrainer re", {"replay", "report", "reproduce"}),
        ("bftrainer trace ed", {"edit"}),
        ("bftrainer-replay --decide-on ", {"all", "nodes"}),
    ],
)
def test_completion_answers(line, expected, tmp_path):
    """Commands and choices are completed."""
    program, *words = line.split(" ")
    variable = f"_{program.replace('-', '_').upper()}_COMPLETE"
    env = {variable: "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(words))}
    done = spawn(program, cwd=tmp_path, env=env)
    assert {answer.partition(",")[2] for answer in done.out.split()} == expected


def test_a_library_that_cannot_be_loaded(call, here, monkeypatch):
    """One line with what the system said, below a page of advice, and status 1: the input is not at fault."""

    def load(*_, **__):
        cause = ImportError("libarrow.so: failed to map segment from shared object", name="pyarrow.lib")
        raise ImportError("\n\nIMPORTANT: PLEASE READ THIS\n" * 40, name="pyarrow.lib") from cause

    monkeypatch.setattr("pyarrow.parquet.ParquetFile", load)
    (here / "idle.parquet").write_bytes(b"PAR1")
    said = "Cannot load pyarrow.lib: libarrow.so: failed to map segment from shared object.\n"
    check_refusal(call("replay", "-ndmap", "idle.parquet", "-bdfn", "Jbnd.pkl"), said, status=1)
