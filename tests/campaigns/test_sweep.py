"""Sweeps: one table whatever computes it, nothing twice, one failure is one failure, and no file of others touched."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest

from bftrainer import run_replay
from bftrainer.campaigns import sweep as module
from bftrainer.campaigns.sweep import DaskEngine, local_engine, run_sweep
from bftrainer.campaigns.sweep_file import read_sweep
from bftrainer.errors import InputError, OutputError, SettingsError
from bftrainer.files.directories import MANIFEST
from bftrainer.files.opening import SAMPLE_TUNED_TASKS, sample_path
from bftrainer.nodelogs import write_node_log
from bftrainer.parallel import Lost
from bftrainer.runs import run_inputs
from bftrainer.runs.run_files import read_summary
from bftrainer.spot.generation import generate_trace
from bftrainer.supervisor import descendants
from tests.tiny import contents, write_inputs
from tests.waiting import until

TEXT = """schema = 1
[base]
solver = "dp"
baseline = false
max_events = 40
[grid]
Tfwd = [10, 120]
maxJ = [5, 10]
[[point]]
objective = "energy"
[[point]]
Tfwd = 10
maxJ = 5
"""


@pytest.fixture
def spec(tmp_path):
    """Four settings, one that fails, and one of the four again."""
    path = tmp_path / "sweep.toml"
    path.write_text(TEXT)
    return read_sweep(path)


def sweep_into(spec, directory, engine=None, **how):
    """Run a sweep in a directory of its own."""
    return run_sweep(spec, directory, engine or local_engine(1), **how)


def test_the_table_holds_what_runs_found(spec, tmp_path, monkeypatch):
    """A row a point, in the order of the file; figures are those of the run alone; a failed one has its reason.

    Equal points are computed once, and a log is read once.
    """
    calls, read, original = [], [], run_inputs.read_node_log
    monkeypatch.setattr(module, "run_replay", lambda **options: calls.append(1) or run_replay(**options))
    monkeypatch.setattr(run_inputs, "_read", {})
    monkeypatch.setattr(run_inputs, "read_node_log", lambda *args, **more: read.append(1) or original(*args, **more))
    result = sweep_into(spec, tmp_path / "out")
    assert (len(calls), len(read)) == (4, 1)  # the failing one is refused before it is replayed
    assert result.points[0].figures == result.points[5].figures
    assert len(list((tmp_path / "out" / "runs").iterdir())) == 4
    rows = pq.read_table(tmp_path / "out" / "sweep.parquet").to_pylist()
    assert [row["point"] for row in rows] == list(range(6))
    assert [(row["forward_time_s"], row["max_tasks"]) for row in rows[:4]] == [(10, 5), (10, 10), (120, 5), (120, 10)]
    alone = run_replay(solver="dp", baseline=False, max_events=40, forward_time_s=120, max_tasks=5).summary()
    assert rows[2]["work_done"] == alone["work_done"]
    assert rows[2]["below_large_idle.occupancy"] == alone["below_large_idle"]["occupancy"]
    assert read_summary(tmp_path / "out" / rows[2]["run"])["work_done"] == alone["work_done"]
    assert not [name for name in rows[0] if name.startswith("solve_s") or name in ("wall_s", "load_s")]
    assert [point.point.number for point in result.failures] == [4]
    assert "Expected a tuned task" in rows[4]["error"]
    assert rows[4]["work_done"] is None
    assert all(row["error"] is None and row["work_done"] > 0 for row in rows if row["point"] != 4)


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ('objective = ["throughput", "no_such_module:x"]', "objective no_such_module:x: Cannot import the module"),
        ('solver = ["dp", "json:Dumps"]', "solver json:Dumps: Expected json to define 'Dumps'"),
        ('fallback = ["cbc", "nope"]', "Expected a known solver or module:callable, got 'nope'"),
        ('policy = ["zeus", "zeuss"]', "Expected a known batch-size policy or module:callable, got 'zeuss'"),
        ('power_policy = ["jit", "jot"]', "Expected a known power-limit policy or module:callable, got 'jot'"),
    ],
)
def test_names_are_looked_up_before_the_first_point(tmp_path, line, fault):
    """Of one point's objective, solver, policy or model that is not there, the file's line is told; nothing is made."""
    (tmp_path / "sweep.toml").write_text(f"schema = 1\n[grid]\n{line}\n")
    with pytest.raises(SettingsError, match=rf"sweep\.toml: line 3: {fault}") as caught:
        sweep_into(read_sweep(tmp_path / "sweep.toml"), tmp_path / "out")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_finished_points_are_not_run_again(spec, tmp_path, monkeypatch):
    """What is there stays as it is, to the file; what is missing is computed, and the table is the same."""
    first = sweep_into(spec, tmp_path / "out")
    table = (tmp_path / "out" / "sweep.parquet").read_bytes()
    lost = tmp_path / "out" / "runs" / first.points[1].point.key
    times = {path: path.stat().st_mtime_ns for path in lost.parent.glob("*/summary.json") if path.parent != lost}
    for path in lost.iterdir():
        path.unlink()
    lost.rmdir()
    calls = []
    monkeypatch.setattr(module, "run_replay", lambda **options: calls.append(1) or run_replay(**options))
    again = sweep_into(spec, tmp_path / "out", resume=True)
    assert len(calls) == 1
    assert [point.was_done for point in again.points] == [True, False, True, True, False, True]
    assert {path: path.stat().st_mtime_ns for path in times} == times
    assert (tmp_path / "out" / "sweep.parquet").read_bytes() == table


def test_a_changed_training_trace_is_another_replay(tmp_path):
    """What a task set names has a part in its runs: after a change of that, none is taken for done."""
    tasks = sample_path(SAMPLE_TUNED_TASKS)
    for name in (tasks.name, "zeus-train.csv", "zeus-power.csv"):
        (tmp_path / name).write_bytes((tasks.parent / name).read_bytes())
    path = tmp_path / "sweep.toml"
    path.write_text(f'schema = 1\n[base]\ntasks = "{tasks.name}"\nsolver = "dp"\nbaseline = false\nmax_events = 5\n')
    sweep_into(read_sweep(path), tmp_path / "out")
    assert sweep_into(read_sweep(path), tmp_path / "out", resume=True).points[0].was_done
    with (tmp_path / "zeus-power.csv").open("a") as file:
        file.write("\n")
    again = sweep_into(read_sweep(path), tmp_path / "out", resume=True).points[0]
    assert (again.was_done, again.error) == (False, None)


def test_changed_inputs_are_read_again(tmp_path):
    """A worker that lives on reads a log anew that has changed since its last point."""
    first, second = (generate_trace(0.2, nodes=nodes).log for nodes in (10, 20))
    log, path = tmp_path / "log.parquet", tmp_path / "sweep.toml"
    path.write_text('schema = 1\n[base]\nnode_log = "log.parquet"\nsolver = "dp"\nbaseline = false\nmax_events = 5\n')
    found = []
    for each in (first, second):
        log.unlink(missing_ok=True)
        write_node_log(log, each)
        result = sweep_into(read_sweep(path), tmp_path / "out", resume=True).points[0]
        found.append((result.was_done, result.figures["nodes_total"]))
    assert found == [(False, 10), (False, 20)]


def test_a_task_set_that_cannot_be_read_is_one_failure(tmp_path):
    """The others are computed."""
    (tmp_path / "tasks.toml").write_text("schema = 1\n[[task]]\n")
    path = tmp_path / "sweep.toml"
    path.write_text(TEXT.split("[grid]")[0] + '[[point]]\ntasks = "tasks.toml"\n[[point]]\nmax_tasks = 7\n')
    assert [point.error is None for point in sweep_into(read_sweep(path), tmp_path / "out").points] == [False, True]


def test_a_sweep_of_which_no_point_can_begin_is_refused(tmp_path):
    """Before anything is written, with the fault of the first point."""
    (tmp_path / "log.bin").write_bytes(b"nothing")
    path = tmp_path / "sweep.toml"
    path.write_text('schema = 1\n[base]\nnode_log = "log.bin"\nsolver = "dp"\n[grid]\nmax_tasks = [3, 10]\n')
    with pytest.raises(InputError, match=r"log\.bin:1: Expected"):
        sweep_into(read_sweep(path), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_broken_run_is_not_passed_over(spec, tmp_path):
    """A summary that cannot be read stops the sweep, and says what to do."""
    result = sweep_into(spec, tmp_path / "out")
    (tmp_path / "out" / "runs" / result.points[0].point.key / "summary.json").write_text("{")
    with pytest.raises(SettingsError, match="Remove it to have it computed again"):
        sweep_into(spec, tmp_path / "out", resume=True)


@pytest.mark.long
@pytest.mark.parametrize("workers", [1, 2])
def test_a_log_that_changes_meanwhile_is_refused(tmp_path, workers):
    """Points that are not done yet fail, in one line: a run is kept under what its files were when the sweep began."""
    write_node_log(tmp_path / "log.parquet", generate_trace(0.5, nodes=30).log)
    path = tmp_path / "sweep.toml"
    grid = f"[grid]\nTfwd = {list(range(5, 25))}\n"
    path.write_text(TEXT.split("[grid]")[0] + f'node_log = "log.parquet"\n{grid}')

    def change(_):
        write_node_log(tmp_path / "log.parquet", generate_trace(0.5, nodes=30, seed=1).log)

    result = run_sweep(read_sweep(path), tmp_path / "out", local_engine(workers), change)
    assert 0 < len(result.failures) < len(result.points)
    log_path = re.escape(str(tmp_path / "log.parquet"))
    said = rf"{log_path}: Expected a (file|log) that stays as it is, got one that changed .*\."
    assert all(re.fullmatch(said, str(point.error)) for point in result.failures)


@pytest.mark.long
@pytest.mark.filterwarnings("default")
def test_every_engine_gives_the_same_table(spec, tmp_path):
    """One process, two, and a Dask cluster: bit for bit."""
    from distributed import LocalCluster

    sweep_into(spec, tmp_path / "one")
    sweep_into(spec, tmp_path / "two", local_engine(2))
    with LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None) as cluster:
        sweep_into(spec, tmp_path / "dask", DaskEngine(cluster.scheduler_address))
    tables = {name: (tmp_path / name / "sweep.parquet").read_bytes() for name in ("one", "two", "dask")}
    assert tables["one"] == tables["two"] == tables["dask"]


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_a_killed_job_costs_nothing_that_was_finished(tmp_path, monkeypatch):
    """Of a batch system's two jobs one is killed when two points are done: the table is whole, no run is made again."""
    from dask_jobqueue.local import LocalCluster  # whose jobs are processes of this machine

    monkeypatch.setattr("dask_jobqueue.SLURMCluster", LocalCluster)
    job = 'cores = 1\nprocesses = 1\nmemory = "900MB"\ninterface = "lo"\nnanny = false\n'
    (tmp_path / "jobs.toml").write_text(f'system = "slurm"\njobs = 2\n{job}')
    (tmp_path / "sweep.toml").write_text(TEXT.split("[grid]")[0] + "[grid]\nlarge_idle = [1, 2, 3, 4, 5, 6, 7, 8]\n")
    spec, finished = read_sweep(tmp_path / "sweep.toml"), {}
    whole = sweep_into(spec, tmp_path / "whole")

    def jobs():
        return [pid for pid in descendants(os.getpid()) if b"dask_worker" in Path(f"/proc/{pid}/cmdline").read_bytes()]

    def kill_one(result):
        summary = tmp_path / "out" / "runs" / result.point.key / "summary.json"
        finished[summary] = summary.stat().st_mtime_ns
        if len(finished) == 2:
            os.kill(jobs()[0], signal.SIGKILL)

    result = run_sweep(spec, tmp_path / "out", DaskEngine(jobqueue=tmp_path / "jobs.toml"), kill_one)
    assert result.table().equals(whole.table())
    assert {path: path.stat().st_mtime_ns for path in finished} == finished
    until(lambda: not jobs())


