"""The batch-size server: tells recurring jobs of a cluster which batch size to use, learns from their costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

# Errors under the names that they were published with.
from bftrainer.errors import BadOperationError as ZeusBSOServiceBadOperationError
from bftrainer.errors import BatchSizeServerError as ZeusBSORuntimError
from bftrainer.errors import BatchSizeServerError as ZeusBSOServerBaseError
from bftrainer.errors import JobMismatchError as ZeusBSOJobConfigMismatchError
from bftrainer.errors import NotFoundError as ZeusBSOServerNotFoundError
from bftrainer.errors import SettingsError as ZeusBSOConfigError
from bftrainer.errors import StoreUnavailableError as ZeusBSOServerRuntimeError
from bftrainer.errors import TrainingStoppedError as ZeusBSOTrainFailError
from bftrainer.errors import TuningError as ZeusBSOOperationOrderError
from bftrainer.errors import UnusableValueError as ZeusBSOValueError
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

# Names of the service, which needs the extra server; clients can do without.
_LAZY = ("BatchSizeService", "Registration", "ZeusBatchSizeOptimizer")
__all__ = [
    "BatchSizeClient",
    "BatchSizeService",
    "GpuConfig",
    "JobSpec",
    "JobSpecFromClient",
    "JobSummary",
    "Registration",
    "ReportResponse",
    "Stage",
    "TrainingResult",
    "Trial",
    "TrialId",
    "TrialRow",
    "TrialStatus",
    "TrialType",
    "TuningParams",
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
