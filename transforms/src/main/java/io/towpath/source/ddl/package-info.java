/** Schema changes at the source, which no record reports. */
package io.towpath.source.ddl;
