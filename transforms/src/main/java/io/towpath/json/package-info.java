/** Records of the log as JSON: for Kafka's tools and user interfaces ({@code JsonFormatter}, {@code JsonDeserializer}), and for other sinks ({@code ToJson}). */
package io.towpath.json;
