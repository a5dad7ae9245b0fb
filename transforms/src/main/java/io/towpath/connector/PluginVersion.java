package io.towpath.connector;

import java.util.Optional;

/** The version of Towpath's plugin, which connectors, tasks and transforms tell Connect. */
public final class PluginVersion {
    private PluginVersion() {}

    /** As in the jar's manifest; {@code unknown} outside of a jar. */
    public static String current() {
        return Optional.ofNullable(PluginVersion.class.getPackage().getImplementationVersion())
                .orElse("unknown");
    }
}
