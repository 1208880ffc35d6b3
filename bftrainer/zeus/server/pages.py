"""Status pages of the server: jobs in a browser, without scripts and without other sites."""

from __future__ import annotations

import base64
import re
from hashlib import sha256
from importlib import resources
from typing import Annotated, Any

from bftrainer.plugins import requiring

with requiring("The server needs", "server", "fastapi", "jinja2"):
    from fastapi import APIRouter, Depends, Query, Request
    from fastapi.responses import HTMLResponse
    from jinja2 import Environment
    from markupsafe import Markup

from bftrainer.errors import NotFoundError
from bftrainer.zeus.server.access import Role
from bftrainer.zeus.server.guard import Require
from bftrainer.zeus.server.job_figures import figures_by_size, format_si, format_time, job_facts
from bftrainer.zeus.server.messages import abbreviate
from bftrainer.zeus.server.service import BatchSizeService, ZeusBatchSizeOptimizer

# Most jobs of a page of all, and most trials of one job's.
JOBS = TRIALS = 100
Name = Annotated[str, Query(pattern=r"^[^\x00]*$")]


def pages(*, front: bool) -> APIRouter:
    """Make the routes of the status pages; `front`: also the front page, which the published server lacks."""
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"few": abbreviate, "si": format_si, "moment": format_time}
    style = resources.files("bftrainer.report").joinpath("style.css").read_text(encoding="utf-8")
    source = resources.files("bftrainer.zeus.server").joinpath("page.html").read_text(encoding="utf-8")
    page = environment.from_string(source, {"style": Markup(style)})
    # A browser may load nothing but the page's own style.
    own = re.search(r"<style>(.*?)</style>", page.render(is_list=True), re.DOTALL)
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

    async def status(request: Request, job_id: Name | None = None, after: Name | None = None) -> HTMLResponse:
        """Jobs, or one of them."""
        optimizer: ZeusBatchSizeOptimizer = request.app.state.optimizer
        code = 200
        try:
            view = await optimizer.call(_view, optimizer.service, job_id, after)
        except NotFoundError as error:
            code, view = 404, {"title": "Not here", "missing": str(error).removeprefix("Unknown ")}
        return HTMLResponse(page.render(path=request.url.path, **view), code, headers)

    for path in ("/", "/status") if front else ("/status",):
        router.add_api_route(path, status, response_class=HTMLResponse, include_in_schema=False)
    return router


def _view(service: BatchSizeService, job_id: str | None, after: str | None) -> dict[str, Any]:
    """What the page of all jobs, or of one and its latest trials, shows, by names in the template."""
    if job_id is None:
        jobs = service.jobs(after, JOBS + 1)
        return {"title": "Recurring jobs", "is_list": True, "jobs": jobs[:JOBS], "more": len(jobs) > JOBS}
    job, trials = service.job(job_id), service.trials(job_id)
    return {
        "title": job_id or "(no name)",
        "job": job,
        "facts": job_facts(job, trials),
        "figures": figures_by_size(trials),
        "trials": trials[: -TRIALS - 1 : -1],
    }
