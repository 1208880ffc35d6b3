"""Task sets in TOML: what is written is read again, and a bad task is refused in one line that names it."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given

from bftrainer.errors import InvalidTaskError, OutputError, SettingsError
from bftrainer.model import ScalingCurve, TaskSpec
from bftrainer.tasksets import read_task_set, write_task_set
from bftrainer.tasksets.task_files import parse_scaling_model
from tests.strategies import EPOCH_NS, task_sets
from tests.worlds import saving_fields

HEAD = 'schema = 1\n[[task]]\nname = "J1"\nmax_nodes = 8\nwork = 1e6\n'
GOOD = HEAD + "min_nodes = 1\n"
CURVE = GOOD + "[task.scaling]\n"
ZEUS = """[task.zeus]
train_trace = "train.csv"
power_trace = "power.csv"
dataset = "images"
network = "net"
optimizer = "sgd"
target_metric = 0.9
max_epochs = 30
default_batch_size = 32
"""
TUNED = GOOD.replace("work = 1e6\n", "") + ZEUS


@pytest.fixture
def toml(tmp_path):
    """Read TOML text as a task set."""

    def reader(text):
        (tmp_path / "jobs.toml").write_text(text)
        return read_task_set(tmp_path / "jobs.toml")

    return reader


@given(tasks=task_sets())
def test_round_trip(tmp_path_factory, tasks):
    """Tasks written and read back are equal in every field, to the last digit."""
    path = tmp_path_factory.mktemp("round") / "jobs.toml"
    assert write_task_set(path, tasks) == []
    task_set = read_task_set(path)
    assert task_set.tasks == tasks
    assert (task_set.warnings, task_set.sources, task_set.assumed_scaling) == ((), (path,), None)


@given(fields=saving_fields())
def test_what_saving_takes_comes_back(tmp_path_factory, fields):
    """Numbers and points of what saving takes, beside a task that does not save; a pickle has no place for it."""
    path = tmp_path_factory.mktemp("saving") / "jobs.toml"
    plain = TaskSpec("J0", 1, 4, 1.0, ScalingCurve.linear(0.1, 4), submit_ns=EPOCH_NS)
    tasks = (plain, replace(plain, name="J1", **fields))
    assert write_task_set(path, tasks) == []
    assert read_task_set(path).tasks == tasks
    saves = replace(plain, checkpoint_s=5.0, restart_s=6.0)
    [said] = write_task_set(path.with_name("jobs-Jbnd.pkl"), [saves])
    assert said.endswith("this form cannot hold checkpoint_s, restart_s: left out.")


def test_every_key(toml):
    """Each key of the schema arrives in its field."""
    (task,) = toml(
        GOOD + 'group = "g"\nuser = "u"\nsubmit = 2021-02-10T00:00:00Z\ngrow_cost_s = 18\nshrink_cost_s = 12.5\n'
        "weight = 2\ndeadline = 2021-02-10T02:00:00+01:00\ngpus_per_node = 6\n"
        "[task.scaling]\nnodes = [0, 1, 8]\nthroughput = [0, 10, 70.0]\ncredit = [0, 1, 7]\n"
    ).tasks
    assert (task.group, task.user, task.submit_ns) == ("g", "u", EPOCH_NS)
    assert (task.grow_cost_s, task.shrink_cost_s, task.weight, task.gpus_per_node) == (18.0, 12.5, 2.0, 6)
    assert task.deadline_ns == EPOCH_NS + 3600 * 10**9
    assert (task.scaling.nodes, task.scaling.throughput, task.scaling.credit) == ((0, 1, 8), (0, 10, 70), (0, 1, 7))


@pytest.mark.parametrize(
    ("submit", "seconds", "nanoseconds"),
    [
        ("1.5", 1.5, None),
        ("2021-02-10", 0.0, EPOCH_NS),
        ("2021-02-10T00:00:00.000001Z", 0.0, EPOCH_NS + 1000),
        ('"2021-02-10T00:00:00.000000001Z"', 0.0, EPOCH_NS + 1),
        ('"2021-02-10 00:00"', 0.0, EPOCH_NS),
    ],
)
def test_submission_and_deadline_by_date_or_seconds(toml, submit, seconds, nanoseconds):
    """A number is seconds since the window's start; a date without a zone is UTC; text holds nanoseconds."""
    (task,) = toml(GOOD + f"submit = {submit}\ndeadline = {submit}\n").tasks
    assert (task.submit_s, task.submit_ns) == (seconds, nanoseconds)
    assert (task.deadline_s or 0.0, task.deadline_ns) == (seconds, nanoseconds)


