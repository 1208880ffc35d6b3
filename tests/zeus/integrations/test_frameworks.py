"""The scripts of docs/integrations.md as they stand, with the frameworks themselves, where these are installed.

`.ci/run frameworks` installs them; elsewhere each test that misses one is skipped with a line.
"""

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec

import pytest

from benchmarks.published import ROOT
from bftrainer.zeus.server import BatchSizeClient
from bftrainer.zeus.server.app import create_app
from tests.zeus.server.support import free_port, in_folder, listening

PAGE = (ROOT / "docs" / "integrations.md").read_text(encoding="utf-8")
FILE = re.compile(r"^<!-- file: (\S+) -->\n```py\n(.*?)^```$", re.M | re.S)
NEEDED = {
    "loop_digits.py": ("torch",),
    "lightning_digits.py": ("torch", "lightning"),
    "transformers_digits.py": ("torch", "transformers", "accelerate"),
    "keras_digits.py": ("keras", "jax"),
    "loader_digits.py": ("torch",),
    "ranks_digits.py": ("torch",),
}
# Before 2.1, PyTorch's sharded tensors cannot be imported under Python 3.11, and Lightning does so where it may.
ALONE = """
import runpy, sys, torch.distributed
torch.distributed.is_available = lambda: False
runpy.run_path(sys.argv[1], run_name="__main__")
"""
MASTER = {
    "ZEUS_TARGET_METRIC": "0.85",
    "ZEUS_LOG_DIR": "log",
    "BFTRAINER_MAX_POWER_W": "45",
    "BFTRAINER_MEASURE": "model",
}


@pytest.fixture
def start(tmp_path):
    """Starts a script of the page, if what it imports is installed."""
    for name, text in FILE.findall(PAGE):
        (tmp_path / name).write_text(text)

    def begin(name, *words, **variables):
        for needed in (*NEEDED[name], "sklearn"):
            if find_spec(needed) is None:
                pytest.skip(f"no {needed} here: .ci/run frameworks has it")
        # One thread: tests share the machine, and a network as small as this one gains nothing from more.
        environment = os.environ | {"KERAS_BACKEND": "jax", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        environment |= variables
        launch = ("-c", ALONE) if "lightning" in NEEDED[name] else ()
        command = [sys.executable, *launch, name, *words]
        return subprocess.Popen(
            command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    return begin


def finish(process):
    """What a script that succeeds has printed."""
    said, _ = process.communicate(timeout=240)
    assert process.returncode == 0, said
    return said


def test_all_scripts_are_tested():
    """Each file of the page but the one that they share."""
    assert {name for name, _ in FILE.findall(PAGE)} == {"digits.py", *NEEDED}


@pytest.mark.parametrize("name", [name for name in NEEDED if name not in ("loader_digits.py", "ranks_digits.py")])
def test_a_server_leads_a_framework(start, tmp_path, name):
    """Training stops at the target: one trial, which converged at the batch size that the server chose."""
    with listening(create_app(in_folder(tmp_path))) as url, BatchSizeClient(url) as client:
        finish(start(name, BFTRAINER_BSO_SERVER=url))
        (row,) = client.trials("digits")
        assert (row.batch_size, row.status, row.converged) == (32, "Succeeded", True)
        assert 0 < row.energy <= 45 * row.time
        assert client.job("digits").spec.max_power == 45


def test_the_master_leads_the_loader(start, tmp_path):
    """The report has the master's name for the run, and says that the target was reached."""
    finish(start("loader_digits.py", "64", ZEUS_JOB_ID="rec01+try02", **MASTER))
    report = json.loads((tmp_path / "log" / "rec01+try02+bs64.train.json").read_text())
    assert report["reached"] is True
    assert 0 < report["num_epochs"] < 40
    assert 0 < report["energy"] <= 45 * report["time"]


def two_ranks(start, **variables):
    """Two processes of one group."""
    shared = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    return [start("ranks_digits.py", "32", RANK=str(rank), **MASTER | shared | variables) for rank in (0, 1)]


def test_ranks_stop_together(start, tmp_path):
    """Both train as many epochs, to the target, and there is one report."""
    first, second = map(finish, two_ranks(start))
    assert re.findall(r"rank 0: (.*)", first) == re.findall(r"rank 1: (.*)", second) != []
    assert "reached: True" in first
    assert [path.name for path in (tmp_path / "log").iterdir()] == ["zeus+bs32.train.json"]


def test_no_rank_waits_for_one_that_failed(start):
    """What rank 0 cannot use ends both, each with the reason."""
    for process in two_ranks(start, BFTRAINER_MEASURE="ralp"):
        said, _ = process.communicate(timeout=240)
        assert process.returncode == 1
        assert "BFTRAINER_MEASURE: Input should be" in said
