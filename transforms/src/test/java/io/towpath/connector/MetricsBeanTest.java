package io.towpath.connector;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;

import java.lang.management.ManagementFactory;
import javax.management.MBeanServer;
import javax.management.ObjectName;
import org.junit.jupiter.api.Test;

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
