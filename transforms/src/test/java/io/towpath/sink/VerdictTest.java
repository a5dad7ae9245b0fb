package io.towpath.sink;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.mongodb.MongoBulkWriteException;
import com.mongodb.MongoCommandException;
import com.mongodb.MongoException;
import com.mongodb.MongoNamespace;
import com.mongodb.MongoSocketReadException;
import com.mongodb.MongoTimeoutException;
import com.mongodb.MongoWriteConcernException;
import com.mongodb.ServerAddress;
import com.mongodb.WriteConcernResult;
import com.mongodb.bulk.BulkWriteResult;
import com.mongodb.bulk.WriteConcernError;
import io.towpath.net.RetryCause;
import java.util.List;
import java.util.Set;
import org.bson.BsonDocument;
import org.bson.BsonInt32;
import org.bson.BsonInvalidOperationException;
import org.bson.BsonMaximumSizeExceededException;
import org.bson.BsonSerializationException;
import org.bson.BsonString;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** What errors are taken for, when the server names a write and when it does not. */
class VerdictTest {
    private static final String ON_ID = "E11000 duplicate key error collection: db.c index: _id_ dup key: { _id: 1 }";
    private static final String CLUSTERED = "E11000 duplicate key error collection: db.c dup key: { _id: 1 }";
    private static final String ON_ANOTHER =
            "E11000 duplicate key error collection: db.c index: _id_1 dup key: { _id: 1 }";

    @ParameterizedTest
    @ValueSource(
            ints = {
                6, 7, 11, 13, 18, 24, 50, 64, 89, 91, 112, 189, 204, 205, 210, 211, 251, 262, 290, 371, 462, 8000,
                10107, 11602, 12501, 14031, 10045600
            })
    void aCodeThatIsNotAboutOneDocumentPasses(int code) {
        assertEquals(Verdict.TRANSIENT, Verdict.of(command(code)));
        assertEquals(Verdict.TRANSIENT, Verdict.of(refusal(code, "", Write.Kind.CHANGE)));
    }

    @ParameterizedTest
    @ValueSource(ints = {2, 9, 14, 28, 40, 56, 66, 121, 166, 10334, 16755, 17280, 17419})
    void aCodeThatIsAboutAWriteRefusesIt(int code) {
        assertEquals(Verdict.REFUSED, Verdict.of(refusal(code, "", Write.Kind.CHANGE)));
        assertEquals(Verdict.UNCLEAR, Verdict.of(command(code)));
    }

    @ParameterizedTest
    @ValueSource(ints = {20, 73, 79, 100, 263})
    void aDestinationThatNeverTakesSuchWritesIsHopeless(int code) {
        assertEquals(Verdict.HOPELESS, Verdict.of(command(code)));
        assertEquals(Verdict.HOPELESS, Verdict.of(refusal(code, "", Write.Kind.INSERT)));
    }

    @Test
    void aDiskWithoutRoomPassesWhateverCodeItHas() {
        String words = "28: No space left on device";
        assertEquals(Verdict.TRANSIENT, Verdict.of(refusal(8, words, Write.Kind.CHANGE)));
        assertEquals(Verdict.REFUSED, Verdict.of(refusal(8, "anything else", Write.Kind.CHANGE)));
        assertEquals(Verdict.REFUSED, Verdict.of(refusal(121, words, Write.Kind.CHANGE)));
    }

    @Test
    void aDuplicateIsPresentOnlyByItsId() {
        assertEquals(Verdict.PRESENT, Verdict.of(refusal(11000, ON_ID, Write.Kind.INSERT)));
        assertEquals(Verdict.PRESENT, Verdict.of(refusal(11000, CLUSTERED, Write.Kind.INSERT)));
        assertEquals(Verdict.REFUSED, Verdict.of(refusal(11000, ON_ANOTHER, Write.Kind.INSERT)));
        assertEquals(Verdict.TRANSIENT, Verdict.of(refusal(11000, ON_ID, Write.Kind.CHANGE)));
    }

