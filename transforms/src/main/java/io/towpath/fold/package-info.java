/** Successive changes of one document, folded into as few writes as have the same effect. Works on bytes; decodes nothing. */
package io.towpath.fold;
