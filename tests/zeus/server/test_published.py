"""What was published: its databases are moved over, and its names are those of our parts."""

import asyncio
import sqlite3
from itertools import chain

import pytest

from bftrainer.errors import BadOperationError, SettingsError, TuningInputError
from bftrainer.zeus import server as bso
from bftrainer.zeus.server import JobSpec, JobSpecFromClient, Stage, TrialId, TrialStatus, TrialType, TuningParams
from bftrainer.zeus.server.messages import GpuConfig
from bftrainer.zeus.server.service import ZeusBatchSizeOptimizer
from bftrainer.zeus.server.store import import_jobs, open_store, read_published
from tests.zeus.server.support import DATA, RECORDED, ROWS, SPEC, open_service, replay


def write_published(path, change=None):
    """A database in the published schema with the rows that were recorded; times follow the order of the reports."""
    ended = {}
    for exchange in chain.from_iterable(RECORDED.values()):
        asked = exchange.get("json")
        if exchange["path"] == "/report" and exchange["status"] == 200 and exchange["response"]["stop_train"]:
            ended.setdefault((asked["job_id"], asked["trial_number"]), len(ended))
    with sqlite3.connect(path) as connection:
        connection.executescript((DATA / "bso_ddl.sql").read_text())
        for table in ("Job", "BatchSize", "Trial", "GaussianTsArmState"):
            for row in ROWS[table]:
                values = {name: float("inf") if value == "inf" else value for name, value in row.items()}
                if table == "Trial":
                    place = ended.get((row["job_id"], row["trial_number"]))
                    values["start_timestamp"] = f"2024-01-01 00:00:{row['trial_number'] % 60:02}.000000"
                    if place is not None:
                        values["end_timestamp"] = f"2024-01-02 {place // 3600:02}:{place // 60 % 60:02}:{place % 60:02}"
                names, marks = ", ".join(values), ", ".join("?" * len(values))
                connection.execute(f'INSERT INTO "{table}" ({names}) VALUES ({marks})', [*values.values()])
        if change:
            connection.execute(change)
    connection.close()


def move(source, target):
    """Move all jobs from file to file; tells how many."""
    jobs = read_published(f"sqlite+aiosqlite:///{source}")
    with open_store(f"sqlite:///{target}") as store:
        import_jobs(store, jobs)
    return len(jobs)


def job_of(exchange):
    """Name of the job that an exchange is about."""
    sent = exchange.get("json")
    return (sent if isinstance(sent, dict) else exchange.get("params") or {}).get("job_id")


@pytest.mark.long
def test_jobs_go_on_as_they_were(tmp_path):
    """All that is known of a job is what the imitated server knows after the same exchanges, and so is what follows."""
    write_published(tmp_path / "zeus.db")
    before = (tmp_path / "zeus.db").read_bytes()
    assert move(tmp_path / "zeus.db", tmp_path / "bso.db") == len(ROWS["Job"])
    assert (tmp_path / "zeus.db").read_bytes() == before
    names = [row["job_id"] for row in ROWS["Job"] if row["job_id"].startswith(("t-mab", "t-rep", "t-late", "t-aband"))]
    exchanges = [each for each in chain.from_iterable(RECORDED.values()) if job_of(each) in names]
    asking = [
        {"method": "GET", "path": path, "params": {"job_id": name}}
        for path in ("/state/job", *["/jobs/batch_size"] * 3, "/state/trials")
        for name in names
    ]
    wanted = replay(tmp_path, [*exchanges, *asking], compat="zeus")[-len(asking) :]
    got = replay(tmp_path, asking, compat="zeus", database_url=f"sqlite:///{tmp_path / 'bso.db'}")
    for (status, ours), (wanted_status, theirs) in zip(got, wanted, strict=True):
        assert status == wanted_status
        for body in (ours, theirs):
            for each in body if isinstance(body, list) else [body]:
                # Neither moments nor reports without a result are in the published database.
                unfinished = ("time", "energy") if each.get("cost") is None else ()
                for name in ("registered", "started", "ended", "heard", "epoch", "metric", *unfinished):
                    each.pop(name, None)
        assert ours == approximately(theirs)


