"""The worker's file on docs/how-to/start-connect.md has the settings with which the workers of the tests run."""

from __future__ import annotations

import re
from pathlib import Path

import javaproperties

from tests.support.secured_stack import Security
from towpath.log.definitions import DEFINITIONS
from towpath.stack.plan import worker_properties

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "how-to" / "start-connect.md").read_text(encoding="utf-8")
#: What a setting of a secret or of one machine cannot have in common.
PLACES = re.compile(r"bootstrap|group\.id|password|location|jaas|listeners$|host|advertised\.port|path|delay|factor")


def page_file() -> dict[str, str]:
    [text] = re.findall(r"^```properties\n(bootstrap.*?)^```", PAGE, re.M | re.S)
    return dict(javaproperties.loads(text))


def settings_of_tests(folder: Path) -> dict[str, str]:
    for name, text in {"kafka.users": "w:p", "p12.password": "p", "connect.users": "u=p"}.items():
        (folder / name).write_text(text)
    plain = worker_properties(folder, "kafka:9092", 8083, folder)
    return plain | Security(folder).worker(8083, "kafka:9092")


def test_the_file_has_only_settings_with_which_a_worker_was_tested(tmp_path: Path) -> None:
    page, ours = page_file(), settings_of_tests(tmp_path)
    assert page.keys() - ours.keys() == set()
    assert {key: text for key, text in page.items() if not PLACES.search(key) and text != ours[key]} == {}
    needed = {key for key in ours if key.startswith(("config.providers", "exactly", "connector.client", "rest."))}
    assert needed - page.keys() == set()
    assert (DEFINITIONS / "worker.properties").exists()


def test_the_acls_of_the_workers_are_for_the_names_in_the_file() -> None:
    page, acls = (
        page_file(),
        (DOCS / "reference" / "roles.md").read_text(encoding="utf-8").partition("### The workers")[2],
    )
    named = set(re.findall(r"--(?:topic|group|transactional-id) (\S+)", acls))
    topics = {page[f"{kind}.storage.topic"] for kind in ("config", "offset", "status")}
    assert named == topics | {page["group.id"], f"connect-cluster-{page['group.id']}"}
