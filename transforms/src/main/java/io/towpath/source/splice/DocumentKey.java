package io.towpath.source.splice;

import java.util.Arrays;

/** A document, by the topic and the key of its records. */
record DocumentKey(String topic, byte[] key) {
    @Override
    public boolean equals(Object other) {
        return other instanceof DocumentKey that && topic.equals(that.topic) && Arrays.equals(key, that.key);
    }

    @Override
    public int hashCode() {
        return 31 * topic.hashCode() + Arrays.hashCode(key);
    }
}
