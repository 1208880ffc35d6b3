"""What the documentation shows is what happens: its examples run, and their output is the one printed.

Blocks of a page run in sequence in a directory of their own. ``python`` blocks share a namespace and are doctests where
they have prompts; lines of ``console`` blocks that begin with ``$`` are commands, what follows them is their
output (stderr included), in which ``...`` stands for anything. A block after ``<!-- file: NAME -->`` is a file.
"""

import doctest
import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.published import ROOT, published, published_traces

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
    for path in (*(published() or ()), *(published_traces() or ())):
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
