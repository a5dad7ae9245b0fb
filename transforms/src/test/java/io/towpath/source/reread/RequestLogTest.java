package io.towpath.source.reread;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.towpath.record.BsonBytes;
import io.towpath.source.progress.CopyShare;
import io.towpath.source.progress.Partitions;
import io.towpath.source.progress.Progress;
import io.towpath.source.progress.SourceMetrics;
import io.towpath.source.rules.Rules;
import java.lang.management.ManagementFactory;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import javax.management.ObjectName;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.MockConsumer;
import org.bson.BsonDocument;
import org.bson.RawBsonDocument;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

/** Which requests are answered, and up to where there is nothing to answer. */
class RequestLogTest {
    private final MockConsumer<byte[], byte[]> topic = new MockConsumer<>("earliest");
    private final SourceMetrics metrics = new SourceMetrics("requests", "p", "p", new CopyShare(0, 1));
    private final RequestLog log = new RequestLog(
            topic,
            "requests",
            3,
            7,
            Set.of("shop.orders", "shop.\u00e9")::contains,
            new Progress("p", new Partitions("p"), null, metrics, Rules.NONE));

    @AfterEach
    void close() {
        metrics.close();
        log.close();
        assertTrue(topic.closed());
    }

    @Test
    void requestsAreAnsweredInTheirOrder() throws Exception {
        request(2, "{namespace: 'shop.orders', ids: [1]}"); // answered before
        assertFirst(Optional.empty(), 3);
        request(3, "{namespace: 'other.connector', ids: [1]}");
        request(4, "{namespace: 'shop.orders', ids: [2, 1]}");
        request(5, "{namespace: 'shop.orders', ids: [3]}");
        request(6, "{resnapshot: 'r'}");

        assertFirst(Optional.of("shop.orders [1, 2] "), 4);
        assertFirst(Optional.of("shop.orders [1, 2] "), 4);
        log.answered();
        assertFirst(Optional.of("shop.orders [3] "), 5);
        log.answered();
        assertFirst(Optional.of(" [] r"), 6);
        log.answered();
        assertFirst(Optional.empty(), 7);
        assertSkipped(0);
    }

    @Test
    void whatCannotBeAnsweredHoldsUpNothing() throws Exception {
        request(3, "{namespace: 'shop.orders'}");
        request(4, "{namespace: 'shop.\u00e9', ids: [1]}");
        request(5, "{namespace: 'shop.orders', ids: [/x/]}");
        assertFirst(Optional.empty(), 6);
        assertSkipped(3);
        request(6, "{namespace: 'shop.orders', ids: [/x/, 1, [1]]}");
        assertFirst(Optional.of("shop.orders [1] "), 6);
        assertSkipped(3);
        log.answered();
        assertSkipped(4);
        request(7, "{namespace: 'shop.orders', ids: [1]}");
        assertFirst(Optional.of("shop.orders [1] "), 7);
        log.skip("the source refuses it");
        log.answered();
        assertFirst(Optional.empty(), 8);
        assertSkipped(5);
    }

    private void request(long offset, String json) {
        topic.addRecord(new ConsumerRecord<>("requests", 0, offset, null, BsonBytes.of(BsonDocument.parse(json))));
    }

    /** The first request, its ids and what it closes; and the offset up to which there is nothing to answer. */
    private void assertFirst(Optional<String> request, long offset) {
        Optional<RereadRequest> first = log.first();
        assertEquals(request, first.map(each -> "%s %s %s".formatted(each.namespace(), ids(each), each.closes())));
        assertEquals(offset, log.next());
        first.ifPresent(each -> assertEquals(offset, each.offset()));
    }

    private static List<Integer> ids(RereadRequest request) {
        return request.keys().stream()
                .map(key -> new RawBsonDocument(key).getNumber("_id").intValue())
                .toList();
    }

    /** Since the task began, and with those that an earlier task has skipped. */
    private void assertSkipped(long requests) throws Exception {
        ObjectName bean = new ObjectName("io.towpath:type=source,connector=requests,task=0,pipeline=p,prefix=p");
        assertEquals(requests, ManagementFactory.getPlatformMBeanServer().getAttribute(bean, "RequestsSkipped"));
        assertEquals(7 + requests, log.skipped());
    }
}
