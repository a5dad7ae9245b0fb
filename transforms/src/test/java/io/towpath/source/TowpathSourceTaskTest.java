package io.towpath.source;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.stream.Stream;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.errors.RetriableException;
import org.apache.kafka.connect.source.SourceRecord;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

class TowpathSourceTaskTest {
    static Stream<RuntimeException> retriable() {
        return Stream.of(new RetriableException("Kafka is slow"), new TimeoutException("Kafka is slow"));
    }

    @ParameterizedTest
    @MethodSource("retriable")
    void noErrorHasConnectPollOnBehindWhatAPollHasTaken(RuntimeException error) {
        ConnectException ended = assertThrows(
                ConnectException.class,
                () -> TowpathSourceTask.whole(() -> {
                    throw error;
                }));
        assertFalse(ended instanceof RetriableException);
        assertSame(error, ended.getCause());
        assertTrue(ended.getMessage().contains("Kafka is slow"));
    }

    @Test
    void whatAPollReturnsIsPassedOn() throws Exception {
        List<SourceRecord> records = List.of();
        assertSame(records, TowpathSourceTask.whole(() -> records));
    }
}
