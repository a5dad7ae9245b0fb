/** Debezium's stream without what the copy holds already. */
package io.towpath.source.stream;
