import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given

from bftrainer.errors import InvalidTaskError, OutputError, SettingsError
from bftrainer.tasksets import parse_scaling_model, read_task_set, write_task_set
from tests.strategies import EPOCH_NS, task_sets

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
    assert write_task_set(path, tasks) == ()
    given = read_task_set(path)
    assert given.tasks == tasks
    assert (given.warnings, given.sources, given.assumed_scaling) == ((), (path,), None)


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
        ("3", 3.0, None),
        ("1.5", 1.5, None),
        ("2021-02-10", 0.0, EPOCH_NS),
        ("2021-02-10T00:00:00", 0.0, EPOCH_NS),
        ("2021-02-10T00:00:00.000001Z", 0.0, EPOCH_NS + 1000),
        ('"2021-02-10T00:00:00.000000001Z"', 0.0, EPOCH_NS + 1),
        ('"2021-02-10 00:00"', 0.0, EPOCH_NS),
    ],
)
def test_submission_by_date_or_seconds(toml, submit, seconds, nanoseconds):
    """A number is seconds since the window's start; a date without a zone is UTC; text holds nanoseconds."""
    (task,) = toml(GOOD + f"submit = {submit}\n").tasks
    assert (task.submit_s, task.submit_ns) == (seconds, nanoseconds)


def test_deadline_by_date(toml):
    """A deadline may be a bare date: its midnight, UTC."""
    (task,) = toml(GOOD + "deadline = 2021-02-10\n").tasks
    assert (task.deadline_s, task.deadline_ns) == (None, EPOCH_NS)


@pytest.mark.parametrize(
    ("section", "rates"),
    [
        ('model = "linear"\nrate_1 = 5', [5.0, 20.0]),
        ('model = "linear"', [1.0, 4.0]),
        ('model = "amdahl"\nrate_1 = 2.0\nparallel_fraction = 0.5', [2.0, 3.2]),
    ],
)
def test_scaling_models(toml, section, rates):
    """A model gives the law's rates up to the task's largest count."""
    given = toml(CURVE + "" + section)
    assert given.tasks[0].rates[[1, 4]].tolist() == pytest.approx(rates)
    assert (given.warnings, given.assumed_scaling) == ((), None)


