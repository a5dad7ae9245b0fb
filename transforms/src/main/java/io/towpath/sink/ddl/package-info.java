/** Schema changes in the log: where partitions wait at one, what it needs at the destination, and who makes it. Knows no positions. */
package io.towpath.sink.ddl;
