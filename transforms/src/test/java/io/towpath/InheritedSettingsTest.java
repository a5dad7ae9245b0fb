package io.towpath;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.mongodb.kafka.connect.sink.MongoSinkConfig;
import com.mongodb.kafka.connect.sink.MongoSinkTopicConfig;
import com.mongodb.kafka.connect.util.custom.credentials.CustomCredentialProviderConstants;
import io.debezium.config.Field;
import io.debezium.connector.mongodb.MongoDbConnector;
import io.debezium.connector.mongodb.MongoDbConnectorConfig;
import io.debezium.schema.AbstractTopicNamingStrategy;
import io.towpath.connector.InheritedSettings;
import io.towpath.sink.MongoKafkaSettings;
import io.towpath.sink.MongoSink;
import io.towpath.sink.TowpathSinkTask;
import io.towpath.source.DebeziumSettings;
import io.towpath.source.MongoSource;
import io.towpath.source.TowpathSourceTask;
import io.towpath.support.Definitions;
import java.lang.reflect.Modifier;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.connect.connector.Connector;
import org.apache.kafka.connect.connector.Task;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.runtime.SinkConnectorConfig;
import org.apache.kafka.connect.runtime.SourceConnectorConfig;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** A new version of Connect, Debezium, mongo-kafka or Kafka's clients brings no setting that no one has judged. */
class InheritedSettingsTest {
    private static final String JUDGE =
            "read what each does, then pass it on, require its values, or reject it, in the rules of ";

    @Test
    void everySettingThatTheSourceInheritsIsJudged() throws IllegalAccessException {
        Set<String> inherited = inheritedBySource();
        assertTrue(
                inherited.containsAll(Set.of("cursor.pipeline", "signal.data.collection", "topic.heartbeat.prefix")));
        assertEquals(List.of(), unjudged(inherited, DebeziumSettings.RULES), JUDGE + "DebeziumSettings");
    }

    @Test
    void everySettingThatTheSinkInheritsIsJudged() throws IllegalAccessException {
        Set<String> inherited = inheritedBySink();
        assertTrue(inherited.containsAll(Set.of("rate.limiting.timeout", "mongo.custom.auth.mechanism.enable")));
        assertEquals(List.of(), unjudged(inherited, MongoKafkaSettings.RULES), JUDGE + "MongoKafkaSettings");
    }

    @Test
    void noRuleIsOfASettingThatIsGone() throws IllegalAccessException {
        assertEquals(List.of(), gone(DebeziumSettings.RULES, inheritedBySource()));
        assertEquals(List.of(), gone(MongoKafkaSettings.RULES, inheritedBySink()));
    }

    private static List<String> gone(InheritedSettings rules, Set<String> inherited) {
        return names(rules.rules()).stream()
                .filter(name -> !name.endsWith("*") && !name.contains(".override.") && !inherited.contains(name))
                .toList();
    }

    private static List<String> unjudged(Set<String> inherited, InheritedSettings rules) {
        return inherited.stream()
                .filter(setting -> rules.rule(setting).isEmpty())
                .toList();
    }

    private static Set<String> inheritedBySource() throws IllegalAccessException {
        Set<String> names = clients();
        names.addAll(SourceConnectorConfig.configDef().names());
        names.addAll(new MongoDbConnector().config().names());
        // Debezium's definition lacks some that it reads
        for (Class<?> each = MongoDbConnectorConfig.class; each != null; each = each.getSuperclass())
            names.addAll(fields(each));
        names.addAll(fields(AbstractTopicNamingStrategy.class));
        return names;
    }

    private static Set<String> inheritedBySink() throws IllegalAccessException {
        Set<String> names = clients();
        names.addAll(SinkConnectorConfig.configDef().names());
        names.addAll(MongoSinkConfig.CONFIG.names());
        for (Class<?> each :
                List.of(MongoSinkConfig.class, MongoSinkTopicConfig.class, CustomCredentialProviderConstants.class)) {
            for (java.lang.reflect.Field field : each.getDeclaredFields())
                if (field.getName().endsWith("_CONFIG")
                        && field.getType() == String.class
                        && Modifier.isPublic(field.getModifiers())) names.add((String) field.get(null));
        }
        names.remove("topic"); // the key under which mongo-kafka notes the topic of a topic's settings
        return names;
    }

    private static Set<String> fields(Class<?> owner) throws IllegalAccessException {
        Set<String> names = new TreeSet<>();
        for (java.lang.reflect.Field field : owner.getDeclaredFields())
            if (field.getType() == Field.class && Modifier.isStatic(field.getModifiers())) {
                field.setAccessible(true);
                names.add(((Field) field.get(null)).name());
            }
        return names;
    }

