/** What the connectors share of Connect: checks of settings that others define, headers as text, and closing. */
package io.towpath.connector;
