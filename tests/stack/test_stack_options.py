"""What a stack is asked to be."""

from __future__ import annotations

from pathlib import Path

from towpath.stack import Stack, StackOptions, plan


def test_one_broker_is_called_and_set_up_as_ever(tmp_path: Path) -> None:
    options = StackOptions(tmp_path)
    assert options.port_names == ["source-0", "destination-0", "kafka", "kafka-controller", "connect-0"]
    values = plan.broker_properties(tmp_path, 1, [2])
    assert values["controller.quorum.voters"] == "1@127.0.0.1:2"
    assert {value for name, value in values.items() if "replication.factor" in name or "min.isr" in name} == {"1"}
    assert "min.insync.replicas" not in values


def test_three_brokers_elect_the_controller_and_copy_every_topic(tmp_path: Path) -> None:
    options = StackOptions(tmp_path, kafka_brokers=3)
    assert options.brokers == ["kafka", "kafka-1", "kafka-2"]
    ports = {name: 20_000 + place for place, name in enumerate(options.port_names)}
    assert len(set(ports)) == 9
    assert Stack.of(options, ports, {}).bootstrap == ",".join(f"127.0.0.1:{ports[name]}" for name in options.brokers)
    values = plan.broker_properties(tmp_path, 1, [11, 12, 13], node=2)
    assert (values["node.id"], values["controller.quorum.voters"]) == (
        "2",
        "1@127.0.0.1:11,2@127.0.0.1:12,3@127.0.0.1:13",
    )
    assert values["listeners"].endswith(":12")
    assert {value for name, value in values.items() if name.endswith("replication.factor")} == {"3"}
    assert {value for name, value in values.items() if "min.isr" in name or "min.insync" in name} == {"2"}
    worker = plan.worker_properties(tmp_path, "127.0.0.1:1", 2, tmp_path, 3)
    assert {value for name, value in worker.items() if name.endswith("replication.factor")} == {"3"}
