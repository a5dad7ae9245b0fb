/** The record contract: what lies on a topic, whoever wrote it. */
package io.towpath.record;
