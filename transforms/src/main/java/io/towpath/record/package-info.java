/** The record contract: what is on a topic, whoever wrote it. Imports neither Connect nor MongoDB's client. */
package io.towpath.record;
