package io.towpath.net;

import javax.net.ssl.HandshakeCompletedListener;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSession;
import javax.net.ssl.SSLSocket;

/** A socket without TLS that has the type of one with TLS: the driver accepts no other custom sockets. */
final class PlainSocket extends SSLSocket {
    private static final String[] NONE = {};

    @Override
    public void startHandshake() {}

    @Override
    public SSLSession getSession() {
        return null;
    }

    @Override
    public SSLParameters getSSLParameters() {
        return new SSLParameters();
    }

    @Override
    public void setSSLParameters(SSLParameters parameters) {}

    @Override
    public String[] getSupportedCipherSuites() {
        return NONE;
    }

    @Override
    public String[] getEnabledCipherSuites() {
        return NONE;
    }

    @Override
    public void setEnabledCipherSuites(String[] suites) {}

    @Override
    public String[] getSupportedProtocols() {
        return NONE;
    }

    @Override
    public String[] getEnabledProtocols() {
        return NONE;
    }

    @Override
    public void setEnabledProtocols(String[] protocols) {}

    @Override
    public void addHandshakeCompletedListener(HandshakeCompletedListener listener) {}

    @Override
    public void removeHandshakeCompletedListener(HandshakeCompletedListener listener) {}

    @Override
    public void setUseClientMode(boolean isClient) {}

    @Override
    public boolean getUseClientMode() {
        return true;
    }

    @Override
    public void setNeedClientAuth(boolean isNeeded) {}

    @Override
    public boolean getNeedClientAuth() {
        return false;
    }

    @Override
    public void setWantClientAuth(boolean isWanted) {}

    @Override
    public boolean getWantClientAuth() {
        return false;
    }

    @Override
    public void setEnableSessionCreation(boolean isEnabled) {}

    @Override
    public boolean getEnableSessionCreation() {
        return true;
    }
}
