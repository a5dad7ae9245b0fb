package io.towpath.source.rules;

import io.towpath.record.BsonBytes;
import io.towpath.record.BsonElements;
import java.util.Arrays;
import org.bson.BsonDocument;
import org.bson.BsonValue;

/** What a rule does with a value. */
final class Action {
    static final Action KEEP = new Action("", (byte) 0, new byte[0]);
    static final Action DROP = new Action("drop", (byte) 0, new byte[0]);
    static final Action HASH = new Action("hash", (byte) 0, new byte[0]);

    private final String text;
    private final byte type;
    private final byte[] constant;

    private Action(String text, byte type, byte[] constant) {
        this.text = text;
        this.type = type;
        this.constant = constant;
    }

    static Action set(BsonValue constant) {
        BsonDocument document = new BsonDocument("set", constant);
        byte[] bytes = BsonBytes.of(document);
        BsonElements element = new BsonElements(bytes, 0);
        element.next();
        byte[] value = Arrays.copyOfRange(bytes, element.valueStart(), element.valueEnd());
        return new Action(document.toJson(), element.type(), value);
    }

    /** The same for actions that do the same. */
    @Override
    public String toString() {
        return text;
    }

    boolean isSet() {
        return type != 0;
    }

    /** Type and bytes of what {@link #set} puts in place of a value. */
    byte type() {
        return type;
    }

    byte[] constant() {
        return constant;
    }
}
