/** How far the source connector is, in its offsets and over JMX. */
package io.towpath.source.progress;
