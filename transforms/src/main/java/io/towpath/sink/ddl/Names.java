package io.towpath.sink.ddl;

import com.mongodb.MongoNamespace;
import java.util.List;
import java.util.Map;
import org.bson.BsonArray;
import org.bson.BsonDocument;
import org.bson.BsonString;
import org.bson.BsonValue;

/** The destination's names of the source's namespaces, and views that are defined with them. {@code verifier/towpath_verifier/descriptions.py} does alike. */
record Names(Map<String, MongoNamespace> renamed) {
    private static final String VIEW_ON = "viewOn";
    private static final String PIPELINE = "pipeline";

    /** A stage that reads another collection, and the field that names it. */
    private record Reader(String stage, String field) {}

    private static final List<Reader> READERS = List.of(
            new Reader("$lookup", "from"), new Reader("$graphLookup", "from"), new Reader("$unionWith", "coll"));

    MongoNamespace of(String namespace) {
        MongoNamespace other = renamed.get(namespace);
        return other == null ? new MongoNamespace(namespace) : other;
    }

    /**
     * The options of a view with the names of the destination, as far as they have any. A view reads only collections of the same database,
     * so one that moved to another database keeps its name.
     *
     * @param namespace of the view at the source
     */
    BsonDocument view(BsonDocument options, String namespace) {
        BsonDocument view = new BsonDocument();
        options.forEach((name, value) -> {
            if (name.equals(VIEW_ON) && value.isString()) view.append(name, name(value.asString(), namespace));
            else view.append(name, name.equals(PIPELINE) ? stages(value, namespace) : value);
        });
        return view;
    }

    private BsonString name(BsonString collection, String view) {
        String database = new MongoNamespace(view).getDatabaseName();
        MongoNamespace other = of(database + "." + collection.getValue());
        return other.getDatabaseName().equals(of(view).getDatabaseName())
                ? new BsonString(other.getCollectionName())
                : collection;
    }

    private BsonValue stages(BsonValue value, String view) {
        if (value.isArray()) {
            BsonArray stages = new BsonArray();
            value.asArray().forEach(stage -> stages.add(stages(stage, view)));
            return stages;
        }
        if (!value.isDocument()) return value;
        BsonDocument stages = new BsonDocument();
        value.asDocument().forEach((name, inner) -> stages.append(name, stages(inner, view)));
        for (Reader reader : READERS) {
            BsonValue inner = stages.get(reader.stage);
            if (inner == null) continue;
            if (inner.isString()) stages.put(reader.stage, name(inner.asString(), view));
            else if (inner.isDocument() && inner.asDocument().isString(reader.field))
                inner.asDocument().put(reader.field, name(inner.asDocument().getString(reader.field), view));
        }
        return stages;
    }
}
