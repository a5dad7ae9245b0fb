/** Changes of one document that follow one another, made into as few as say the same: on bytes, nothing is decoded. */
package io.towpath.fold;