def test_scaling_may_be_missing(toml):
    """Without a scaling section the law is assumed, with a warning."""
    given = toml(GOOD)
    assert str(given.assumed_scaling.model) == "linear"
    assert (given.assumed_scaling.tasks, given.assumed_scaling.total) == (1, 1)
    assert len(given.warnings) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEAD + "min_node = 1\n", "task J1: Unknown key 'min_node'. Did you mean 'min_nodes'?"),
        (HEAD, "task J1: Missing key 'min_nodes'."),
        (GOOD.replace('"J1"', "[1]"), "task 1: Expected name to be text, got [1]."),
        (GOOD.replace("1e6", "'1e6'"), "task J1: Expected work to be a number, got '1e6'."),
        (
            CURVE + "model = ['linear']\n",
            "task J1: Expected scaling.model to be one of linear, amdahl, learned, got ['linear'].",
        ),
        (CURVE + "model = 'linear'\nrate_1 = 'x'\n", "task J1: Expected scaling.rate_1 to be a number, got 'x'."),
        (CURVE + "nodes = 3\nthroughput = 'x'\n", "task J1: Expected nodes as a list of numbers, got 3."),
        (HEAD + "min_nodes = 9\n", "task J1: Expected min_nodes <= max_nodes, got 9 > 8."),
        (HEAD + "min_nodes = 0\n", "task J1: Expected min_nodes >= 1, got 0."),
        (HEAD + "min_nodes = 1.5\n", "task J1: Expected min_nodes to be whole, got 1.5."),
        (GOOD + 'weight = "x"\n', "task J1: Expected weight to be a number, got 'x'."),
        (GOOD + "weight = 0\n", "task J1: Expected weight > 0, got 0.0."),
        (GOOD + "grow_cost_s = -1\n", "task J1: Expected grow_cost_s >= 0, got -1.0."),
        (GOOD + "group = 3\n", "task J1: Expected group to be text, got 3."),
        (
            GOOD + "submit = 07:32:00\n",
            "task J1: Expected submit to be a date or seconds, got datetime.time(7, 32).",
        ),
        (GOOD + 'submit = "soon"\n', "task J1: Expected submit to be a date or seconds, got 'soon'."),
        (GOOD + "submit = inf\n", "task J1: Expected submit to be a date or seconds, got inf."),
        (
            GOOD + "submit = 3021-02-10T00:00:00Z\n",
            "task J1: Expected submit between the years 1678 and 2262, got 3021-02-10 00:00:00+00:00.",
        ),
        (GOOD + "[task.zeus]\ndataset = 'x'\n", "task J1: Missing key 'train_trace' in zeus."),
        (GOOD + "[task.zeus]\nnetwrk = 'x'\n", "task J1: Unknown key 'netwrk' in zeus. Did you mean 'network'?"),
        (GOOD + ZEUS, "task J1: Work cannot be given with a zeus section, which counts in epochs."),
        (GOOD.replace("work = 1e6\n", ""), "task J1: Missing key 'work'."),
        (TUNED + "eta = 1.5\n", "task J1: Expected zeus.eta from 0 (time) to 1 (energy), got 1.5."),
        (TUNED + "beta = 0.0\n", "task J1: Expected zeus.beta > 0 (inf: never stop early), got 0.0."),
        (TUNED + "max_epoch = 3\n", "task J1: Unknown key 'max_epoch' in zeus. Did you mean 'max_epochs'?"),
        (GOOD + "scaling = 3\n", "task J1: Expected scaling to be a table, got 3."),
        (CURVE + "node = [0]\n", "task J1: Unknown key 'node' in scaling. Did you mean 'nodes'?"),
        (CURVE + "", "task J1: Missing key 'nodes' in scaling."),
        (
            CURVE + "nodes = [0, 8]\nthroughput = [0]\n",
            "task J1: Expected 2 values of throughput, one per node count, got 1.",
        ),
        (CURVE + "nodes = [1, 8]\nthroughput = [0, 1]\n", "task J1: Expected node counts to start at 0, got 1."),
        (
            CURVE + "nodes = [0, 4]\nthroughput = [0, 1]\n",
            "task J1: Expected max_nodes within the scaling curve (to 4), got 8.",
        ),
        (
            CURVE + "nodes = [0, 8]\nthroughput = [0, 1]\nmodel = 'linear'\n",
            "task J1: Unknown key 'nodes' in scaling of model linear. Known: rate_1.",
        ),
        (CURVE + "rate_1 = 1\n", "task J1: Unknown key 'rate_1' in scaling. Known: credit, nodes, throughput."),
        (CURVE + "model = 'amdahl'\n", "task J1: Missing key 'parallel_fraction' in scaling of model amdahl."),
        (
            CURVE + "model = 'amdahl'\nparallel_fraction = 2\n",
            "task J1: Expected 0 <= scaling.parallel_fraction <= 1, got 2.0.",
        ),
        (CURVE + "model = 'linear'\nrate_1 = 0\n", "task J1: Expected scaling.rate_1 > 0, got 0.0."),
        (GOOD + "checkpoint_s = -1\n", "task J1: Expected checkpoint_s to be finite and >= 0, got -1.0."),
        (GOOD + "checkpoint_s = 'x'\n", "task J1: Expected checkpoint_s to be a number, got 'x'."),
        (GOOD + "restart_s = 5\n", "task J1: Expected checkpoint_s with restart_s, got none."),
        (
            GOOD + "checkpoint_s = {nodes = [1], second = [5]}\n",
            "task J1: checkpoint_s: Unknown key 'second'. Did you mean 'seconds'?",
        ),
        (
            CURVE + "model = 'learned'\nrate_1 = 2.0\n",
            "task J1: Unknown key 'rate_1' in scaling of model learned. Known: none.",
        ),
        (GOOD + GOOD.removeprefix("schema = 1\n"), "task J1: Expected unique task names, got 'J1' twice."),
        (GOOD.replace('"J1"', '""'), "task 1: Expected a name, got ''."),
        (GOOD.replace('name = "J1"\n', ""), "task 1: Missing key 'name'."),
    ],
)
def test_bad_tasks(toml, text, message):
    """A bad task is refused in one line that names file and task."""
    with pytest.raises(InvalidTaskError) as caught:
        toml(text)
    assert str(caught.value).rsplit("/", 1)[1] == f"jobs.toml, {message}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("schema = 2\n", "Expected schema = 1, got 2."),
        ("schema = true\n", "Expected schema = 1, got True."),
        ("[[task]]\n", "Expected schema = 1, got None."),
        ("schema = 1\n", "Expected at least one task, got none."),
        ("schema = 1\ntask = 3\n", "Expected tasks as [[task]] tables, got something else."),
        ("schema = 1\n[[tasks]]\n", "Unknown key 'tasks'. Did you mean 'task'?"),
    ],
)
def test_bad_documents(toml, text, message):
    """A document of another schema is refused."""
    with pytest.raises(InvalidTaskError) as caught:
        toml(text)
    assert str(caught.value).endswith(f"jobs.toml: {message}")


