"""Jobs that are changed while they live: what counts afterwards, what is kept of it, and what is refused."""

from __future__ import annotations

import asyncio
import threading

import pytest

from bftrainer.zeus.server.books.job_changes import Evidence, changed_spec, still_counts
from bftrainer.zeus.server.books.job_editor import JobEditor
from bftrainer.zeus.server.messages import JobSpec, TrialVoid
from bftrainer.zeus.server.optimizer import ZeusBatchSizeOptimizer
from bftrainer.zeus.server.store import open_store
from bftrainer.zeus.server.tuned_job import TunedJob
from tests.zeus.server.books import check_books
from tests.zeus.server.support import SPEC, run, serving


@pytest.fixture
def client(tmp_path):
    """A client of a server with the job t-1, which has no bound on costs."""
    with serving(tmp_path) as client:
        assert client.post("/jobs", json=SPEC | {"beta_knob": None}).status_code == 201
        yield client


def url_of(folder):
    """The URL of the server's database."""
    return f"sqlite+aiosqlite:///{folder / 'bso.db'}"


def job(client, job_id="t-1"):
    """What is known of a job."""
    return client.get("/state/job", params={"job_id": job_id}).json()


def events(client, job_id="t-1"):
    """What was done to it."""
    return client.get("/state/events", params={"job_id": job_id}).json()


def void(client, number, reason="a broken meter"):
    """Void a trial."""
    return client.post("/trials/void", json={"job_id": "t-1", "trial_number": number, "reason": reason})


def test_a_voided_trial_has_never_been(client):
    """Explorations after it count in its place; the reason is kept, and voiding it again changes nothing."""
    order = [run(client, "t-1", cost)[0]["batch_size"] for cost in (100.0, 5.0, 120.0, 110.0, 7.0)]
    assert order == [16, 8, 32, 8, 16]
    assert (job(client)["min_cost"], job(client)["min_cost_batch_size"]) == (5.0, 8)
    for changed in (True, False):
        answer = void(client, 2)
        assert (answer.status_code, answer.json()["min_cost"], answer.json()["remaining"]) == (200, 7.0, [8, 16, 32])
        assert (answer.json()["changed"], answer.json()["stopped"]) == (changed, [])
    rows = client.get("/state/trials", params={"job_id": "t-1"}).json()
    assert [row["excluded"] for row in rows] == [None, "Voided", None, None, None]
    done = [(event["number"], event["kind"], event["actor"]) for event in events(client)]
    assert done == [(1, "registered", None), (2, "voided", None)]
    assert events(client)[1]["detail"] == {"trial_number": 2, "batch_size": 8, "reason": "a broken meter"}
    # The second exploration of 8 takes the place of the first; the next round then begins at 16, which is there.
    trial, _ = run(client, "t-1", 90.0)
    assert (trial["batch_size"], job(client)["stage"]) == (8, "Pruning")


@pytest.mark.long
def test_a_running_trial_is_voided(client):
    """It is ended: its reports are refused, and another one explores in its place."""
    trial = client.get("/jobs/batch_size", params={"job_id": "t-1"}).json()
    assert void(client, 1).status_code == 200
    used = {"time": 1.0, "energy": 1.0, "metric": 0.9, "current_epoch": 1}
    answer = client.post("/report", json=trial | used)
    assert (answer.status_code, answer.json()["message"]) == (400, "Trial(1) was voided, and counts for nothing.")
    assert client.get("/jobs/batch_size", params={"job_id": "t-1"}).json() == trial | {"trial_number": 2}


def test_nonsense_that_was_believed_is_taken_back(tmp_path):
    """A published server's job that one report has brought to its end goes on without it."""
    with serving(tmp_path, compat="zeus") as client:
        client.post("/jobs", json=SPEC)
        run(client, "t-1", 0.0)
        while (trial := client.get("/jobs/batch_size", params={"job_id": "t-1"})).status_code == 200:
            used = {"time": 1.0, "energy": 1.0, "metric": 0.1, "current_epoch": 1}
            assert client.post("/report", json=trial.json() | used).json()["stop_train"]
        assert trial.status_code == 500
        for number in range(1, job(client)["trials"] + 1):
            assert void(client, number).status_code == 200
        assert (job(client)["min_cost"], job(client)["remaining"]) == (None, [8, 16, 32])
        trial, verdict = run(client, "t-1", 100.0)
        assert (trial["batch_size"], verdict["converged"]) == (16, True)