# --- The directory

SMALL = """schema = 1
[base]
tasks = "tasks.toml"
solver = "dp"
baseline = false
max_events = 5
"""


def fail(*_):
    """An objective that raises."""
    raise TypeError("unhashable")


@pytest.fixture
def swept(tmp_path):
    """`swept("[grid] ...")` runs a sweep of that in the directory `out`."""
    write_inputs(tmp_path)

    def run(text, told=lambda _: None, **how):
        (tmp_path / "file.toml").write_text(SMALL + text)
        return run_sweep(read_sweep(tmp_path / "file.toml"), tmp_path / "out", local_engine(1), told, **how)

    return run


def test_force_computes_all_anew(swept, tmp_path):
    """A sweep that replaces another holds what it would hold alone, but for times; runs it has no more are gone."""
    swept("[grid]\nTfwd = [5, 10]")
    assert [point.was_done for point in swept("[grid]\nTfwd = [10, 15]", force=True).points] == [False, False]
    anew = contents(tmp_path / "out")
    shutil.rmtree(tmp_path / "out")
    swept("[grid]\nTfwd = [10, 15]")
    alone = contents(tmp_path / "out")
    assert anew.keys() == alone.keys()
    steady = [name for name in alone if not name.endswith(("summary.json", "decisions.parquet", MANIFEST))]
    assert [anew[name] for name in steady] == [alone[name] for name in steady]


