/** The exactly-once source connector: its settings, its requirements of Connect, and its task. */
package io.towpath.source;