def test_a_run_that_was_too_cheap_has_stopped_others(client):
    """Voiding it names them, in the answer and in the history; voided too, their batch sizes are explored again."""
    patched(client, settings={"beta_knob": 2.0})
    assert [run(client, "t-1", cost)[1]["converged"] for cost in (1.0, 100.0, 300.0)] == [True, False, False]
    assert job(client)["remaining"] == [16]
    answer = void(client, 1).json()
    assert (answer["stopped"], answer["min_cost"]) == ([2, 3], None)
    assert events(client)[-1]["detail"]["stopped_by_its_cost"] == [2, 3]
    assert "stopped by its cost 2, 3" in client.get("/status", params={"job_id": "t-1"}).text
    run(client, "t-1", 100.0)
    for number in answer["stopped"]:
        assert void(client, number).json()["stopped"] == []
    order = [run(client, "t-1", 110.0) for _ in range(2)]
    assert [(trial["batch_size"], verdict["converged"]) for trial, verdict in order] == [(8, True), (32, True)]


def test_a_bound_that_still_holds_is_no_fault(client):
    """Of runs that were stopped those are named that what is left would have let go on."""
    patched(client, settings={"beta_knob": 2.0})
    for cost in (90.0, 60.0, 150.0, 200.0):
        run(client, "t-1", cost)
    assert void(client, 2).json()["stopped"] == [3]


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_others_are_answered_while_a_job_is_made_anew(kind, tmp_path, monkeypatch, request):
    """However long that takes, it is not done in the event loop: another job is read meanwhile."""
    url = url_of(tmp_path) if kind == "sqlite" else request.getfixturevalue(kind)
    begun, answered, replayed = threading.Event(), threading.Event(), TunedJob.replayed

    def waiting(*words, **options):
        begun.set()
        assert answered.wait(60)
        return replayed(*words, **options)

    async def live():
        async with open_store(url) as store:
            optimizer, editor = ZeusBatchSizeOptimizer(store), JobEditor(store)
            for name in ("t-anew", "t-other"):
                await optimizer.register_job(JobSpec(**SPEC | {"job_id": name}))
            await optimizer.predict("t-anew")
            void = TrialVoid(job_id="t-anew", trial_number=1, reason="why not")
            voiding = asyncio.create_task(editor.void_trial(void))
            await asyncio.to_thread(begun.wait, 60)
            assert (await store.look(lambda transaction: transaction.job("t-other"))).trials == 0
            answered.set()
            assert (await voiding).exploring is None

    monkeypatch.setattr(TunedJob, "replayed", waiting)
    asyncio.run(live())


def test_what_cannot_be_voided(client):
    """Unknown jobs and trials, and voiding without a reason."""
    assert void(client, 1).status_code == 404
    assert client.post("/trials/void", json={"job_id": "x", "trial_number": 1, "reason": "y"}).status_code == 404
    client.get("/jobs/batch_size", params={"job_id": "t-1"})
    assert void(client, 1, "").status_code == 422
    assert [event["kind"] for event in events(client)] == ["registered"]


def patched(client, **change):
    """Change the job t-1."""
    return client.patch("/jobs", json={"job_id": "t-1"} | change)


def explored(client):
    """Run a job until the bandit plays; gives the batch sizes that were run."""
    order = []
    while job(client)["stage"] == "Pruning" and len(order) < 20:
        order.append(run(client, "t-1", lambda size: 100.0 + size, converged=True)[0]["batch_size"])
    return order


