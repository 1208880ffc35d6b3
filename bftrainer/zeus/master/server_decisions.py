"""Get batch sizes from a batch-size server, which other masters and training scripts may share."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bftrainer.errors import RunDirectoryError, ServerRequestError, TuningInputError
from bftrainer.zeus.lease import GONE, LEASE_S, Lease
from bftrainer.zeus.master.hardware import Hardware
from bftrainer.zeus.master.plan import Plan
from bftrainer.zeus.master.recurrences import Choice, Decisions, Launch
from bftrainer.zeus.master.script import TrainingReport
from bftrainer.zeus.policies.interfaces import BatchSizeOptimizer
from bftrainer.zeus.policies.published import NUM_EXPLORATION, PruningGTSBatchSizeOptimizer

if TYPE_CHECKING:
    from bftrainer.zeus.server.client import BatchSizeClient
    from bftrainer.zeus.server.messages import JobSpec, TrialId

logger = logging.getLogger(__name__)


def job_spec(plan: Plan, policy: BatchSizeOptimizer, hardware: Hardware) -> JobSpec:
    """Convert a plan to a job for a server, with the policy's settings and a name made from all but the seed."""
    from bftrainer.zeus.server.messages import JobSpec

    if not isinstance(policy, PruningGTSBatchSizeOptimizer):
        raise TuningInputError(f"Expected the policy zeus, which is the server's, got {policy.name}.")
    job = plan.job
    name = f"{job.to_logdir()}+eta{plan.eta_knob}+beta{plan.beta_knob}"
    try:
        return JobSpec(
            job_id=name,
            job_id_prefix=name,
            batch_sizes=sorted(plan.batch_sizes),
            default_batch_size=job.default_bs or 0,
            eta_knob=plan.eta_knob,
            beta_knob=plan.beta_knob if math.isfinite(plan.beta_knob) else None,
            target_metric=job.target_metric,
            max_epochs=job.max_epochs,
            window_size=policy.window_size,
            mab_prior_mean=policy.prior_mean,
            mab_prior_precision=policy.prior_precision,
            mab_num_explorations=NUM_EXPLORATION,
            mab_seed=policy.seed,
            max_power=hardware.total_power_w,
            number_of_gpus=hardware.count,
            gpu_model=hardware.model,
        )
    except TuningInputError as fault:
        raise TuningInputError(f"{job}: The server takes no such job: {fault}") from None


class ServerDecisions(Decisions):
    """Lets a batch-size server decide; `owned` says whether `close` closes the client.

    The server gets a report when a run has ended: its cost, and whether it reached its target. If the run failed, its
    trial is ended without a result, so that its batch size is handed out again.
    """

    def __init__(self, client: BatchSizeClient, spec: JobSpec, *, owned: bool = False) -> None:
        super().__init__(alone=False)
        self.client, self.spec, self._owned = client, spec, owned
        self._job_id = spec.job_id or ""

    def describe(self) -> dict[str, Any]:
        """See `Decisions`; the token is left out."""
        return {"server": {"url": self.client.server_url, "spec": self.spec.model_dump()}}

    @classmethod
    def restore(cls, description: Mapping[str, Any], token: str | None = None) -> ServerDecisions:
        """Make the decisions that `describe` described: `RunDirectoryError` if that is something else."""
        from bftrainer.zeus.server.client import BatchSizeClient
        from bftrainer.zeus.server.messages import JobSpec

        try:
            spec = JobSpec.model_validate(description["spec"])
            client = BatchSizeClient(description["url"], token)
        except (ValueError, LookupError, TypeError, AttributeError):
            raise RunDirectoryError("Expected a job on a server, got something else.") from None
        return cls(client, spec, owned=True)

    def begin(self) -> None:
        """Register the job, unless it is registered already."""
        self.client.register_job(self.spec)

    def close(self) -> None:
        """Close the client, if it is owned."""
        if self._owned:
            self.client.close()

    def choose(self) -> Choice:
        """See `Decisions`."""
        trial = self.client.predict(self._job_id, LEASE_S)
        lowest = self.client.job(self._job_id).min_cost
        return Choice(trial.batch_size, trial.trial_number, math.inf if lowest is None else lowest)

    def holding(self, launch: Launch) -> Lease:
        """Renew the lease of a run's trial: if this master dies, its exploration is handed out again in minutes."""
        trial = self._trial(launch)
        return Lease(lambda: self.client.heartbeat(trial), LEASE_S)

    def learn(self, launch: Launch, report: TrainingReport, cost_j: float) -> bool:  # noqa: ARG002
        """See `Decisions`; a run counts if the server finds that it reached its target within its cost bound."""
        from bftrainer.zeus.server.messages import TrainingResult

        trial = self._trial(launch)
        target, most = self.spec.target_metric, self.spec.max_epochs
        try:
            if report.failure is not None:
                self.client.end_trial(trial)
                return False
            result = TrainingResult(
                **trial.model_dump(),
                time=report.time_s,
                energy=report.energy_j,
                # The script does not report its metric; the server only compares this with the target.
                metric=target if report.reached else math.nextafter(target, -math.inf),
                # A run that gave up before the last epoch could go on, to the server: it has to hear of the last one.
                current_epoch=min(report.epochs or most, most) if report.reached else most,
            )
            return self.client.report(result).converged
        except ServerRequestError as error:
            if error.status not in GONE:
                raise
            logger.warning("The server has ended this trial already, so it does not count: %s", error)
            return False

    def _trial(self, launch: Launch) -> TrialId:
        from bftrainer.zeus.server.messages import TrialId

        assert launch.trial is not None  # the server numbers them
        return TrialId(job_id=self._job_id, batch_size=launch.batch_size, trial_number=launch.trial)
