package io.towpath.net;

import com.mongodb.MongoBulkWriteException;
import com.mongodb.MongoConnectionPoolClearedException;
import com.mongodb.MongoException;
import com.mongodb.MongoNodeIsRecoveringException;
import com.mongodb.MongoNotPrimaryException;
import com.mongodb.MongoOperationTimeoutException;
import com.mongodb.MongoSecurityException;
import com.mongodb.MongoSocketException;
import com.mongodb.MongoTimeoutException;
import java.util.Locale;

/** Why something was retried: so few that each may be a label of a metric. Their names in lower case are the labels. */
public enum RetryCause {
    /** No primary, or no member that answers: an election, members that start or stop or cannot be reached. */
    NO_PRIMARY,
    NETWORK,
    /** Another operation holds the document or the collection. */
    CONFLICT,
    /** The server, or the driver, gave the operation up as it took too long. */
    TIMEOUT,
    /** The source does not hold its state as of the time that a read asks for. */
    SNAPSHOT,
    /** A missing role or password, or a write block. */
    PERMISSION,
    /** A quota, a full disk, an overloaded server. */
    RESOURCES,
    /** Kafka did not answer. */
    KAFKA,
    OTHER;

    public String label() {
        return name().toLowerCase(Locale.ROOT);
    }

    /** The cause of what MongoDB or its driver reports. */
    public static RetryCause of(RuntimeException error) {
        if (!(error instanceof MongoException mongoError)) return OTHER;
        boolean isConcern = error instanceof MongoBulkWriteException bulk && bulk.getWriteConcernError() != null;
        int code = isConcern
                ? ((MongoBulkWriteException) error).getWriteConcernError().getCode()
                : mongoError.getCode();
        if (ServerError.isDiskFull(code, error.getMessage())) return RESOURCES;
        RetryCause cause = (isConcern ? ServerError.of(code) : ServerError.of(mongoError))
                .map(RetryCause::of)
                .orElse(OTHER);
        return cause == OTHER ? ofDriver(mongoError) : cause;
    }

    private static RetryCause ofDriver(MongoException error) {
        if (error instanceof MongoSocketException || error instanceof MongoConnectionPoolClearedException)
            return NETWORK;
        if (error instanceof MongoSecurityException) return PERMISSION;
        if (error instanceof MongoOperationTimeoutException) return TIMEOUT;
        return error instanceof MongoTimeoutException // as it found no server
                        || error instanceof MongoNotPrimaryException
                        || error instanceof MongoNodeIsRecoveringException
                ? NO_PRIMARY
                : OTHER;
    }

    private static RetryCause of(ServerError error) {
        return switch (error) {
            case ShutdownInProgress,
                    NoConfigPrimary,
                    PrimarySteppedDown,
                    ElectionInProgress,
                    LegacyNotPrimary,
                    NotWritablePrimary,
                    InterruptedAtShutdown,
                    InterruptedDueToReplStateChange,
                    NotPrimaryNoSecondaryOk,
                    NotPrimaryOrSecondary,
                    FailedToSatisfyReadPreference,
                    TransactionCoordinatorSteppingDown -> NO_PRIMARY;
            case HostUnreachable,
                    HostNotFound,
                    NetworkTimeout,
                    PooledConnectionsDropped,
                    MasterSlaveConnectionFailure,
                    NetworkInterfaceExceededTimeLimit,
                    DNSHostNotFound,
                    DNSProtocolError,
                    ClientDisconnect,
                    ConnectionPoolExpired,
                    ConnectionError,
                    PooledConnectionAcquisitionExceededTimeLimit,
                    SocketException -> NETWORK;
            case LockTimeout,
                    LockBusy,
                    LockFailed,
                    WriteConflict,
                    ConflictingOperationInProgress,
                    IndexBuildAborted,
                    IndexBuildAlreadyInProgress,
                    ObjectIsBusy,
                    BackgroundOperationInProgressForDatabase,
                    BackgroundOperationInProgressForNamespace,
                    DatabaseDropPending,
                    PreparedTransactionInProgress,
                    DuplicateKey -> CONFLICT;
            case MaxTimeMSExpired,
                    WriteConcernTimeout,
                    ExceededTimeLimit,
                    TransactionExceededLifetimeLimitSeconds -> TIMEOUT;
            case SnapshotTooOld, SnapshotUnavailable -> SNAPSHOT;
            case UserNotFound,
                    Unauthorized,
                    AuthenticationFailed,
                    RoleNotFound,
                    PrivilegeNotFound,
                    AuthenticationRestrictionUnmet,
                    UserWritesBlocked,
                    ReauthenticationRequired,
                    LDAPRoleAcquisitionError -> PERMISSION;
            case TooManyLocks,
                    TooManyLogicalSessions,
                    TooManyFilesOpen,
                    TooManyOpenTransactions,
                    TemporarilyUnavailable,
                    TransactionTooLargeForCache,
                    ResourceExhausted,
                    AdmissionQueueOverflow,
                    RateLimitExceeded,
                    IngressRequestRateLimitExceeded,
                    AtlasError, // over the quota of its tier, mostly
                    QuotaExceeded,
                    OutOfDiskSpace -> RESOURCES;
            default -> OTHER;
        };
    }
}
