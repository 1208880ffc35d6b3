"""The batch-size server: recurring jobs of a cluster ask it which batch size to use, and report what that cost."""

from bftrainer.errors import (
    BadOperationError,
    BatchSizeServerError,
    JobMismatchError,
    NotFoundError,
    ServerRequestError,
    SettingsError,
    StoreUnavailableError,
    TrainingStoppedError,
    TuningProtocolError,
    UnusableValueError,
)
from bftrainer.zeus.server.client import BatchSizeClient, Trial
from bftrainer.zeus.server.optimizer import Registration, ZeusBatchSizeOptimizer
from bftrainer.zeus.server.published_models import (
    DELETE_JOB_URL,
    GET_NEXT_BATCH_SIZE_URL,
    REGISTER_JOB_URL,
    REPORT_END_URL,
    REPORT_RESULT_URL,
    BatchSizeBase,
    CreateArms,
    CreateConcurrentTrial,
    CreatedJob,
    CreateExplorationTrial,
    CreateJob,
    CreateMabTrial,
    CreateTrial,
    CreateTrialBase,
    ExplorationsPerJob,
    GaussianTsArmState,
    GetNormal,
    GetRandomChoices,
    JobParams,
    JobSpecFromClient,
    JobState,
    ReadTrial,
    TrialResultsPerBs,
    UpdateExpDefaultBs,
    UpdateGeneratorState,
    UpdateJobMinCost,
    UpdateJobStage,
    UpdateTrial,
)
from bftrainer.zeus.server.schemas import (
    GpuConfig,
    JobSpec,
    JobSummary,
    ReportResponse,
    TrainingResult,
    TrialId,
    TrialRow,
    TuningParams,
)
from bftrainer.zeus.server.stages import BanditStage, PruningStage
from bftrainer.zeus.server.tuned_job import Stage, TrialStatus, TrialType

# Errors under the names that they were published with: the client's, then the server's.
ZeusBSORuntimError = ServerRequestError
ZeusBSOTrainFailError = TrainingStoppedError
ZeusBSOConfigError = SettingsError
ZeusBSOOperationOrderError = TuningProtocolError
ZeusBSOServerBaseError = BatchSizeServerError
ZeusBSOJobConfigMismatchError = JobMismatchError
ZeusBSOValueError = UnusableValueError
ZeusBSOServerNotFoundError = NotFoundError
ZeusBSOServiceBadOperationError = BadOperationError
ZeusBSOServerRuntimeError = StoreUnavailableError

__all__ = [
    "DELETE_JOB_URL",
    "GET_NEXT_BATCH_SIZE_URL",
    "REGISTER_JOB_URL",
    "REPORT_END_URL",
    "REPORT_RESULT_URL",
    "BadOperationError",
    "BanditStage",
    "BatchSizeBase",
    "BatchSizeClient",
    "BatchSizeServerError",
    "CreateArms",
    "CreateConcurrentTrial",
    "CreateExplorationTrial",
    "CreateJob",
    "CreateMabTrial",
    "CreateTrial",
    "CreateTrialBase",
    "CreatedJob",
    "ExplorationsPerJob",
    "GaussianTsArmState",
    "GetNormal",
    "GetRandomChoices",
    "GpuConfig",
    "JobMismatchError",
    "JobParams",
    "JobSpec",
    "JobSpecFromClient",
    "JobState",
    "JobSummary",
    "NotFoundError",
    "PruningStage",
    "ReadTrial",
    "Registration",
    "ReportResponse",
    "ServerRequestError",
    "SettingsError",
    "Stage",
    "StoreUnavailableError",
    "TrainingResult",
    "TrainingStoppedError",
    "Trial",
    "TrialId",
    "TrialResultsPerBs",
    "TrialRow",
    "TrialStatus",
    "TrialType",
    "TuningParams",
    "TuningProtocolError",
    "UnusableValueError",
    "UpdateExpDefaultBs",
    "UpdateGeneratorState",
    "UpdateJobMinCost",
    "UpdateJobStage",
    "UpdateTrial",
    "ZeusBSOConfigError",
    "ZeusBSOJobConfigMismatchError",
    "ZeusBSOOperationOrderError",
    "ZeusBSORuntimError",
    "ZeusBSOServerBaseError",
    "ZeusBSOServerNotFoundError",
    "ZeusBSOServerRuntimeError",
    "ZeusBSOServiceBadOperationError",
    "ZeusBSOTrainFailError",
    "ZeusBSOValueError",
    "ZeusBatchSizeOptimizer",
]
