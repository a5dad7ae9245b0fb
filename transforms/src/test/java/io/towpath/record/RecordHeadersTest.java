package io.towpath.record;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.towpath.record.RecordHeaders.Part;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

class RecordHeadersTest {
    private final String text = new RecordHeaders("u", new ClusterTime(1700000000, 7), 1700000000123L).text();

    @Test
    void eachPartIsReadAsItWasWritten() {
        assertEquals(
                Stream.of("1", "u", "1700000000:7", "1700000000123")
                        .map(Optional::of)
                        .toList(),
                parts(text));
        assertEquals(List.of(Optional.of("1"), Optional.of("u"), Optional.empty(), Optional.empty()), parts("1 u"));
    }

    @Test
    void aMarkThatARowFollowsChangesNoOtherPart() {
        String marked = RecordHeaders.withRowFollows(text);
        assertEquals("1 u 1700000000:7 1700000000123 row-follows", marked);
        assertEquals(parts(text), parts(marked));
        assertTrue(RecordHeaders.rowFollows(marked));
        assertFalse(RecordHeaders.rowFollows(text));
    }

    @Test
    void anotherTimeChangesNoOtherPart() {
        String marked = RecordHeaders.withRowFollows(text);
        assertEquals("1 u 6:8 1700000000123 row-follows", RecordHeaders.withTime(marked, new ClusterTime(6, 8)));
    }

    @Test
    void partsThatALaterVersionAddsAreIgnored() {
        String extended = RecordHeaders.withRowFollows(text) + " more";
        assertEquals(parts(text), parts(extended));
        assertTrue(RecordHeaders.rowFollows(extended));
        RecordHeaders.requireKnown(extended);
    }

    @Test
    void anotherVersionIsRefused() {
        RecordHeaders.requireKnown(text);
        RecordHeaders.requireKnown("1");
        for (String version : List.of("2", "0", "01", "", "10", "x", "9".repeat(50))) {
            String other = version + text.substring(1);
            ContractException refused =
                    assertThrows(ContractException.class, () -> RecordHeaders.requireKnown(other), version);
            assertTrue(refused.getMessage().contains("knows version 1 of the record contract"), refused.getMessage());
        }
    }

    private static List<Optional<String>> parts(String text) {
        return Arrays.stream(Part.values())
                .map(part -> RecordHeaders.part(text, part))
                .toList();
    }
}
