/** What both connectors ask of the settings that Connect, Debezium and Kafka's clients define. */
package io.towpath.settings;
