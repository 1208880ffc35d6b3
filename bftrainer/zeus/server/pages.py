"""Status page of the server: jobs in a browser, without scripts and without resources from other sites."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from hashlib import sha256
from importlib import resources
from pathlib import Path
from typing import Annotated, NamedTuple

from bftrainer.extras import requiring

with requiring("The server needs", "server", "fastapi", "jinja2"):
    from fastapi import APIRouter, Query, Request
    from fastapi.responses import HTMLResponse
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

from bftrainer.errors import UnknownJobError
from bftrainer.zeus.server.messages import LARGEST, NAME_LENGTH, few
from bftrainer.zeus.server.state_messages import TrialRow
from bftrainer.zeus.server.store import Transaction

JOBS, TRIALS, RESULTS = 100, 100, 500
WIDTH, HEIGHT, LEFT, RIGHT, BOTTOM = 720, 256, 90, 30, 46
# Colours of the style and, as not everybody tells these apart, outlines of marks around their middle.
SERIES = {
    "blue": "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0",
    "orange": "M-3.5-3.5h7v7h-7z",
    "green": "M0-5l5 5l-5 5l-5-5z",
    "purple": "M0-5l5 9h-10z",
    "sky": "M0 5l5-9h-10z",
    "red": "M-1.5-5h3v3.5h3.5v3h-3.5v3.5h-3v-3.5h-3.5v-3h3.5z",
    "gray": "M-5-2h10v4h-10z",
}


class _Mark(NamedTuple):
    """A result in the chart."""

    x: float
    y: float
    series: int
    converged: bool
    title: str


class CostChart(NamedTuple):
    """Cost over results, ready to draw: marks, ticks (position, text), and the place in `SERIES` of each batch size."""

    marks: list[_Mark]
    across: list[tuple[float, str]]
    up: list[tuple[float, str]]
    series: list[tuple[int, int]]


def chart(results: Sequence[TrialRow]) -> CostChart:
    """Place results, oldest first, in a chart of `WIDTH` by `HEIGHT`.

    Parameters
    ----------
    results : sequence of TrialRow
        At least one, each with a cost.
    """
    costs = [row.cost or 0.0 for row in results]
    numbers = [row.observation or 0 for row in results]
    most, first, last = max(costs) or 1.0, numbers[0], numbers[-1]
    sizes = sorted({row.batch_size for row in results})
    series = {size: index % len(SERIES) for index, size in enumerate(sizes)}

    def across(number: float) -> float:
        """Horizontal position of a result."""
        return round(LEFT + (WIDTH - LEFT - RIGHT) * ((number - first) / (last - first) if last > first else 0.5), 1)

    def up(cost: float) -> float:
        """Vertical position of a cost."""
        return round((HEIGHT - BOTTOM) - (HEIGHT - BOTTOM - 10) * cost / most, 1)

    marks = [
        _Mark(
            across(number),
            up(cost),
            series[row.batch_size],
            bool(row.converged),
            f"result {number}: batch size {row.batch_size}, {_si(cost)}J",
        )
        for row, cost, number in zip(results, costs, numbers, strict=True)
    ]
    ticks = [(across(number), f"{number:,}") for number in sorted({first, (first + last) // 2, last})]
    return CostChart(
        marks, ticks, [(up(cost), f"{_si(cost)}J") for cost in (0.0, most / 2, most)], list(series.items())
    )


def _si(number: float | None) -> str:
    """Format a number with four digits and an SI prefix."""
    if number is None:
        return "–"
    size = abs(number)
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if size >= factor:
            return f"{number / factor:.4g} {prefix}"
    return f"{number:.4g} "


def _moment(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"few": few, "si": _si, "moment": _moment}
    environment.globals |= {"width": WIDTH, "height": HEIGHT, "left": LEFT, "right": RIGHT, "bottom": BOTTOM}
    style = resources.files("bftrainer.report").joinpath("style.css").read_text(encoding="utf-8")
    environment.globals |= {"style": Markup(style), "colours": list(SERIES), "shapes": list(SERIES.values())}
    return environment


def _policy(environment: Environment) -> str:
    """Return the security policy of a page: a browser may load nothing but the page's own style."""
    style = re.search(r"<style>(.*?)</style>", environment.get_template("base.html").render(), re.DOTALL)
    assert style is not None
    digest = base64.b64encode(sha256(style[1].encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    )


def pages(*, front: bool) -> APIRouter:
    """Make the routes of the status page.

    Parameters
    ----------
    front : bool
        Whether the status page is also the front page, which the published server lacks.
    """
    router, environment = APIRouter(), _environment()
    headers = {
        "Content-Security-Policy": _policy(environment),
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-store",
    }

    def render(template: str, status: int = 200, **values: object) -> HTMLResponse:
        """Render a page."""
        return HTMLResponse(environment.get_template(template).render(**values), status, headers=headers)

    async def status(
        request: Request,
        job_id: Annotated[str | None, Query(max_length=NAME_LENGTH)] = None,
        after: Annotated[str | None, Query(max_length=NAME_LENGTH)] = None,
        before: Annotated[int, Query(ge=1, le=LARGEST)] = LARGEST,
    ) -> HTMLResponse:
        """Jobs, or one of them with its arms, costs and trials."""
        service, path = request.app.state.optimizer.service, request.url.path
        if job_id is None:
            jobs = await service.look(lambda transaction: transaction.jobs(after, JOBS + 1))
            return render("jobs.html", path=path, jobs=jobs[:JOBS], more=len(jobs) > JOBS)

        def work(transaction: Transaction) -> tuple[object, list[TrialRow], list[TrialRow]]:
            """Read the job, its latest trials and its latest results."""
            trials = transaction.latest_trials(job_id, before, TRIALS + 1)
            return transaction.job(job_id), trials, transaction.latest_results(job_id, RESULTS)

        try:
            job, trials, results = await service.look(work)
        except UnknownJobError:
            return render("missing.html", 404, path=path, job_id=job_id)
        drawn = chart(results[::-1]) if results else None
        more = len(trials) > TRIALS
        return render("job.html", path=path, job=job, trials=trials[:TRIALS], more=more, chart=drawn)

    for path in ("/", "/status") if front else ("/status",):
        router.add_api_route(path, status, response_class=HTMLResponse, include_in_schema=False)
    return router