@pytest.mark.parametrize(
    ("section", "rates"),
    [
        ('model = "linear"\nrate_1 = 5', [5.0, 20.0]),
        ('model = "linear"', [1.0, 4.0]),
        ('model = "amdahl"\nrate_1 = 2.0\nparallel_fraction = 0.5', [2.0, 3.2]),
    ],
)
def test_scaling_models(toml, section, rates):
    """A model gives the law's rates up to the task's largest count; without one a law is assumed, with a warning."""
    task_set = toml(CURVE + section)
    assert task_set.tasks[0].rates[[1, 4]].tolist() == pytest.approx(rates)
    assert (task_set.warnings, task_set.assumed_scaling) == ((), None)
    assumed = toml(GOOD)
    law = assumed.assumed_scaling
    assert (str(law.model), law.tasks, law.total, len(assumed.warnings)) == ("linear", 1, 1, 1)


BAD_TASKS = [
    (HEAD + "min_node = 1\n", "Unknown key 'min_node'. Did you mean 'min_nodes'?"),
    (HEAD, "Missing key 'min_nodes'."),
    (GOOD.replace("work = 1e6\n", ""), "Missing key 'work'."),
    (HEAD + "min_nodes = 9\n", "Expected min_nodes <= max_nodes, got 9 > 8."),
    (GOOD + "weight = 0\n", "Expected weight > 0, got 0.0."),
    (GOOD + "submit = 07:32:00\n", "Expected submit to be a date or seconds, got datetime.time(7, 32)."),
    (GOOD + 'submit = "soon"\n', "Expected submit to be a date or seconds, got 'soon'."),
    (GOOD + "submit = inf\n", "Expected submit to be a date or seconds, got inf."),
    (
        GOOD + "submit = 3021-02-10T00:00:00Z\n",
        "Expected submit between the years 1678 and 2262, got 3021-02-10 00:00:00+00:00.",
    ),
    (GOOD + "[task.zeus]\ndataset = 'x'\n", "Missing key 'train_trace' in zeus."),
    (GOOD + ZEUS, "Work cannot be given with a zeus section, which counts in epochs."),
    (TUNED + "eta = 1.5\n", "Expected zeus.eta from 0 (time) to 1 (energy), got 1.5."),
    (TUNED + "beta = 0.0\n", "Expected zeus.beta > 0 (inf: never stop early), got 0.0."),
    (TUNED + "max_epoch = 3\n", "Unknown key 'max_epoch' in zeus. Did you mean 'max_epochs'?"),
    (GOOD + "scaling = 3\n", "Expected scaling to be a table, got 3."),
    (CURVE + "node = [0]\n", "Unknown key 'node' in scaling. Did you mean 'nodes'?"),
    (CURVE, "Missing key 'nodes' in scaling."),
    (CURVE + "nodes = 3\nthroughput = 'x'\n", "Expected nodes as a list of numbers, got 3."),
    (CURVE + "nodes = [0, 4]\nthroughput = [0, 1]\n", "Expected max_nodes within the scaling curve (to 4), got 8."),
    (CURVE + "model = ['linear']\n", "Expected scaling.model to be one of linear, amdahl, learned, got ['linear']."),
    (CURVE + "model = 'linear'\nrate_1 = 'x'\n", "Expected scaling.rate_1 to be a number, got 'x'."),
    (CURVE + "model = 'linear'\nrate_1 = 0\n", "Expected scaling.rate_1 > 0, got 0.0."),
    (CURVE + "model = 'linear'\nnodes = [0, 8]\n", "Unknown key 'nodes' in scaling of model linear. Known: rate_1."),
    (CURVE + "model = 'amdahl'\n", "Missing key 'parallel_fraction' in scaling of model amdahl."),
    (CURVE + "model = 'amdahl'\nparallel_fraction = 2\n", "Expected 0 <= scaling.parallel_fraction <= 1, got 2.0."),
    (CURVE + "model = 'learned'\nrate_1 = 2.0\n", "Unknown key 'rate_1' in scaling of model learned. Known: none."),
    (GOOD + "checkpoint_s = -1\n", "Expected checkpoint_s to be finite and >= 0, got -1.0."),
    (GOOD + "checkpoint_s = 'x'\n", "Expected checkpoint_s to be a number, got 'x'."),
    (GOOD + "restart_s = 5\n", "Expected checkpoint_s with restart_s, got none."),
    (
        GOOD + "checkpoint_s = {nodes = [1], second = [5]}\n",
        "checkpoint_s: Unknown key 'second'. Did you mean 'seconds'?",
    ),
    (GOOD + GOOD.removeprefix("schema = 1\n"), "Expected unique task names, got 'J1' twice."),
]
BAD_FILES = [
    (GOOD.replace('"J1"', "[1]"), ", task 1: Expected name to be text, got [1]."),
    (GOOD.replace('"J1"', '""'), ", task 1: Expected a name, got ''."),
    (GOOD.replace('name = "J1"\n', ""), ", task 1: Missing key 'name'."),
    ("schema = 2\n", ": Expected schema = 1, got 2."),
    ("[[task]]\n", ": Expected schema = 1, got None."),
    ("schema = 1\n", ": Expected at least one task, got none."),
    ("schema = 1\ntask = 3\n", ": Expected tasks as [[task]] tables, got something else."),
    ("schema = 1\n[[tasks]]\n", ": Unknown key 'tasks'. Did you mean 'task'?"),
    ("schema = 1\nx = [\n", ": Expected TOML, got something else"),
    (b"\xff\xfe", ": Expected TOML, got something else"),
    *((text, f", task J1: {message}") for text, message in BAD_TASKS),
]


