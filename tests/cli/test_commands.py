"""The other commands: convert, tasks, solvers, completion; and how fast they get going."""

from __future__ import annotations

import builtins
import json
import re
import subprocess
import sys
import tomllib

import click
import pytest

from bftrainer.cli.group import cli
from bftrainer.tasksets import read_task_set
from solvers.registry import names as solver_names
from tests.cli.conftest import assert_matches
from tests.tiny import installed

HEAVY = {"gurobipy", "highspy", "matplotlib", "mip", "numpy", "pandas", "pyarrow", "pydantic", "rich", "scipy"}


def imported_by(code: str) -> set[str]:
    """Top-level modules that a fresh interpreter has loaded after running `code`."""
    report = "\nimport sys, json; print('\\n' + json.dumps(sorted({m.partition('.')[0] for m in sys.modules})))"
    done = subprocess.run([sys.executable, "-c", code + report], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize(
    "words",
    [
        *([], ["--help"], ["replay", "--help"], ["import", "--help"], ["convert", "--help"], ["tasks", "--help"]),
        *(["trace", "generate", "--help"], ["spot", "sweep", "--help"], ["zeus", "compare", "-h"], ["zeus"]),
        *(["master", "run", "--help"], ["bso", "jobs", "--help"], ["harvest", "run", "--help"]),
    ],
)
def test_help_imports_nothing_heavy(words):
    """Help answers at once: neither data libraries nor solvers are loaded for it."""
    code = f"import sys; sys.argv = ['bftrainer', *{words}]\nfrom bftrainer.cli.group import cli, guarded\n"
    loaded = imported_by(code + "assert guarded(cli, 'bftrainer') == 0")
    assert not loaded & (HEAVY | {"solvers"})


def test_importing_the_package_imports_nothing_heavy():
    """`import bftrainer` alone loads no other package."""
    assert not imported_by("import bftrainer") & (HEAVY | {"solvers", "click"})


def helps(command, path=("bftrainer",)):
    """The help of a command, and of those of its group, as a terminal of any width shows it."""
    with click.Context(command, info_name=" ".join(path), max_content_width=500, terminal_width=400) as ctx:
        yield " ".join(path), command.get_help(ctx)
        if isinstance(command, click.Group):
            for name in command.list_commands(ctx):
                yield from helps(command.get_command(ctx, name), (*path, name))


def test_help_is_plain_text():
    """No command's help shows what should have formatted it: escapes, control characters, markup."""
    shown = dict(helps(cli))
    assert len(shown) > 40
    for name, text in shown.items():
        assert text.replace("\n", "").isprintable(), name
        assert not re.search(r"\\\w|``|:[a-z]+:`|\*\*", text), name
    assert re.search(r"\n +pool +idle and used.*\n +gantt ", shown["bftrainer plot"])


@pytest.mark.parametrize(
    ("source", "target", "beside"), [("evt.pkl", "log.csv.gz", "log.json"), ("tasks.toml", "x-Jbnd.pkl", "x-JNPs.pkl")]
)
def test_convert_spares_what_lies_beside(call, here, source, target, beside):
    """A file that would be written beside the target is replaced only if told to as well."""
    (here / beside).write_text("precious")
    refused = call("convert", source, target)
    assert refused.status == 2
    assert_matches(f"{beside}: .*--force", refused.err)
    assert (here / beside).read_text() == "precious"
    assert not (here / target).exists()


# --- tasks -------------------------------------------------------------------------------------------------------


def test_fit_prints_a_scaling_section(call, here):
    """Measured rows become a section that a task set takes as it is."""
    (here / "measured.csv").write_text("nodes,throughput\n1,100\n2,190\n4,350\n")
    done = call("tasks", "fit", "measured.csv")
    assert (done.status, done.err) == (0, "")
    section = tomllib.loads(done.out)["task"]["scaling"] if "[task" in done.out else tomllib.loads(done.out)
    assert section["nodes"] == [0, 1, 2, 4]
    task = '[[task]]\nname = "J"\nmin_nodes = 1\nmax_nodes = 4\nwork = 1.0\n'
    (here / "fitted.toml").write_text(f"schema = 1\n{task}{done.out}")
    assert read_task_set(here / "fitted.toml").tasks[0].rates.tolist() == [0.0, 100.0, 190.0, 270.0, 350.0]


# --- solvers, completion -----------------------------------------------------------------------------------------


def test_solvers_as_json(call):
    """The same for programs."""
    rows = {row["name"]: row for row in call("solvers", "--json").json}
    assert set(rows) == set(solver_names())
    assert rows["dp"] == {
        "name": "dp", "installed": True, "licensed": "", "exact": True, "extra_rows": False, "capacities": True,
        "floor": False, "version": "",
    }  # fmt: skip
    assert (rows["equal-share"]["exact"], rows["cbc"]["extra_rows"], rows["cbc"]["floor"]) == (False, True, True)
    assert rows["highs"]["version"].startswith("highspy ")


@pytest.mark.parametrize(
    ("program", "line", "expected"),
    [
        ("bftrainer", "bftrainer re", {"replay", "report", "reproduce"}),
        ("bftrainer", "bftrainer trace ed", {"edit"}),
        ("bftrainer-replay", "bftrainer-replay --decide-on ", {"all", "nodes"}),
    ],
)
def test_completion_answers(program, line, expected, tmp_path):
    """Commands and choices are completed."""
    words = line.split(" ")
    variable = f"_{program.replace('-', '_').upper()}_COMPLETE"
    env = {variable: "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    done = subprocess.run([installed(program)], cwd=tmp_path, env=env, capture_output=True, text=True, check=True)
    assert {answer.partition(",")[2] for answer in done.stdout.split()} == expected


@pytest.fixture
def unloadable(here, monkeypatch):
    """Importing pyarrow fails as the system says it, in a page of advice."""
    del here  # written before
    real = builtins.__import__

    def importing(name, *rest, **options):
        if name.split(".")[0] != "pyarrow":
            return real(name, *rest, **options)
        try:
            raise ImportError("libarrow.so: failed to map segment from shared object", name="pyarrow.lib")
        except ImportError as cause:
            raise ImportError("\n\nIMPORTANT: PLEASE READ THIS\n" * 40, name="pyarrow.lib") from cause

    monkeypatch.setattr(builtins, "__import__", importing)


@pytest.mark.usefixtures("unloadable")
def test_a_library_that_cannot_be_loaded(call, here):
    """One line with what the system said, and status 1: the input is not at fault."""
    (here / "idle.parquet").write_bytes(b"PAR1")
    done = call("replay", "-ndmap", "idle.parquet", "-bdfn", "Jbnd.pkl")
    assert (done.status, done.out) == (1, ""), done.err
    assert done.err == "Error: Cannot load pyarrow.lib: libarrow.so: failed to map segment from shared object.\n"