    /** The duplicate values, and the collection's name, may hold any text. */
    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            value = {
                "db.c | index: nick_1 dup key: { nick: \"see index: _id_ here\" } | REFUSED",
                "db.c | index: nick_1 dup key: { nick: \"collection: db.c dup key: { _id: 1 }\" } | REFUSED",
                "db.c | index: nick_1 collation: { locale: \"fr\" } dup key: { nick: \" index: _id_ \" } | REFUSED",
                "db.a index: _id_ b | index: nick_1 dup key: { nick: 1 } | REFUSED",
                "db.a dup key: b | index: _id_ dup key: { _id: 1 } | PRESENT",
                "db.my orders | dup key: { _id: 1 } | PRESENT",
                "db.c | index: _id_ collation: { locale: \"fr\" } dup key: { _id: \"0x1c\" } | PRESENT",
                "db.c | collation: { locale: \"fr\" } dup key: { _id: \"0x1c\" } | PRESENT"
            })
    void textOfUsersSaysNothingOfTheIndex(String namespace, String words, Verdict expected) {
        String reason = "E11000 duplicate key error collection: %s %s".formatted(namespace, words);
        for (String before : new String[] {"", "Plan executor error during update :: caused by :: "})
            assertEquals(expected, Verdict.of(refusal(namespace, 11000, before + reason, Write.Kind.INSERT)));
    }

    @Test
    void theNetworkAndLabelsPass() {
        assertEquals(Verdict.TRANSIENT, Verdict.of(new MongoTimeoutException("no server")));
        assertEquals(Verdict.TRANSIENT, Verdict.of(new MongoSocketReadException("gone", new ServerAddress())));
        for (String label : new String[] {"TransientTransactionError", "UnknownTransactionCommitResult"}) {
            MongoException labelled = command(2);
            labelled.addLabel(label);
            assertEquals(Verdict.TRANSIENT, Verdict.of(labelled));
        }
    }

    @Test
    void anErrorOfTheWriteConcernIsWhatItsCodeSays() {
        for (int code : new int[] {64, 100}) {
            Verdict expected = code == 64 ? Verdict.TRANSIENT : Verdict.HOPELESS;
            WriteConcernError error = new WriteConcernError(code, "name", "message", new BsonDocument());
            assertEquals(
                    expected,
                    Verdict.of(new MongoBulkWriteException(
                            BulkWriteResult.unacknowledged(), List.of(), error, new ServerAddress(), Set.of())));
            assertEquals(
                    expected,
                    Verdict.of(new MongoWriteConcernException(
                            error, WriteConcernResult.unacknowledged(), new ServerAddress(), List.of())));
        }
    }

    @Test
    void anErrorAboutBsonIsUnclear() {
        assertEquals(Verdict.UNCLEAR, Verdict.of(new BsonSerializationException("too large")));
        assertEquals(Verdict.UNCLEAR, Verdict.of(new BsonInvalidOperationException("not a document")));
        assertEquals(Verdict.UNCLEAR, Verdict.of(new BsonMaximumSizeExceededException("too large")));
    }

    @Test
    void anErrorOfTheSinkItselfMakesNoRecordADeadLetter() {
        assertEquals(Verdict.HOPELESS, Verdict.of(new NullPointerException("a field")));
        assertEquals(Verdict.HOPELESS, Verdict.of(new IllegalStateException("a state")));
        String words = BatchWriter.hopeless(new NullPointerException("a field")).getMessage();
        assertTrue(words.contains("an error in the sink itself") && words.contains("NullPointerException"), words);
    }

    private static MongoException command(int code) {
        BsonDocument answer = new BsonDocument("ok", new BsonInt32(0)).append("code", new BsonInt32(code));
        return new MongoCommandException(answer, new ServerAddress());
    }

    /** 9.0 names it in its release notes, without a number. */
    @Test
    void tooManyOpenTransactionsPass() {
        BsonDocument answer = new BsonDocument("ok", new BsonInt32(0))
                .append("code", new BsonInt32(999))
                .append("codeName", new BsonString("TooManyOpenTransactions"));
        MongoException error = new MongoCommandException(answer, new ServerAddress());
        assertEquals(Verdict.TRANSIENT, Verdict.of(error));
        assertEquals(RetryCause.RESOURCES, RetryCause.of(error));
    }

    private static WriteCommand.Refusal refusal(int code, String reason, Write.Kind kind) {
        return refusal("db.c", code, reason, kind);
    }

    private static WriteCommand.Refusal refusal(String namespace, int code, String reason, Write.Kind kind) {
        Write.DocumentId document = new Write.DocumentId(new MongoNamespace(namespace), new byte[0]);
        return new WriteCommand.Refusal(new Write(List.of(), document, kind, null, 0, false), code, reason);
    }
}
