"""Routes of the status pages, and what both share: style, filters, and what browsers may load."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
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

from bftrainer.errors import UnknownJobError
from bftrainer.zeus.server.messages import LARGEST, NAME_LENGTH, few
from bftrainer.zeus.server.pages import job_views, trial_charts
from bftrainer.zeus.server.pages.savings import si
from bftrainer.zeus.server.pages.trial_charts import SERIES
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
    environment.filters |= {"few": few, "si": si, "moment": job_views.moment}
    environment.globals |= {"charts": trial_charts, "views": job_views}
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


Name = Annotated[str, Query(max_length=NAME_LENGTH, pattern=r"^[^\x00]*$")]


@dataclass(frozen=True, slots=True)
class _Page:
    """A page: its template, its values, and its status."""

    template: str
    values: dict[str, Any]
    status: int = 200


def _find_page(service: BatchSizeService, job_id: str | None, before: int, after: str | None) -> _Page:
    """Make the page of all jobs or of one, or one that says what there is not."""
    if job_id is None:
        jobs = service.jobs(after, JOBS + 1)
        return _Page("jobs.html", {"jobs": jobs[:JOBS], "more": len(jobs) > JOBS})
    try:
        view = job_views.view_job(service, job_id, before)
    except UnknownJobError as error:
        return _Page("missing.html", {"missing": str(error).removeprefix("Unknown ")}, 404)
    return _Page("job.html", {"view": view, "job": view.job})


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
        text = environment.get_template(page.template).render(path=request.url.path, **page.values)
        return HTMLResponse(text, page.status, headers=headers)

    for path in ("/", "/status") if front else ("/status",):
        router.add_api_route(path, status, response_class=HTMLResponse, include_in_schema=False)
    return router
