"""What tests of pages and figures share: two finished runs, an assessment, and what holds of every page."""

import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from typing import Any

import pytest

from bftrainer.campaigns.assess import AssessPlan, MachinePrices, assessment_of
from bftrainer.report.finished_run import FinishedRun
from bftrainer.runs.run_files import read_runs
from tests.campaigns.test_assess import machine
from tests.finished import write_sample_run, write_tuned_run

HOSTILE = '<img src=x onerror="alert(1)">\u202e$a_$</svg>' + "x" * 300
PRICED = MachinePrices(price_node_hour=0.4, price_kwh=0.25, node_w=900.0, idle_w=300.0, carbon_gco2_per_kwh=350.0)


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[FinishedRun]:
    """A plain run and a tuned one."""
    folder = tmp_path_factory.mktemp("runs")
    return read_runs([write_sample_run(folder / "plain", baseline=True), write_tuned_run(folder / "tuned")])


@pytest.fixture(scope="session")
def run(runs: list[FinishedRun]) -> FinishedRun:
    """The plain one."""
    return runs[0]


@pytest.fixture(scope="session")
def assessment() -> dict[str, Any]:
    """Nine days of a machine, as its JSON says."""
    plan = AssessPlan(machine(3600, 7200, days=9, nodes=16), prices=PRICED, gpus_per_node=4)
    return json.loads(json.dumps(assessment_of(plan) | {"command": "bftrainer assess idle.parquet"}))


def change(run: FinishedRun, *, name: str | None = None, settings: Any = (), **figures: Any) -> FinishedRun:
    """The run with other figures and settings in its summary, and with another name."""
    changed = {**run.summary, **figures, "settings": {**run.summary["settings"], **dict(settings)}}
    return replace(run, name=name or run.name, summary=changed)


def check_page(text: str, scripts: int = 0) -> str:
    """A page asks for nothing from elsewhere, runs its own scripts alone, and has pictures and ids that are sound."""
    assert text.count("<script") == scripts
    assert not re.search(r'(src|(?<!xlink:)href)="(?!#)', text)
    assert not re.search(r"<(link|img|iframe)\b|http-equiv", text)
    assert "\u202e" not in text
    for picture in re.findall(r"<svg.*?</svg>", text, re.DOTALL):
        ET.fromstring(picture.replace("<svg ", '<svg xmlns:xlink="http://www.w3.org/1999/xlink" ', 1))
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:href="|url\()#([^")]+)', text)) <= set(ids)
    return text


def count_sides(pdf: bytes) -> int:
    """Sides of paper of a PDF."""
    return len(re.findall(rb"/Type /Page\b", pdf))
