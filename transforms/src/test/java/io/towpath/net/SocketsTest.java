package io.towpath.net;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;

import com.mongodb.ServerAddress;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.SocketException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import javax.net.ServerSocketFactory;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Reads that no one answers end, and writes that no one takes, with TLS and without. */
class SocketsTest {
    private static final char[] PASSWORD = "secret".toCharArray();

    private final Sockets sockets = new Sockets();

    @Test
    void aReadEndsWhenItsSocketIsClosed() throws Exception {
        readsUntilClosed(Optional.empty());
    }

    @Test
    @Tag("nightly")
    void aReadEndsWhenItsSocketIsClosedThatHasTls(@TempDir Path folder) throws Exception {
        readsUntilClosed(Optional.of(tls(folder)));
    }

    @Test
    void aWriteEndsWhenItsSocketIsClosed() throws Exception {
        writesUntilClosed(Optional.empty());
    }

    @Test
    @Tag("nightly")
    void aWriteEndsWhenItsSocketIsClosedThatHasTls(@TempDir Path folder) throws Exception {
        writesUntilClosed(Optional.of(tls(folder)));
    }

    @Test
    void socketsAreCreatedWhileANameIsResolved() throws Exception {
        CompletableFuture<Void> resolving = new CompletableFuture<>();
        CompletableFuture<List<InetAddress>> resolved = new CompletableFuture<>();
        Sockets slow = new Sockets(host -> {
            resolving.complete(null);
            return resolved.join();
        });
        try (Socket existing = slow.context(Optional.empty()).getSocketFactory().createSocket()) {
            ServerAddress address = new ServerAddress("localhost", 1);
            CompletableFuture<Integer> closing =
                    CompletableFuture.supplyAsync(() -> slow.close(address, System.nanoTime()));
            resolving.get(10, TimeUnit.SECONDS);
            CompletableFuture.runAsync(() -> created(slow)).get(10, TimeUnit.SECONDS);
            resolved.complete(List.of());
            assertEquals(0, closing.get(10, TimeUnit.SECONDS));
            assertFalse(existing.isClosed());
        }
    }

    private static void created(Sockets sockets) {
        try {
            sockets.context(Optional.empty()).getSocketFactory().createSocket().close();
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
    }

    private void readsUntilClosed(Optional<SSLContext> tls) throws Exception {
        try (ServerSocket server = listening(tls)) {
            CompletableFuture<Socket> answering = CompletableFuture.supplyAsync(() -> answersOnce(server));
            long before = System.nanoTime();
            InputStream in = answered(server, tls).getInputStream();
            CompletableFuture<Integer> read = CompletableFuture.supplyAsync(() -> read(in));
            ServerAddress address = new ServerAddress("localhost", server.getLocalPort());
            assertEquals(0, sockets.close(address, before), "one that was made later");
            assertEquals(0, sockets.close(new ServerAddress("localhost", 1), System.nanoTime()), "to another server");
            assertFalse(read.isDone());
            assertEquals(1, sockets.close(address, System.nanoTime()));
            assertEquals(-1, read.get(10, TimeUnit.SECONDS));
            assertEquals(0, sockets.close(address, System.nanoTime()), "it is closed");
            answering.get(10, TimeUnit.SECONDS).close();
        }
    }

    private void writesUntilClosed(Optional<SSLContext> tls) throws Exception {
        try (ServerSocket server = listening(tls)) {
            CompletableFuture<Socket> answering = CompletableFuture.supplyAsync(() -> answersOnce(server));
            Socket socket = answered(server, tls);
            CompletableFuture<Void> write = CompletableFuture.runAsync(() -> fill(socket));
            assertThrows(TimeoutException.class, () -> write.get(2, TimeUnit.SECONDS), "no one takes so much");
            ServerAddress address = new ServerAddress("localhost", server.getLocalPort());
            CompletableFuture<Integer> closing =
                    CompletableFuture.supplyAsync(() -> sockets.close(address, System.nanoTime()));
            assertEquals(1, closing.get(10, TimeUnit.SECONDS));
            write.get(10, TimeUnit.SECONDS);
            answering.get(10, TimeUnit.SECONDS).close();
        }
    }

    private static ServerSocket listening(Optional<SSLContext> tls) throws IOException {
        return tls.<ServerSocketFactory>map(SSLContext::getServerSocketFactory)
                .orElseGet(ServerSocketFactory::getDefault)
                .createServerSocket(0, 1, InetAddress.getLoopbackAddress());
    }

    /** One of ours, connected, whose first byte was answered. */
    private Socket answered(ServerSocket server, Optional<SSLContext> tls) throws IOException {
        Socket socket = sockets.context(tls).getSocketFactory().createSocket();
        socket.connect(new InetSocketAddress("localhost", server.getLocalPort()), 10_000);
        socket.getOutputStream().write(7);
        assertEquals(8, socket.getInputStream().read());
        return socket;
    }

    private static void fill(Socket socket) {
        byte[] much = new byte[1 << 24];
        try {
            for (int times = 0; times < 16; times++) socket.getOutputStream().write(much);
        } catch (SocketException closed) {
            return;
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
        throw new IllegalStateException("all of it was taken");
    }

    private static Socket answersOnce(ServerSocket server) {
        try {
            Socket client = server.accept();
            client.getOutputStream().write(client.getInputStream().read() + 1);
            return client;
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
    }

    private static int read(InputStream in) {
        try {
            return in.read();
        } catch (SocketException closed) {
            return -1; // as TLS has it
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
    }

    private static SSLContext tls(Path folder) throws Exception {
        Path store = folder.resolve("keys");
        String keytool =
                Path.of(System.getProperty("java.home"), "bin", "keytool").toString();
        String words =
                "-genkeypair -alias one -keyalg EC -dname CN=localhost -storetype PKCS12 -storepass secret -keystore";
        Process process = new ProcessBuilder((keytool + " " + words + " " + store).split(" "))
                .redirectErrorStream(true)
                .start();
        String output = new String(process.getInputStream().readAllBytes());
        assertEquals(0, process.waitFor(), output);
        KeyStore keys = KeyStore.getInstance("PKCS12");
        try (InputStream in = Files.newInputStream(store)) {
            keys.load(in, PASSWORD);
        }
        KeyManagerFactory own = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
        own.init(keys, PASSWORD);
        TrustManagerFactory trusted = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trusted.init(keys);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(own.getKeyManagers(), trusted.getTrustManagers(), null);
        return context;
    }
}
