"""A page that stays open in a browser, is left and comes back, and outlives its sign-in; no pipeline is behind it."""

from __future__ import annotations

from pathlib import Path

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.monitor.test_access import pipeline_file
from tests.monitor.test_page import browser, needs_browser
from tests.support.awaited import until
from tests.support.served import TOKEN, listen_at
from towpath.cli import launcher
from towpath.monitor import server
from towpath.monitor.access import access_of
from towpath.monitor.dashboard import Dashboard
from towpath.monitor.server import served
from towpath.monitor.watch import add
from towpath.session import opened


@needs_browser
def test_a_page_follows_again_and_who_was_signed_out_is_asked_for_the_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = tmp_path / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    dashboard, listening = Dashboard(), listen_at("0.0.0.0:0", token_file=token)
    access = access_of(listening)
    monkeypatch.setattr(server, "access_of", lambda _: access)
    with opened(pipeline_file(tmp_path)) as session:
        add(dashboard, session, lambda: None)
        with served(dashboard, listening, 60, launcher) as url, browser(tmp_path) as page:
            page.driver.get(url.replace("0.0.0.0", "127.0.0.1"))
            page.driver.find_element(By.ID, "token").send_keys(TOKEN, Keys.ENTER)
            until("the page", lambda: page.driver.current_url.endswith("/pipelines/shop"))
            until("client", lambda: dashboard.updates.clients)
            page.driver.execute_script("dispatchEvent(new PageTransitionEvent('pagehide', {persisted: true}))")
            until("page that is left", lambda: not dashboard.updates.clients)
            page.driver.execute_script("dispatchEvent(new PageTransitionEvent('pageshow', {persisted: true}))")
            until("page that is back", lambda: dashboard.updates.clients)
            access.logins.clear()
            page.driver.find_element(By.CSS_SELECTOR, "[data-command='verify']").send_keys(Keys.ENTER)
            page.shows("answer", "you are signed out")
            assert dashboard.loop is not None
            dashboard.loop.call_soon_threadsafe(dashboard.updates.close)  # as the end of the server does
            until("the form for the token", lambda: page.driver.current_url.endswith("/login"))
