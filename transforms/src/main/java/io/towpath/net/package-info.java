/** Connections to MongoDB, for both connectors: TLS, servers that stop responding, and what the server's errors mean. */
package io.towpath.net;
