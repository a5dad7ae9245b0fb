package io.towpath.source;

import com.mongodb.ServerAddress;
import com.mongodb.connection.ClusterDescription;
import com.mongodb.connection.ClusterId;
import com.mongodb.connection.ServerDescription;
import com.mongodb.connection.ServerType;
import com.mongodb.event.ClusterClosedEvent;
import com.mongodb.event.ClusterDescriptionChangedEvent;
import com.mongodb.event.ClusterListener;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Gives up a server whose process sleeps while its machine is up, which the driver would wait for until it wakes. A time limit for
 * answers would not do: a change stream that scans a long oplog is as silent. So it is by what the others of the set say that there is
 * another primary, and by its own silence towards the driver's monitor, which a busy server answers all the same.
 */
final class SilentServers implements ClusterListener {
    private static final Logger LOGGER = LoggerFactory.getLogger(SilentServers.class);
    /** For an answer to the monitor, which asks again at once when there is another primary. */
    private static final long PATIENCE_S = 3;

    private final Sockets sockets;
    private final Map<ClusterId, ClusterDescription> known = new ConcurrentHashMap<>();
    private final Executor later = CompletableFuture.delayedExecutor(PATIENCE_S, TimeUnit.SECONDS);

    /** @param sockets of the clients that this listens to */
    SilentServers(Sockets sockets) {
        this.sockets = sockets;
    }

    @Override
    public void clusterDescriptionChanged(ClusterDescriptionChangedEvent event) {
        ClusterId cluster = event.getClusterId();
        known.put(cluster, event.getNewDescription());
        Set<ServerAddress> silent = silent(cluster);
        long now = System.nanoTime();
        if (!silent.isEmpty()) later.execute(() -> giveUp(cluster, silent, now));
    }

    @Override
    public void clusterClosed(ClusterClosedEvent event) {
        known.remove(event.getClusterId());
    }

    private void giveUp(ClusterId cluster, Set<ServerAddress> silentThen, long ns) {
        Set<ServerAddress> silent = silent(cluster);
        silent.retainAll(silentThen);
        for (ServerAddress server : silent) {
            int closed = sockets.close(server, ns);
            if (closed > 0)
                LOGGER.warn(
                        "{} says nothing, and {} is primary: {} connections closed", server, primary(cluster), closed);
        }
    }

    /** Of which the driver's monitor knows nothing, while another one is primary. */
    private Set<ServerAddress> silent(ClusterId cluster) {
        if (primary(cluster).isEmpty()) return Set.of();
        return known.get(cluster).getServerDescriptions().stream()
                .filter(server -> server.getType() == ServerType.UNKNOWN)
                .map(ServerDescription::getAddress)
                .collect(Collectors.toSet());
    }

    private Optional<ServerAddress> primary(ClusterId cluster) {
        return Optional.ofNullable(known.get(cluster)).stream()
                .flatMap(description -> description.getServerDescriptions().stream())
                .filter(ServerDescription::isPrimary)
                .map(ServerDescription::getAddress)
                .findAny();
    }
}
