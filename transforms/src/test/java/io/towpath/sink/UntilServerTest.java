package io.towpath.sink;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.connect.sink.SinkRecord;
import org.junit.jupiter.api.Test;

/** What is later than a moment is not applied, and its offset is passed all the same. A record's time is 1700000000 and its offset. */
class UntilServerTest extends DestinationTest {
    @Test
    void theMomentItselfIsTheLastThatIsApplied() {
        try (TestTask sink = until("1700000000:3")) {
            sink.put(0, "c {_id: 1}", "c {_id: 2}", "u {_id: 1, $set: {x: 1}}", "u {_id: 2, $set: {x: 1}}");
            sink.put(4, "u {_id: 1, $set: {x: 2}}", "d {_id: 2}", "c {_id: 3}");
            assertEquals(TestTask.documents("{_id: 1, x: 1}", "{_id: 2, x: 1}"), TestTask.stored(collection));
            assertEquals(7, offset());
            Map<?, OffsetAndMetadata> committed = sink.task.preCommit(Map.of(sink.partition, new OffsetAndMetadata(7)));
            assertEquals(Map.of(sink.partition, new OffsetAndMetadata(7)), committed);
        }
    }

    @Test
    void theSecondDecidesBeforeTheOrdinal() {
        try (TestTask sink = until("1699999999:4000000000")) {
            sink.put(0, "c {_id: 1}");
        }
        try (TestTask sink = until("1700000001:0")) {
            sink.put(1, "c {_id: 2}");
        }
        assertEquals(TestTask.documents("{_id: 2}"), TestTask.stored(collection));
    }

    @Test
    void foldingDoesNotCarryOverWhatIsLater() {
        try (TestTask sink = until("1700000000:1")) {
            sink.put(0, "c {_id: 1}", "u {_id: 1, $set: {x: 1}}", "u {_id: 1, $set: {x: 2}}", "d {_id: 1}");
            assertEquals(TestTask.documents("{_id: 1, x: 1}"), TestTask.stored(collection));
        }
    }

    @Test
    void aTaskGoesOnBehindWhatWasPassedOver() {
        try (TestTask sink = until("1700000000:1")) {
            sink.put(0, "c {_id: 1}", "c {_id: 2}", "c {_id: 3}", "c {_id: 4}");
        }
        try (TestTask sink = TestTask.opened(collection)) {
            assertEquals(4, sink.seek());
            sink.put(4, "c {_id: 5}");
        }
        assertEquals(TestTask.documents("{_id: 1}", "{_id: 2}", "{_id: 5}"), TestTask.stored(collection));
    }

    @Test
    void whatTellsNoTimeIsADeadLetter() {
        try (TestTask sink = until("1700000000:9")) {
            SinkRecord record = sink.records(0, "c {_id: 1}").get(0);
            record.headers().remove("v");
            sink.task.put(List.of(record));
            assertEquals(List.of(0L), letters(sink));
            assertEquals(1, offset());
        }
    }

    @Test
    void theRecordThatIsRefusedIsSetAsideAndNotOneThatIsPassedOver() {
        server.requireTestCommands();
        try (TestTask sink = until("1700000000:1")) {
            SinkRecord later = sink.records(0, "c {_id: 1}").get(0);
            later.headers().remove("v").addBytes("v", "1 c 1700000000:2 1".getBytes(UTF_8));
            server.fail("{times: 1}", "failCommands: ['insert'], errorCode: 2");
            sink.task.put(List.of(later, sink.records(1, "c {_id: 2}").get(0)));
            assertEquals(List.of(1L), letters(sink));
            assertEquals(2, offset());
        }
    }

    private TestTask until(String moment) {
        return TestTask.opened(collection, LogSettings.UNTIL, moment);
    }

    private static List<Long> letters(TestTask sink) {
        return sink.context.letters.stream().map(SinkRecord::kafkaOffset).toList();
    }

    private static long offset() {
        return server.offsets().find().first().getInt64(OffsetDocument.OFFSET).getValue();
    }
}
