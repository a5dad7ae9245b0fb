/** How both connectors prove to MongoDB who they are, and whom they trust. */
package io.towpath.tls;
