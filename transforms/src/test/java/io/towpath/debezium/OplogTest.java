package io.towpath.debezium;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.towpath.record.ClusterTime;
import org.junit.jupiter.api.Test;

class OplogTest {
    private static final Oplog FULL = new Oplog(1000, 5000, 0.95, 0, 1, 0);

    @Test
    void aFullOplogReachesBackAsFarAsItDoesNow() {
        assertEquals(4000, FULL.window());
        assertEquals(1000, FULL.left(new ClusterTime(2000, 1)));
        assertEquals(-500, FULL.left(new ClusterTime(500, 1)));
    }

    @Test
    void oneThatIsNotFullWillReachBackFurther() {
        assertEquals(8000, new Oplog(1000, 5000, 0.5, 0, 1, 0).window());
        assertEquals(9000, new Oplog(1000, 5000, 0.5, 9000, 1, 0).window());
        assertEquals(8000, new Oplog(1000, 5000, 0.5, 7000, 1, 0).window());
    }

    @Test
    void captureIsNearTheEndFromHalfOfTheWindowOn() {
        assertFalse(FULL.isNear(new ClusterTime(3000, 1)));
        assertTrue(FULL.isNear(new ClusterTime(2999, 1)));
        assertFalse(new Oplog(1000, 5000, 0.4, 0, 1, 0).isNear(new ClusterTime(1000, 1)));
    }
}