def test_batch_sizes_are_added_and_removed(client, tmp_path):
    """One that is added is explored, once a round, and nothing else again; one that is removed is never handed out."""
    assert explored(client) == [16, 8, 32, 8, 16, 32, 8]
    edited = patched(client, add_batch_sizes=[64, 32]).json()
    assert (edited["kept"], edited["archived"], edited["job"]["spec"]["batch_sizes"]) == (7, 0, [8, 16, 32, 64])
    assert [run(client, "t-1", 500.0)[0]["batch_size"] for _ in range(2)] == [64, 64]
    for changed in (True, False):
        edited = patched(client, remove_batch_sizes=[8], settings={"num_pruning_rounds": 1}).json()
        assert (edited["changed"], edited["kept"], edited["archived"]) == (changed, 6, 3 * changed)
    trial, _ = run(client, "t-1", 120.0)
    assert (trial["batch_size"] in (16, 32, 64), job(client)["remaining"]) == (True, [16, 32, 64])
    assert job(client)["min_cost"] == 116.0
    kinds = [(event["kind"], event["detail"].get("settings")) for event in events(client)[1:]]
    assert kinds == [
        ("changed", {"batch_sizes": [[8, 16, 32], [8, 16, 32, 64]]}),
        ("changed", {"batch_sizes": [[8, 16, 32, 64], [16, 32, 64]], "num_pruning_rounds": [2, 1]}),
    ]
    check_books(url_of(tmp_path))


def test_what_the_bandit_has_seen_is_not_forgotten(client, tmp_path):
    """A bandit that begins again after a batch size was added makes its arms of all results, and says so beforehand."""
    explored(client)
    for _ in range(20):
        run(client, "t-1", lambda size: 100.0 + size)
    patched(client, add_batch_sizes=[64])
    for _ in range(2):
        assert run(client, "t-1", 500.0)[0]["batch_size"] == 64
    page = client.get("/status", params={"job_id": "t-1"}).text
    trial = client.get("/jobs/batch_size", params={"job_id": "t-1"}).json()
    assert f"that of {trial['batch_size']}" in page
    arms = {arm["batch_size"]: arm["observations"] for arm in job(client)["arms"]}
    assert (sum(arms.values()), arms[64]) == (29, 2)
    check_books(url_of(tmp_path))


def test_the_weight_of_energy_changes(client, tmp_path):
    """Costs are computed anew from time and energy, and nothing is lost."""
    explored(client)
    edited = patched(client, settings={"eta_knob": 1.0}).json()
    assert (edited["kept"], edited["archived"]) == (7, 0)
    rows = client.get("/state/trials", params={"job_id": "t-1"}).json()
    assert [row["cost"] for row in rows] == [row["energy"] for row in rows]
    assert edited["job"]["min_cost"] == min(row["energy"] for row in rows)
    check_books(url_of(tmp_path))


def test_a_job_that_is_dead_lives_on(client, tmp_path):
    """With more epochs what failed is tried again; a reset begins anew. Running trials stay, or count for nothing."""
    assert job(client)["counted"] == 0
    for _ in range(2):
        run(client, "t-1", 100.0, converged=False)
    assert client.get("/jobs/batch_size", params={"job_id": "t-1"}).status_code == 409
    assert job(client)["counted"] == 2
    edited = patched(client, settings={"max_epochs": 200}).json()
    assert (edited["kept"], edited["archived"], edited["job"]["remaining"]) == (0, 2, [8, 16, 32])
    assert (edited["stuck"], edited["job"]["counted"], edited["job"]["observations"]) == (None, 0, 2)
    trial = client.get("/jobs/batch_size", params={"job_id": "t-1"}).json()
    assert trial["batch_size"] == 16
    for changed in (True, False):
        edited = client.post("/jobs/reset", json={"job_id": "t-1"}).json()
        assert (edited["changed"], edited["archived"]) == (changed, 0)
    # Its result is taken, and counts for nothing; the exploration was handed out again meanwhile.
    again = client.get("/jobs/batch_size", params={"job_id": "t-1"}).json()
    used = {"time": 1.0, "energy": 1e9, "metric": 0.9, "current_epoch": 1}
    assert client.post("/report", json=trial | used).json()["converged"]
    assert (again["batch_size"], job(client)["min_cost"], job(client)["observations"]) == (16, None, 3)
    assert client.post("/report", json=again | used | {"energy": 50.0}).json()["converged"]
    assert job(client)["min_cost"] == 75.0
    assert [event["kind"] for event in events(client)] == ["registered", "changed", "reset"]
    check_books(url_of(tmp_path))


