/** Documents that are read while the stream runs: on request, and in place of events that are too large. */
package io.towpath.source.reread;