@pytest.mark.parametrize(("text", "message"), BAD_FILES, ids=range(len(BAD_FILES)))
def test_bad_files(tmp_path, text, message):
    """A bad document or task is refused in one line that names file and task."""
    (tmp_path / "jobs.toml").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InvalidTaskError) as caught:
        read_task_set(tmp_path / "jobs.toml")
    assert str(caught.value).startswith(f"{tmp_path}/jobs.toml{message}")


def test_tables_are_no_task_sets(tmp_path):
    """CSV, which earlier versions read and wrote, is refused with what to write instead, as are other names."""
    (tmp_path / "jobs.csv").write_text("name,min_nodes,max_nodes,work\nJ0,1,8,1e6\n")
    instead = r"got \.csv\. Write a \[\[task\]\] table for each row, in TOML \(docs/tasks\.md\)\.$"
    with pytest.raises(InvalidTaskError, match=instead):
        read_task_set(tmp_path / "jobs.csv")
    with pytest.raises(OutputError, match=r"jobs\.parquet: Expected a name ending in \.toml"):
        write_task_set(tmp_path / "jobs.parquet", ())
    assert [path.name for path in tmp_path.iterdir()] == ["jobs.csv"]


def test_measured_curves_win(tmp_path, fixtures):
    """Scalability given beside a native set replaces the set's own."""
    pair = fixtures / "bounds-pandas2.2-protocol5.pkl", fixtures / "scalability-pandas2.2-protocol5.pkl"
    write_task_set(tmp_path / "jobs.toml", read_task_set(pair[0]).tasks)
    assert read_task_set(tmp_path / "jobs.toml", pair[1]).tasks == read_task_set(*pair).tasks


@pytest.mark.parametrize("text", ["liner", "", "linear:1", "amdahl", "amdahl:x", "amdahl:1.5", "amdahl:nan"])
def test_scaling_by_name(text):
    """A model that is none is refused, with those that there are; a model's text is the one that gives it again."""
    with pytest.raises(SettingsError) as caught:
        parse_scaling_model(text)
    expected = "linear, amdahl:F with F from 0 to 1 or, in replays, learned"
    assert str(caught.value) == f"Expected scaling {expected}, got {text!r}."
    for good in ("linear", "amdahl:0.95", "amdahl:0.0"):
        assert str(parse_scaling_model(good)) == good
        assert math.isfinite(parse_scaling_model(good).curve(64).at(64))


def test_a_tuning_section_comes_back(toml, tmp_path):
    """Read, written elsewhere and read again, a section is the same, and its files are found where they were."""
    tasks = toml(TUNED + "eta = 0.25\nbeta = inf\nseed = 3\n").tasks
    target = tmp_path / "elsewhere" / "tasks.toml"
    target.parent.mkdir()
    write_task_set(target, tasks)
    one, again = (task.tuning for task in (*tasks, *read_task_set(target).tasks))
    for key in ("train_trace", "power_trace"):
        assert Path(getattr(one, key)).resolve() == Path(getattr(again, key)).resolve()
    assert replace(again, train_trace=one.train_trace, power_trace=one.power_trace) == one
    assert (one.eta, one.beta, one.seed, tasks[0].work) == (0.25, math.inf, 3, 30.0)
    # Leaving the section out would change what the task is.
    with pytest.raises(InvalidTaskError, match=r"zeus section of task J1"):
        write_task_set(tmp_path / "tasks-Jbnd.pkl", tasks)