def test_a_size_that_the_search_never_reaches_is_told(client):
    """Below a default that missed the target nothing is tried: the answer says so, and what revives the job."""
    for _ in range(2):
        run(client, "t-1", 100.0, converged=False)
    edited = patched(client, add_batch_sizes=[4]).json()
    assert (edited["changed"], edited["kept"], edited["job"]["remaining"]) == (True, 2, [])
    assert edited["stuck"].startswith("No batch size will be explored: the search goes down from the default, 16,")
    assert client.get("/jobs/batch_size", params={"job_id": "t-1"}).status_code == 409
    assert patched(client, settings={"default_batch_size": 8}).json()["stuck"] is None
    assert client.get("/jobs/batch_size", params={"job_id": "t-1"}).json()["batch_size"] == 8


def test_a_clone_that_began_otherwise_is_another_one(client):
    """409 for another ratio, as what is known there was not made with it; the same once more is no fault."""
    explored(client)
    clone = {"job_id": "t-1", "new_job_id": "t-2", "time_ratio": 0.5}
    assert client.post("/jobs/clone", json=clone).status_code == 201
    for other in ({"time_ratio": 0.7}, {"time_ratio": None}, {"energy_ratio": 0.6}):
        answer = client.post("/jobs/clone", json=clone | other)
        assert (answer.status_code, "began with other results" in answer.json()["message"]) == (409, True)
    assert client.post("/jobs/clone", json=clone).status_code == 200


