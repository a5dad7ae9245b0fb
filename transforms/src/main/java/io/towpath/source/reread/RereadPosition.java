package io.towpath.source.reread;

import java.util.Map;

/**
 * How far requests are answered, as an offset of the connector.
 *
 * @param next offset of the first request that is not answered
 * @param index how many of its documents are answered
 * @param waiting why the request waits; empty when it does not
 */
record RereadPosition(long next, int index, String waiting) {
    /** @param offset null before the first */
    static RereadPosition of(Map<String, Object> offset) {
        if (offset == null) return new RereadPosition(0, 0, "");
        return new RereadPosition(
                ((Number) offset.get("next")).longValue(), ((Number) offset.get("index")).intValue(), (String)
                        offset.get("waiting"));
    }

    Map<String, Object> offset() {
        return Map.of("next", next, "index", (long) index, "waiting", waiting);
    }
}
