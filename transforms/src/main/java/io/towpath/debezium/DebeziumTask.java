package io.towpath.debezium;

import com.mongodb.client.ChangeStreamIterable;
import com.mongodb.client.MongoClient;
import io.debezium.DebeziumException;
import io.debezium.bean.StandardBeanNames;
import io.debezium.config.CommonConnectorConfig;
import io.debezium.config.Configuration;
import io.debezium.config.Field;
import io.debezium.connector.base.ChangeEventQueue;
import io.debezium.connector.base.QueueProviderService;
import io.debezium.connector.common.BaseSourceTask;
import io.debezium.connector.common.CdcSourceTaskContext;
import io.debezium.connector.common.DebeziumHeaderProducer;
import io.debezium.connector.mongodb.CollectionId;
import io.debezium.connector.mongodb.Module;
import io.debezium.connector.mongodb.MongoDbChangeEventSourceFactory;
import io.debezium.connector.mongodb.MongoDbCollectionSchema;
import io.debezium.connector.mongodb.MongoDbConnector;
import io.debezium.connector.mongodb.MongoDbConnectorConfig;
import io.debezium.connector.mongodb.MongoDbErrorHandler;
import io.debezium.connector.mongodb.MongoDbEventMetadataProvider;
import io.debezium.connector.mongodb.MongoDbOffsetContext;
import io.debezium.connector.mongodb.MongoDbPartition;
import io.debezium.connector.mongodb.MongoDbSchema;
import io.debezium.connector.mongodb.MongoDbStreamingChangeEventSource;
import io.debezium.connector.mongodb.MongoDbTaskContext;
import io.debezium.connector.mongodb.connection.MongoDbConnections;
import io.debezium.connector.mongodb.metrics.MongoDbChangeEventSourceMetricsFactory;
import io.debezium.connector.mongodb.metrics.MongoDbStreamingChangeEventSourceMetrics;
import io.debezium.document.DocumentReader;
import io.debezium.pipeline.ChangeEventSourceCoordinator;
import io.debezium.pipeline.DataChangeEvent;
import io.debezium.pipeline.ErrorHandler;
import io.debezium.pipeline.EventDispatcher;
import io.debezium.pipeline.notification.NotificationService;
import io.debezium.pipeline.signal.SignalProcessor;
import io.debezium.pipeline.source.spi.EventMetadataProvider;
import io.debezium.pipeline.source.spi.StreamingChangeEventSource;
import io.debezium.pipeline.spi.ChangeRecordEmitter;
import io.debezium.pipeline.spi.OffsetContext;
import io.debezium.pipeline.spi.Offsets;
import io.debezium.schema.AbstractTopicNamingStrategy;
import io.debezium.schema.DataCollectionSchema;
import io.debezium.schema.SchemaFactory;
import io.debezium.schema.SchemaNameAdjuster;
import io.debezium.snapshot.SnapshotterService;
import io.debezium.spi.schema.DataCollectionId;
import io.debezium.spi.topic.TopicNamingStrategy;
import io.debezium.util.Clock;
import io.debezium.util.LoggingContext;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.source.SourceRecord;
import org.bson.BsonDocument;

/**
 * What Debezium's MongoDbConnectorTask is, put together of the same parts, without what that makes of every event and nothing here reads: the
 * key as JSON, the description of the event for the attribute LastEvent of its MBean, and the topic's name again. They took about a quarter of
 * a worker's processor time for a change. It only streams, from the offset of one partition. With a new version of Debezium, compare the two.
 */
final class DebeziumTask extends BaseSourceTask<MongoDbPartition, MongoDbOffsetContext> {
    private final QueuedBytes bytes;
    private volatile MongoDbTaskContext taskContext;
    private volatile ChangeEventQueue<DataChangeEvent> queue;
    private volatile ErrorHandler errorHandler;

    /** @param bytes bounds what the task holds */
    DebeziumTask(QueuedBytes bytes) {
        this.bytes = bytes;
    }

    @Override
    public String version() {
        return Module.version();
    }

    @Override
    protected String connectorName() {
        return Module.name();
    }

    @Override
    protected Iterable<Field> getAllConfigurationFields() {
        return MongoDbConnectorConfig.ALL_FIELDS;
    }

    @Override
    protected Configuration withMaskedSensitiveOptions(Configuration configuration) {
        return super.withMaskedSensitiveOptions(configuration)
                .withMasked(MongoDbConnectorConfig.CONNECTION_STRING.name());
    }

