"""Whether the books of a server agree: jobs, trials, epochs, and what is believed."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise

import sqlalchemy as sa

from bftrainer.zeus.policies.job import usage_fault
from bftrainer.zeus.server.database import open_database
from bftrainer.zeus.server.job_tables import JOB, REPORT, TRIAL
from bftrainer.zeus.server.messages import LenientJobSpec
from bftrainer.zeus.server.tuned_job import TunedJob


def tables(connection):
    """Rows of all tables by their names."""
    return {table.name: connection.execute(sa.select(table)).all() for table in (JOB, TRIAL, REPORT)}


async def audited(database, job_ids):
    """Check jobs of a database, by default all; gives the rows of their trials."""
    rows = await database.read(tables)
    if job_ids is not None:
        rows = {name: [row for row in table if row.job_id in job_ids] for name, table in rows.items()}
    for job in rows["bso_job"]:
        own = [trial for trial in rows["bso_trial"] if trial.job_id == job.job_id]
        check_job(job, own, [report for report in rows["bso_report"] if report.job_id == job.job_id])
    assert {trial.job_id for trial in rows["bso_trial"]} <= {job.job_id for job in rows["bso_job"]}
    return rows["bso_trial"]


def check_job(job, trials, reports):
    """A job is to the bit what its trials make it, they are numbered without gaps, and each report can be true."""
    assert sorted(trial.trial_number for trial in trials) == list(range(1, job.trials + 1))
    finished = [trial for trial in trials if trial.observation is not None]
    assert sorted(trial.observation for trial in finished) == list(range(1, job.observations + 1))
    for trial in trials:
        whole = [getattr(trial, name) is not None for name in ("cost", "energy", "time", "converged", "observation")]
        assert all(whole) if trial.status == "Succeeded" or any(whole) else trial.status in ("Dispatched", "Failed")
    spec = LenientJobSpec.model_validate_json(job.spec)
    state = json.loads(job.state)
    counted = [trial for trial in trials if trial.excluded is None]
    again = TunedJob.replayed(spec, state["seed"], counted, published=False)
    assert json.loads(json.dumps(again.to_dict())) == state
    assert (again.min_cost, again.min_cost_batch_size) == (job.min_cost, job.min_cost_batch_size)
    assert again.stage == job.stage
    for trial in counted:
        if trial.observation is not None and not trial.inherited:
            assert usage_fault(trial.energy, trial.time, spec.max_power, spec.eta_knob, ended=True) is None
            assert trial.cost > 0
    by_trial = {}
    for report in sorted(reports, key=lambda report: (report.trial_number, report.epoch)):
        by_trial.setdefault(report.trial_number, []).append((report.time, report.energy))
    for used in by_trial.values():
        assert all(one[0] <= two[0] and one[1] <= two[1] for one, two in pairwise(used))


def check_books(url, job_ids=None):
    """Check jobs of the database at a URL, by default all; gives the rows of their trials."""

    async def story():
        database = open_database(url)
        try:
            return await audited(database, job_ids)
        finally:
            await database.close()

    return asyncio.run(story())