@pytest.mark.parametrize("content", [b"schema = ", b"\xff\xfe", b"schema = 1\nx = [\n"])
def test_no_toml(tmp_path, content):
    """Text that is no TOML is refused in one line."""
    (tmp_path / "jobs.toml").write_bytes(content)
    with pytest.raises(InvalidTaskError, match=r"jobs\.toml: Expected TOML, got something else") as caught:
        read_task_set(tmp_path / "jobs.toml")
    assert "\n" not in str(caught.value)


def test_tables_are_no_task_sets(tmp_path):
    """CSV, which earlier versions read and wrote, is refused with what to write instead."""
    (tmp_path / "jobs.csv").write_text("name,min_nodes,max_nodes,work\nJ0,1,8,1e6\n")
    with pytest.raises(
        InvalidTaskError, match=r"got CSV\. Write a \[\[task\]\] table for each row, in TOML \(docs/tasks\.md\)\.$"
    ):
        read_task_set(tmp_path / "jobs.csv")


def test_measured_curves_win(tmp_path, fixtures):
    """Scalability given beside a native set replaces the set's own."""
    pair = fixtures / "bounds-pandas2.2-protocol5.pkl", fixtures / "scalability-pandas2.2-protocol5.pkl"
    write_task_set(tmp_path / "jobs.toml", read_task_set(pair[0]).tasks)
    assert read_task_set(tmp_path / "jobs.toml", pair[1]).tasks == read_task_set(*pair).tasks


@pytest.mark.parametrize("text", ["liner", "", "linear:1", "amdahl", "amdahl:x", "amdahl:1.5", "amdahl:nan"])
def test_bad_scaling_models(text):
    """A scaling model that is none is refused, with those that there are."""
    with pytest.raises(SettingsError) as caught:
        parse_scaling_model(text)
    expected = "linear, amdahl:F with F from 0 to 1 or, in replays, learned"
    assert str(caught.value) == f"Expected scaling {expected}, got {text!r}."


@pytest.mark.parametrize("text", ["linear", "amdahl:0.95", "amdahl:0.0"])
def test_scaling_models_print_as_given(text):
    """A model's text is the one that gives it again."""
    assert str(parse_scaling_model(text)) == text
    assert math.isfinite(parse_scaling_model(text).curve(64).at(64))


def test_unknown_target(tmp_path):
    """A name that promises no form of task set is refused before anything is written."""
    with pytest.raises(OutputError, match=r"jobs\.parquet: Expected a name ending in \.toml"):
        write_task_set(tmp_path / "jobs.parquet", ())
    assert list(tmp_path.iterdir()) == []


def test_a_tuning_section_comes_back(toml, tmp_path):
    """Read, written elsewhere and read again, a section is the same, and its files are found where they were."""
    tasks = toml(TUNED + "eta = 0.25\nbeta = inf\nseed = 3\n").tasks
    target = tmp_path / "elsewhere" / "tasks.toml"
    target.parent.mkdir()
    write_task_set(target, tasks)
    again = read_task_set(target, None, None).tasks
    assert [replaced(task) for task in again] == [replaced(task) for task in tasks]
    assert tasks[0].tuning is not None
    assert (tasks[0].tuning.eta, tasks[0].tuning.beta, tasks[0].tuning.seed) == (0.25, math.inf, 3)
    assert tasks[0].work == 30.0


def replaced(task):
    """A task whose files are named in full."""
    train, power = (str(Path(getattr(task.tuning, key)).resolve()) for key in ("train_trace", "power_trace"))
    return replace(task, tuning=replace(task.tuning, train_trace=train, power_trace=power))


def test_pickles_refuse_tuning(toml, tmp_path):
    """They cannot hold the section and say so, as leaving it out would change what the task is."""
    with pytest.raises(InvalidTaskError, match=r"zeus section of task J1"):
        write_task_set(tmp_path / "tasks-Jbnd.pkl", toml(TUNED).tasks)
