"""A browser without a window, for tests of pages; skipped where there is none."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files

import pytest

BROWSER, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
IN_BROWSER = [
    pytest.mark.skipif(
        not (BROWSER and DRIVER), reason="no chromium and chromedriver here; Debian: chromium chromium-driver"
    ),
    pytest.mark.xdist_group("browser"),
    # What the browser's client library leaves open is its own affair.
    pytest.mark.filterwarnings("default::ResourceWarning"),
]

WIDE, PHONE = (1280, 900), (390, 844)
WIDTHS, SCHEMES = (390, 1280, 1920), ("light", "dark")
PAINTED = """
return [...document.querySelectorAll('.chart')].filter(place => {
  const canvas = place.querySelector('canvas'), size = canvas.width * canvas.height * 4;
  const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
  return size && data.some(value => value !== 0);
}).length"""
SEEN = "return [explorer.begin, explorer.end]"


def settled(browser):
    """Wait until what was changed is drawn."""
    browser.execute_async_script("const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(done))")


@contextmanager
def chromium() -> Iterator:
    """A browser, closed in the end."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    driver.set_script_timeout(300)  # axe goes through long pages, and others may be at work beside it
    try:
        yield driver
    finally:
        driver.quit()


def opened(browser, address, size=WIDE, scheme="light"):
    """Open a page on a screen of that size, and wait until it says that its charts are drawn."""
    shown(browser, address, size, scheme)
    return drawn(browser)


def shown(browser, address, size=WIDE, scheme="light"):
    """Open a page on a screen of that size, for a reader who likes it light or dark."""
    screen = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": size[0] < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    browser.get(address)


def drawn(browser):
    """How many charts the page says it has drawn, once it says so."""
    from selenium.webdriver.support.ui import WebDriverWait

    ready = "return document.documentElement.dataset.drawn"
    return int(WebDriverWait(browser, 60, poll_frequency=0.05).until(lambda page: page.execute_script(ready)))


def asked_for(browser):
    """Addresses of all that the page loaded, or tried to."""
    return browser.execute_script("return performance.getEntriesByType('resource').map(each => each.name)")


def violations(browser):
    """What axe-core finds against the page, and the rules that it passes."""
    browser.execute_script(files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8"))
    found = browser.execute_async_script("axe.run(document).then(arguments[0])")
    return (
        [(each["id"], each["nodes"][0]["html"][:200]) for each in found["violations"]],
        {each["id"] for each in found["passes"]},
    )


@contextmanager
def without_scripts(browser) -> Iterator[None]:
    """Open pages as a browser does that runs no scripts."""
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        yield
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