def test_a_clone_begins_with_what_is_known(client, tmp_path):
    """Costs are translated by the ratios; the bandit plays at once, and only own runs bound costs. Twice is once."""
    explored(client)
    settings = {"gpu_model": "A100", "max_power": 200.0}
    clone = {"job_id": "t-1", "new_job_id": "t-2", "settings": settings, "time_ratio": 0.5}
    answers = [client.post("/jobs/clone", json=clone) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [201, 200]
    assert [answer.json()["changed"] for answer in answers] == [True, False]
    assert (answers[0].json()["kept"], answers[0].json()["job"]["min_cost"]) == (7, None)
    theirs, ours = (client.get("/state/trials", params={"job_id": name}).json() for name in ("t-1", "t-2"))
    for row, other in zip(ours, theirs, strict=True):
        assert (row["time"], row["energy"], row["inherited"]) == (other["time"] / 2, other["energy"], True)
        assert row["cost"] == 0.5 * row["energy"] + 0.5 * 200.0 * row["time"]
    page = client.get("/status", params={"job_id": "t-2"}).text
    for words in ("none of its own yet", "7, 7 with a result, 7 taken over from another job", "<td>Inherited</td>"):
        assert words in page
    run(client, "t-2", 5000.0)
    state = job(client, "t-2")
    assert (state["stage"], state["trials"], state["min_cost"]) == ("MAB", 8, 0.5 * 5000 * 28 / 64 + 100 * 5000 / 64)
    assert [event["kind"] for event in events(client, "t-2")] == ["cloned"]
    cold = client.post("/jobs/clone", json={"job_id": "t-1", "new_job_id": "other"}).json()
    assert (cold["kept"], cold["job"]["spec"]["job_id_prefix"]) == (0, "other")
    assert client.post("/jobs/clone", json=clone | {"settings": {}}).status_code == 409
    itself = client.post("/jobs/clone", json={"job_id": "t-1", "new_job_id": "t-1"})
    (fault,) = itself.json()["detail"]
    assert (itself.status_code, fault["loc"]) == (422, ["body", "new_job_id"])
    assert fault["msg"] == "Expected another name than that of the job itself, 't-1'."
    assert [event["kind"] for event in events(client)] == ["registered"]
    check_books(url_of(tmp_path))


@pytest.mark.parametrize(
    ("change", "place", "message"),
    [
        ({"settings": {"max_epoch": 5}}, ["settings", "max_epoch"], "Did you mean 'max_epochs'?"),
        ({"settings": {"job_id": "t-2"}}, ["settings", "job_id"], "Expected a setting that can change, got 'job_id'."),
        ({"settings": {"max_epochs": 1.5}}, ["settings", "max_epochs"], "valid integer"),
        ({"settings": {"max_epochs": True}}, ["settings", "max_epochs"], "valid integer"),
        ({"settings": {"number_of_gpus": 1.9}}, ["settings", "number_of_gpus"], "valid integer"),
        ({"settings": {"batch_sizes": [16, 32.7]}}, ["settings", "batch_sizes", "1"], "valid integer"),
        ({"add_batch_sizes": [8.5]}, ["add_batch_sizes", 0], "valid integer"),
        ({"settings": {"max_epochs": 0}}, ["settings", "max_epochs"], "greater than or equal to 1"),
        ({"settings": {"batch_sizes": [8]}, "add_batch_sizes": [9]}, ["settings", "batch_sizes"], "got both"),
        ({"remove_batch_sizes": [16]}, ["settings"], "Expected default_batch_size among batch_sizes [8, 32], got 16."),
        ({"setings": {}}, ["setings"], "Unknown field 'setings'. Did you mean 'settings'?"),
    ],
)
def test_changes_that_make_no_sense(client, change, place, message):
    """422 names the field, and nothing changes."""
    answer = patched(client, **change)
    assert answer.status_code == 422
    (fault,) = answer.json()["detail"]
    assert fault["loc"] == ["body", *place]
    assert message in fault["msg"]
    assert [event["kind"] for event in events(client)] == ["registered"]


def test_changes_of_jobs_that_are_not_there(client):
    """404, whichever it is."""
    assert client.patch("/jobs", json={"job_id": "x"}).status_code == 404
    assert client.post("/jobs/reset", json={"job_id": "x"}).status_code == 404
    assert client.post("/jobs/clone", json={"job_id": "x", "new_job_id": "y"}).status_code == 404


CONVERGED = {"converged": True, "epochs": 20}
FAILED = {"converged": False, "epochs": 100}


@pytest.mark.parametrize(
    ("changes", "trial", "counts"),
    [
        ({"target_metric": 0.6}, CONVERGED, False),
        ({"higher_is_better_metric": False}, CONVERGED, False),
        ({"gpu_model": "A100"}, CONVERGED, False),
        ({"max_power": 101.0}, {"converged": None}, False),
        ({"batch_sizes": [16, 32]}, CONVERGED, False),
        ({"batch_sizes": [8, 16]}, CONVERGED, True),
        ({"max_epochs": 101}, CONVERGED, True),
        ({"max_epochs": 101}, FAILED, False),
        ({"max_epochs": 99}, CONVERGED, True),
        ({"max_epochs": 19}, CONVERGED, False),
        ({"max_epochs": 99}, {"converged": True, "epochs": None}, False),
        ({"max_epochs": 99}, FAILED, False),
        ({"max_epochs": 1}, {"converged": None}, True),
        ({"beta_knob": 3.0}, FAILED, False),
        ({"beta_knob": None}, FAILED, False),
        ({"beta_knob": 1.5}, FAILED, True),
        ({"beta_knob": 3.0}, CONVERGED, True),
        ({"eta_knob": 1.0}, FAILED, True),
        ({"eta_knob": 1.0}, {"converged": False, "epochs": 20}, False),
        ({"eta_knob": 1.0}, {"converged": False, "epochs": None}, False),
        ({"window_size": 5}, {"converged": False, "epochs": 20}, True),
        ({"eta_knob": 1.0}, CONVERGED | {"energy_j": 0.0}, False),
        ({"window_size": 5, "mab_seed": 7, "num_pruning_rounds": 1, "mab_prior_mean": 1.0}, FAILED, True),
    ],
)
def test_what_still_counts(changes, trial, counts):
    """By hand: of a trial of batch size 8, in a job of up to 100 epochs."""
    old = JobSpec(**SPEC)
    evidence = Evidence(**{"batch_size": 8, "time_s": 1.0, "energy_j": 50.0, "epochs": None} | trial)
    assert still_counts(old, changed_spec(old, changes), evidence) is counts
