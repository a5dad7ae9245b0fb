package io.towpath.connector;

import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.common.config.ConfigValue;
import org.apache.kafka.connect.errors.ConnectException;

/** Checks settings of Connect and Debezium whose defaults would lose or repeat records. Each error names the value to set. */
public final class Requirements {
    private static final String CODE = "TWP-CONFIG: ";
    private static final String BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter";

    private final Map<String, String> configuration;
    private final Map<String, String> faults = new LinkedHashMap<>();

    public Requirements(Map<String, String> configuration) {
        this.configuration = configuration;
    }

    /** Requires the converters of the record contract. The connector has to set them, as it cannot see the worker's own. */
    public Requirements bytes() {
        for (String key : List.of("key.converter", "value.converter", "header.converter"))
            set(key, List.of(BYTES), "records are bytes, and any other converter changes or rejects them");
        return this;
    }

    /** Requires what the rules for inherited settings say of those that are set. */
    public Requirements inherited(InheritedSettings settings) {
        settings.check(configuration, this);
        return this;
    }

    /** Requires that a setting is omitted. Its value may be a secret. */
    Requirements without(String key, String why) {
        return fault(key, "%s cannot be used with this connector; remove it: %s".formatted(key, why));
    }

    /** Requires one of these values; the setting must not be omitted. */
    public Requirements set(String key, List<String> values, String why) {
        return unless(key, has(key, values), values, why);
    }

    /** Requires one of these values, of which the first is the default; the setting may be omitted. */
    public Requirements unset(String key, List<String> values, String why) {
        return unless(key, !configuration.containsKey(key) || has(key, values), values, why);
    }

    private boolean has(String key, List<String> values) {
        String value = configuration.getOrDefault(key, "").trim();
        return values.stream().anyMatch(value::equalsIgnoreCase);
    }

    private Requirements unless(String key, boolean isMet, List<String> values, String why) {
        if (isMet) return this;
        String value = configuration.get(key);
        String actual = value == null ? "not set" : "'%s'".formatted(value);
        return fault(key, "%s is %s; set it to %s: %s".formatted(key, actual, String.join(" or ", values), why));
    }

    /** Requires that a check of the setting does not throw. */
    public Requirements passes(String key, Runnable check) {
        try {
            check.run();
            return this;
        } catch (ConfigException error) {
            return fault(key, error.getMessage());
        } catch (RuntimeException error) {
            return fault(
                    key,
                    "%s is '%s', which cannot be used: %s".formatted(key, configuration.get(key), error.getMessage()));
        }
    }

    private Requirements fault(String key, String words) {
        faults.putIfAbsent(key, CODE + words);
        return this;
    }

    public boolean areMet() {
        return faults.isEmpty();
    }

    /**
     * The result of a validation plus the requirements that are not met. Adds nothing for other settings: Connect would take that for its
     * own result, which may have errors. Adds no values either: they would need the types that Connect defines.
     */
    public List<ConfigValue> addedTo(Collection<ConfigValue> values) {
        List<ConfigValue> all = new ArrayList<>(values);
        faults.forEach((key, words) -> all.stream()
                .filter(value -> value.name().equals(key))
                .findFirst()
                .ifPresentOrElse(
                        value -> value.addErrorMessage(words),
                        () -> all.add(new ConfigValue(key, null, List.of(), List.of(words)))));
        return all;
    }

    /** Throws {@link ConnectException} for the first requirement that is not met. */
    public void require() {
        faults.values().stream().findFirst().ifPresent(words -> {
            throw new ConnectException(words);
        });
    }
}
