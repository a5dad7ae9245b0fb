package io.towpath.net;

import com.mongodb.MongoCommandException;
import com.mongodb.MongoException;
import java.util.Map;
import java.util.Optional;
import java.util.function.Function;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/**
 * The server's error codes that Towpath distinguishes, under their names in MongoDB's error_codes.yml (or, where that has none, under
 * the names of the drivers' specifications), and what to retry after each.
 */
public enum ServerError {
    // The network, and members that join, leave and change roles.
    HostUnreachable(6, Retry.READ_AND_WRITE),
    HostNotFound(7, Retry.READ_AND_WRITE),
    NetworkTimeout(89, Retry.READ_AND_WRITE),
    ShutdownInProgress(91, Retry.READ_AND_WRITE),
    PooledConnectionsDropped(145, Retry.WRITE),
    NoConfigPrimary(149, Retry.WRITE),
    PrimarySteppedDown(189, Retry.READ_AND_WRITE),
    MasterSlaveConnectionFailure(190, Retry.WRITE),
    NetworkInterfaceExceededTimeLimit(202, Retry.READ_AND_WRITE),
    ElectionInProgress(216, Retry.READ_AND_WRITE),
    DNSHostNotFound(230, Retry.WRITE),
    DNSProtocolError(231, Retry.WRITE),
    ClientDisconnect(279, Retry.WRITE),
    CurrentConfigNotCommittedYet(308, Retry.WRITE),
    ConnectionPoolExpired(317, Retry.READ_AND_WRITE),
    ConnectionError(384, Retry.READ_AND_WRITE),
    PooledConnectionAcquisitionExceededTimeLimit(407, Retry.WRITE),
    SocketException(9001, Retry.READ_AND_WRITE),
    LegacyNotPrimary(10058, Retry.WRITE),
    NotWritablePrimary(10107, Retry.READ_AND_WRITE),
    InterruptedAtShutdown(11600, Retry.READ_AND_WRITE),
    InterruptedDueToReplStateChange(11602, Retry.READ_AND_WRITE),
    NotPrimaryNoSecondaryOk(13435, Retry.READ_AND_WRITE),
    NotPrimaryOrSecondary(13436, Retry.READ_AND_WRITE),
    // Other operations' locks and builds, and time limits.
    LockTimeout(24, Retry.READ_AND_WRITE),
    LockBusy(46, Retry.READ_AND_WRITE),
    MaxTimeMSExpired(50, Retry.WRITE),
    WriteConcernTimeout(64, Retry.WRITE),
    LockFailed(107, Retry.WRITE),
    WriteConflict(112, Retry.READ_AND_WRITE),
    ConflictingOperationInProgress(117, Retry.WRITE),
    BalancerInterrupted(194, Retry.WRITE),
    CursorKilled(237, Retry.READ_AND_WRITE),
    ExceededTimeLimit(262, Retry.READ_AND_WRITE),
    IndexBuildAborted(276, Retry.WRITE),
    IndexBuildAlreadyInProgress(285, Retry.WRITE),
    TransactionExceededLifetimeLimitSeconds(290, Retry.WRITE),
    ObjectIsBusy(314, Retry.WRITE),
    MovePrimaryInProgress(319, Retry.WRITE),
    ReshardCollectionInProgress(338, Retry.WRITE),
    ReshardingCriticalSectionTimeout(342, Retry.WRITE),
    ShardCannotRefreshDueToLocksHeld(343, Retry.WRITE),
    InterruptedDueToStorageChange(355, Retry.WRITE),
    AddOrRemoveShardInProgress(414, Retry.WRITE),
    Interrupted(11601, Retry.WRITE),
    BackgroundOperationInProgressForDatabase(12586, Retry.WRITE),
    BackgroundOperationInProgressForNamespace(12587, Retry.WRITE),
    // Sessions, transactions, snapshots and routing.
    StaleShardVersion(63, Retry.READ_AND_WRITE),
    FailedToSatisfyReadPreference(133, Retry.READ_AND_WRITE),
    ReadConcernMajorityNotAvailableYet(134, Retry.READ_AND_WRITE),
    StaleEpoch(150, Retry.READ_AND_WRITE),
    ShardingStateNotInitialized(203, Retry.WRITE),
    TimeProofMismatch(204, Retry.WRITE),
    ClusterTimeFailsRateLimiter(205, Retry.WRITE),
    NoSuchSession(206, Retry.WRITE),
    CannotVerifyAndSignLogicalTime(210, Retry.WRITE),
    /** Of a write, the key that signs cluster times; of a read, the record after which it resumes. */
    KeyNotFound(211, Retry.WRITE),
    DatabaseDropPending(215, Retry.WRITE),
    TransactionTooOld(225, Retry.WRITE),
    SessionTransferIncomplete(228, Retry.WRITE),
    SnapshotTooOld(239, Retry.READ_AND_WRITE),
    SnapshotUnavailable(246, Retry.READ_AND_WRITE),
    StaleDbVersion(249, Retry.WRITE),
    StaleChunkHistory(250, Retry.WRITE),
    NoSuchTransaction(251, Retry.WRITE),
    TransactionCommitted(256, Retry.WRITE),
    PreparedTransactionInProgress(267, Retry.WRITE),
    MigrationConflict(272, Retry.WRITE),
    TransactionCoordinatorSteppingDown(281, Retry.WRITE),
    TransactionCoordinatorReachedAbortDecision(282, Retry.WRITE),
    TxnRetryCounterTooOld(356, Retry.WRITE),
    RetryableTransactionInProgress(363, Retry.WRITE),
    MigrationBlockingOperationCoordinatorCleaningUp(406, Retry.WRITE),
    UpdatesStillPending(412, Retry.WRITE),
    StaleConfig(13388, Retry.READ_AND_WRITE),
    InterruptedDueToFCVChange(10045600, Retry.READ_AND_WRITE),
    // Overload.
    TooManyLocks(208, Retry.WRITE),
    TooManyLogicalSessions(261, Retry.WRITE),
    TooManyFilesOpen(264, Retry.WRITE),
    TemporarilyUnavailable(365, Retry.WRITE),
    TransactionTooLargeForCache(388, Retry.SMALLER_WRITE),
    ResourceExhausted(402, Retry.WRITE),
    AdmissionQueueOverflow(433, Retry.READ_AND_WRITE),
    RateLimitExceeded(449, Retry.READ_AND_WRITE),
    /** Of 9.0, whose release notes have no number: known by its name only. */
    TooManyOpenTransactions(-1, Retry.WRITE),
    IngressRequestRateLimitExceeded(462, Retry.READ_AND_WRITE),
    // Permission and room to write: a missing role, a quota, a full disk, a write block.
    UserNotFound(11, Retry.WRITE),
    Unauthorized(13, Retry.WRITE),
    AuthenticationFailed(18, Retry.WRITE),
    RoleNotFound(31, Retry.WRITE),
    PrivilegeNotFound(33, Retry.WRITE),
    AuthenticationRestrictionUnmet(214, Retry.WRITE),
    UserWritesBlocked(371, Retry.WRITE),
    ReauthenticationRequired(391, Retry.WRITE),
    LDAPRoleAcquisitionError(404, Retry.WRITE),
    AtlasError(8000, Retry.WRITE),
    QuotaExceeded(12501, Retry.WRITE),
    OutOfDiskSpace(14031, Retry.WRITE),
    // What ends a read or a cursor.
    CursorNotFound(43, Retry.READ),
    QueryPlanKilled(175, Retry.READ),
    RetryChangeStream(234, Retry.READ),
    InternalTransactionNotSupported(358, Retry.READ),
    // Writes that a destination never accepts: to a standalone, a capped or a time-series collection, or with an
    // unknown command, version or write concern.
    IllegalOperation(20, Retry.NEVER),
    CommandNotFound(59, Retry.NEVER),
    InvalidOptions(72, Retry.NEVER),
    InvalidNamespace(73, Retry.NEVER),
    UnknownReplWriteConcern(79, Retry.NEVER),
    UnsatisfiableWriteConcern(100, Retry.NEVER),
    CommandNotSupported(115, Retry.NEVER),
    NotAReplicaSet(123, Retry.NEVER),
    OptionNotSupportedOnView(167, Retry.NEVER),
    CommandOnShardedViewNotSupportedOnMongod(169, Retry.NEVER),
    IncompatibleServerVersion(188, Retry.NEVER),
    NotImplemented(238, Retry.NEVER),
    OperationNotSupportedInTransaction(263, Retry.NEVER),
    APIVersionError(322, Retry.NEVER),
    APIStrictError(323, Retry.NEVER),
    APIDeprecationError(324, Retry.NEVER),
    APIMismatchError(347, Retry.NEVER),
    // Errors whose meaning depends on the request.
    BadValue(2, Retry.UNDECIDED),
    UnknownError(8, Retry.UNDECIDED),
    NamespaceNotFound(26, Retry.UNDECIDED),
    IndexNotFound(27, Retry.UNDECIDED),
    NamespaceExists(48, Retry.UNDECIDED),
    CappedPositionLost(136, Retry.UNDECIDED),
    CommandNotSupportedOnView(166, Retry.UNDECIDED),
    InvalidPipelineOperator(168, Retry.UNDECIDED),
    ChangeStreamFatalError(280, Retry.UNDECIDED),
    ChangeStreamHistoryLost(286, Retry.UNDECIDED),
    BSONObjectTooLarge(10334, Retry.UNDECIDED),
    CollectionUUIDMismatch(361, Retry.UNDECIDED),
    DuplicateKey(11000, Retry.UNDECIDED),
    InvalidRegularExpression(51091, Retry.UNDECIDED);

