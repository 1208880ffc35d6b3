"""Engines compute every item once, whatever becomes of their workers."""

from __future__ import annotations

import gc
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from bftrainer.campaigns import sweep as engines
from bftrainer.campaigns.sweep import DaskEngine, local_engine
from bftrainer.errors import SettingsError
from bftrainer.parallel import Lost
from tests.test_parallel import workers


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


@pytest.mark.long
def test_items_are_not_forgotten_when_all_processes_end():
    """Processes that end between two items take none of those that wait with them."""
    found = []
    for index, _ in local_engine(2)(doubled, range(6)):
        found.append(index)
        if len(found) == 1:
            for worker in workers(os.getpid()):
                os.kill(worker, signal.SIGKILL)
    assert sorted(found) == list(range(6))


def test_engines_need_workers_and_a_place():
    """At least one worker; either a scheduler or a batch system."""
    with pytest.raises(SettingsError, match="at least one worker, got 0"):
        local_engine(0)
    for given in ({}, {"scheduler": "tcp://x:1", "jobqueue": Path("x")}):
        with pytest.raises(SettingsError, match="either --scheduler or --dask-jobqueue"):
            DaskEngine(**given)


@pytest.mark.filterwarnings("default")
def test_another_server_is_no_scheduler():
    """Where a web server, say, answers, one line says so."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer():
            """Say what a web server says, and wait for the other end to hang up."""
            with server.accept()[0] as connection:
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n" * 9)
                while connection.recv(1024):
                    pass

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(SettingsError, match=r"Dask scheduler .* 10 s"):
            list(DaskEngine(f"tcp://127.0.0.1:{server.getsockname()[1]}")(doubled, [1]))
        gc.collect()
        thread.join(10.0)


@pytest.mark.long
def test_a_program_ends_where_no_scheduler_is():
    """One line each and nothing else, also when the program ends: what was to connect leaves no traceback behind."""
    addresses = ["tcp://127.0.0.1:9", "nonsense", "foo://x"]
    script = (
        "from bftrainer.errors import SettingsError\n"
        "from bftrainer.campaigns import sweep as engines\n"
        "engines.CONNECT_S = 0.2\n"
        f"for address in {addresses}:\n"
        "    try:\n"
        "        list(engines.DaskEngine(address)(print, [1]))\n"
        "    except SettingsError as error:\n"
        "        print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120.0, check=True)
    for address, line in zip(addresses, done.stdout.splitlines(), strict=True):
        assert line.startswith(f"{address}: ")
    assert done.stderr == ""


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_bad_batch_systems(tmp_path):
    """One line that names the file."""
    path = tmp_path / "jobqueue.toml"
    for text, said in (
        ('system = "slrum"\njobs = 1\n', "got 'slrum'. Did you mean 'slurm'?"),
        ('system = "slurm"\n', "Expected jobs, how many to submit, got None"),
        ("system\n", "Expected TOML"),
    ):
        path.write_text(text)
        with pytest.raises(SettingsError, match=re.escape(said)) as caught:
            DaskEngine(jobqueue=path)
        assert "\n" not in str(caught.value)


def test_what_a_batch_system_does_not_take(tmp_path, monkeypatch):
    """What its class says of an option it does not know stands in one line with the file."""
    handler = signal.getsignal(signal.SIGINT)

    def cluster(**options):
        raise TypeError(f"unexpected {sorted(options.keys() - {'python'})}\nand more")

    path = tmp_path / "jobqueue.toml"
    path.write_text('system = "slurm"\njobs = 1\ncors = 3\n')
    DaskEngine(jobqueue=path)  # which imports the library
    monkeypatch.setattr("dask_jobqueue.SLURMCluster", cluster)
    with pytest.raises(SettingsError, match=r"jobqueue\.toml: unexpected \['cors'\]$"):
        list(DaskEngine(jobqueue=path)(doubled, [1]))
    assert signal.getsignal(signal.SIGINT) is handler


QUEUE = 'system = "{system}"\njobs = 1\ncores = 1\nmemory = "1GB"\n'


def test_python_may_have_blanks_in_its_path(tmp_path, monkeypatch):
    """The script of a job quotes the interpreter, which dask-jobqueue would not do, but one that the user names."""
    monkeypatch.setattr(engines, "sys", SimpleNamespace(executable="/a b/bin/python"))
    assert "'/a b/bin/python' -m distributed" in script(tmp_path, "slurm")
    assert "\nmine -m distributed" in script(tmp_path, "slurm", 'python = "mine"\n')


def script(tmp_path, system, more=""):
    """What is submitted to a batch system for a sweep in the directory `out`."""
    (tmp_path / "queue.toml").write_text(QUEUE.format(system=system) + more)
    cluster = DaskEngine(jobqueue=tmp_path / "queue.toml", job_logs=tmp_path / "out" / "job-logs")._make_cluster
    return cluster.func.job_cls(scheduler="tcp://host:1", name="worker", **cluster.keywords).job_script()


@pytest.mark.parametrize("system", ["slurm", "pbs", "lsf"])
def test_job_scripts_of_all_systems(tmp_path, system):
    """Each says where to print, in its own words."""
    assert script(tmp_path, system).count(f" {tmp_path / 'out' / 'job-logs'}/") == 2


def test_a_place_that_no_script_can_name(tmp_path):
    """Where dask-jobqueue would split a path, one line says what to name instead."""
    (tmp_path / "queue.toml").write_text(QUEUE.format(system="slurm"))
    with pytest.raises(SettingsError, match=r"queue\.toml: Expected a log_directory, .* with blanks, .*/my sweep"):
        DaskEngine(jobqueue=tmp_path / "queue.toml", job_logs=tmp_path / "my sweep" / "job-logs")
