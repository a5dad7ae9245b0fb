package io.towpath.net;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import com.mongodb.ServerAddress;
import com.mongodb.connection.ClusterConnectionMode;
import com.mongodb.connection.ClusterDescription;
import com.mongodb.connection.ClusterId;
import com.mongodb.connection.ClusterType;
import com.mongodb.connection.ServerConnectionState;
import com.mongodb.connection.ServerDescription;
import com.mongodb.connection.ServerType;
import com.mongodb.event.ClusterDescriptionChangedEvent;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.SocketException;
import java.net.SocketTimeoutException;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Whose connections are given up, by what the driver's monitors know of the set. */
class SilentServersTest {
    private static final ServerAddress OTHER = new ServerAddress("localhost", 1);
    private static final int SHORT_MS = 50;

    private final Sockets sockets = new Sockets();
    /** What runs once a server has had time to respond. */
    private final List<Runnable> later = new ArrayList<>();

    private final SilentServers listener = new SilentServers(sockets, "source", later::add);
    private final ClusterId cluster = new ClusterId();
    private ServerSocket server;
    private ServerAddress address;
    private Socket socket;

    @BeforeEach
    void connect() throws Exception {
        server = new ServerSocket(0, 1, InetAddress.getLoopbackAddress());
        address = new ServerAddress("localhost", server.getLocalPort());
        socket = sockets.context(Optional.empty()).getSocketFactory().createSocket();
        socket.connect(new InetSocketAddress("localhost", server.getLocalPort()), 10_000);
        socket.setSoTimeout(SHORT_MS);
    }

    @AfterEach
    void close() throws Exception {
        socket.close();
        server.close();
    }

    @Test
    void aServerThatSaysNothingWhileAnotherIsPrimaryIsGivenUp() throws Exception {
        changes(
                set(ServerType.REPLICA_SET_PRIMARY, ServerType.REPLICA_SET_SECONDARY),
                set(ServerType.UNKNOWN, ServerType.REPLICA_SET_PRIMARY));
        assertIsOpen();
        socket.setSoTimeout(10_000);
        CompletableFuture.delayedExecutor(SHORT_MS, TimeUnit.MILLISECONDS)
                .execute(() -> later.forEach(Runnable::run)); // while it is read
        SocketException closed = assertThrows(
                SocketException.class, () -> socket.getInputStream().read());
        assertEquals("Socket closed", closed.getMessage());
    }

    @Test
    void aServerThatIsSilentWhileThereIsNoOtherPrimaryIsWaitedFor() {
        changes(
                set(ServerType.REPLICA_SET_PRIMARY, ServerType.REPLICA_SET_SECONDARY),
                set(ServerType.UNKNOWN, ServerType.REPLICA_SET_SECONDARY));
        later.forEach(Runnable::run);
        assertIsOpen();
    }

    @Test
    void aServerThatSteppedDownAndAnswersKeepsItsConnections() {
        ClusterDescription between = set(ServerType.UNKNOWN, ServerType.REPLICA_SET_PRIMARY);
        changes(set(ServerType.REPLICA_SET_PRIMARY, ServerType.REPLICA_SET_SECONDARY), between);
        changes(between, set(ServerType.REPLICA_SET_SECONDARY, ServerType.REPLICA_SET_PRIMARY));
        assertEquals(1, later.size());
        later.forEach(Runnable::run);
        assertIsOpen();
    }

    private void assertIsOpen() {
        assertThrows(SocketTimeoutException.class, () -> socket.getInputStream().read());
    }

    private void changes(ClusterDescription before, ClusterDescription after) {
        listener.clusterDescriptionChanged(new ClusterDescriptionChangedEvent(cluster, after, before));
    }

    private ClusterDescription set(ServerType ours, ServerType others) {
        return new ClusterDescription(
                ClusterConnectionMode.MULTIPLE,
                ClusterType.REPLICA_SET,
                List.of(described(address, ours), described(OTHER, others)));
    }

    private static ServerDescription described(ServerAddress address, ServerType type) {
        boolean isKnown = type != ServerType.UNKNOWN;
        return ServerDescription.builder()
                .address(address)
                .type(type)
                .ok(isKnown)
                .state(isKnown ? ServerConnectionState.CONNECTED : ServerConnectionState.CONNECTING)
                .build();
    }
}
