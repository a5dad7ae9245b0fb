package io.towpath.source.ddl;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.Properties;
import org.junit.jupiter.api.Test;

class TopicPartitionsTest {
    private final Map<String, Integer> existing = new HashMap<>();
    private int questions;
    private final TopicPartitions partitions = new TopicPartitions(
            "move", Map.of("topic.creation.default.partitions", "3"), Optional.of(new Properties()), topic -> {
                questions++;
                Integer count = existing.get(topic);
                return count == null ? OptionalInt.empty() : OptionalInt.of(count);
            });

    @Test
    void aTopicThatIsCreatedWithAnotherCountHasThatOne() throws InterruptedException {
        assertEquals(Map.of("move.db.c", 3), partitions.of("db.c", ""));
        existing.put("move.db.c", 5);
        assertEquals(Map.of("move.db.c", 5), partitions.of("db.c", ""));
    }

    @Test
    void aTopicThatExistsIsAskedForOnce() throws InterruptedException {
        existing.put("move.db.c", 5);
        partitions.of("db.c", "");
        partitions.of("db.c", "");
        assertEquals(1, questions);
    }
}
