"""The batch-size server: tells recurring jobs of a cluster which batch size to use, learns from their costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
from bftrainer.zeus.server.messages import (
    GpuConfig,
    JobSpec,
    JobSummary,
    ReportResponse,
    TrainingResult,
    TrialId,
    TrialRow,
    TuningParams,
)
from bftrainer.zeus.server.tuned_job import Stage, TrialStatus, TrialType

if TYPE_CHECKING:
    from bftrainer.zeus.server.service import BatchSizeService, Registration, ZeusBatchSizeOptimizer

# What our clients register has the fields of both published classes.
JobSpecFromClient = JobSpec

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

# Names of the service, which needs the extra server; clients can do without.
_LAZY = ("BatchSizeService", "Registration", "ZeusBatchSizeOptimizer")
__all__ = [
    "BadOperationError",
    "BatchSizeClient",
    "BatchSizeServerError",
    "BatchSizeService",
    "GpuConfig",
    "JobMismatchError",
    "JobSpec",
    "JobSpecFromClient",
    "JobSummary",
    "NotFoundError",
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
    "TrialRow",
    "TrialStatus",
    "TrialType",
    "TuningParams",
    "TuningProtocolError",
    "UnusableValueError",
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


def __getattr__(name: str) -> Any:
    """Import a name of the service on first use."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from bftrainer.zeus.server import service

    return getattr(service, name)


def __dir__() -> list[str]:
    return __all__
