"""Whether the books of a server agree: jobs, trials, and what is reported of them."""

from __future__ import annotations

from bftrainer.zeus.policies.job import usage_fault
from bftrainer.zeus.server.store import open_store


def check_job(spec, trials):
    """Trials and results are numbered without gaps, and each result that counts can be true."""
    assert [trial.trial_number for trial in trials] == list(range(1, len(trials) + 1))
    finished = [trial for trial in trials if trial.observation is not None]
    assert sorted(trial.observation for trial in finished) == list(range(1, len(finished) + 1))
    for trial in trials:
        whole = [getattr(trial, name) is not None for name in ("cost", "converged", "observation")]
        assert all(whole) if trial.status == "Succeeded" or any(whole) else trial.status in ("Dispatched", "Failed")
        if trial.observation is not None and trial.excluded is None:
            assert usage_fault(trial.energy, trial.time, spec.max_power, spec.eta_knob, ended=True) is None
            assert trial.cost > 0


def check_books(url, job_ids=None):
    """Check jobs of the database at a URL, by default all; gives the rows of their trials."""
    rows = []
    with open_store(url) as store:
        for name in store.list_names(None, 10_000):
            if job_ids is None or name in job_ids:
                trials = store.read_trials(name)
                check_job(store.find_job(name).spec, trials)
                rows += trials
    return rows
