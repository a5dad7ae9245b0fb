package io.towpath.source.copy;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.time.Duration;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class CopyThreadsTest {
    @ParameterizedTest(name = "an outage of {0} s, {1} s after the plan was made")
    @CsvSource({
        "4, 4, false",
        "9, 9, false",
        "11, 11, true",
        "11, 60, false",
        "60, 65, true",
        "250, 3600, false",
        "301, 3600, true"
    })
    void anOutageIsTooLongOnceItCostsMoreThanToBeginAgain(long outage, long age, boolean isTooLong) {
        assertEquals(isTooLong, CopyThreads.isTooLong(Duration.ofSeconds(outage), Duration.ofSeconds(age)));
    }
}
