package io.towpath.support;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.towpath.record.BsonBytes;
import io.towpath.record.Change;
import io.towpath.record.Splice;
import java.util.List;
import org.bson.BsonArray;
import org.bson.BsonDocument;
import org.bson.BsonDocumentReader;
import org.bson.BsonNull;
import org.bson.BsonValue;
import org.bson.RawBsonDocument;
import org.bson.codecs.BsonDocumentCodec;
import org.bson.codecs.DecoderContext;

/** One document as a reader of the log has it, by what the record contract says. */
public final class LogModel {
    /** Null where there is none. */
    private BsonDocument document;

    public BsonDocument document() {
        return document;
    }

    public byte[] bytes() {
        return document == null ? null : BsonBytes.of(document);
    }

    public void apply(byte[] value) {
        Change change = Change.decode(value);
        if (change instanceof Change.Delete) document = null;
        else if (change instanceof Change.Document whole) document = mutable(whole.document());
        else if (document != null) update((Change.Update) change);
    }

    private void update(Change.Update update) {
        for (Change.Truncation cut : update.truncations()) {
            if (!(at(cut.path()) instanceof BsonArray array)) continue;
            while (array.size() > cut.newSize()) array.remove(array.size() - 1);
        }
        mutable(update.set()).forEach((path, value) -> set(document, path, value));
        update.unset().forEach(this::unset);
        update.splices().forEach(this::splice);
    }

    private void splice(Splice splice) {
        BsonArray array = at(splice.path()).asArray();
        assertEquals(splice.length(), array.size(), "the length of " + splice.path());
        for (int index = splice.edits().size() - 1; index >= 0; index--) {
            Splice.Edit edit = splice.edits().get(index);
            List<BsonValue> replaced = array.subList(edit.at(), edit.at() + edit.deleted());
            replaced.clear();
            replaced.addAll(mutable(new RawBsonDocument(edit.inserted())).values());
        }
        assertEquals(splice.newLength(), array.size());
    }

    public BsonValue at(String path) {
        BsonValue value = document;
        for (String name : path.split("\\.")) value = child(value, name);
        return value;
    }

    private static BsonValue child(BsonValue parent, String name) {
        if (parent instanceof BsonDocument fields) return fields.get(name);
        if (parent instanceof BsonArray array && name.matches("\\d+") && Integer.parseInt(name) < array.size())
            return array.get(Integer.parseInt(name));
        return null;
    }

    private static void set(BsonValue parent, String path, BsonValue value) {
        int dot = path.indexOf('.');
        if (dot < 0) {
            put(parent, path, value);
            return;
        }
        String name = path.substring(0, dot);
        BsonValue child = child(parent, name);
        if (child == null || !child.isDocument() && !child.isArray()) {
            child = new BsonDocument();
            put(parent, name, child);
        }
        set(child, path.substring(dot + 1), value);
    }

    private static void put(BsonValue parent, String name, BsonValue value) {
        if (parent instanceof BsonDocument fields) {
            fields.put(name, value);
        } else if (parent instanceof BsonArray array && name.matches("\\d+")) {
            int index = Integer.parseInt(name);
            while (array.size() <= index) array.add(BsonNull.VALUE);
            array.set(index, value);
        }
    }

    private void unset(String path) {
        int dot = path.lastIndexOf('.');
        BsonValue parent = dot < 0 ? document : at(path.substring(0, dot));
        String name = path.substring(dot + 1);
        if (parent instanceof BsonDocument fields) fields.remove(name);
        else if (child(parent, name) != null) put(parent, name, BsonNull.VALUE);
    }

    private static BsonDocument mutable(BsonDocument document) {
        return new BsonDocumentCodec()
                .decode(
                        document instanceof RawBsonDocument raw
                                ? new org.bson.BsonBinaryReader(
                                        raw.getByteBuffer().asNIO())
                                : new BsonDocumentReader(document),
                        DecoderContext.builder().build());
    }
}