    private static Set<String> clients() {
        Set<String> names = new TreeSet<>();
        ProducerConfig.configNames().forEach(name -> names.add("producer.override." + name));
        ConsumerConfig.configNames().forEach(name -> names.add("consumer.override." + name));
        AdminClientConfig.configNames().forEach(name -> names.add("admin.override." + name));
        return names;
    }

    @Test
    void theSourceRefusesWhatItsRulesReject() {
        assertRefused(new MongoSource(), TowpathSourceTask::new, "source.json", DebeziumSettings.RULES);
    }

    @Test
    void theSinkRefusesWhatItsRulesReject() {
        assertRefused(new MongoSink(), TowpathSinkTask::new, "sink.json", MongoKafkaSettings.RULES);
    }

    /** By name, when it is validated, and again when a task starts that was not. */
    private static void assertRefused(Connector connector, Tasks tasks, String file, InheritedSettings rules) {
        Map<String, String> rejected = new TreeMap<>();
        for (InheritedSettings.Rule rule : rules.rules())
            if (!rule.why().isEmpty()) rule.names().forEach(name -> rejected.put(name.replace("*", "x.y"), rule.why()));
        assertTrue(rejected.size() > 40, rejected::toString);
        Map<String, String> settings = Definitions.filled(file);
        rejected.keySet().forEach(name -> settings.put(name, "something"));
        Map<String, List<String>> messages = new HashMap<>();
        connector.validate(settings).configValues().forEach(value -> messages.put(value.name(), value.errorMessages()));
        rejected.forEach((name, why) -> assertTrue(
                messages.getOrDefault(name, List.of()).stream()
                        .anyMatch(message -> message.startsWith("TWP-CONFIG: " + name) && message.endsWith(why)),
                () -> name + ": " + messages.get(name)));
        for (String name : rejected.keySet()) {
            Map<String, String> one = Definitions.filled(file);
            one.put(name, "something");
            Task task = tasks.task();
            ConnectException refused = assertThrows(ConnectException.class, () -> task.start(one), name);
            assertTrue(refused.getMessage().startsWith("TWP-CONFIG: " + name), refused::getMessage);
        }
    }

    private interface Tasks {
        Task task();
    }

    @ParameterizedTest
    @CsvSource({
        "producer.override.partitioner.ignore.keys, true",
        "producer.override.partitioner.class, org.apache.kafka.clients.producer.RoundRobinPartitioner",
        "transforms.drop.type, org.apache.kafka.connect.transforms.Filter",
        "signal.kafka.topic, signals",
        "topic.override.main.shop.orders.collection, other",
        "csfle.kms.providers, local"
    })
    void aRuleHoldsForWhatItsPartsWouldRead(String setting, String value) {
        Map<String, String> settings =
                Definitions.filled(setting.matches("(topic|csfle).*") ? "sink.json" : "source.json");
        Connector connector =
                settings.get("connector.class").equals(MongoSink.class.getName()) ? new MongoSink() : new MongoSource();
        settings.put(setting, value);
        assertTrue(connector.validate(settings).configValues().stream()
                .filter(found -> found.name().equals(setting))
                .flatMap(found -> found.errorMessages().stream())
                .anyMatch(message -> message.startsWith("TWP-CONFIG: " + setting)));
    }

    @Test
    void anEmptyValueIsNone() {
        Map<String, String> settings = Definitions.filled("sink.json");
        settings.put("transforms", "");
        assertTrue(new MongoSink()
                .validate(settings).configValues().stream()
                        .filter(value -> value.name().equals("transforms"))
                        .allMatch(value -> value.errorMessages().isEmpty()));
    }

    @Test
    void theMostExactRuleHolds() {
        InheritedSettings rules = new InheritedSettings()
                .rejects("all", "a.*")
                .rejects("some", "a.b.*")
                .requires("a.b.c", List.of("1"), "one");
        assertEquals(
                List.of("all", "some", "one"),
                List.of("a.x", "a.b.x", "a.b.c").stream()
                        .map(name -> rules.rule(name).orElseThrow().why())
                        .toList());
        assertTrue(rules.rule("b").isEmpty());
    }

    private static Collection<String> names(List<InheritedSettings.Rule> rules) {
        List<String> names = new ArrayList<>();
        rules.forEach(rule -> names.addAll(rule.names()));
        return names;
    }
}
