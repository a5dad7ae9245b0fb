"""The broker's file on docs/how-to/start-kafka.md has the settings with which the brokers of the tests run."""

from __future__ import annotations

import re
from pathlib import Path

import javaproperties

from tests.support.secured_stack import Security
from towpath.stack.plan import broker_properties

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "start-kafka.md").read_text(encoding="utf-8")
#: What a setting of one machine cannot have in common with that of another, and the mechanisms of other tests.
PLACES = re.compile(
    r"voters|listeners$|log\.dirs|keystore\.location|truststore\.location|enabled\.mechanisms|super\.users"
)


def page_file() -> dict[str, str]:
    [text] = re.findall(r"^```properties\n(process.*?)^```", PAGE, re.M | re.S)
    return dict(javaproperties.loads(text))


def test_the_file_has_only_settings_with_which_a_broker_was_tested(tmp_path: Path) -> None:
    (tmp_path / "kafka.users").write_text("w:p")
    ports = [9094, 9095, 9096]
    ours = broker_properties(tmp_path, 9092, ports) | Security(tmp_path).broker(9092, 9093, ports[0])
    page = page_file()
    assert page.keys() - ours.keys() == set()
    assert {key: text for key, text in page.items() if not PLACES.search(key) and text != ours[key]} == {}
    assert {key for key in ours if "ssl" in key or "sasl" in key} - page.keys() == {
        "listener.name.sasl_ssl.oauthbearer.sasl.jaas.config"
    }
