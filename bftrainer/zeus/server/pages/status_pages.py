"""Routes of the status pages, and what both share: style, filters, and what browsers may load."""

from __future__ import annotations

import base64
import re
from hashlib import sha256
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

from bftrainer.extras import requiring

with requiring("The server needs", "server", "fastapi", "jinja2"):
    from fastapi import APIRouter, Query, Request
    from fastapi.responses import HTMLResponse
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

from bftrainer.errors import NotFoundError
from bftrainer.zeus.server.messages import LARGEST, NAME_LENGTH, few
from bftrainer.zeus.server.pages import job_views
from bftrainer.zeus.server.pages.savings import si
from bftrainer.zeus.server.service import BatchSizeService, ZeusBatchSizeOptimizer

JOBS = 100


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"few": few, "si": si, "moment": job_views.moment, "interval": job_views.interval_text}
    style = resources.files("bftrainer.report").joinpath("style.css").read_text(encoding="utf-8")
    environment.globals |= {"style": Markup(style), "views": job_views}
    return environment


def _policy(environment: Environment) -> str:
    """Return the security policy of a page: a browser may load nothing but the page's own style."""
    style = re.search(r"<style>(.*?)</style>", environment.get_template("base.html").render(), re.DOTALL)
    assert style is not None
    digest = base64.b64encode(sha256(style[1].encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    )


Name = Annotated[str, Query(max_length=NAME_LENGTH, pattern=r"^[^\x00]*$")]


def _find_page(service: BatchSizeService, job_id: str | None, before: int, after: str | None) -> dict[str, Any]:
    """What the page of all jobs or of one shows, or one that says what there is not; its template and its status."""
    if job_id is None:
        jobs = service.jobs(after, JOBS + 1)
        return {"template": "jobs.html", "status": 200, "jobs": jobs[:JOBS], "more": len(jobs) > JOBS}
    try:
        view = job_views.view_job(service, job_id, before)
    except NotFoundError as error:
        return {"template": "missing.html", "status": 404, "missing": str(error).removeprefix("Unknown ")}
    return {"template": "job.html", "status": 200, "view": view, "job": view["job"]}


def pages(*, front: bool) -> APIRouter:
    """Make the routes of the status pages.

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

    async def status(
        request: Request,
        job_id: Name | None = None,
        before: Annotated[int, Query(ge=1, le=LARGEST)] = LARGEST,
        after: Name | None = None,
    ) -> HTMLResponse:
        """Jobs, or one of them."""
        optimizer: ZeusBatchSizeOptimizer = request.app.state.optimizer
        page = await optimizer.call(_find_page, optimizer.service, job_id, before, after)
        text = environment.get_template(page["template"]).render(path=request.url.path, **page)
        return HTMLResponse(text, page["status"], headers=headers)

    for path in ("/", "/status") if front else ("/status",):
        router.add_api_route(path, status, response_class=HTMLResponse, include_in_schema=False)
    return router
