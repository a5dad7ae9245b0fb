package io.towpath;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.mongodb.kafka.connect.sink.MongoSinkConfig;
import io.debezium.connector.mongodb.MongoDbConnector;
import io.towpath.connector.InheritedSettings;
import io.towpath.debezium.DebeziumToRecord;
import io.towpath.json.ToJson;
import io.towpath.sink.MongoKafkaSettings;
import io.towpath.sink.MongoSink;
import io.towpath.source.DebeziumSettings;
import io.towpath.source.MongoSource;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigDef.ConfigKey;
import org.junit.jupiter.api.Test;

/** The tables of docs/reference/connectors.md are what the connectors define; -Dtowpath.docs=write writes them. */
class SettingsPageTest {
    private static final Path PAGE = Path.of("../docs/reference/connectors.md");
    private static final List<String> CLIENTS = List.of("producer", "consumer", "admin");
    private static final String HEAD = "| setting | type | default | meaning |\n|---|---|---|---|\n";

    @Test
    void thePageHasTheSettingsOfBothConnectors() throws IOException {
        String page = Files.readString(PAGE);
        String source = table(
                new MongoSource().config(), new MongoDbConnector().config().names());
        String sink = table(new MongoSink().config(), MongoSinkConfig.CONFIG.names());
        String transform = table(new DebeziumToRecord().config(), Set.of());
        String json = table(new ToJson<>().config(), Set.of());
        assertTrue(source.lines().count() > 10 && sink.lines().count() > 10);
        assertFalse(
                (source + sink + transform + json).contains("$$Lambda"),
                "a validator that does not say what it accepts");
        String filled = fill(fill(fill(page, "MongoSource", source), "MongoSink", sink), "DebeziumToRecord", transform);
        filled = fill(filled, "ToJson", json);
        filled = fill(filled, "inherited by MongoSource", inherited(DebeziumSettings.RULES));
        filled = fill(filled, "inherited by MongoSink", inherited(MongoKafkaSettings.RULES));
        if ("write".equals(System.getProperty("towpath.docs"))) Files.writeString(PAGE, filled);
        else assertEquals(filled, page, "mvn -f transforms/pom.xml test -Dtest=SettingsPageTest -Dtowpath.docs=write");
    }

    private static String fill(String page, String block, String text) {
        Pattern place = Pattern.compile("(<!-- generated: " + block + " -->\n).*?(<!-- end -->)", Pattern.DOTALL);
        Matcher found = place.matcher(page);
        assertTrue(found.find(), block);
        return found.replaceFirst(Matcher.quoteReplacement(found.group(1) + "\n" + text + "\n" + found.group(2)));
    }

    private static String table(ConfigDef definition, Set<String> others) {
        Stream<ConfigKey> keys = definition.configKeys().values().stream()
                .filter(key -> !others.contains(key.name) && !key.internalConfig);
        return keys.sorted(Comparator.comparing(key -> key.name))
                .map(SettingsPageTest::row)
                .collect(Collectors.joining("\n", HEAD, "\n"));
    }

    private static String row(ConfigKey key) {
        String values = key.validator == null ? "" : ", " + cell(key.validator.toString());
        String byDefault = !key.hasDefault()
                ? "required"
                : key.defaultValue == null || shown(key).isEmpty() || key.type == ConfigDef.Type.PASSWORD
                        ? ""
                        : "`" + cell(shown(key)) + "`";
        return "| `%s` | %s%s | %s | %s |"
                .formatted(key.name, key.type.name().toLowerCase(), values, byDefault, cell(key.documentation));
    }

    private static String shown(ConfigKey key) {
        return ConfigDef.convertToString(key.defaultValue, key.type);
    }

    /** What is rejected or restricted, a line for each reason, and then what is passed on. */
    private static String inherited(InheritedSettings settings) {
        Map<String, List<String>> lines = new LinkedHashMap<>();
        List<String> passedOn = new ArrayList<>();
        for (InheritedSettings.Rule rule : settings.rules()) {
            List<String> names =
                    rule.names().stream().map(name -> "`%s`".formatted(name)).toList();
            if (rule.why().isEmpty()) passedOn.addAll(names);
            else
                lines.computeIfAbsent("%s | %s".formatted(accepted(rule), cell(rule.why())), line -> new ArrayList<>())
                        .addAll(names);
        }
        StringBuilder text = new StringBuilder("| setting | accepted | why others are rejected |\n|---|---|---|\n");
        lines.forEach((line, names) -> text.append("| %s | %s |\n".formatted(listed(names), line)));
        return text.append("\nPassed on, with any value: %s.\n".formatted(listed(passedOn)))
                .toString();
    }

    /** A setting of all three clients is listed once. */
    private static String listed(List<String> names) {
        return names.stream()
                .map(name -> {
                    String setting = name.substring(name.indexOf(".override.") + 1);
                    boolean isOfAll = name.contains(".override.")
                            && CLIENTS.stream().allMatch(client -> names.contains("`" + client + "." + setting));
                    return isOfAll ? "`CLIENT." + setting : name;
                })
                .distinct()
                .collect(Collectors.joining(", "));
    }

    private static String accepted(InheritedSettings.Rule rule) {
        return rule.isRejection()
                ? "none"
                : rule.values().stream().map("`%s`"::formatted).collect(Collectors.joining(" or "));
    }

    private static String cell(String text) {
        return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ");
    }
}
