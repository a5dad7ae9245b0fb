package io.towpath.connector;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/**
 * What a connector does with the settings that it inherits from Connect, Debezium, mongo-kafka and Kafka's clients: each is passed on,
 * accepted with certain values only, or rejected. A setting that is not here belongs to none of them, so nothing reads it.
 */
public final class InheritedSettings {
    /**
     * @param names of settings; with * at the end, all that begin so and have no separate rule
     * @param values the only ones that are accepted; empty: any, or none if there is a reason
     * @param why other values are rejected; empty: any value is passed on
     */
    public record Rule(List<String> names, List<String> values, String why) {
        public boolean isRejection() {
            return values.isEmpty() && !why.isEmpty();
        }

        /** How exactly a name matches; 0 if it does not. */
        private int match(String setting) {
            return names.stream()
                    .mapToInt(name -> name.equals(setting)
                            ? Integer.MAX_VALUE
                            : name.endsWith("*") && setting.startsWith(name.substring(0, name.length() - 1))
                                    ? name.length()
                                    : 0)
                    .max()
                    .orElse(0);
        }
    }

    private static final String CONTENT = "records would reach Kafka, or the task, in another form";
    private static final String GROUP = "the tasks of a sink share its topics as the group that Connect makes of them";

    private final List<Rule> rules = new ArrayList<>();

    public InheritedSettings passesOn(String... names) {
        rules.add(new Rule(List.of(names), List.of(), ""));
        return this;
    }

    public InheritedSettings requires(String name, List<String> values, String why) {
        rules.add(new Rule(List.of(name), values, why));
        return this;
    }

    public InheritedSettings rejects(String why, String... names) {
        rules.add(new Rule(List.of(names), List.of(), why));
        return this;
    }

    /** What Connect itself reads of any connector. */
    public InheritedSettings connect() {
        return passesOn(
                        "name",
                        "connector.class",
                        "connector.plugin.version",
                        "tasks.max",
                        "tasks.max.enforce",
                        "config.action.reload",
                        "key.converter",
                        "key.converter.plugin.version",
                        "value.converter",
                        "value.converter.plugin.version",
                        "header.converter",
                        "header.converter.plugin.version",
                        "errors.log.enable",
                        "errors.log.include.messages",
                        "errors.retry.delay.max.ms",
                        "errors.retry.timeout")
                .rejects(
                        "a transform can change, drop or reorder records, and the log is written and read as it is",
                        "transforms",
                        "transforms.*",
                        "predicates",
                        "predicates.*");
    }

    /** What a connector tells the clients that Connect creates for it. */
    public InheritedSettings clients() {
        for (String client : List.of("producer.override.", "consumer.override.", "admin.override."))
            ofAnyClient(client);
        return producer("producer.override.").consumer("consumer.override.");
    }

    private void ofAnyClient(String client) {
        passesOn(prefixed(
                client,
                "client.dns.lookup",
                "client.id",
                "connections.max.idle.ms",
                "default.api.timeout.ms",
                "enable.metrics.push",
                "metadata.*",
                "metric.reporters",
                "metrics.*",
                "receive.buffer.bytes",
                "reconnect.backoff.*",
                "request.timeout.ms",
                "retries",
                "retry.backoff.*",
                "sasl.*",
                "security.*",
                "send.buffer.bytes",
                "socket.connection.setup.timeout.*",
                "ssl.*"));
        rejects(
                "Connect keeps the offsets of a connector at the workers' own brokers, and for another address writes them a second time, outside its transaction",
                prefixed(client, "bootstrap.servers", "bootstrap.controllers"));
        rejects("Connect resolves references itself", prefixed(client, "config.providers"));
    }

    private InheritedSettings producer(String client) {
        return passesOn(prefixed(
                        client,
                        "batch.size",
                        "buffer.memory",
                        "compression.*",
                        "delivery.timeout.ms",
                        "linger.ms",
                        "max.block.ms",
                        "max.request.size",
                        "transaction.timeout.ms"))
                .requires(client + "acks", List.of("all", "-1"), "a broker that fails would lose records")
                .requires(
                        client + "enable.idempotence",
                        List.of("true"),
                        "records would be repeated or change their order")
                .requires(
                        client + "partitioner.class",
                        List.of(KeyPartitioner.class.getName()),
                        "changes of one document would be in several partitions, which have no common order")
                .requires(
                        client + "partitioner.ignore.keys",
                        List.of("false"),
                        "changes of one document would be in several partitions, which have no common order")
                .rejects(
                        "records have a key, which chooses their partition",
                        prefixed(
                                client,
                                "partitioner.adaptive.partitioning.enable",
                                "partitioner.availability.timeout.ms"))
                .rejects("records could change their order", prefixed(client, "max.in.flight.requests.per.connection"))
                .rejects(
                        "Connect names its transactions, and fences an earlier task by that name",
                        prefixed(client, "transactional.id", "transaction.two.phase.commit.enable"))
                .rejects(CONTENT, prefixed(client, "interceptor.classes", "key.serializer", "value.serializer"));
    }

    private InheritedSettings consumer(String client) {
        return passesOn(prefixed(
                        client,
                        "client.rack",
                        "fetch.*",
                        "heartbeat.interval.ms",
                        "max.partition.fetch.bytes",
                        "max.poll.interval.ms",
                        "max.poll.records",
                        "partition.assignment.strategy",
                        "session.timeout.ms"))
                .requires(
                        client + "isolation.level",
                        List.of("read_committed"),
                        "records of transactions that were aborted would be applied")
                .requires(
                        client + "auto.offset.reset",
                        List.of("earliest", "none"),
                        "records that are in the log already would be skipped")
                .requires(client + "check.crcs", List.of("true"), "damaged records would be applied")
                .requires(client + "enable.auto.commit", List.of("false"), "the task says what is applied")
                .requires(client + "group.protocol", List.of("classic"), GROUP)
                .rejects("the task says what is applied", prefixed(client, "auto.commit.interval.ms"))
                .rejects(GROUP, prefixed(client, "group.id", "group.instance.id", "group.remote.assignor", "share.*"))
                .rejects(
                        "it has no meaning for the topics of a pipeline",
                        prefixed(client, "allow.auto.create.topics", "exclude.internal.topics", "internal.*"))
                .rejects(CONTENT, prefixed(client, "interceptor.classes", "key.deserializer", "value.deserializer"));
    }

    private static String[] prefixed(String client, String... names) {
        return List.of(names).stream().map(client::concat).toArray(String[]::new);
    }

    /** The rule for a setting: the one that names it most exactly. */
    public Optional<Rule> rule(String setting) {
        Rule best = null;
        int match = 0;
        for (Rule rule : rules) {
            int found = rule.match(setting);
            if (found <= match) continue;
            best = rule;
            match = found;
        }
        return Optional.ofNullable(best);
    }

    public List<Rule> rules() {
        return List.copyOf(rules);
    }

    /** Adds to the requirements what a configuration sets against the rules. An empty value is none. */
    void check(Map<String, String> configuration, Requirements requirements) {
        configuration.forEach((setting, value) -> {
            Optional<Rule> found = rule(setting).filter(rule -> !rule.why().isEmpty());
            if (found.isEmpty() || value == null || value.isBlank()) return;
            Rule rule = found.get();
            if (rule.isRejection()) requirements.without(setting, rule.why());
            else requirements.unset(setting, rule.values(), rule.why());
        });
    }
}
