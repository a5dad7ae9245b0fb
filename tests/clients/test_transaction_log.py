"""The coordinators' log of transactions, as Kafka writes it."""

import ast
import inspect
import struct

import kafka
import pytest

from towpath.clients.kafka import hanging_transactions, protocol
from towpath.clients.kafka.hanging_transactions import _group, _hash, _places

_HEAD = ">hqhib"  # version, producer's id and epoch, timeout, state
_TIMES = struct.pack(">qq", 1, 1)


def test_partitions_of_the_first_version():
    topics = struct.pack(">ih5siiih3sii", 2, 5, b"shop.", 2, 0, 300, 3, b"abc", 1, 7)
    found = _places(struct.pack(_HEAD, 0, 4, 1, 60_000, 1) + topics + _TIMES)
    assert found == {("shop.", 0), ("shop.", 300), ("abc", 7)}


def test_partitions_of_the_version_with_varints():
    long = "é" * 100  # 200 bytes: two for the length
    topics = b"\x03" + b"\xc9\x01" + long.encode() + b"\x03" + struct.pack(">ii", 0, 300) + b"\x00"
    topics += b"\x04abc" + b"\x02" + struct.pack(">i", 7) + b"\x00"
    found = _places(struct.pack(_HEAD, 1, 4, 1, 60_000, 1) + topics + _TIMES + b"\x00")
    assert found == {(long, 0), (long, 300), ("abc", 7)}


@pytest.mark.parametrize(("head", "nothing"), [(0, struct.pack(">i", -1)), (1, b"\x00"), (1, b"\x01")])
def test_a_record_without_partitions(head, nothing):
    assert _places(struct.pack(_HEAD, head, 4, 1, 60_000, 0) + nothing + _TIMES) == set()


@pytest.mark.parametrize(
    ("words", "expected"),
    # java.lang.String.hashCode of the last one is -1244072343, and that of polygenelubricants the smallest number
    [
        ("", 0),
        ("abc", 96354),
        ("polygenelubricants", 0),
        ("é😀", 233 * 31**2 + 0xD83D * 31 + 0xDE00),
        ("towpath-stack-f52f1dc42b351-source-5", 1_244_072_343),
    ],
)
def test_the_hash_is_javas_without_the_sign(words, expected):
    assert _hash(words) == expected


@pytest.mark.parametrize(
    ("transactional_id", "group"),
    [
        ("connect-shop-source-0", "connect"),
        ("a-b-shop-source-12", "a-b"),
        ("connect-shop-source", None),
        ("connect-shop-source-whole-0", None),
        ("connect-cluster-connect", None),
        ("connect-other-source-0", None),
    ],
)
def test_the_workers_group_is_seen_in_the_id_of_a_task(transactional_id, group):
    assert _group(transactional_id, "shop-source") == group


def test_kafka_python_has_what_ending_a_transaction_needs() -> None:
    """Its public classes can only abort. After an upgrade that fails here, adapt `Protocol._sent` first."""
    client = protocol.Protocol
    told = inspect.getsource(client.abort_transaction) + inspect.getsource(client._async_abort_transaction)
    for use in ("self._manager.run(", "self._manager.send(request, node_id=leader)"):
        assert use in told, f"kafka-python {kafka.__version__} sends an end of a transaction without {use}"
    fields = {field.name for field in protocol.WriteTxnMarkersRequest.WritableTxnMarker._struct._fields}
    needed = {"producer_id", "producer_epoch", "transaction_result", "topics", "coordinator_epoch"}
    assert needed <= fields, f"kafka-python {kafka.__version__} has no {needed - fields} in WriteTxnMarkersRequest"


def test_no_other_private_part_of_kafka_python_is_used() -> None:
    used = set[str]()
    for module in (hanging_transactions, protocol):
        names = (
            node.attr for node in ast.walk(ast.parse(inspect.getsource(module))) if isinstance(node, ast.Attribute)
        )
        used.update(name for name in names if name.startswith("_"))
    assert used - {*vars(protocol.Protocol), *protocol.Protocol.__annotations__} == {"_manager"}
