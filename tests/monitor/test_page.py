"""The page in a real browser, through what happens to a pipeline; screenshots are made of the main states.

They are written to the test's temporary folder. With TOWPATH_PICTURES=write, those of `PICTURES` are written to
docs/pictures as well; they are of a pipeline `shop`, and made without haste.
"""

from __future__ import annotations

import base64
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import ActionChains, Chrome, ChromeOptions, ChromeService
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.conftest import MakePipeline
from tests.support import control
from tests.support.awaited import promised, until
from tests.support.pipeline import Pipeline, Settings, towpath
from tests.support.served import TOKEN, Served, served
from towpath import stack as embedded
from towpath.errors import NoSuchConnector
from towpath.log.source_offsets import read_state
from towpath.run.report import Report
from towpath.run.status import read_status
from towpath.session import Session, opened

needs_browser = pytest.mark.skipif(
    not (shutil.which("chromium") and shutil.which("chromedriver")),
    reason="no browser (Debian: apt-get install chromium chromium-driver)",
)
pytestmark = [pytest.mark.servers, pytest.mark.nightly, pytest.mark.serial, needs_browser]
WRITE_PICTURES = os.environ.get("TOWPATH_PICTURES") == "write"
#: Seconds within which the page shows what has become true.
SOON = 30.0 if WRITE_PICTURES else 3.0
WIDE, NARROW = 1200, 400
NOTE = "by the back door, please; ring twice"
VIEWS = ((WIDE, "light"), (NARROW, "dark"))
#: The variable --paper of the style sheet.
PAPER = {"light": "rgb(255, 255, 255)", "dark": "rgb(21, 24, 28)"}


@dataclass(frozen=True, slots=True)
class Picture:
    """A part of a screenshot, for the documentation."""

    state: str
    width: int
    theme: str
    section: str = "body"
    """It begins there."""
    height: int = 0
    """0: to the end of the section."""


#: The files in docs/pictures.
PICTURES = {
    "monitor-narrow.png": Picture("copy", NARROW, "dark", height=900),
    "monitor-pipeline.png": Picture("stream", WIDE, "light", height=605),
    "monitor-difference.png": Picture("difference", WIDE, "dark", "section[aria-labelledby='verification-title']"),
    "monitor-overview.png": Picture("overview", WIDE, "light", height=215),
}
FOLDER = Path(__file__).parents[2] / "docs" / "pictures"


