"""Every command where no extra is installed: it works, or says in one line which extra it needs."""

import os
import re
import shlex
import sys
from importlib.metadata import packages_distributions, requires

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from bftrainer.plugins import installing
from tests.cli.test_import import SWF
from tests.cli.test_master import JOB
from tests.recurring import TRACES, write_world
from tests.tiny import SWEEP, spawn_all, write_inputs

WORLD = "-ndmap evt.pkl -bdfn tasks.toml --solver dp"
ZEUS = f"{shlex.join(TRACES)} --jobs jobs.toml"
# Line of a command, after `bftrainer`, and the extra that it cannot do without; in this order.
CALLS = (
    (f"replay {WORLD} --output-dir run", None),
    ("report run", "report"),
    ("convert evt.pkl idle.parquet", None),
    (f"advise {WORLD} --trials 2", "advise"),
    ("assess idle.parquet -o assessed", "report"),
    ("sweep sweep.toml -o paged --report page.html", "report"),
    ("sweep sweep.toml -o dask --scheduler tcp://127.0.0.1:9", "dask"),
    ("bso quickstart", "sample"),
    ("bso serve --port 0", "server"),
    ("bso jobs", "client"),
    ("import --format swf log.swf --window asked -o swf.parquet", None),
    ("master run job.toml --quiet", None),
    ("harvest run live.toml --max-nodes 1 -o harvested", None),
    ("tasks generate --scenario hpo --count 2 -o hpo.toml", None),
    ("trace stats idle.parquet", None),
    ("trace stats idle.parquet --figure survival.svg", "report"),
    ("watch command -o watched.parquet --every 1s --for 1s -- echo n1 idle", None),
    (f"zeus simulate {ZEUS} --recurrences 3", None),
)


def absent_modules() -> list[str]:
    """Modules that are installed here, but not by bftrainer without extras."""
    base: set[tuple[str, str]] = set()
    ahead = [("bftrainer", "")]
    while ahead:
        if (wanted := ahead.pop()) not in base:
            base.add(wanted)
            for required in map(Requirement, requires(wanted[0]) or ()):
                if required.marker is None or required.marker.evaluate({"extra": wanted[1]}):
                    ahead += [(required.name, extra) for extra in ("", *required.extras)]
    names = {canonicalize_name(name) for name, _ in base}
    return [name for name, owners in packages_distributions().items() if not names & {*map(canonicalize_name, owners)}]


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """Of each call its status and what it said on stderr, all in one process that has nothing but a base install."""
    work = tmp_path_factory.mktemp("base")
    write_inputs(work)
    write_world(work)
    (work / "log.swf").write_text(SWF)
    (work / "job.toml").write_text(JOB)
    bounds = 'name = "quick"\nmin_nodes = 1\nmax_nodes = 1\nwork = 1\n'
    (work / "live.toml").write_text(f'schema = 1\n[[task]]\n{bounds}command = "true"\n')
    (work / "sinfo").write_text("#!/bin/sh\necho n1 idle idle\n")
    (work / "sinfo").chmod(0o755)
    (work / "sweep.toml").write_text(SWEEP)
    lines = [line for line, _ in CALLS]
    path = {"PATH": f"{work}:{os.environ['PATH']}"}
    return dict(zip(lines, spawn_all(lines, work, path, absent_modules()), strict=True))


@pytest.mark.long
@pytest.mark.parametrize(("line", "extra"), CALLS, ids=[line for line, _ in CALLS])
def test_each_command(answers, line, extra):
    """It does its work, or names the extra and how to install it in one line, with status 2."""
    status, said = answers[line].status, answers[line].err
    if extra is None:
        # That harvest is over, which is only seen where nothing is missing.
        assert status == 0 or re.search("Expected a (harvest that runs|task that is)", said), said
        assert "extra" not in said
        return
    told = said.splitlines()[-1]
    assert (status, said.count("Error"), told.startswith("Error: ")) == (2, 1, True), said
    assert f"the extra {extra}" in told
    assert told.endswith(f": {shlex.quote(sys.executable)} -m pip install '.[{extra}]'")
    assert told.endswith(installing(extra))
    assert len(told) < 200 + len(sys.executable)
