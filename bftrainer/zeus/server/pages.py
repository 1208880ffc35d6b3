"""Status pages of the server: jobs in a browser, without scripts and without other sites."""

from __future__ import annotations

import base64
import re
from hashlib import sha256
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

from bftrainer.extras import requiring

with requiring("The server needs", "server", "fastapi", "jinja2"):
    from fastapi import APIRouter, Depends, Query, Request
    from fastapi.responses import HTMLResponse
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

from bftrainer.errors import NotFoundError
from bftrainer.zeus.server.access import Role
from bftrainer.zeus.server.guard import Require
from bftrainer.zeus.server.job_figures import figures_by_size, format_si, format_time, job_facts
from bftrainer.zeus.server.messages import LARGEST, abbreviate
from bftrainer.zeus.server.service import BatchSizeService, ZeusBatchSizeOptimizer

# Most jobs of a page of all, and most trials of one job's.
JOBS = TRIALS = 100
Name = Annotated[str, Query(pattern=r"^[^\x00]*$")]


def pages(*, front: bool) -> APIRouter:
    """Make the routes of the status pages; `front`: also the front page, which the published server lacks."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"few": abbreviate, "si": format_si, "moment": format_time}
    style = resources.files("bftrainer.report").joinpath("style.css").read_text(encoding="utf-8")
    environment.globals |= {"style": Markup(style), "most_trials": TRIALS}
    # A browser may load nothing but the page's own style.
    own = re.search(r"<style>(.*?)</style>", environment.get_template("base.html").render(), re.DOTALL)
    assert own is not None
    digest = base64.b64encode(sha256(own[1].encode()).digest()).decode()
    headers = {
        "Content-Security-Policy": (
            f"default-src 'none'; style-src 'sha256-{digest}'; "
            "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
        ),
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-store",
    }
    router = APIRouter(dependencies=[Depends(Require(Role.READER))])

    async def status(
        request: Request,
        job_id: Name | None = None,
        before: Annotated[int, Query(ge=1, le=LARGEST)] = LARGEST,
        after: Name | None = None,
    ) -> HTMLResponse:
        """Jobs, or one of them."""
        optimizer: ZeusBatchSizeOptimizer = request.app.state.optimizer
        template, code = "jobs.html" if job_id is None else "job.html", 200
        try:
            view = await optimizer.call(_view, optimizer.service, job_id, before, after)
        except NotFoundError as error:
            template, code, view = "missing.html", 404, {"missing": str(error).removeprefix("Unknown ")}
        return HTMLResponse(environment.get_template(template).render(path=request.url.path, **view), code, headers)

    for path in ("/", "/status") if front else ("/status",):
        router.add_api_route(path, status, response_class=HTMLResponse, include_in_schema=False)
    return router


def _view(service: BatchSizeService, job_id: str | None, before: int, after: str | None) -> dict[str, Any]:
    """What the page of all jobs, or of one and its latest trials below a number, shows, by names in its template."""
    if job_id is None:
        jobs = service.jobs(after, JOBS + 1)
        return {"jobs": jobs[:JOBS], "more": len(jobs) > JOBS}
    job, trials = service.job(job_id), service.trials(job_id)
    return {
        "job": job,
        "facts": job_facts(job, trials),
        "figures": figures_by_size(trials),
        "trials": [row for row in reversed(trials) if row.trial_number < before][: TRIALS + 1],
    }
