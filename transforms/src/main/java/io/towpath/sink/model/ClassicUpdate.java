package io.towpath.sink.model;

import static java.nio.charset.StandardCharsets.UTF_8;

import io.towpath.fold.Steps;
import io.towpath.record.Change;
import java.util.Arrays;
import java.util.Iterator;
import java.util.stream.Stream;
import org.bson.BsonDocument;
import org.bson.RawBsonDocument;

/** An update as MongoDB's update operators. */
public final class ClassicUpdate {
    private ClassicUpdate() {}

    public static BsonDocument of(Change.Update update) {
        return new RawBsonDocument(Steps.of(update).operators());
    }

    /**
     * Whether the server accepts the operators for every document, and adds new fields in their listed order: there are only top-level
     * names, and those to set ascend in the server's order (except names that begin with a digit, as it sorts numbers by value).
     */
    static boolean isSafe(Change.Update update) {
        boolean plain = Stream.concat(update.set().keySet().stream(), update.unset().stream())
                .allMatch(ClassicUpdate::isPlainName);
        return plain
                && update.truncations().isEmpty()
                && (update.set().size() <= 1 || ascends(update.set().keySet().iterator()));
    }

    private static boolean isPlainName(String path) {
        return !path.isEmpty() && !path.startsWith("$") && path.indexOf('.') < 0;
    }

    private static boolean ascends(Iterator<String> names) {
        byte[] last = new byte[0];
        while (names.hasNext()) {
            byte[] name = names.next().getBytes(UTF_8);
            if ((name[0] >= '0' && name[0] <= '9') || Arrays.compareUnsigned(last, name) > 0) return false;
            last = name;
        }
        return true;
    }
}