def test_force_clears_what_a_killed_one_left(swept, tmp_path):
    """Runs that it had begun to delete, or had emptied, go too; an empty folder of another name stays."""
    swept("[grid]\nTfwd = [5, 10]")
    runs = tmp_path / "out" / "runs"
    begun, emptied = runs.iterdir()
    (begun / "summary.json").unlink()
    shutil.rmtree(emptied)
    emptied.mkdir()
    (runs / "mine").mkdir()
    swept("[grid]\nTfwd = [15]", force=True)
    names = {run.name for run in runs.iterdir()}
    assert len(names) == 2
    assert "mine" in names - {begun.name, emptied.name}


def test_a_refused_sweep_replaces_nothing(swept, tmp_path):
    """Faults are found before earlier results are deleted, and before there is a directory."""
    with pytest.raises(SettingsError, match="absent"):
        swept('[grid]\ntasks = ["tasks.toml", "absent.toml"]')
    assert not (tmp_path / "out").exists()
    swept("[grid]\nTfwd = [5, 10]")
    before = contents(tmp_path / "out")
    with pytest.raises(SettingsError, match="nope"):
        swept('[grid]\nobjective = ["nope"]', force=True)
    assert contents(tmp_path / "out") == before
    # Points that all fail, and a file that is none of a run's.
    with pytest.raises(SettingsError, match=r"Nothing was replaced, as all points failed: .*unhashable"):
        swept(f'[grid]\nobjective = ["{__name__}:fail"]', force=True)
    assert contents(tmp_path / "out") == before
    run = next(iter((tmp_path / "out" / "runs").iterdir()))
    (run / "mine").touch()
    with pytest.raises(OutputError, match=r"found mine; move it away first"):
        swept("[grid]\nTfwd = [5, 10]", force=True)
    (run / "mine").unlink()
    assert contents(tmp_path / "out") == before


