package io.towpath.connector;

import com.sun.management.HotSpotDiagnosticMXBean;
import java.lang.management.ManagementFactory;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigDef.Importance;
import org.apache.kafka.common.config.ConfigDef.Type;
import org.apache.kafka.common.config.ConfigDef.Width;

/**
 * A setting without effect, by whose recommended values a validation tells how large the worker's heap is: {@code heap=…}, and
 * {@code new=…}, which is how much of it new objects can get, in bytes. There are none where the JVM is not HotSpot.
 */
public final class WorkerHeap implements ConfigDef.Recommender {
    private static final String NAME = "towpath.worker.heap";

    private WorkerHeap() {}

    public static ConfigDef define(ConfigDef definition) {
        return definition.define(
                NAME,
                Type.STRING,
                "",
                Importance.LOW,
                "Has no effect. The recommended values are the heap that the worker has.",
                null,
                -1,
                Width.NONE,
                NAME,
                new WorkerHeap());
    }

    @Override
    public List<Object> validValues(String name, Map<String, Object> parsed) {
        HotSpotDiagnosticMXBean machine = ManagementFactory.getPlatformMXBean(HotSpotDiagnosticMXBean.class);
        if (machine == null) return List.of();
        return List.of("heap=" + value(machine, "MaxHeapSize"), "new=" + value(machine, "MaxNewSize"));
    }

    private static String value(HotSpotDiagnosticMXBean machine, String option) {
        return machine.getVMOption(option).getValue();
    }

    @Override
    public boolean visible(String name, Map<String, Object> parsed) {
        return true;
    }
}