def approximately(value):
    """The same, numbers to the ninth digit."""
    if isinstance(value, dict):
        return {name: approximately(each) for name, each in value.items()}
    if isinstance(value, list):
        return [approximately(each) for each in value]
    return pytest.approx(value, rel=1e-9) if isinstance(value, float) else value


def test_what_is_not_moved(tmp_path):
    """Nothing is moved twice, half, from nowhere, or into a database that is not this server's."""
    write_published(tmp_path / "zeus.db")
    move(tmp_path / "zeus.db", tmp_path / "bso.db")
    write_published(
        tmp_path / "odd.db", "UPDATE Trial SET batch_size = 32 WHERE job_id = 't-mab1' AND trial_number = 1"
    )
    for source, target, said in (
        ("zeus", "bso", "already has a job ''"),
        ("none", "bso", "unable to open database file"),
        ("bso", "other", r"Not a database of Zeus's server: table [A-Z]"),
        ("zeus", "zeus", r"Zeus's server; `bftrainer bso jobs --import` moves its jobs"),
        ("odd", "third", r"job 't-mab1': Its trials contradict its state: stage MAB"),
    ):
        with pytest.raises(SettingsError, match=said):
            move(tmp_path / f"{source}.db", tmp_path / f"{target}.db")
    assert not (tmp_path / "none.db").exists()


# --- published names --------------------------------------------------------------------------------------------------


def test_the_published_methods():
    """Registering tells whether the job is new; errors and members have their published names, bases and values."""

    async def act(optimizer):
        spec = JobSpecFromClient(**SPEC)
        assert [await optimizer.register_job(spec) for _ in range(2)] == [True, False]
        trial = await optimizer.predict("t-1")
        await optimizer.end_trial(trial)
        with pytest.raises(bso.ZeusBSOServiceBadOperationError):
            await optimizer.predict("nobody's")
        with pytest.raises(bso.ZeusBSOServerNotFoundError):
            await optimizer.end_trial(TrialId(job_id="nobody's", batch_size=8, trial_number=1))
        with pytest.raises(bso.ZeusBSOJobConfigMismatchError):
            await optimizer.register_job(JobSpec(**SPEC | {"eta_knob": 0.25}))
        await optimizer.delete_job("t-1")

    with open_service() as service:
        asyncio.run(act(ZeusBatchSizeOptimizer(service)))
    assert not issubclass(BadOperationError, bso.ZeusBSOServerNotFoundError)
    server = [name for name in bso.__all__ if name.startswith("ZeusBSO") and "Serv" in name]
    assert all(issubclass(getattr(bso, name), bso.ZeusBSOServerBaseError) for name in server)
    assert (Stage.Pruning, TrialType.Exploration) == (Stage.PRUNING, TrialType("Exploration"))
    assert ([str(each) for each in TrialStatus], len(TrialType)) == (["Dispatched", "Succeeded", "Failed"], 3)


@pytest.mark.parametrize(
    ("senseless", "said"),
    [
        ({"max_epochs": True}, "max_epochs: Input should be a valid integer, got True."),
        ({"batch_sizes": [16, 16]}, "batch_sizes: Expected each batch size once, got 16, 16."),
        ({"target_metric": float("nan")}, "target_metric: Input should be a finite number, got nan."),
        ({"max_epochs": 0}, "max_epochs: Input should be greater than 0, got 0."),
        ({"max_epoch": 3}, "Unknown field 'max_epoch'. Did you mean 'max_epochs'?"),
        ({"default_batch_size": 9}, "Expected default_batch_size among batch_sizes [8, 16, 32], got 9."),
    ],
)
def test_settings_that_are_senseless(senseless, said):
    """A script is told before it asks a server, whether it names its GPUs or not; 12.0 epochs are 12."""
    tuning = {name: value for name, value in SPEC.items() if name not in GpuConfig.model_fields}
    with pytest.raises(TuningInputError, match="Unknown field 'max_power'"):
        TuningParams(**SPEC)
    for model, settings in ((TuningParams, tuning), (JobSpec, SPEC)):
        with pytest.raises(TuningInputError) as caught:
            model(**settings | senseless)
        assert str(caught.value) == f"{model.__name__}: {said}"
        assert model(**settings | {"max_epochs": 12.0}).max_epochs == 12
