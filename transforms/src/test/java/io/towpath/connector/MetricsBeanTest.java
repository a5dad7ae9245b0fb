package io.towpath.connector;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;

import java.lang.management.ManagementFactory;
import java.util.List;
import java.util.Map;
import javax.management.MBeanServer;
import javax.management.ObjectName;
import org.apache.kafka.common.metrics.JmxReporter;
import org.apache.kafka.common.metrics.KafkaMetricsContext;
import org.apache.kafka.common.metrics.Measurable;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.utils.Time;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class MetricsBeanTest {
    private static final MBeanServer SERVER = ManagementFactory.getPlatformMBeanServer();

    @Test
    void aNameIsQuotedWhereKafkaQuotesItsOwn() throws Exception {
        ObjectName quoted = new ObjectName("io.towpath:type=test,connector=\"a:b,\\*\",task=3,prefix=a.b-c");
        try (MetricsBean bean = new MetricsBean().add("Rows", "Rows", () -> 7L)) {
            bean.register("test", "a:b,*", 3, "prefix", "a.b-c");
            assertEquals(7L, SERVER.getAttribute(quoted, "Rows"));
        }
        assertFalse(SERVER.isRegistered(quoted));
    }

    /** Whether a worker writes with transactions is found out by the name of one of Connect's own beans. */
    @ParameterizedTest
    @ValueSource(strings = {"shop", "a:b,*", "a.b-c_d%e f", "\u00e9", "a\"b\\c", "a=b", "a\nb", "a/b"})
    void aTagIsWrittenAsInKafkasOwnBeans(String connector) throws Exception {
        JmxReporter reporter = new JmxReporter();
        reporter.contextChange(new KafkaMetricsContext("towpath.test"));
        try (Metrics metrics = new Metrics(new MetricConfig(), List.of(reporter), Time.SYSTEM)) {
            metrics.addMetric(metrics.metricName("rows", "test", "", Map.of("connector", connector)), (Measurable)
                    (config, now) -> 7.0);
            ObjectName name = new ObjectName("towpath.test:type=test,connector=" + MetricsBean.tag(connector));
            assertEquals(7.0, SERVER.getAttribute(name, "rows"));
        }
    }

    @Test
    void aTaskThatEndsLateLeavesTheBeanOfItsSuccessor() throws Exception {
        ObjectName name = new ObjectName("io.towpath:type=test,connector=shop,task=0");
        MetricsBean old = new MetricsBean().add("Rows", "Rows", () -> 1L).register("test", "shop", 0);
        try (MetricsBean next = new MetricsBean().add("Rows", "Rows", () -> 2L)) {
            next.register("test", "shop", 0);
            old.close();
            assertEquals(2L, SERVER.getAttribute(name, "Rows"));
        }
        assertFalse(SERVER.isRegistered(name));
    }
}
