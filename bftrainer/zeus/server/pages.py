"""Status page of the server: jobs in a browser, without scripts and without resources from other sites."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Annotated, NamedTuple

from bftrainer.extras import requiring

with requiring("The server needs", "server", "fastapi", "jinja2"):
    from fastapi import APIRouter, Query, Request
    from fastapi.responses import HTMLResponse
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

from bftrainer.errors import UnknownJobError
from bftrainer.zeus.server.messages import LARGEST, NAME_LENGTH, TrialRow, few
from bftrainer.zeus.server.store import Transaction

JOBS, TRIALS, RESULTS = 100, 100, 500
WIDTH, HEIGHT, LEFT, RIGHT, BOTTOM = 720, 240, 70, 30, 30
# Colours that differ in hue and lightness (Okabe and Ito, "Color universal design", 2008).
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#5a5a5a")


class _Mark(NamedTuple):
    """A result in the chart."""

    x: float
    y: float
    colour: str
    converged: bool
    title: str


class CostChart(NamedTuple):
    """Cost over results, ready to draw: marks, ticks (position and text) and the colour of each batch size."""

    marks: list[_Mark]
    across: list[tuple[float, str]]
    up: list[tuple[float, str]]
    colours: list[tuple[int, str]]


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
    colours = {size: COLOURS[index % len(COLOURS)] for index, size in enumerate(sizes)}

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
            colours[row.batch_size],
            bool(row.converged),
            f"result {number}: batch size {row.batch_size}, {_si(cost)}J",
        )
        for row, cost, number in zip(results, costs, numbers, strict=True)
    ]
    ticks = [(across(number), f"{number:,}") for number in sorted({first, (first + last) // 2, last})]
    return CostChart(
        marks, ticks, [(up(cost), f"{_si(cost)}J") for cost in (0.0, most / 2, most)], list(colours.items())
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
    return environment


def _policy(environment: Environment) -> str:
    """Return the security policy of a page: a browser may load nothing but the page's own style."""
    source, _, _ = environment.loader.get_source(environment, "base.html")  # type: ignore[union-attr]
    style = re.search(r"<style>(.*?)</style>", source, re.DOTALL)
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
