"""The example of docs/verifier.md, run as it is there: it prints what the page shows."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bson import Int64
from pymongo import MongoClient

from tests.support.mongod import MongodSizes, Root, start_replica_set
from towpath_verifier import Options, Pair, Verification

pytestmark = pytest.mark.servers

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "verifier.md").read_text()
#: Name of a script → its text, and what the page shows that it prints.
SCRIPTS = {name: text for text, name in re.findall(r'^```python\n("""(\w+\.py) .*?)^```', PAGE, re.M | re.S)}
OUTPUTS = dict(re.findall(r"^```console\n\$ python (\w+\.py) [^\n]*\n(.*?)^```", PAGE, re.M | re.S))
SAME = "shop.orders: 100 documents, 0 differences, same\nshop.customers: 50 documents, 0 differences, same\n"
SIZES = MongodSizes(0.25, 256)
Client = MongoClient[dict[str, Any]]


class Sides:
    """Two replica sets with users that may only read, and clients that may write."""

    def __init__(self, source_uri: str, destination_uri: str) -> None:
        self.uris = [uri.replace("root:", "reader:") for uri in (source_uri, destination_uri)]
        self.source, self.destination = Client(source_uri), Client(destination_uri)
        for client in (self.source, self.destination):
            roles = [{"role": "read", "db": database} for database in ("shop", "archive")]
            client.admin.command("createUser", "reader", pwd="secret", roles=roles)

    def fill(self) -> None:
        for client, customers in ((self.source, "shop"), (self.destination, "archive")):
            client.drop_database("shop")
            client.drop_database("archive")
            client.shop.orders.insert_many([{"_id": n, "n": n, "note": "x"} for n in range(100)])
            client[customers].customers.insert_many([{"_id": f"customer {n}"} for n in range(50)])

    def damage(self) -> None:
        """Do to the destination what the page says."""
        orders = self.destination.shop.orders
        orders.delete_one({"_id": 3})
        orders.update_one({"_id": 5}, {"$set": {"n": Int64(5)}})
        orders.replace_one({"_id": 7}, {"_id": 7, "note": "x", "n": 7})
        orders.insert_one({"_id": 1000})


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    place, root = tmp_path_factory.mktemp("sets"), Root("root", "secret")
    with (
        start_replica_set(place / "source", sizes=SIZES, root=root) as one,
        start_replica_set(place / "destination", sizes=SIZES, root=root) as two,
    ):
        sides = Sides(one.uri, two.uri)
        with sides.source, sides.destination:
            yield sides


@pytest.fixture
def sides(both: Sides) -> Sides:
    both.fill()
    return both


def run(folder: Path, *uris: str) -> subprocess.CompletedProcess[str]:
    file = folder / "compare.py"
    file.write_text(SCRIPTS["compare.py"])
    return subprocess.run([sys.executable, str(file), *uris], capture_output=True, text=True, timeout=120)


def in_order(output: str) -> list[str]:
    """What was printed, with the differences and their paths in an order that does not vary."""
    *differences, orders, customers = re.split(r"\n(?! )", output.removesuffix("\n"))
    return [*sorted(differences), orders, customers]


def test_the_example_prints_what_the_page_shows(sides: Sides, tmp_path: Path) -> None:
    assert set(SCRIPTS) == {"compare.py", "check.py"}, "tests/history/test_replay.py runs the second"
    assert set(OUTPUTS) == {"compare.py"}
    sides.damage()
    done = run(tmp_path, *sides.uris)
    assert (in_order(done.stdout), done.stderr) == (in_order(OUTPUTS["compare.py"]), "")
    assert done.returncode == 1


def test_the_example_says_that_equal_sides_are_the_same(sides: Sides, tmp_path: Path) -> None:
    done = run(tmp_path, *sides.uris)
    assert (done.stdout, done.stderr, done.returncode) == (SAME, "", 0)


def test_the_example_has_no_verdict_on_a_view(sides: Sides, tmp_path: Path) -> None:
    sides.destination.archive.drop_collection("customers")
    sides.destination.archive.create_collection("customers", viewOn="other", pipeline=[])
    done = run(tmp_path, *sides.uris)
    assert "shop.customers: 0 documents, 0 differences, no verdict" in done.stdout
    assert "archive.customers at the destination is a view" in done.stderr
    assert done.returncode == 2


def test_the_role_that_the_page_names_shows_writes_and_hashes(sides: Sides) -> None:
    pairs = [Pair("shop.orders", "shop.orders"), Pair("shop.customers", "archive.customers")]
    verification = Verification(sides.uris[0], sides.uris[1], pairs, Options(processes=1, quiet=True))
    assert list(verification) == []
    assert {(tally.way, tally.verdict) for tally in verification.verdict.tallies} == {("hashed", "same")}
