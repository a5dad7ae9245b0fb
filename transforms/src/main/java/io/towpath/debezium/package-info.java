/** All that touches Debezium: the hook that keeps documents as bytes, its events as records of the contract, and its stream. */
package io.towpath.debezium;
