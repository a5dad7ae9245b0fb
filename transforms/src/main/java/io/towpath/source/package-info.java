/** What makes Debezium hand documents on as bytes. */
package io.towpath.source;