@dataclass(slots=True)
class Page:
    driver: Chrome
    folder: Path
    waits: dict[str, float] = field(default_factory=dict)
    """What was true → seconds until the page showed it."""

    def text(self, id: str) -> str:
        return self.driver.find_element(By.ID, id).text

    def shows(self, id: str, words: str, within: float = SOON) -> None:
        """Wait until the section shows these words; it has still to happen where `within` is another than `SOON`."""
        if within == SOON:
            self.soon(f"{words!r} in {id}", lambda: words in self.text(id))
        else:
            until(f"{words!r} in {id}", lambda: words in self.text(id), within)

    def soon(self, what: str, look: Callable[[], Any]) -> None:
        """Wait until the page shows what is true by now."""
        start = time.monotonic()
        promised(what, look, SOON, every=0.05)
        self.waits[what] = time.monotonic() - start

    def screenshots(self, name: str) -> None:
        """All of the page, wide and narrow; and the pictures of this state, where they are to be written."""
        for width, theme in VIEWS:
            self._emulate(width, theme)
            assert self.driver.execute_script("return document.documentElement.scrollWidth") <= width
            paper = self.driver.execute_script("return getComputedStyle(document.body).backgroundColor")
            assert paper == PAPER[theme]
            self.driver.get_screenshot_as_file(str(self.folder / f"{name}-{width}-{theme}.png"))
        for file, picture in PICTURES.items():
            if WRITE_PICTURES and picture.state == name:
                self._write(FOLDER / file, picture)
        self._emulate(WIDE, "light")

    def _write(self, file: Path, picture: Picture) -> None:
        self._emulate(picture.width, picture.theme)
        rect = f"return document.querySelector({picture.section!r}).getBoundingClientRect().toJSON()"
        place = self.driver.execute_script(rect)
        margin = 0 if picture.height else 12
        height = picture.height or place["height"] + 2 * margin
        clip = {"x": 0, "y": place["top"] - margin, "width": picture.width, "height": height}
        answer = self.driver.execute_cdp_cmd("Page.captureScreenshot", {"clip": clip | {"scale": 1}})
        file.write_bytes(base64.b64decode(answer["data"]))

    def _emulate(self, width: int, theme: str) -> None:
        wishes = {"prefers-color-scheme": theme, "prefers-reduced-motion": "reduce"}  # else colours change slowly
        features = [{"name": name, "value": value} for name, value in wishes.items()]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        height = self.driver.execute_script("return document.documentElement.scrollHeight")
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics | {"height": max(600, height)})
        time.sleep(0.1)  # the charts are drawn again

    def errors(self) -> list[str]:
        """What the browser's console complains of."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]


@contextmanager
def browser(folder: Path) -> Iterator[Page]:
    options = ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--lang=en"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = Chrome(options=options, service=ChromeService(shutil.which("chromedriver")))
    try:
        yield Page(driver, folder)
    finally:
        driver.quit()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "screenshots"
    place.mkdir()
    return place


def test_the_page_shows_what_happens_to_a_pipeline(
    make_pipeline: MakePipeline,
    stack: embedded.Stack,
    tmp_path: Path,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    pipeline = make_pipeline(Settings(partitions=2, capture={"documents_per_second": 500}))
    if WRITE_PICTURES:
        pipeline = replace(pipeline, name="shop", file=Path("shop.toml"))
    for name in ("orders", "customers"):
        pipeline.source(name).insert_many([{"_id": n, "total": n, "note": NOTE} for n in range(1750)])
    with browser(folder) as page, served(tmp_path, "run", pipeline.write(), "--deploy", "--json") as run:
        sign_in(page, run, pipeline)
        with opened(pipeline.file) as session:  # a command takes longer to say how it is
            a_copy(page, session)
            a_stream(page, pipeline)
            a_worker_that_dies(page, stack)
            a_dead_letter(page, pipeline, session)
        a_damaged_document(page, pipeline)
        a_verify_of_the_page(page, pipeline)
        press(page, "repair")
        page.shows("events", " repaired, 0 left", 60)
        page.shows("verification", "repaired since")
        the_keyboard(page)
        all_at_a_glance(page, pipeline, tmp_path)
        assert {file.name for file in FOLDER.glob("monitor-*.png")} == set(PICTURES)
        print(*(f"{what}: shown after {seconds:.1f} s" for what, seconds in page.waits.items()), sep="\n")
        assert page.errors() == []


def sign_in(page: Page, run: Served, pipeline: Pipeline) -> None:
    page.driver.get(f"{run.url}login")
    page.driver.find_element(By.ID, "token").send_keys(TOKEN, Keys.ENTER)
    until("the page", lambda: page.driver.current_url.endswith(f"/pipelines/{pipeline.name}"))


def status(session: Session) -> Report:
    return read_status(session)


def a_copy(page: Page, session: Session) -> None:
    until("committed range", lambda: copied(session), every=0.05)
    done = "return [...document.querySelectorAll('#copy progress')].some((each) => each.value > 0)"
    page.soon("progress of the copy", lambda: page.driver.execute_script(done))
    page.shows("head", "copying")
    page.screenshots("copy")
    until("end of the copy", lambda: not status(session).copying, 60)
    page.soon("end of the copy", lambda: not page.text("copy"))
    page.shows("head", "running")


def copied(session: Session) -> int:
    """Documents in the ranges that the connector has committed."""
    with suppress(NoSuchConnector):
        (name,) = session.pipeline.source_connectors
        return sum(copy.documents for copy in read_state(session.connect, name).copies)
    return 0


def a_stream(page: Page, pipeline: Pipeline) -> None:
    pipeline.source("orders").update_many({}, {"$inc": {"total": 1}})
    pipeline.wait()
    page.soon("both rates", lambda: len(re.findall(r"^[1-9][\d,]*/s$", page.text("way"), re.MULTILINE)) == 2)
    assert len(re.findall(r"\d+\.\d s behind$", page.text("way"), re.MULTILINE)) == 2
    until("samples", lambda: page.driver.execute_script("return samples.length") > 2, 30)
    for chart in ("lag", "rate"):  # both of its lines have a value
        label = page.driver.find_element(By.ID, f"chart-{chart}").get_attribute("aria-label") or ""
        assert len(re.findall(r"(log|destination|applied) \d", label)) == 2, label
        drawn = page.driver.find_elements(By.CSS_SELECTOR, f"#chart-{chart} canvas, #chart-{chart} .u-series")
        assert len(drawn) == 4, "a canvas, and a line of the legend for the time and each series"
    page.screenshots("stream")


def a_worker_that_dies(page: Page, stack: embedded.Stack) -> None:
    control.kill(stack.directory, "connect-0")
    page.shows("head", "unknown")
    page.shows("events", "retrying until it answers")
    page.screenshots("no-worker")
    control.start(stack.directory, "connect-0")
    page.shows("head", "running", 60)


def a_dead_letter(page: Page, pipeline: Pipeline, session: Session) -> None:
    destination = pipeline.destination_client[pipeline.name]
    destination.command({"collMod": "orders", "validator": {"refused": {"$exists": False}}})
    pipeline.source("orders").update_one({"_id": 5}, {"$set": {"refused": True}})
    until("dead letter", lambda: status(session).dead_letters)
    page.shows("dead-letters", "Document failed validation (121)")
    # the section is drawn again with each poll, and what has the focus keeps it
    page.driver.execute_script("document.querySelector('#dead-letters summary').focus()")
    ActionChains(page.driver).send_keys(Keys.ENTER).perform()
    page.shows("dead-letters", '"refused"')
    page.screenshots("dead-letter")
    destination.command({"collMod": "orders", "validator": {}})
    press(page, "cutover-dry-run")  # the next try takes a while
    until("repair", lambda: pipeline.destination("orders").find_one({"_id": 5, "refused": True}), every=0.05)
    page.shows("dead-letters", "0 documents still differ, 1 repaired")
    assert '"refused"' in page.text("dead-letters")  # it stays open
    the_gate_of_a_cutover(page)


def a_damaged_document(page: Page, pipeline: Pipeline) -> None:
    pipeline.destination("customers").update_one({"_id": 7}, {"$set": {"note": "damaged", "total": "7"}})
    towpath("verify", pipeline.file, expect=1)  # in another shell
    page.shows("verification", "damaged")
    assert "1 different" in page.text("verification")
    assert re.search(r"not the same \d+ s ago", page.text("verification"))
    page.screenshots("difference")


def a_verify_of_the_page(page: Page, pipeline: Pipeline) -> None:
    pipeline.destination("customers").delete_one({"_id": 8})
    press(page, "verify")
    page.shows("events", "not the same", 60)
    page.shows("verification", "1 missing, 0 extra, 1 different")


def the_gate_of_a_cutover(page: Page) -> None:
    page.shows("events", "not started", 60)
    page.shows("cutover", "late writes")
    page.screenshots("gate")


def all_at_a_glance(page: Page, pipeline: Pipeline, folder: Path) -> None:
    """Several pipelines, of which one is not deployed."""
    other = Path("crm.toml")
    other.write_text(pipeline.file.read_text().replace(f'name = "{pipeline.name}"', 'name = "crm"'), encoding="utf-8")
    other.chmod(0o600)
    with served(folder, "monitor", pipeline.file, other) as monitor:
        page.driver.get(monitor.url)
        page.shows(f"row-{pipeline.name}", "running", 20)
        page.shows("row-crm", "missing", 20)
        assert "copying" not in page.text("row-crm")
        page.screenshots("overview")


def press(page: Page, command: str) -> None:
    button = page.driver.find_element(By.CSS_SELECTOR, f"[data-command='{command}']")
    asks = button.get_attribute("data-why")
    button.send_keys(Keys.ENTER)  # no mouse
    if asks:
        page.driver.switch_to.alert.accept()


def the_keyboard(page: Page) -> None:
    """Each command is reached by the tab key, what has the focus has an outline, and the events scroll."""
    page.driver.execute_script("document.querySelector('.skip').focus()")
    reached = []
    for _ in range(9):  # the two of the header, and the commands
        ActionChains(page.driver).send_keys(Keys.TAB).perform()
        focused = page.driver.switch_to.active_element
        assert focused.value_of_css_property("outline-style") == "solid", focused.get_attribute("outerHTML")
        reached.append(focused.get_attribute("data-command"))
    assert {"pause", "verify", "cutover-dry-run"} <= set(reached)
    page.driver.execute_script("document.querySelector('#events > ul:last-of-type').focus()")
    ActionChains(page.driver).send_keys(Keys.END).perform()
    scrolled = "return document.querySelector('#events > ul:last-of-type').scrollTop"
    page.soon("end of the events", lambda: page.driver.execute_script(scrolled) > 0)
