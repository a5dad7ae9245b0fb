package io.towpath.record;

import static java.nio.charset.StandardCharsets.US_ASCII;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;
import java.util.List;
import org.bson.BSONException;
import org.bson.BsonBinary;
import org.bson.BsonBoolean;
import org.bson.BsonDocument;
import org.bson.BsonInt32;
import org.bson.RawBsonDocument;

/**
 * A value that is larger than a record may be: it is cut into chunks, each in a record before the document's own, whose value then is
 * {@code {$chunks: {of, count, size, document}}}. The key of a chunk is {@code {chunk: number, of: id, _id: …}}, and its value
 * {@code {$chunk: bytes}}. No two values have one id, so that Kafka's cleaner never takes a chunk of one for a later chunk of another.
 *
 * @param id of the value, random: {@value #ID_BYTES} bytes
 * @param count of the chunks
 * @param size of the value in bytes
 * @param isDocument whether the value is a document; else it is an update
 */
public record Chunks(byte[] id, int count, int size, boolean isDocument) {
    public static final int ID_BYTES = 16;

    static final String NAME = "$chunks";
    private static final String NUMBER = "chunk";
    private static final String OF = "of";
    private static final String COUNT = "count";
    private static final String SIZE = "size";
    private static final String DOCUMENT = "document";
    private static final String DATA = "$chunk";
    /** The names behind a document's length and the type. */
    private static final byte[] NAME_BYTES = (NAME + '\0').getBytes(US_ASCII);

    private static final byte[] DATA_BYTES = (DATA + '\0').getBytes(US_ASCII);
    private static final byte[] NUMBER_BYTES = (NUMBER + '\0').getBytes(US_ASCII);
    /** Of a value: a document or an update, as large as they can be. */
    private static final int MOST_BYTES = 17 << 20;

    private static final int MOST_CHUNKS = 10_000;

    private static final int BEFORE_NAME = Integer.BYTES + 1;
    /** Of a chunk's key besides the document's, and of its value besides the data: what the driver writes around them. */
    private static final int OVERHEAD = 64;

    /** @param room of the key and the value of a chunk, in bytes */
    public static Chunks of(byte[] id, byte[] key, byte[] value, int room) {
        int data = room(key, room);
        boolean isDocument = BsonElements.atId(value).isPresent();
        return new Chunks(id, (value.length + data - 1) / data, value.length, isDocument);
    }

    /** How many bytes of a value a chunk of a document with this key has; less than 1 where the key leaves no room. */
    public static int room(byte[] key, int room) {
        return room - key.length - OVERHEAD;
    }

    /** Whether a record's key is that of a chunk. It is asked of every record, so it looks at a few bytes only. */
    public static boolean isKey(byte[] key) {
        return begins(key, BsonElements.INT32, NUMBER_BYTES);
    }

    /** Whether a record's value is in chunks. It is asked of every record, so it looks at a few bytes only. */
    public static boolean areNamedIn(byte[] value) {
        return value != null && begins(value, BsonElements.DOCUMENT, NAME_BYTES);
    }

    /** Whether this is the value of a chunk. */
    public static boolean isChunk(byte[] value) {
        return begins(value, BsonElements.BINARY, DATA_BYTES);
    }

    private static boolean begins(byte[] bson, byte type, byte[] name) {
        int end = BEFORE_NAME + name.length;
        return bson.length > end
                && bson[BEFORE_NAME - 1] == type
                && Arrays.equals(bson, BEFORE_NAME, end, name, 0, name.length);
    }

    /** The key of the document that the chunk with this key is about. Throws {@link ContractException} for anything else. */
    public static byte[] documentKey(byte[] chunkKey) {
        BsonElements id =
                BsonElements.atId(chunkKey).orElseThrow(() -> new ContractException("the key of a chunk has no _id"));
        return BsonBytes.ofField(id.type(), BsonElements.ID, chunkKey, id.valueStart(), id.valueEnd());
    }

    /** The key of a chunk: the document's, whose bytes stay as they are, with two fields before its own. */
    public byte[] key(byte[] documentKey, int number) {
        byte[] fields = BsonBytes.of(new BsonDocument(NUMBER, new BsonInt32(number)).append(OF, new BsonBinary(id)));
        int length = fields.length - 1 + documentKey.length - Integer.BYTES;
        return ByteBuffer.allocate(length)
                .order(ByteOrder.LITTLE_ENDIAN)
                .put(fields, 0, fields.length - 1)
                .put(documentKey, Integer.BYTES, documentKey.length - Integer.BYTES)
                .putInt(0, length)
                .array();
    }

    /** The value of a chunk. */
    public byte[] chunk(byte[] value, int number) {
        int data = (size + count - 1) / count;
        byte[] part = Arrays.copyOfRange(value, number * data, Math.min(size, (number + 1) * data));
        return BsonBytes.of(new BsonDocument(DATA, new BsonBinary(part)));
    }

    /** The value of the document's record. */
    public byte[] value() {
        return BsonBytes.of(new BsonDocument(
                NAME,
                new BsonDocument(OF, new BsonBinary(id))
                        .append(COUNT, new BsonInt32(count))
                        .append(SIZE, new BsonInt32(size))
                        .append(DOCUMENT, BsonBoolean.valueOf(isDocument))));
    }

    /** What the value of a document's record says of its chunks. Throws {@link ContractException} for anything else. */
    public static Chunks decode(byte[] value) {
        if (!areNamedIn(value)) throw new ContractException("it is not {$chunks: …}");
        WholeBson.require(value);
        try {
            BsonDocument fields = new RawBsonDocument(value).getDocument(NAME);
            Chunks chunks = new Chunks(
                    fields.getBinary(OF).getData(),
                    fields.getInt32(COUNT).getValue(),
                    fields.getInt32(SIZE).getValue(),
                    fields.getBoolean(DOCUMENT).getValue());
            if (chunks.count < 1
                    || chunks.count > Math.min(chunks.size, MOST_CHUNKS)
                    || chunks.size > MOST_BYTES
                    || chunks.id.length != ID_BYTES)
                throw new ContractException("$chunks has a number that cannot be: " + fields);
            return chunks;
        } catch (BSONException error) {
            throw new ContractException("$chunks breaks the contract: " + error.getMessage());
        }
    }

    /** What the value of a chunk has. Throws {@link ContractException} for anything else. */
    public static byte[] data(byte[] chunk) {
        try {
            WholeBson.require(chunk);
            return new RawBsonDocument(chunk).getBinary(DATA).getData();
        } catch (BSONException error) {
            throw new ContractException("a chunk is not {$chunk: bytes}: " + error.getMessage());
        }
    }

    /** The value that these chunks' values make. Throws {@link ContractException} where they are not this value's. */
    public byte[] join(List<byte[]> chunks) {
        byte[] joined = new byte[size];
        int at = 0;
        for (byte[] chunk : chunks) {
            byte[] data = data(chunk);
            if (data.length > size - at) throw new ContractException("its chunks have more bytes than it has");
            System.arraycopy(data, 0, joined, at, data.length);
            at += data.length;
        }
        if (at != size) throw new ContractException("its chunks have %,d of %,d bytes".formatted(at, size));
        return joined;
    }
}
