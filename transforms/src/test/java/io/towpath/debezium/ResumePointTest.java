package io.towpath.debezium;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;

import io.towpath.record.ClusterTime;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class ResumePointTest {
    private static final ClusterTime START = new ClusterTime(100, 7);

    /** The stream begins at its start, or right after it, and the first heartbeat has that time. */
    @ParameterizedTest
    @CsvSource({"99, 9, false", "100, 7, false", "100, 8, false", "100, 9, true", "101, 1, true"})
    void aTimeIsThatOfAnEntryOnceTheStreamHasPassedOne(int seconds, int ordinal, boolean isEntry) {
        ResumePoint point = ResumePoint.of(Map.of("sec", seconds, "ord", ordinal), START);
        assertEquals(new ClusterTime(seconds, ordinal), point.time());
        assertEquals(isEntry, point.isEntry());
    }

    @Test
    void aStreamWithoutAnOffsetHasPassedNone() {
        assertFalse(ResumePoint.of(null, START).isEntry());
    }
}