    /** Which operations may succeed later without a change. */
    private enum Retry {
        READ_AND_WRITE,
        READ,
        WRITE,
        SMALLER_WRITE,
        NEVER,
        UNDECIDED
    }

    private static final Map<Integer, ServerError> BY_CODE =
            Stream.of(values()).collect(Collectors.toMap(ServerError::code, Function.identity()));

    private final int code;
    private final Retry retry;

    ServerError(int code, Retry retry) {
        this.code = code;
        this.retry = retry;
    }

    public static Optional<ServerError> of(int code) {
        return Optional.ofNullable(BY_CODE.get(code));
    }

    /** By the code, or by the name that the server gives it. */
    public static Optional<ServerError> of(MongoException error) {
        boolean isNamed = error instanceof MongoCommandException answer
                && answer.getErrorCodeName().equals(TooManyOpenTransactions.name());
        return isNamed ? Optional.of(TooManyOpenTransactions) : of(error.getCode());
    }

    /** Before a mongod with a full disk ends, it responds with the operating system's message, as an unknown error. */
    public static boolean isDiskFull(int code, String message) {
        return code == UnknownError.code && message != null && message.contains("No space left on device");
    }

    public int code() {
        return code;
    }

    public boolean is(MongoException error) {
        return error.getCode() == code;
    }

    public boolean isTransientForReads() {
        return retry == Retry.READ_AND_WRITE || retry == Retry.READ;
    }

    public boolean isTransientForWrites() {
        return retry == Retry.READ_AND_WRITE || retry == Retry.WRITE || retry == Retry.SMALLER_WRITE;
    }

    /** Whether the transaction was too large: a few large documents fill too much of a small cache. */
    public boolean isTooLarge() {
        return retry == Retry.SMALLER_WRITE;
    }

    /** Whether the destination never accepts such a write. */
    public boolean isHopelessForWrites() {
        return retry == Retry.NEVER;
    }
}
