package io.towpath.source.copy;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;

import io.towpath.debezium.SourceCluster;
import io.towpath.source.progress.RangePlan;
import io.towpath.support.Server;
import io.towpath.support.Sources;
import java.util.AbstractList;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;

/** What the copying threads report to the task. */
@Tag("server")
@EnabledIfEnvironmentVariable(named = Server.URI, matches = ".+")
class CopyThreadsServerTest {
    @Test
    void anErrorThatIsNoExceptionIsToldToo() throws InterruptedException {
        Map<String, String> configuration = Sources.configuration();
        Error error = new NoClassDefFoundError("io/towpath/Gone");
        List<byte[]> bounds = new AbstractList<>() {
            @Override
            public byte[] get(int index) {
                throw error;
            }

            @Override
            public int size() {
                return 1;
            }
        };
        try (SourceCluster source = Sources.connected(configuration);
                CopyThreads threads = new CopyThreads(Sources.reads(source), "p", source.now())) {
            threads.read(new RangeRead.Range("shop.orders", new RangePlan(bounds, 1, 1, 1), 0, RangePlan.OPEN_END));
            threads.start();
            CopyReports.Failed failed = assertInstanceOf(CopyReports.Failed.class, threads.next(30_000));
            assertEquals("shop.orders", failed.namespace());
            assertEquals(error, failed.cause());
        }
    }
}
