package io.towpath.net;

import com.mongodb.ServerAddress;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.UnknownHostException;
import java.security.KeyManagementException;
import java.security.SecureRandom;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.WeakHashMap;
import java.util.function.Function;
import javax.net.ssl.KeyManager;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLContextSpi;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLServerSocketFactory;
import javax.net.ssl.SSLSessionContext;
import javax.net.ssl.SSLSocketFactory;
import javax.net.ssl.TrustManager;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The sockets of Java's driver. Closing them ends reads and writes that the server does not respond to, which the driver itself cannot end.
 * The driver accepts custom sockets only with TLS, so a socket without TLS poses as one; see {@link PlainSocket}.
 */
final class Sockets {
    private static final Logger LOGGER = LoggerFactory.getLogger(Sockets.class);

    /** When each was created, by {@link System#nanoTime}. */
    private final Map<Socket, Long> created = new WeakHashMap<>();

    private final Function<String, List<InetAddress>> resolver;

    Sockets() {
        this(Sockets::addresses);
    }

    /** @param resolver the addresses of a host; none if it is unknown */
    Sockets(Function<String, List<InetAddress>> resolver) {
        this.resolver = resolver;
    }

    private static List<InetAddress> addresses(String host) {
        try {
            return List.of(InetAddress.getAllByName(host));
        } catch (UnknownHostException error) {
            return List.of();
        }
    }

    /** @param tls to create them with; empty: without TLS */
    SSLContext context(Optional<SSLContext> tls) {
        Factory factory = new Factory(tls.map(SSLContext::getSocketFactory).orElse(null));
        return new SSLContext(new Contexts(factory), null, "towpath") {};
    }

    /** Closes those to a server that were created before {@code ns}, and returns how many. */
    int close(ServerAddress server, long ns) {
        List<InetAddress> addresses = resolver.apply(server.getHost()); // not while no socket can be created
        List<Socket> old = new ArrayList<>();
        synchronized (created) {
            created.forEach((socket, at) -> {
                if (at - ns < 0 && isTo(socket, server, addresses)) old.add(socket);
            });
        }
        for (Socket socket : old) {
            try {
                socket.setSoLinger(true, 0); // else one with TLS waits for a write that never ends
                socket.close();
            } catch (IOException error) {
                LOGGER.debug("a connection to {} is closed", server, error);
            }
        }
        return old.size();
    }

    private static boolean isTo(Socket socket, ServerAddress server, List<InetAddress> addresses) {
        if (socket.isClosed() || socket.getPort() != server.getPort()) return false;
        return addresses.isEmpty()
                ? ((InetSocketAddress) socket.getRemoteSocketAddress())
                        .getHostString()
                        .equals(server.getHost())
                : addresses.contains(socket.getInetAddress());
    }

    private Socket register(Socket socket) {
        synchronized (created) {
            created.keySet().removeIf(Socket::isClosed);
            created.put(socket, System.nanoTime());
        }
        return socket;
    }

    /** Creates sockets for the driver, which connects them. */
    private final class Factory extends SSLSocketFactory {
        /** Null without TLS. */
        private final SSLSocketFactory tls;

        private Factory(SSLSocketFactory tls) {
            this.tls = tls;
        }

        @Override
        public Socket createSocket() throws IOException {
            return register(tls == null ? new PlainSocket() : tls.createSocket());
        }

        @Override
        public Socket createSocket(Socket socket, String host, int port, boolean closes) {
            throw new UnsupportedOperationException();
        }

        @Override
        public Socket createSocket(String host, int port) {
            throw new UnsupportedOperationException();
        }

        @Override
        public Socket createSocket(String host, int port, InetAddress local, int localPort) {
            throw new UnsupportedOperationException();
        }

        @Override
        public Socket createSocket(InetAddress host, int port) {
            throw new UnsupportedOperationException();
        }

        @Override
        public Socket createSocket(InetAddress host, int port, InetAddress local, int localPort) {
            throw new UnsupportedOperationException();
        }

        @Override
        public String[] getDefaultCipherSuites() {
            return tls == null ? new String[0] : tls.getDefaultCipherSuites();
        }

        @Override
        public String[] getSupportedCipherSuites() {
            return tls == null ? new String[0] : tls.getSupportedCipherSuites();
        }
    }

    /** A TLS context of which the driver uses only the factory. */
    private static final class Contexts extends SSLContextSpi {
        private final Factory factory;

        private Contexts(Factory factory) {
            this.factory = factory;
        }

        @Override
        protected SSLSocketFactory engineGetSocketFactory() {
            return factory;
        }

        @Override
        protected void engineInit(KeyManager[] keys, TrustManager[] trusted, SecureRandom random)
                throws KeyManagementException {
            throw new KeyManagementException("this context has its keys");
        }

        @Override
        protected SSLServerSocketFactory engineGetServerSocketFactory() {
            throw new UnsupportedOperationException();
        }

        @Override
        protected SSLEngine engineCreateSSLEngine() {
            throw new UnsupportedOperationException();
        }

        @Override
        protected SSLEngine engineCreateSSLEngine(String host, int port) {
            throw new UnsupportedOperationException();
        }

        @Override
        protected SSLSessionContext engineGetServerSessionContext() {
            return null;
        }

        @Override
        protected SSLSessionContext engineGetClientSessionContext() {
            return null;
        }
    }
}
