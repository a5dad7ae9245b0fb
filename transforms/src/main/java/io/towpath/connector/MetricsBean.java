package io.towpath.connector;

import java.lang.invoke.MethodType;
import java.lang.management.ManagementFactory;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.function.Supplier;
import java.util.regex.Pattern;
import javax.management.Attribute;
import javax.management.AttributeList;
import javax.management.AttributeNotFoundException;
import javax.management.DynamicMBean;
import javax.management.JMException;
import javax.management.MBeanAttributeInfo;
import javax.management.MBeanInfo;
import javax.management.MBeanRegistration;
import javax.management.MBeanServer;
import javax.management.ObjectName;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** What a task counts, as read-only attributes over JMX. */
public final class MetricsBean implements DynamicMBean, MBeanRegistration, AutoCloseable {
    private static final Logger LOGGER = LoggerFactory.getLogger(MetricsBean.class);
    private static final MBeanServer SERVER = ManagementFactory.getPlatformMBeanServer();
    private static final Pattern PLAIN = Pattern.compile("[\\w-%. \t]*");

    private final Map<String, Supplier<?>> values = new LinkedHashMap<>();
    private final Map<String, String> meanings = new LinkedHashMap<>();
    private ObjectName name;

    /** @param value is read by any thread */
    public MetricsBean add(String attribute, String meaning, Supplier<?> value) {
        values.put(attribute, value);
        meanings.put(attribute, meaning);
        return this;
    }

    /**
     * As {@code io.towpath:type=…}, with the name of the connector, the number of the task and further tags, quoted where Kafka quotes its
     * own. In place of a bean of this name that a task which never stopped has left.
     *
     * @param more names and values in turn
     */
    public MetricsBean register(String type, String connector, int task, String... more) throws JMException {
        StringBuilder text =
                new StringBuilder("io.towpath:type=%s,connector=%s,task=%d".formatted(type, tag(connector), task));
        for (int at = 0; at < more.length; at += 2) text.append(",%s=%s".formatted(more[at], tag(more[at + 1])));
        ObjectName free = new ObjectName(text.toString());
        synchronized (SERVER) {
            if (SERVER.isRegistered(free)) SERVER.unregisterMBean(free);
            SERVER.registerMBean(this, free);
            name = free;
        }
        return this;
    }

    /** A tag's value in the name of a bean, quoted where Kafka quotes it. */
    public static String tag(String value) {
        return PLAIN.matcher(value).matches() ? value : ObjectName.quote(value);
    }

    @Override
    public MBeanInfo getMBeanInfo() {
        MBeanAttributeInfo[] attributes =
                values.keySet().stream().map(this::describe).toArray(MBeanAttributeInfo[]::new);
        return new MBeanInfo(getClass().getName(), "The metrics of a task of Towpath", attributes, null, null, null);
    }

    private MBeanAttributeInfo describe(String attribute) {
        Class<?> type = MethodType.methodType(values.get(attribute).get().getClass())
                .unwrap()
                .returnType();
        return new MBeanAttributeInfo(attribute, type.getName(), meanings.get(attribute), true, false, false);
    }

    @Override
    public Object getAttribute(String attribute) throws AttributeNotFoundException {
        if (!values.containsKey(attribute)) throw new AttributeNotFoundException(attribute);
        return values.get(attribute).get();
    }

    @Override
    public AttributeList getAttributes(String[] attributes) {
        AttributeList list = new AttributeList();
        for (String attribute : attributes)
            if (values.containsKey(attribute))
                list.add(new Attribute(attribute, values.get(attribute).get()));
        return list;
    }

    @Override
    public void setAttribute(Attribute attribute) {
        throw new UnsupportedOperationException();
    }

    @Override
    public AttributeList setAttributes(AttributeList attributes) {
        throw new UnsupportedOperationException();
    }

    @Override
    public Object invoke(String action, Object[] parameters, String[] signature) {
        throw new UnsupportedOperationException();
    }

    @Override
    public void close() {
        synchronized (SERVER) {
            if (name == null) return;
            try {
                SERVER.unregisterMBean(name);
            } catch (JMException error) {
                LOGGER.debug("{} was not registered any more", name, error);
            }
        }
    }

    @Override
    public ObjectName preRegister(MBeanServer server, ObjectName given) {
        return given;
    }

    @Override
    public void postRegister(Boolean done) {}

    @Override
    public void preDeregister() {}

    /** A successor may do this; then {@link #close} must leave the successor's bean in its place. */
    @Override
    public void postDeregister() {
        name = null;
    }
}
