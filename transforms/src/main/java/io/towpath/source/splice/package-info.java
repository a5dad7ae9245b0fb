/** Splices in place of whole arrays: the elements of arrays are remembered, and only what changed of them is emitted. */
package io.towpath.source.splice;