    @Override
    public CdcSourceTaskContext<? extends CommonConnectorConfig> preStart(Configuration configuration) {
        taskContext = new MongoDbTaskContext(configuration);
        return taskContext;
    }

    @Override
    public ChangeEventSourceCoordinator<MongoDbPartition, MongoDbOffsetContext> start(Configuration configuration) {
        MongoDbConnectorConfig settings = new MongoDbConnectorConfig(configuration);
        LoggingContext.PreviousContext before = taskContext.configureLoggingContext("task0");
        try {
            return started(configuration, settings);
        } finally {
            before.restore();
        }
    }

    private ChangeEventSourceCoordinator<MongoDbPartition, MongoDbOffsetContext> started(
            Configuration configuration, MongoDbConnectorConfig settings) {
        SchemaNameAdjuster adjuster = settings.schemaNameAdjuster();
        TopicNamingStrategy<CollectionId> topics = new Topics(configuration.asProperties());
        MongoDbSchema schema = new Schemas(settings, taskContext, topics, adjuster);
        Offsets<MongoDbPartition, MongoDbOffsetContext> offsets =
                getPreviousOffsets(new MongoDbPartition.Provider(settings), new MongoDbOffsetContext.Loader(settings));

        registerServiceProviders(settings.getServiceRegistry());
        settings.getBeanRegistry().add(StandardBeanNames.CONNECTOR_CONFIG, settings);
        settings.getBeanRegistry().add(StandardBeanNames.DATABASE_SCHEMA, schema);
        settings.getBeanRegistry().add(StandardBeanNames.OFFSETS, offsets);
        settings.getBeanRegistry().add(StandardBeanNames.CDC_SOURCE_TASK_CONTEXT, taskContext);

        queue = new ChangeEventQueue.Builder<DataChangeEvent>()
                .pollInterval(settings.getPollInterval())
                .maxBatchSize(settings.getMaxBatchSize())
                .maxQueueSize(settings.getMaxQueueSize())
                .maxQueueSizeInBytes(settings.getMaxQueueSizeInBytes())
                .queueProvider(settings.getServiceRegistry()
                        .tryGetService(QueueProviderService.class)
                        .getQueueProvider())
                .loggingContextSupplier(() -> taskContext.configureLoggingContext("mongodb-connector-task"))
                .build();
        errorHandler = new MongoDbErrorHandler(settings, queue, errorHandler);

        SignalProcessor<MongoDbPartition, MongoDbOffsetContext> signals = new SignalProcessor<>(
                MongoDbConnector.class,
                settings,
                Map.of(),
                getAvailableSignalChannels(),
                DocumentReader.defaultReader(),
                offsets);
        EventMetadataProvider metadata = new Metadata();
        EventDispatcher<MongoDbPartition, CollectionId> dispatcher =
                dispatcher(settings, topics, schema, metadata, adjuster, signals);
        requirePosition(configuration, settings, dispatcher, offsets);

        SnapshotterService snapshots = settings.getServiceRegistry().tryGetService(SnapshotterService.class);
        MongoDbChangeEventSourceMetricsFactory metrics = new MongoDbChangeEventSourceMetricsFactory();
        ChangeEventSourceCoordinator<MongoDbPartition, MongoDbOffsetContext> coordinator =
                new ChangeEventSourceCoordinator<>(
                        offsets,
                        errorHandler,
                        MongoDbConnector.class,
                        settings,
                        sources(
                                settings,
                                dispatcher,
                                schema,
                                metrics.getStreamingMetrics(taskContext, queue, metadata, Collections::emptySet),
                                snapshots),
                        metrics,
                        dispatcher,
                        schema,
                        signals,
                        new NotificationService<>(
                                getNotificationChannels(),
                                settings,
                                SchemaFactory.get(),
                                dispatcher::enqueueNotification),
                        snapshots);
        coordinator.start(taskContext, queue, metadata);
        return coordinator;
    }

    private EventDispatcher<MongoDbPartition, CollectionId> dispatcher(
            MongoDbConnectorConfig settings,
            TopicNamingStrategy<CollectionId> topics,
            MongoDbSchema schema,
            EventMetadataProvider metadata,
            SchemaNameAdjuster adjuster,
            SignalProcessor<MongoDbPartition, MongoDbOffsetContext> signals) {
        return new EventDispatcher<>(
                settings,
                topics,
                schema,
                queue,
                taskContext.getFilters().collectionFilter()::test,
                DataChangeEvent::new,
                metadata,
                adjuster,
                signals,
                settings.getServiceRegistry().tryGetService(DebeziumHeaderProducer.class)) {
            @Override
            public boolean dispatchDataChangeEvent(
                    MongoDbPartition partition, CollectionId collection, ChangeRecordEmitter<MongoDbPartition> emitter)
                    throws InterruptedException {
                bytes.dispatched();
                return super.dispatchDataChangeEvent(partition, collection, emitter);
            }
        };
    }

