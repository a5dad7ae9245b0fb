package io.towpath.net;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.mongodb.MongoCommandException;
import com.mongodb.MongoConnectionPoolClearedException;
import com.mongodb.ServerAddress;
import com.mongodb.connection.ClusterId;
import com.mongodb.connection.ServerId;
import org.bson.BsonDocument;
import org.bson.BsonInt32;
import org.bson.BsonString;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class ReadFaultTest {
    @ParameterizedTest
    @ValueSource(ints = {6, 43, 91, 112, 189, 262, 433, 449, 462, 10107, 11602, 10045600})
    void anElectionAnUpgradeOrAnOverloadedServerPasses(int code) {
        assertTrue(ReadFault.isTransient(command(code)));
    }

    @ParameterizedTest
    @ValueSource(ints = {2, 13, 26, 50, 286, 411})
    void anErrorAboutTheReadDoesNot(int code) {
        assertFalse(ReadFault.isTransient(command(code)));
    }

    @Test
    void aMemberThatWasSuspendedHearsOfTheTimeFromTheOthers() {
        String message =
                "readConcern atClusterTime value must not be greater than the current clusterTime. Requested clusterTime: …";
        BsonDocument reply = new BsonDocument("code", new BsonInt32(72));
        assertTrue(ReadFault.isTransient(new MongoCommandException(
                reply.clone().append("errmsg", new BsonString(message)), new ServerAddress())));
        assertFalse(ReadFault.isTransient(new MongoCommandException(
                reply.append("errmsg", new BsonString("readConcern level 'snapshot' is not allowed")),
                new ServerAddress())));
    }

    /** Every thread of a copy gets it when one of them has lost its connection. */
    @Test
    void aPoolThatIsPausedBecauseOfAnotherOperationPasses() {
        MongoConnectionPoolClearedException cleared =
                new MongoConnectionPoolClearedException(new ServerId(new ClusterId(), new ServerAddress()), null);
        assertTrue(ReadFault.isTransient(cleared));
        assertEquals(RetryCause.NETWORK, RetryCause.of(cleared));
    }

    /** A server reads a view by an aggregation, which has not all options of a find. */
    @Test
    void whatNoViewHasIsToldFromOtherErrors() {
        BsonDocument reply = new BsonDocument("code", new BsonInt32(168));
        assertTrue(ReadFault.isOfAView(new MongoCommandException(
                reply.clone()
                        .append("errmsg", new BsonString("Option allowPartialResults not supported in aggregation.")),
                new ServerAddress())));
        assertFalse(ReadFault.isOfAView(new MongoCommandException(
                reply.append("errmsg", new BsonString("Unrecognized expression '$x'")), new ServerAddress())));
        assertTrue(ReadFault.isOfAView(command(166)));
    }

    /** Other such errors pass, also those of a capped collection from 8.0 on. */
    @Test
    void thatNoCappedCollectionIsReadIsToldFromATimeThatIsNotHeld() {
        BsonDocument reply = new BsonDocument("code", new BsonInt32(246));
        String capped = "Reading from capped collections with readConcern snapshot is not supported";
        assertTrue(ReadFault.isOfACapped(new MongoCommandException(
                reply.clone().append("errmsg", new BsonString(capped)), new ServerAddress())));
        String changed = "Unable to read from a snapshot due to pending collection catalog changes";
        assertFalse(ReadFault.isOfACapped(
                new MongoCommandException(reply.append("errmsg", new BsonString(changed)), new ServerAddress())));
        assertFalse(ReadFault.isOfACapped(command(239)));
    }

    private static MongoCommandException command(int code) {
        return new MongoCommandException(new BsonDocument("code", new BsonInt32(code)), new ServerAddress());
    }
}
