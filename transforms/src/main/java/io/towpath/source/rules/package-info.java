/** What of documents and changes may leave the source. */
package io.towpath.source.rules;
