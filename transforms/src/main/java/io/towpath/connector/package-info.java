/** What both connectors need: checks of the settings that Connect, Debezium and Kafka's clients define, and closing. */
package io.towpath.connector;
