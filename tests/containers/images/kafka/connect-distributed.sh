#!/bin/bash
# Like Kafka's own: start a Connect worker with the properties file given.
set -eu
# shellcheck disable=SC2086  # several options in one variable
exec java ${KAFKA_HEAP_OPTS:--Xms256M -Xmx2G} ${KAFKA_JVM_PERFORMANCE_OPTS:-} ${KAFKA_OPTS:-} -Dlog4j2.configurationFile=/opt/kafka/config/connect-log4j2.yaml \
  -cp '/opt/kafka/libs/*' org.apache.kafka.connect.cli.ConnectDistributed "$@"
