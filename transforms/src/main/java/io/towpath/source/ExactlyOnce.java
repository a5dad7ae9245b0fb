package io.towpath.source;

import io.towpath.connector.MetricsBean;
import java.lang.management.ManagementFactory;
import java.time.Duration;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.locks.LockSupport;
import javax.management.JMException;
import javax.management.MBeanAttributeInfo;
import javax.management.MBeanServer;
import javax.management.ObjectName;
import org.apache.kafka.connect.errors.ConnectException;

/**
 * A page of the copy, and what is re-read, goes to Kafka in one transaction with the offset behind it. Without transactions a killed
 * worker loses rows or repeats changes, so the connector does not run without them.
 */
final class ExactlyOnce {
    private static final String METRIC = "transaction-size-max";
    private static final Duration PAUSE = Duration.ofMillis(500);

    private ExactlyOnce() {}

    /**
     * Throws {@link ConnectException} where the worker has no transactions: a standalone one, or one whose settings have changed since it
     * validated the connector. Connect does not inform the task, but has a metric of its transactions' sizes only where there are some.
     * A worker without JMX passes.
     */
    static void requireOfWorker(Map<String, String> configuration) {
        if (!lacksTransactions(configuration.get("name"))) return;
        LockSupport.parkNanos(PAUSE.toNanos()); // an earlier task of this name may still be removing its metrics
        if (lacksTransactions(configuration.get("name")))
            throw new ConnectException(
                    "TWP-NOT-EXACTLY-ONCE: this worker writes without transactions (its tasks have no metric %s): %s. Set exactly.once.source.support=enabled on every worker of a distributed cluster (first `preparing` on all, then `enabled`), and restart them; a standalone worker does not support it"
                            .formatted(METRIC, DebeziumSettings.WHOLE_TRANSACTION));
    }

    private static boolean lacksTransactions(String connector) {
        if (connector == null) return false;
        MBeanServer server = ManagementFactory.getPlatformMBeanServer();
        try {
            Set<ObjectName> tasks = server.queryNames(
                    new ObjectName("kafka.connect:type=source-task-metrics,connector=%s,task=*"
                            .formatted(MetricsBean.tag(connector))),
                    null);
            for (ObjectName task : tasks) {
                for (MBeanAttributeInfo attribute : server.getMBeanInfo(task).getAttributes()) {
                    if (attribute.getName().equals(METRIC)) return false;
                }
            }
            return !tasks.isEmpty();
        } catch (JMException gone) {
            return false;
        }
    }
}