    /** Debezium's own, with a change stream that {@link #bytes} bounds. */
    private MongoDbChangeEventSourceFactory sources(
            MongoDbConnectorConfig settings,
            EventDispatcher<MongoDbPartition, CollectionId> dispatcher,
            MongoDbSchema schema,
            MongoDbStreamingChangeEventSourceMetrics metrics,
            SnapshotterService snapshots) {
        return new MongoDbChangeEventSourceFactory(
                settings, errorHandler, dispatcher, Clock.system(), taskContext, schema, metrics, snapshots) {
            @Override
            public StreamingChangeEventSource<MongoDbPartition, MongoDbOffsetContext> getStreamingChangeEventSource() {
                return new MongoDbStreamingChangeEventSource(
                        settings, taskContext, dispatcher, errorHandler, Clock.system(), metrics, snapshots) {
                    @Override
                    protected ChangeStreamIterable<BsonDocument> initChangeStream(
                            MongoClient client, MongoDbOffsetContext offset) {
                        return BoundedCursor.of(super.initChangeStream(client, offset), bytes);
                    }
                };
            }
        };
    }

    /** Throws {@link DebeziumException} when the source no longer holds the changes after the offset. */
    private void requirePosition(
            Configuration configuration,
            MongoDbConnectorConfig settings,
            EventDispatcher<MongoDbPartition, CollectionId> dispatcher,
            Offsets<MongoDbPartition, MongoDbOffsetContext> offsets) {
        MongoDbOffsetContext offset = offsets.getTheOnlyOffset();
        if (offset == null || !settings.isLogPositionCheckEnabled()) return;
        boolean isThere = MongoDbConnections.create(configuration, dispatcher, offsets.getTheOnlyPartition())
                .validateLogPosition(offset, taskContext);
        if (!isThere) throw new DebeziumException("the source no longer holds the changes after " + offset.getOffset());
    }

    @Override
    public List<SourceRecord> doPoll() throws InterruptedException {
        return pollRecords(queue);
    }

    @Override
    protected Optional<ErrorHandler> getErrorHandler() {
        return Optional.ofNullable(errorHandler);
    }

    @Override
    public void doStop() {
        if (queue != null) queue.close();
    }

    /** Its records have the key "". */
    private static final class Schemas extends MongoDbSchema {
        private final Map<CollectionId, DataCollectionSchema> schemas = new ConcurrentHashMap<>();
        private final MongoDbTaskContext context;

        Schemas(
                MongoDbConnectorConfig settings,
                MongoDbTaskContext context,
                TopicNamingStrategy<CollectionId> topics,
                SchemaNameAdjuster adjuster) {
            super(settings, context, topics, settings.getSourceInfoStructMaker().schema(), adjuster);
            this.context = context;
        }

        @Override
        public DataCollectionSchema schemaFor(CollectionId collection) {
            return schemas.computeIfAbsent(collection, this::withoutKey);
        }

        private DataCollectionSchema withoutKey(CollectionId collection) {
            MongoDbCollectionSchema schema = (MongoDbCollectionSchema) super.schemaFor(collection);
            return new MongoDbCollectionSchema(
                    collection,
                    context.getFilters().fieldFilterFor(collection),
                    schema.keySchema(),
                    document -> "",
                    schema.getEnvelopeSchema(),
                    schema.valueSchema(),
                    BsonDocument::toJson);
        }
    }

    private static final class Metadata extends MongoDbEventMetadataProvider {
        @Override
        public String toSummaryString(DataCollectionId source, OffsetContext offset, Object key, Struct value) {
            return source.identifier();
        }
    }

    private static final class Topics extends AbstractTopicNamingStrategy<CollectionId> {
        private final Map<CollectionId, String> names = new ConcurrentHashMap<>();

        Topics(Properties settings) {
            super(settings);
        }

        @Override
        public String dataChangeTopic(CollectionId collection) {
            return names.computeIfAbsent(
                    collection, id -> sanitizedTopicName(String.join(delimiter, prefix, id.dbName(), id.name())));
        }
    }
}