def test_an_interrupted_force_is_resumed(swept, tmp_path):
    """What was computed anew before Ctrl-C is kept, and the rest computed by `resume`."""

    def interrupt(_):
        raise KeyboardInterrupt

    swept("[grid]\nTfwd = [5, 10]")
    with pytest.raises(KeyboardInterrupt):
        swept("[grid]\nTfwd = [5, 15]", interrupt, force=True)
    assert not (tmp_path / "out" / "sweep.parquet").exists()
    again = swept("[grid]\nTfwd = [5, 15]", resume=True)
    assert [point.was_done for point in again.points] == [True, False]


def test_a_sweep_without_results_is_gone_on_with(swept, tmp_path, monkeypatch):
    """It is in the way of no other, nor is what killed workers had begun; the end is that without an interrupt."""
    swept("")
    alone = contents(tmp_path / "out").keys()
    shutil.rmtree(tmp_path / "out")

    def end(**_):
        (tmp_path / "out" / "runs" / ".0123456789abcdef.new").mkdir()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module, "run_replay", end)
        with pytest.raises(KeyboardInterrupt):
            swept("")
    swept("")
    swept("", force=True)
    assert contents(tmp_path / "out").keys() == alone


def test_killed_before_there_was_a_list(swept, tmp_path):
    """What is put in a sweep's directory first is the list of what is ours; half of that is no file of others."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "..bftrainer.bftpart").touch()
    swept("")
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == [".bftrainer", "runs", "sweep.parquet", "sweep.toml"]


def test_a_sweep_that_was_given_up_gets_no_more_runs(swept, tmp_path, monkeypatch):
    """A cluster's worker that goes on makes no directory anew: it would be nobody's."""

    def late(**given):
        shutil.rmtree(tmp_path / "out" / "runs")
        return run_replay(**given)

    monkeypatch.setattr(module, "run_replay", late)
    assert "removed meanwhile" in swept("").points[0].error
    assert not (tmp_path / "out" / "runs").exists()


def test_what_is_not_ours_stays_in_a_sweep(swept, tmp_path):
    """Files beside runs and in them, hidden ones, directories that look like runs, and runs elsewhere."""
    result = swept("[grid]\nTfwd = [5, 10]")
    runs = tmp_path / "out" / "runs"
    second = runs / result.points[1].point.key
    (second / "notes.txt").write_text("mine")
    for name in ("0123456789abcdef", ".git", ".0123456789abcdef.kept"):
        (runs / name).mkdir()
        (runs / name / "summary.json").write_text("mine")
    shutil.copytree(second, tmp_path / "elsewhere")
    (runs / "linked").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "out" / "tasks").symlink_to(tmp_path / "elsewhere")
    with (tmp_path / "out" / ".bftrainer").open("a") as listed:
        listed.write("tasks/notes.txt\n")
    elsewhere = contents(tmp_path / "elsewhere")
    swept("[grid]\nTfwd = [5]", force=True)
    mine = {name for name, content in contents(tmp_path / "out").items() if content == b"mine"}
    fakes = ("0123456789abcdef", ".git", ".0123456789abcdef.kept")
    assert mine == {f"runs/{second.name}/notes.txt", *(f"runs/{name}/summary.json" for name in fakes)}
    assert [path.name for path in second.iterdir()] == ["notes.txt"]
    assert contents(tmp_path / "elsewhere") == elsewhere


def test_places(swept, tmp_path):
    """An existing sweep is neither mixed up nor replaced unasked."""
    swept("")
    with pytest.raises(OutputError, match=r"--resume .*--force"):
        swept("")
    (tmp_path / "out" / ".bftrainer").unlink()
    for how in ({"force": True}, {"resume": True}):
        with pytest.raises(OutputError, match="found other files"):
            swept("", **how)
    shutil.rmtree(tmp_path / "out")
    (tmp_path / "out").touch()
    with pytest.raises(OutputError, match="found a file"):
        swept("")


# --- Engines


def doubled(item):
    """A result."""
    return 2 * item


def threads(_):
    """How many threads linear algebra may use."""
    return os.environ.get("OPENBLAS_NUM_THREADS")


def fragile(item):
    """Kill the own process the first time that item 3 comes, and each time that item 5 does."""
    number, folder = item
    with (Path(folder) / f"{number}").open("a") as calls:
        calls.write("x")
    first = (Path(folder) / f"{number}").stat().st_size == 1
    if number == 5 or (number == 3 and first):
        os.kill(os.getpid(), signal.SIGKILL)
    return number


@pytest.mark.long
def test_all_items_are_computed_on_one_thread_each(monkeypatch):
    """Each once, by its index; and what the environment says of threads is as before, set or not."""
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    for number in (1, 2):
        assert sorted(local_engine(number)(doubled, range(20))) == [(index, 2 * index) for index in range(20)]
    assert dict(local_engine(2)(threads, [0, 1])) == {0: "1", 1: "1"}
    assert os.environ["OMP_NUM_THREADS"] == "7"
    assert "OPENBLAS_NUM_THREADS" not in os.environ


@pytest.mark.slow
def test_lost_workers_are_replaced(tmp_path):
    """A killed process costs nothing but what it was at; an item that kills each time is given up after three."""
    found = dict(local_engine(2)(fragile, [(number, str(tmp_path)) for number in range(8)]))
    assert sorted(found) == list(range(8))
    assert found[5] == Lost("its process ended abruptly, 3 times")
    assert all(found[number] == number for number in range(8) if number != 5)


def test_engines_need_workers_and_a_place():
    """At least one worker; either a scheduler or a batch system."""
    with pytest.raises(SettingsError, match="at least one worker, got 0"):
        local_engine(0)
    for given in ({}, {"scheduler": "tcp://x:1", "jobqueue": Path("x")}):
        with pytest.raises(SettingsError, match="either --scheduler or --dask-jobqueue"):
            DaskEngine(**given)


@pytest.mark.long
def test_a_program_ends_where_no_scheduler_is():
    """One line each and nothing else, also when the program ends: what was to connect leaves no traceback behind.

    Nothing listens there, an address is none, or another server, a web server say, answers.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer():
            """Say what a web server says, and wait for the other end to hang up."""
            with server.accept()[0] as connection:
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n" * 9)
                while connection.recv(1024):
                    pass

        thread = threading.Thread(target=answer)
        thread.start()
        addresses = ["tcp://127.0.0.1:9", "nonsense", "foo://x", f"tcp://127.0.0.1:{server.getsockname()[1]}"]
        script = (
            "from bftrainer.errors import SettingsError\n"
            "from bftrainer.campaigns import sweep\n"
            "sweep.CONNECT_S = 0.5\n"
            f"for address in {addresses}:\n"
            "    try:\n"
            "        list(sweep.DaskEngine(address)(print, [1]))\n"
            "    except SettingsError as error:\n"
            "        print(error)\n"
        )
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120.0, check=True)
        thread.join(10.0)
    for address, line in zip(addresses, done.stdout.splitlines(), strict=True):
        assert line.startswith(f"{address}: ")
    assert done.stderr == ""


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('system = "slrum"\njobs = 1\n', r"got 'slrum'\. Did you mean 'slurm'\?"),
        ('system = "slurm"\n', "Expected jobs, how many to submit, got None"),
        ("system\n", "Expected TOML"),
        # What the library's class says of an option that it does not know, in its first line.
        ('system = "slurm"\njobs = 1\ncors = 3\n', r"unexpected \['cors'\]"),
    ],
)
def test_bad_batch_systems(tmp_path, monkeypatch, text, said):
    """One line that names the file; Ctrl-C, which the library catches too, is as before."""
    handler = signal.getsignal(signal.SIGINT)

    def cluster(**options):
        raise TypeError(f"unexpected {sorted(options.keys() - {'python'})}\nand more")

    (tmp_path / "jobqueue.toml").write_text('system = "slurm"\njobs = 1\n')
    DaskEngine(jobqueue=tmp_path / "jobqueue.toml")  # which imports the library
    monkeypatch.setattr("dask_jobqueue.SLURMCluster", cluster)
    (tmp_path / "jobqueue.toml").write_text(text)
    with pytest.raises(SettingsError, match=rf"jobqueue\.toml.*{said}") as caught:
        list(DaskEngine(jobqueue=tmp_path / "jobqueue.toml")(doubled, [1]))
    assert "\n" not in str(caught.value)
    assert signal.getsignal(signal.SIGINT) is handler


@pytest.mark.parametrize(("system", "more"), [("slurm", ""), ("pbs", ""), ("lsf", 'python = "mine"\n')])
def test_python_may_have_blanks_in_its_path(tmp_path, monkeypatch, system, more):
    """The script of a job quotes the interpreter, which dask-jobqueue would not do, but one that the user names."""
    monkeypatch.setattr(module, "sys", SimpleNamespace(executable="/a b/bin/python"))
    (tmp_path / "queue.toml").write_text(f'system = "{system}"\njobs = 1\ncores = 1\nmemory = "1GB"\n{more}')
    cluster = DaskEngine(jobqueue=tmp_path / "queue.toml")._make_cluster
    text = cluster.func.job_cls(scheduler="tcp://host:1", name="worker", **cluster.keywords).job_script()
    python = "mine" if more else "'/a b/bin/python'"
    assert f"\n{python} -m distributed" in text
