"""`bftrainer master run`."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from bftrainer.cli._shared.sizes import LARGE_PROCESSES, large_option, size_option
from bftrainer.cli._shared.unused import refuse_unused
from bftrainer.cli.zeus.master_output import output_options, token_option

__all__ = ["run"]


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.argument("job_file", type=click.Path(path_type=Path))
@size_option("--recurrences", kind=click.IntRange(min=1), help="Times that the job recurs.")
@click.option("--eta", type=float, help="Weight of energy in costs, 0 (only time counts) to 1 (only energy counts).")
@click.option("--beta", type=float, help="A run stops before it costs this many times the cheapest; inf: never.")
@click.option("--seed", type=int, help="Seed of the policy, and of the first run; each later one has the next.")
@click.option("--policy", help="Chooses batch sizes: zeus, gts, default, grid or ucb.")
@click.option("--log-base", help="Directory for the job's directory of logs.")
@click.option("--max-power", "max_power_w", type=float, metavar="W", help="Highest power of one GPU.")
@size_option("--gpus", usual=LARGE_PROCESSES, kind=click.IntRange(min=1), help="GPUs of a run; those found, else 1.")
@click.option("--allow-mixed", is_flag=True, default=None, help="GPUs may be of several models.")
@click.option("--observer", "observer_mode", is_flag=True, default=None, help="Train at the highest power.")
@click.option("--set-power-limits", is_flag=True, default=None, help="Let the script set power limits.")
@click.option("--measure", help="Measure energy by nvml, rapl, zeus or model; auto: the first that is there.")
@click.option("--timeout", "timeout_s", type=float, metavar="S", help="End a run after so many seconds.")
@click.option("--server", metavar="URL", help="Take decisions from the batch-size server there.")
@token_option
@output_options
@large_option
def run(
    job_file: Path,
    server: str | None,
    token_file: str | None,
    pause_after: int | None,
    quiet: bool,
    as_json: bool,
    **changes: Any,
) -> None:
    """Run the recurrences of the job in JOB_FILE (TOML), whose values the options replace.

    Each run's script reports energy, time and verdict; the policy learns from its cost and chooses the next batch size.
    Everything goes to a new directory below the file's log_base. An interrupted job goes on with `bftrainer master
    resume`.
    """
    from bftrainer.cli.zeus.master_output import drive, read_token
    from bftrainer.zeus.master.job_file import read_job_file
    from bftrainer.zeus.master.policies import named_policy
    from bftrainer.zeus.master.zeus_master import ZeusMaster

    refuse_unused(
        {
            "token_file": server is None and "there is no --server that asks for it",
            "policy": server is not None and "the server decides",
        }
    )
    given = {name: value for name, value in changes.items() if value is not None}
    job, file = read_job_file(job_file, given)
    passed = ("observer_mode", "profile_warmup_iters", "profile_measure_iters", "max_power_w", "gpus", "allow_mixed")
    more = ("set_power_limits", "measure", "timeout_s", "grace_s")
    zeus_master = ZeusMaster(
        named_policy(file.policy, file.seed, file.window_size),
        file.log_base,
        file.monitor_path,
        file.seed,
        **{name: getattr(file, name) for name in (*passed, *more)},
    )
    with ExitStack() as stack:
        client = None
        if server is not None:
            from bftrainer.zeus.server.client import BatchSizeClient

            client = stack.enter_context(BatchSizeClient(server, read_token(token_file)))
        driver = zeus_master.start(job, file.recurrences, file.batch_sizes, file.beta, file.eta, client)
        drive(driver, pause_after=pause_after, quiet=quiet, as_json=as_json)
