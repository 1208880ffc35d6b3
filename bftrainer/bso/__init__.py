"""The batch-size server: recurring jobs of a cluster ask it which batch size to use, and report what that cost."""

from bftrainer.bso.client import BatchSizeClient, Trial
from bftrainer.bso.optimizer import ZeusBatchSizeOptimizer
from bftrainer.bso.schemas import JobSpec, JobSummary, ReportResponse, TrainingResult, TrialId, TrialRow
from bftrainer.errors import ServerRequestError, TrainingStoppedError

# Under the names that they were published with.
ZeusBSORuntimError = ServerRequestError
ZeusBSOTrainFailError = TrainingStoppedError

__all__ = [
    "BatchSizeClient",
    "JobSpec",
    "JobSummary",
    "ReportResponse",
    "ServerRequestError",
    "TrainingResult",
    "TrainingStoppedError",
    "Trial",
    "TrialId",
    "TrialRow",
    "ZeusBSORuntimError",
    "ZeusBSOTrainFailError",
    "ZeusBatchSizeOptimizer",
]
