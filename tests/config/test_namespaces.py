"""Which namespaces a pipeline takes in, and what topics they travel on."""

import re

import pytest

from towpath.checks.source import bad_names
from towpath.config.namespaces import RESERVED, Selection, is_pattern


@pytest.mark.parametrize(
    ("include", "exclude", "namespace", "taken"),
    [
        (("shop.orders",), (), "shop.orders", True),
        (("shop.orders",), (), "shop.orders2", False),
        (("shop.orders",), (), "myshop.orders", False),
        (("shop.orders",), (), "shop.Orders", False),
        (("shop.*",), (), "shop.a.b.c", True),
        (("shop.*",), (), "shopping.a", False),
        (("*.audit_*",), (), "hr.audit_2026", True),
        (("*.audit_*",), (), "hr.x.audit_2026", False),
        (("shop.*",), ("shop.tmp_*",), "shop.tmp_1", False),
        (("shop.*",), ("shop.tmp",), "shop.tmp_1", True),
        *((("*.*",), (), f"{database}.users", False) for database in RESERVED),
        (("towpath.*",), (), "towpath.offsets", False),
        (("*.*",), (), "towpaths.offsets", True),
        (("*.*",), (), "shop.system.views", False),
        (("*.*",), (), "shop.systemic", True),
    ],
)
def test_a_selection_takes_in_what_its_patterns_say(include, exclude, namespace, taken):
    assert Selection(include, exclude).matches(namespace) is taken


@pytest.mark.parametrize("name", ["shop.größe", "shop.a, b", "shop.[x]#(1)"])
def test_names_that_cannot_be_topics_can_be_left_out_by_name(name):
    selection = Selection(("shop.*",), (name,))
    assert "," not in selection.namespace_regex
    assert not selection.matches(name)
    assert selection.matches(name + "2")


def test_only_narrows_a_selection():
    selection = Selection(("shop.*",), (), only=("shop.odd*",))
    assert selection.matches("shop.odd1")
    assert not selection.matches("shop.even")


def test_the_regex_survives_debezium_s_splitting_at_commas_and_its_ignoring_of_case():
    regex = Selection(("shop.*", "crm.people"), ("shop.tmp_*",)).namespace_regex
    assert "," not in regex
    assert not re.fullmatch(regex, "SHOP.ORDERS", re.IGNORECASE)
    assert not re.search(regex, "x.shop.orders,", re.IGNORECASE)


def test_topics_of_another_prefix_and_the_pipeline_s_own_other_topics_are_not_taken():
    regex = Selection(("*.*",)).topic_regex("shop")
    taken = [
        t for t in ("shop.a.b", "shop2.a.b", "shop.dead-letters", "__debezium-heartbeat.shop") if re.fullmatch(regex, t)
    ]
    assert taken == ["shop.a.b"]


@pytest.mark.parametrize("text", ["shop", "shop.", ".orders", "my shop.orders", "shop.$cmd"])
def test_what_is_no_pattern(text):
    assert not is_pattern(text)


def test_names_that_kafka_cannot_tell_apart_are_refused():
    [found] = bad_names("p", ["x.y_z", "x.y.z"])
    assert found.subject == "source x.y.z"
    assert "would collide" in found.finding
    [found] = bad_names("p", ["x.y"], other_topics=["p_x.y"])
    assert found.subject == "source x.y"
    assert "would collide" in found.finding
    assert not [*bad_names("p", ["x.y", "x.z"], other_topics=["q.x.y"])]


@pytest.mark.parametrize("namespace", ["shop.größe", "shop.a b", "shop." + "x" * 245])
def test_names_that_cannot_be_topics_are_refused_with_the_way_out(namespace):
    [found] = bad_names("shop", [namespace])
    assert found.subject == f"source {namespace}"
    assert "exclude" in found.advice
