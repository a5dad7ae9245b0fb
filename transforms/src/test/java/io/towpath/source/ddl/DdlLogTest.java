package io.towpath.source.ddl;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.towpath.record.ClusterTime;
import java.util.Map;
import org.junit.jupiter.api.Test;

class DdlLogTest {
    private static final ClusterTime START = new ClusterTime(100, 1);

    private static Ddl drop(long seconds, String namespace) {
        return new Ddl(new ClusterTime(seconds, 1), "drop", namespace, "");
    }

    @Test
    void whatIsStoredComesBack() {
        DdlLog log = new DdlLog(null, START);
        Ddl rename = new Ddl(new ClusterTime(120, 7), "rename", "shop.\"odd\" \\ näme", "shop.b");
        assertTrue(log.add(drop(110, "shop.a")));
        assertTrue(log.add(rename));
        log.passed(new ClusterTime(130, 2));
        log.report("not authorised");
        Map<String, Object> stored = log.offset();
        DdlLog next = new DdlLog(stored, START);
        assertEquals(log.changes(), next.changes());
        assertEquals(new ClusterTime(130, 2), next.upto());
        assertEquals(stored, next.offset());
        assertFalse(next.report("not authorised"));
    }

    @Test
    void whatIsReadAgainIsNoNewsAndALaterOneTakesItsPlace() {
        DdlLog log = new DdlLog(null, START);
        assertTrue(log.add(drop(110, "shop.a")));
        assertFalse(log.add(drop(110, "shop.a")));
        assertFalse(log.add(drop(105, "shop.a")));
        assertTrue(log.add(drop(111, "shop.a")));
        assertEquals(1, log.changes().size());
        assertEquals(111, log.changes().get(0).time().seconds());
    }

    @Test
    void timeNeverGoesBack() {
        DdlLog log = new DdlLog(null, START);
        log.passed(new ClusterTime(50, 1));
        assertEquals(START, log.upto());
        log.add(drop(90, "shop.a"));
        assertEquals(START, log.upto());
    }

    @Test
    void ofMoreThanItKeepsTheOldestGoAndAreCounted() {
        DdlLog log = new DdlLog(null, START);
        for (int index = 0; index < DdlLog.MOST + 5; index++) log.add(drop(200 + index, "shop.c" + index));
        assertEquals(DdlLog.MOST, log.changes().size());
        assertEquals(205, log.changes().get(0).time().seconds());
        assertEquals(5L, log.offset().get("dropped"));
        assertEquals(5L, new DdlLog(log.offset(), START).offset().get("dropped"));
    }
}
