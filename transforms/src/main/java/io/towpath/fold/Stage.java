package io.towpath.fold;

import static java.nio.charset.StandardCharsets.ISO_8859_1;

import io.towpath.record.BsonElements;
import io.towpath.record.Change;
import io.towpath.record.Splice;
import java.util.List;
import org.bson.io.BasicOutputBuffer;
import org.bson.io.BsonOutput;

/** The stage of an aggregation pipeline that applies splices: it puts each array together from what stays of it and what is inserted. */
final class Stage {
    private Stage() {}

    /** {@code {$set: {path: {$concatArrays: […]}, …}}}. */
    static byte[] of(List<UpdateStep> splices) {
        BasicOutputBuffer out = new BasicOutputBuffer();
        Container.frame(out, () -> {
            Container.begin(out, BsonElements.DOCUMENT, Change.SET);
            Container.frame(
                    out,
                    () -> splices.forEach(step -> {
                        Container.begin(out, BsonElements.DOCUMENT, step.path());
                        Container.frame(out, () -> {
                            Container.begin(out, BsonElements.ARRAY, "$concatArrays");
                            Container.frame(out, () -> parts(out, step));
                        });
                    }));
        });
        return out.toByteArray();
    }

    private static void parts(BsonOutput out, UpdateStep step) {
        int parts = 0;
        int next = 0;
        for (Splice.Edit edit : step.splice().edits()) {
            if (edit.at() > next) kept(out, parts++, step.path(), next, edit.at() - next);
            if (edit.inserts()) inserted(out, parts++, edit.inserted());
            next = edit.end();
        }
        int rest = step.splice().length() - next;
        if (rest > 0) kept(out, parts, step.path(), next, rest);
    }

    private static void kept(BsonOutput out, int part, String path, int from, int count) {
        Container.begin(out, BsonElements.DOCUMENT, Integer.toString(part));
        Container.frame(out, () -> {
            Container.begin(out, BsonElements.ARRAY, "$slice");
            Container.frame(out, () -> {
                Container.begin(out, BsonElements.STRING, "0");
                byte[] field = ('$' + path).getBytes(ISO_8859_1);
                out.writeInt32(field.length + 1);
                out.writeBytes(field);
                out.writeByte(0);
                Container.begin(out, BsonElements.INT32, "1");
                out.writeInt32(from);
                Container.begin(out, BsonElements.INT32, "2");
                out.writeInt32(count);
            });
        });
    }

    private static void inserted(BsonOutput out, int part, byte[] array) {
        Container.begin(out, BsonElements.DOCUMENT, Integer.toString(part));
        Container.frame(out, () -> {
            Container.begin(out, BsonElements.ARRAY, "$literal");
            out.writeBytes(array);
        });
    }
}
