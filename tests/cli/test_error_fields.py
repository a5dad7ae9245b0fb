"""An error is data; its message is made of that. The verifier's and the tool's own have the same fields."""

from __future__ import annotations

import pickle

import pytest

from towpath.errors import ConnectError, NoSuchConnector, StackError, TowpathError, fields
from towpath_verifier import ServerLost, VerifierError


@pytest.mark.parametrize("kind", [TowpathError, ConnectError, StackError, VerifierError])
def test_the_message_is_made_of_the_fields(kind):
    error = kind("it is full", "make room", where="db:1")
    assert str(error) == "db:1: it is full; make room"
    assert fields(error) == {"what": "it is full", "where": "db:1", "advice": "make room", "code": ""}
    assert str(kind("it is full")) == "it is full"


def test_what_the_sentence_names_is_not_said_twice():
    error = TowpathError("TWP-LOG-GAP: a is gone", "look", where="a", code="TWP-LOG-GAP")
    assert (error.sentence, str(error)) == ("TWP-LOG-GAP: a is gone", "TWP-LOG-GAP: a is gone; look")
    assert str(TowpathError("it is gone", where="b", code="TWP-LOG-GAP")) == "TWP-LOG-GAP: b: it is gone"


def test_an_error_of_others_is_its_words():
    assert fields(OSError("no room")) == {"what": "no room", "where": "", "advice": "", "code": ""}


def test_status_of_connect_is_a_field_too():
    assert NoSuchConnector("gone", status=404).status == 404


@pytest.mark.parametrize("kind", [ServerLost, VerifierError])
def test_a_workers_error_comes_whole_to_its_parent(kind):
    error = pickle.loads(pickle.dumps(kind("gone", "wait", where="source", code="HostUnreachable")))
    assert (type(error), str(error), fields(error)["code"]) == (kind, "source: gone; wait", "HostUnreachable")
