"""The example with PyTorch trains under a harvest, where a Python of this machine has it."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = re.compile(r"<!-- file: torch_line.py -->\n```python\n(.*?)```", re.S)


def python_with_torch():
    """A Python that imports torch: this one, or that of the system."""
    for python in (sys.executable, shutil.which("python3", path="/usr/bin")):
        command = [str(python), "-c", "import torch.distributed"]
        if python and subprocess.run(command, capture_output=True, check=False).returncode == 0:
            return python
    return None


@pytest.mark.slow
def test_the_example_with_torch_trains(call, here):
    """On two nodes, of which one is given back and taken again: the loss is small in the end, and nothing failed."""
    python = python_with_torch()
    if python is None:
        pytest.skip("no Python with torch here")
    script = EXAMPLE.search((ROOT / "docs" / "harvest.md").read_text())[1]
    # However fast the machine, it trains for longer than a node is held.
    script = script.replace("import torch\n", "import time\nimport torch\n", 1)
    (here / "torch_line.py").write_text(script.replace("run.report(64)", "run.report(64)\n        time.sleep(0.01)"))
    task = f'name = "t"\nmin_nodes = 1\nmax_nodes = 2\nwork = 120_000\ncommand = "{python} torch_line.py"\n'
    env = f'[task.env]\nPYTHONPATH = "{ROOT}"\nOMP_NUM_THREADS = "1"\nPATH = "{os.environ["PATH"]}"\n'
    (here / "live.toml").write_text(f"schema = 1\n[[task]]\n{task}{env}")
    done = call("harvest", "run", "live.toml", "--max-nodes", 2, "--max-hold", "12s", "-o", "h")
    assert (done.status, done.err.splitlines()[1:]) == (0, ["t is done."])
    logs = sorted((here / "h" / "logs" / "t").glob("*-0.log"))
    assert len(logs) > 1
    losses = [float(line.split()[1]) for log in logs for line in log.read_text().splitlines()]
    assert losses[-1] < 1e-3 < losses[0]
