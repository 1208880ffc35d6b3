"""What the published code lets its users touch, and where that is here: each public class, function and error.

Taken from its reference documentation (ml.energy/zeus, the versions with `zeus.simulate` and `zeus._legacy`, with
`zeus.run.master`, and with `zeus.optimizer.batch_size`), from recorded runs, and from the server's OpenAPI and tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Published:
    """A public class, function or constant of the published code.

    Parameters
    ----------
    name : str
        Dotted, as it was imported.
    ours : str
        Dotted, as it is imported here.
    call : str or None
        Positional parameters with their defaults; None where it is not called, as errors and data are not.
    attributes : tuple of str
        Public attributes, of instances too; for data their fields.
    methods : mapping of str to str
        Positional parameters of each public method.
    """

    name: str
    ours: str
    call: str | None = None
    attributes: tuple[str, ...] = ()
    methods: Mapping[str, str] = field(default_factory=dict)


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_PARAMS = """job_id job_id_prefix batch_sizes default_batch_size eta_knob beta_knob target_metric
    higher_is_better_metric max_epochs num_pruning_rounds window_size mab_prior_mean mab_prior_precision
    mab_num_explorations mab_seed"""
_GPU = "max_power number_of_gpus gpu_model"
_STATE = "exp_default_batch_size stage min_cost min_cost_batch_size mab_random_generator_state"
_TRIAL = "job_id batch_size trial_number"
_HANDED_OUT = "job_id batch_size type start_timestamp status"

SIMULATOR = (
    Published(
        "zeus.simulate.Simulator",
        "bftrainer.zeus.Simulator",
        "summary_train, summary_power, batch_size_optimizer, power_limit_optimizer, seed=123456, verbose=True",
        _words("df bso plo seed verbose"),
        {
            "simulate_one_job": "job, num_recurrence, beta_knob, eta_knob",
            "simulate_one_alibaba_group": "job, group_df, beta_knob, eta_knob",
        },
    ),
    Published(
        "zeus.simulate.HistoryEntry",
        "bftrainer.zeus.HistoryEntry",
        "bs, pl, energy, reached, time",
        _words("bs pl energy reached time"),
    ),
    Published(
        "zeus.job.Job",
        "bftrainer.zeus.Job",
        "dataset, network, optimizer, target_metric, max_epochs, default_bs=None, default_lr=None, workdir=None, "
        "command=None",
        _words("dataset network optimizer target_metric max_epochs default_bs default_lr workdir command"),
        {
            "to_logdir": "",
            "filter_df": "df",
            "gen_command": "batch_size, learning_rate, seed, rec_i",
            "scale_lr": "batch_size",
        },
    ),
    Published("zeus.util.metric.zeus_cost", "bftrainer.zeus.zeus_cost", "energy, time, eta_knob, max_power"),
    Published(
        "zeus.policy.interface.BatchSizeOptimizer",
        "bftrainer.zeus.BatchSizeOptimizer",
        "",
        ("name",),
        {
            "register_job": "job, batch_sizes",
            "predict": "job",
            "observe": "job, batch_size, cost, converged=None",
            "_log": "message",
        },
    ),
    Published(
        "zeus.policy.interface.PowerLimitOptimizer",
        "bftrainer.zeus.PowerLimitOptimizer",
        "",
        ("name",),
        {"predict": "job, batch_size", "observe": "job, batch_size, power_limit, cost", "_log": "message"},
    ),
    Published(
        "zeus.policy.optimizer.JITPowerLimitOptimizer",
        "bftrainer.zeus.JITPowerLimitOptimizer",
        "verbose=True",
        _words("name verbose best_pl best_cost"),
        {"predict": "job, batch_size", "observe": "job, batch_size, power_limit, cost"},
    ),
    Published(
        "zeus.policy.optimizer.GTSBatchSizeOptimizer",
        "bftrainer.zeus.GTSBatchSizeOptimizer",
        "learn_reward_precision, reward_precision=0.0, prior_mean=0.0, prior_precision=0.0, num_exploration=1, "
        "seed=123456, verbose=True",
        _words(
            """name learn_reward_precision reward_precision prior_mean prior_precision num_exploration seed verbose mabs
            batch_sizes history"""
        ),
        {
            "register_job": "job, batch_sizes",
            "predict": "job",
            "observe": "job, batch_size, cost, converged=None",
        },
    ),
    Published(
        "zeus.policy.optimizer.PruningGTSBatchSizeOptimizer",
        "bftrainer.zeus.PruningGTSBatchSizeOptimizer",
        "prior_mean=0.0, prior_precision=0.0, window_size=0, concurrency=False, seed=123456, verbose=True",
        _words("name prior_mean prior_precision window_size concurrency seed verbose exp_manager mabs history"),
        {
            "register_job": "job, batch_sizes",
            "predict": "job",
            "observe": "job, batch_size, cost, converged=None",
        },
    ),
    Published(
        "zeus.policy.optimizer.PruningExploreManager",
        "bftrainer.zeus.PruningExploreManager",
        "batch_sizes, default, num_pruning_rounds=2",
        _words("batch_sizes default num_pruning_rounds expecting"),
        {"next_batch_size": "", "report_batch_size_result": "batch_size, cost, reached"},
    ),
    Published(
        "zeus.policy.mab.GaussianTS",
        "bftrainer.zeus.GaussianTS",
        "arms, reward_precision, prior_mean=0.0, prior_precision=0.0, num_exploration=1, seed=123456, verbose=True",
        _words(
            """name arms prior_mean prior_prec num_exploration seed rng verbose arm_reward_prec arm_param_mean
            arm_param_prec arm_num_observations"""
        ),
        {
            "fit": "decisions, rewards, reset",
            "fit_arm": "arm, rewards, reset",
            "predict": "",
            "predict_expectations": "",
        },
    ),
)

MASTER = (
    Published(
        "zeus.run.master.ZeusMaster",
        "bftrainer.zeus.master.ZeusMaster",
        "batch_size_optimizer, log_base, monitor_path, seed=123456, observer_mode=False, profile_warmup_iters=10, "
        "profile_measure_iters=40",
        _words("bso log_base monitor_path seed observer_mode profile_warmup_iters profile_measure_iters max_pl"),
        {
            "build_logdir": "job, num_recurrence, eta_knob, beta_knob, exist_ok=True",
            "run_job": "job, batch_size, learning_rate, seed, logdir, rec_i, tries, eta_knob, cost_ub",
            "run": "job, num_recurrence, batch_sizes, beta_knob, eta_knob",
        },
    ),
    Published(
        "zeus.run.dataloader.ZeusDataLoader",
        "bftrainer.zeus.integrations.ZeusDataLoader",
        "",
        _words("target_metric"),
        {"epochs": "", "report_metric": "metric"},
    ),
)


def _model(name: str, fields: str, ours: str | None = None, methods: Mapping[str, str] | None = None) -> Published:
    return Published(
        f"zeus.optimizer.batch_size.{name}",
        f"bftrainer.zeus.server.{ours or name.rsplit('.', 1)[-1]}",
        None,
        _words(fields),
        methods or {},
    )


def _same(module: str, names: str) -> tuple[Published, ...]:
    return tuple(_model(f"{module}.{name}", "") for name in names.split())


SERVER = (
    _model("common.GpuConfig", _GPU),
    _model("common.JobSpec", _PARAMS),
    _model("common.JobSpecFromClient", f"{_GPU} {_PARAMS}"),
    _model("common.TrialId", _TRIAL),
    _model("common.TrainingResult", f"{_TRIAL} time energy metric current_epoch"),
    _model("common.ReportResponse", "stop_train converged message"),
    *_same("exceptions", "ZeusBSORuntimError ZeusBSOTrainFailError ZeusBSOConfigError ZeusBSOOperationOrderError"),
    *_same(
        "server.exceptions",
        """ZeusBSOServerBaseError ZeusBSOJobConfigMismatchError ZeusBSOValueError ZeusBSOServerNotFoundError
        ZeusBSOServiceBadOperationError ZeusBSOServerRuntimeError""",
    ),
    Published(
        "zeus.optimizer.batch_size.server.optimizer.ZeusBatchSizeOptimizer",
        "bftrainer.zeus.server.ZeusBatchSizeOptimizer",
        "service",
        _words("service"),
        {
            "register_job": "job",
            "predict": "job_id",
            "report": "result",
            "end_trial": "trial",
            "delete_job": "job_id",
        },
    ),
    _model("server.database.schema.Stage", "Pruning MAB"),
    _model("server.database.schema.TrialType", "Exploration Concurrent MAB"),
    _model("server.database.schema.TrialStatus", "Dispatched Succeeded Failed"),
    _model("server.batch_size_state.models.Trial", f"{_TRIAL} type status time energy converged", "TrialRow"),
)

PUBLISHED = (*SIMULATOR, *MASTER, *SERVER)

# What is not as published, on purpose: each has its row in the table of docs/zeus.md, and nothing else has.
DIFFERENT = frozenset(
    {
        "zeus.policy.mab.GaussianTS.arm_param_mean",
        "zeus.policy.optimizer.GTSBatchSizeOptimizer.history",
        "zeus.policy.optimizer.JITPowerLimitOptimizer.best_pl",
        "zeus.policy.optimizer.JITPowerLimitOptimizer.observe_count",
        "zeus.policy.optimizer.PruningExploreManager.batch_sizes",
        "zeus.policy.optimizer.PruningExploreManager.default",
        "zeus.policy.optimizer.PruningExploreManager.expecting",
        "zeus.policy.optimizer.PruningExploreManager.gen",
        "zeus.policy.optimizer.PruningGTSBatchSizeOptimizer.history",
        "zeus.run.dataloader.ZeusDataLoader",
        "zeus.run.master.ZeusMaster.monitor_path",
        "zeus.run.master.ZeusMaster.run",
        "zeus.simulate.Simulator.verbose",
        "zeus.util.metric.ZeusCostThresholdExceededError",
        "zeus.optimizer.batch_size.client.BatchSizeOptimizer",
        "zeus.optimizer.batch_size.common.JobSpec",
        "zeus.optimizer.batch_size.server.batch_size_state.models.Trial",
        "zeus.optimizer.batch_size.server.batch_size_state.repository.BatchSizeStateRepository",
        "zeus.optimizer.batch_size.server.config.ZeusBsoSettings",
        "zeus.optimizer.batch_size.server.exceptions.ZeusBSOServerBaseError.status_code",
        "zeus.optimizer.batch_size.server.job.repository.JobStateRepository",
        "zeus.optimizer.batch_size.server.optimizer.ZeusBatchSizeOptimizer.pruning_manager",
        "zeus.optimizer.batch_size.server.optimizer.ZeusBatchSizeOptimizer.register_job",
        "zeus.optimizer.batch_size.server.router.app",
        "zeus.optimizer.batch_size.server.services.service.ZeusService",
    }
)
