package io.towpath.record;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.towpath.record.RecordHeaders.Part;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import org.junit.jupiter.api.Test;

class RecordHeadersTest {
    private static final String TEXT = new RecordHeaders("u", new ClusterTime(1700000000, 7), 1700000000123L).text();

    @Test
    void aMarkThatARowFollowsChangesNoOtherPart() {
        String marked = RecordHeaders.withRowFollows(TEXT);
        assertEquals("2 u 1700000000:7 1700000000123 row-follows", marked);
        assertEquals(parts(TEXT), parts(marked));
        assertTrue(RecordHeaders.rowFollows(marked));
        assertFalse(RecordHeaders.rowFollows(TEXT));
    }

    @Test
    void aMarkedUpdateThatHasSplicesNowIsStillMarked() {
        assertTrue(RecordHeaders.rowFollows(RecordHeaders.withSplices(RecordHeaders.withRowFollows(TEXT))));
    }

    private static List<Optional<String>> parts(String text) {
        return Arrays.stream(Part.values())
                .map(part -> RecordHeaders.part(text, part))
                .toList();
    }
}
