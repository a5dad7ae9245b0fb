package io.towpath.sink;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.stream.LongStream;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.sink.ErrantRecordReporter;
import org.apache.kafka.connect.sink.SinkRecord;
import org.junit.jupiter.api.Test;

class DeadLettersTest {
    private static final TopicPartition PARTITION = new TopicPartition("t", 0);

    private final List<Long> reported = new ArrayList<>();
    private boolean isThere = true;
    private final ErrantRecordReporter reporter = (record, error) -> {
        assertFalse(record.headers().isEmpty(), "it says why");
        if (!isThere) return CompletableFuture.failedFuture(error);
        reported.add(record.kafkaOffset());
        return CompletableFuture.completedFuture(null);
    };

    @Test
    void eachIsReportedOnceHoweverOftenItsTransactionIsTried() {
        DeadLetters letters = letters(1);
        List<SinkRecord> records = records(0, 4);
        assertEquals(0, letters.report(records));
        add(letters, records.get(1));
        letters.addFurther(records.get(3), "db.c", 0, "reason");
        isThere = false;
        assertThrows(Unanswered.class, () -> letters.report(records));
        isThere = true;
        assertEquals(1, letters.report(records.subList(0, 3)));
        assertEquals(2, letters.report(records));
        assertEquals(2, letters.report(records));
        assertEquals(List.of(1L, 3L), reported);
        assertTrue(records.get(1).headers().isEmpty(), "Connect's own record is as it was");
    }

    @Test
    void eachIsRememberedUntilItsPartitionIsPast() {
        DeadLetters letters = letters(1);
        List<SinkRecord> records = records(0, 4);
        records.forEach(record -> add(letters, record));
        letters.passed(PARTITION, 2);
        assertEquals(
                records.subList(2, 4),
                records.stream().filter(letters::contains).toList());
        letters.passed(new TopicPartition("t", 1), 9);
        assertTrue(letters.contains(records.get(3)));
        letters.passed(PARTITION, 4);
        assertFalse(letters.contains(records.get(3)));
        add(letters, records.get(0));
        letters.forget(PARTITION);
        assertFalse(letters.contains(records.get(0)));
    }

    @Test
    void theShareIsOfAllRecordsAndTenAreAlwaysAllowed() {
        DeadLetters letters = letters(10);
        refuse(letters, 10);
        letters.expect(50);
        refuse(letters, 5);
        letters.expect(300);
        refuse(letters, 30);
        letters.expect(300);
        letters.expect(50);
        refuse(letters, 10); // of what a batch left over
        letters.expect(9);
        assertThrows(ConnectException.class, () -> add(letters, records(0, 1).get(0)));
        letters.expect(1);
        refuse(letters, 1);
    }

    /** So many are allowed, and no more. */
    private static void refuse(DeadLetters letters, int allowed) {
        records(0, allowed).forEach(record -> add(letters, record));
        SinkRecord more = records(allowed, 1).get(0);
        assertThrows(ConnectException.class, () -> add(letters, more));
        letters.addFurther(more, "db.c", 0, "it counts for no share");
    }

    @Test
    void noneIsAllowedWithoutAShareOrATopic() {
        DeadLetters none = letters(0);
        none.expect(1_000_000);
        refuse(none, 0);
        DeadLetters nowhere = new DeadLetters(null, 1);
        assertFalse(nowhere.haveTopic());
        SinkRecord record = records(0, 1).get(0);
        assertThrows(ConnectException.class, () -> add(nowhere, record));
        assertThrows(ConnectException.class, () -> nowhere.addFurther(record, "db.c", 0, "reason"));
        assertFalse(nowhere.contains(record));
    }

    private DeadLetters letters(double percent) {
        return new DeadLetters(reporter, percent);
    }

    private static void add(DeadLetters letters, SinkRecord record) {
        letters.add(record, "db.c", 121, "reason");
    }

    private static List<SinkRecord> records(long from, int count) {
        return LongStream.range(from, from + count)
                .mapToObj(offset -> new SinkRecord("t", 0, null, new byte[1], null, null, offset))
                .toList();
    }
}
