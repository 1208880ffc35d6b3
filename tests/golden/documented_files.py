"""Files that documented commands take; braces of TOML are doubled, but for `{python}` and `{work}`."""

from __future__ import annotations

FILES: dict[str, str] = {
    "tfwd.toml": """\
schema = 1
[base]
solver = "dp"
max_events = 100
baseline = false
[grid]
forward_time_s = [10, 120]
max_tasks = [5, 10]
""",
    "live.toml": """\
schema = 1
[[task]]
name = "line"
min_nodes = 1
max_nodes = 2
work = {work}
command = ["{python}", "line.py"]
""",
    "line.py": """\
import time
from bftrainer.harvest import training
with training(lambda path: path.touch(), lambda path: None) as run:
    for step in run:
        time.sleep(0.01)
        run.report(1)
""",
    "line.toml": """\
schema = 1
recurrences = 2
batch_sizes = [10, 20]
log_base = "logs"
max_power_w = 45.0
[job]
dataset = "line"
network = "slope"
optimizer = "sgd"
target_metric = 0.001
max_epochs = 50
default_bs = 20
default_lr = 0.5
command = ["{python}", "train.py", "{{bs}}"]
""",
    "train.py": """\
import sys
from bftrainer.zeus.master import training_run
with training_run(int(sys.argv[1]), max_epochs=50, higher_is_better=False) as run:
    for epoch in run.epochs():
        run.report(0.0)
""",
    "own_parts.py": """\
import numpy as np
from bftrainer.model import static
from bftrainer.objectives import throughput
from bftrainer.zeus import BatchSizeOptimizer
from solvers import LinearRow

@static
def square_root(task, counts, now_s):
    return np.sqrt(task.spec.rates[counts])

@static
class Half:
    def __call__(self, task, counts, now_s):
        return throughput(task, counts, now_s)

    def constraints(self, problem, tasks):
        return [LinearRow(np.array([1.0 if task.spec.group == "AlexNet" else -1.0 for task in tasks]), upper=0.0)]

half = Half()

class Mine(BatchSizeOptimizer):
    name = "mine"

    def register_job(self, job, batch_sizes):
        pass

    def predict(self, job):
        return job.default_bs

    def observe(self, job, batch_size, cost, converged=None):
        pass

def mine(context):
    return Mine()
""",
    "cap.csv": "time,power_w\n2021-02-10,90000\n2021-02-10T01:00,30000\n2021-02-13,30000\n",
    "profile.toml": """\
schema = 1
world_size = [16, 64]
iteration_s = [18.0, 8.3]
reconfiguration_s = 88
checkpoint_s = 89
""",
    "typo.toml": "schema = 1\n[[task]]\nname = 'a'\nmin_node = 1\nmax_nodes = 4\nwork = 1.0\n",
    "own.toml": """schema = 1
[[task]]
name = "a"
min_nodes = 1
max_nodes = 8
work = 1e6
[task.scaling]
nodes = [0, 1, 8]
throughput = [0, 100, 700]
""",
    "sinfo": "#!/bin/sh\nprintf 'n1 idle idle\\nn2 allocated allocated\\nn3 drained drained\\n'\n",
    "squeue": "#!/bin/sh\n",
    "throughput.csv": "nodes,throughput\n1,2810.5\n2,5259\n4,9988\n8,20379\n",
}
