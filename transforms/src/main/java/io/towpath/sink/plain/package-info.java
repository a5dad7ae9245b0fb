/** What mongo-kafka loads: the namespace mapper of both modes, and the handler of the plain mode. */
package io.towpath.sink.plain;
