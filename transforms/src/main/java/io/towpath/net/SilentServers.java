package io.towpath.net;

import com.mongodb.ConnectionString;
import com.mongodb.MongoClientSettings;
import com.mongodb.ServerAddress;
import com.mongodb.connection.ClusterDescription;
import com.mongodb.connection.ClusterId;
import com.mongodb.connection.ServerDescription;
import com.mongodb.connection.ServerType;
import com.mongodb.connection.SslSettings;
import com.mongodb.event.ClusterClosedEvent;
import com.mongodb.event.ClusterDescriptionChangedEvent;
import com.mongodb.event.ClusterListener;
import java.security.NoSuchAlgorithmException;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import javax.net.ssl.SSLContext;
import org.apache.kafka.connect.errors.ConnectException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Gives up a server whose process is unresponsive while its machine is up: the driver would wait until it responds again. A time limit
 * for responses does not work, as a change stream that scans a long oplog is just as silent. So two things have to hold: the other
 * members report another primary, and the server does not respond to the driver's monitor, which a busy server does.
 */
public final class SilentServers implements ClusterListener {
    private static final Logger LOGGER = LoggerFactory.getLogger(SilentServers.class);
    /** For a response to the monitor, which tries again at once when there is another primary. */
    private static final long PATIENCE_S = 3;

    private static final Executor LATER = CompletableFuture.delayedExecutor(PATIENCE_S, TimeUnit.SECONDS);

    private final Sockets sockets;
    private final String side;
    private final Map<ClusterId, ClusterDescription> known = new ConcurrentHashMap<>();
    private final Executor later;

    /**
     * @param sockets of the clients that this listens to
     * @param later runs what it is given once a server has had time to respond
     */
    SilentServers(Sockets sockets, String side, Executor later) {
        this.sockets = sockets;
        this.side = side;
        this.later = later;
    }

    /**
     * Makes a client give up the silent servers of its set, except behind a proxy, or where the URI disables TLS.
     *
     * @param settings of the client, with its TLS
     * @param side the name of the set in the log
     */
    public static void watch(MongoClientSettings.Builder settings, ConnectionString uri, String side) {
        if (uri.getProxyHost() != null || Boolean.FALSE.equals(uri.getSslEnabled())) return;
        Sockets sockets = new Sockets();
        settings.applyToSslSettings(ssl -> {
            SslSettings original = ssl.build();
            boolean hasTls = uri.getSslEnabled() == null ? original.isEnabled() : uri.getSslEnabled();
            ssl.enabled(true).context(sockets.context(hasTls ? Optional.of(tls(original)) : Optional.empty()));
        });
        settings.applyToClusterSettings(cluster -> cluster.addClusterListener(new SilentServers(sockets, side, LATER)));
    }

    private static SSLContext tls(SslSettings settings) {
        try {
            return settings.getContext() == null ? SSLContext.getDefault() : settings.getContext();
        } catch (NoSuchAlgorithmException error) {
            throw new ConnectException("this JVM has no TLS: " + error.getMessage(), error);
        }
    }

    @Override
    public void clusterDescriptionChanged(ClusterDescriptionChangedEvent event) {
        ClusterId cluster = event.getClusterId();
        known.put(cluster, event.getNewDescription());
        Set<ServerAddress> fresh = silent(event.getNewDescription());
        fresh.removeAll(silent(event.getPreviousDescription()));
        long now = System.nanoTime();
        if (!fresh.isEmpty()) later.execute(() -> giveUp(cluster, fresh, now));
    }

    @Override
    public void clusterClosed(ClusterClosedEvent event) {
        known.remove(event.getClusterId());
    }

    /** Closes what connected to them before {@code ns}, if they have not responded since. */
    private void giveUp(ClusterId cluster, Set<ServerAddress> servers, long ns) {
        ClusterDescription now = known.get(cluster);
        if (now == null) return;
        Set<ServerAddress> silent = silent(now);
        silent.retainAll(servers);
        for (ServerAddress server : silent) {
            int closed = sockets.close(server, ns);
            if (closed > 0)
                LOGGER.warn(
                        "{} of the {} is unresponsive while there is another primary; connections closed: {}",
                        server,
                        side,
                        closed);
        }
    }

    /** Servers that the driver's monitor cannot reach, while another one is primary. */
    private static Set<ServerAddress> silent(ClusterDescription description) {
        List<ServerDescription> servers = description.getServerDescriptions();
        if (servers.stream().noneMatch(ServerDescription::isPrimary)) return new HashSet<>();
        return servers.stream()
                .filter(server -> server.getType() == ServerType.UNKNOWN)
                .map(ServerDescription::getAddress)
                .collect(Collectors.toCollection(HashSet::new));
    }
}
