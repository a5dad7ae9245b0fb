package io.towpath.sink;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import com.mongodb.MongoSocketReadException;
import com.mongodb.MongoSocketReadTimeoutException;
import com.mongodb.ServerAddress;
import org.junit.jupiter.api.Test;

class SilenceTest {
    private static final RuntimeException SILENT =
            new MongoSocketReadTimeoutException("silent", new ServerAddress(), new Exception());

    private final Silence silence = new Silence(40_000);

    @Test
    void theLimitDoublesAfterTwoTimeoutsWithoutASuccessInBetween() {
        silence.after(SILENT);
        silence.ended();
        silence.after(SILENT);
        silence.after(new MongoSocketReadException("gone", new ServerAddress()));
        assertEquals(40_000, silence.ms());
        assertThrows(Silence.TooShort.class, () -> silence.after(SILENT));
        assertEquals(80_000, silence.ms());
    }

    @Test
    void theLimitStaysWellBelowThePollInterval() {
        for (int expected : new int[] {80_000, 120_000}) {
            silence.after(SILENT);
            assertThrows(Silence.TooShort.class, () -> silence.after(SILENT));
            assertEquals(expected, silence.ms());
        }
        for (int timeout = 0; timeout < 3; timeout++) silence.after(SILENT);
        assertEquals(120_000, silence.ms());
    }
}
