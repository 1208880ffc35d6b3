"""Every command where no extra is installed: it works, or says in one line which extra it needs."""

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
    ("compare run run", None),
    ("report run", "report"),
    ("plot pool run -o pool.svg", "report"),
    ("convert evt.pkl idle.parquet", None),
    (f"advise {WORLD} --trials 2", "advise"),
    ("assess idle.parquet -o assessed", "report"),
    ("sweep sweep.toml -o paged --report page.html", "report"),
    ("sweep sweep.toml -o dask --scheduler tcp://127.0.0.1:9", "dask"),
    ("bso quickstart", "sample"),
    ("bso token add me --token-file tokens", None),
    ("bso serve --port 0", "server"),
    ("bso jobs", "client"),
    ("import --format swf log.swf --window asked -o swf.parquet", None),
    ("master run job.toml --quiet", None),
    ("harvest run live.toml --max-nodes 1 -o harvested", None),
    ("spot simulate --trace idle.parquet --depth 2", None),
    ("tasks generate --scenario hpo --count 2 -o hpo.toml", None),
    ("trace generate --days 1 --nodes 4 -o g.parquet", None),
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


@pytest.mark.long
def test_each_command(tmp_path):
    """It does its work, or names the extra and how to install it in one line, with status 2.

    All run in one process that has nothing but a base install.
    """
    write_inputs(tmp_path)
    write_world(tmp_path)
    live = 'schema = 1\n[[task]]\nname = "quick"\nmin_nodes = 1\nmax_nodes = 1\nwork = 1\ncommand = "true"\n'
    for name, text in (("log.swf", SWF), ("job.toml", JOB), ("live.toml", live), ("sweep.toml", SWEEP)):
        (tmp_path / name).write_text(text)
    answers = spawn_all([line for line, _ in CALLS], tmp_path, {}, absent_modules())
    for (line, extra), done in zip(CALLS, answers, strict=True):
        if extra is None:
            assert (done.status, "extra" in done.err) == (0, False), (line, done)
            continue
        told = done.err.splitlines()[-1]
        assert (done.status, done.err.count("Error"), told.startswith("Error: ")) == (2, 1, True), (line, done)
        assert f"the extra {extra}" in told
        assert told.endswith(installing(extra))
        assert told.endswith(f": {shlex.quote(sys.executable)} -m pip install '.[{extra}]'")
        assert len(told) < 200 + len(sys.executable)
