/** The initial copy: collections in ranges of _ids, each page as of one cluster time. */
package io.towpath.source.copy;
