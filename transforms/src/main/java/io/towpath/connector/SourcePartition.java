package io.towpath.connector;

import java.util.LinkedHashMap;
import java.util.Map;

/** A source partition that knows its hash, as Connect hashes it for every record. Nothing changes it, and it keeps the order of its names. */
@SuppressWarnings("serial")
public final class SourcePartition extends LinkedHashMap<String, Object> {
    private final int hash;

    public SourcePartition(Map<String, ?> values) {
        super(values);
        hash = super.hashCode();
    }

    @Override
    public int hashCode() {
        return hash;
    }
}
