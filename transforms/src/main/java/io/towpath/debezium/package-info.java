/** Debezium's records become records of the contract. */
package io.towpath.transform;
