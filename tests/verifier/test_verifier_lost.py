"""A read of a server that is lost for a while; options that cannot be."""

import pytest
from pymongo import MongoClient
from pymongo.errors import AutoReconnect, OperationFailure

from tests.support.servers import free_port
from towpath_verifier import Options, ServerLost, VerifierError, with_retries
from towpath_verifier.verification import watch


def test_a_server_that_comes_back_is_told_once_and_waited_for():
    answers, said = [AutoReconnect("gone"), AutoReconnect("gone"), 7], []

    def read():
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    assert with_retries("read it", 60, read, said.append) == 7
    assert said == ["cannot read it: gone; trying again for 60 s"]


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (AutoReconnect("gone"), ServerLost, "cannot read it: gone"),
        (OperationFailure("rate exceeded", 462), ServerLost, "cannot read it: rate exceeded"),
        (OperationFailure("no right", 13), VerifierError, "cannot read it: the server refused: no right"),
    ],
)
def test_one_that_does_not_and_one_that_refuses_end_in_words(error, kind, words):
    def read():
        raise error

    with pytest.raises(kind, match=words):
        with_retries("read it", 0.01, read)


def test_a_refusal_has_the_servers_code_by_name():
    with pytest.raises(VerifierError) as caught:
        with_retries("read it", 0, refuse)
    assert caught.value.code == "Unauthorized"


def refuse():
    raise OperationFailure("no right", 13, {"errmsg": "no right", "code": 13, "codeName": "Unauthorized"})


def test_quiet_says_in_words_that_a_server_is_lost():
    with (
        MongoClient(f"mongodb://127.0.0.1:{free_port()}", serverSelectionTimeoutMS=100) as gone,
        pytest.raises(ServerLost, match=r"^cannot read the source's cluster time: 127"),
    ):
        watch(gone, ["v.c"], "source", 0.1)


@pytest.mark.parametrize(
    "wrong", [{"processes": 0}, {"processes": -1}, {"range_bytes": 0}, {"lost_for": -1}, {"lost_for": float("nan")}]
)
def test_options_out_of_range_are_refused_at_once(wrong):
    with pytest.raises(ValueError, match="is not valid: processes and range_bytes are 1 or more"):
        Options(**wrong)


def test_options_at_the_edge_are_taken():
    assert Options(processes=1, range_bytes=1, lost_for=0).lost_for == 0
    assert Options(lost_for=float("inf")).processes >= 1
