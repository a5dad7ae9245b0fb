/** The driver's write models for the changes of the record contract. */
package io.towpath.sink.model;
