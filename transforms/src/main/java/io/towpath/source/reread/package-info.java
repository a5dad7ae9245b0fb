/** Documents that are read while the stream runs: on request, and in place of events. */
package io.towpath.source.reread;
