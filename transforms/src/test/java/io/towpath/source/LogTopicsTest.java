package io.towpath.source;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.reflect.Proxy;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.DescribeTopicsResult;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.internals.KafkaFutureImpl;
import org.apache.kafka.connect.errors.ConnectException;
import org.junit.jupiter.api.Test;

class LogTopicsTest {
    private static final String TOPIC = "move.shop.orders";
    private int asked;

    @Test
    void aMissingTopicThatConnectDoesNotCreateStopsTheTask() throws InterruptedException {
        try (LogTopics topics = topics(Map.of(), Optional.of(new UnknownTopicOrPartitionException()))) {
            String said = assertThrows(ConnectException.class, () -> topics.require(TOPIC))
                    .getMessage();
            assertTrue(said.contains(TOPIC + " does not exist") && said.contains("towpath topics"), said);
            assertThrows(ConnectException.class, () -> topics.require(TOPIC));
            assertEquals(2, asked);
        }
    }

    @Test
    void anExistingTopicIsAskedForOnce() throws InterruptedException {
        try (LogTopics topics = topics(Map.of(), Optional.empty())) {
            topics.require(TOPIC);
            topics.require(TOPIC);
            assertEquals(1, asked);
        }
    }

    @Test
    void aBrokerThatDoesNotAnswerStopsNothing() throws InterruptedException {
        try (LogTopics topics = topics(Map.of(), Optional.of(new TimeoutException()))) {
            topics.require(TOPIC);
            topics.require(TOPIC);
            assertEquals(2, asked);
        }
    }

    @Test
    void topicsThatConnectCreatesNeedNotExist() throws InterruptedException {
        try (LogTopics topics = topics(
                Map.of("topic.creation.default.partitions", "4"),
                Optional.of(new UnknownTopicOrPartitionException()))) {
            topics.require(TOPIC);
            assertEquals(0, asked);
        }
    }

    /** Of a Kafka cluster that answers so about every topic. */
    private LogTopics topics(Map<String, String> more, Optional<RuntimeException> refused) {
        Map<String, String> settings = new HashMap<>(Map.of(
                "towpath.name",
                "move",
                "towpath.requests.topic",
                "move.requests",
                "towpath.requests.bootstrap.servers",
                "unused:9092"));
        settings.putAll(more);
        KafkaFutureImpl<TopicDescription> answer = new KafkaFutureImpl<>();
        refused.ifPresentOrElse(
                answer::completeExceptionally, () -> answer.complete(new TopicDescription(TOPIC, false, List.of())));
        Map<String, KafkaFuture<TopicDescription>> answers = Map.of(TOPIC, answer);
        DescribeTopicsResult result = new DescribeTopicsResult(null, answers) {};
        return new LogTopics(SourceSettings.of(settings), kafka -> (Admin) Proxy.newProxyInstance(
                Admin.class.getClassLoader(), new Class<?>[] {Admin.class}, (proxy, method, arguments) -> {
                    if (!method.getName().equals("describeTopics")) return null;
                    asked++;
                    return result;
                }));
    }
}
