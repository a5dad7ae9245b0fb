package io.towpath.record;

/** Bytes or text that do not keep the record contract. */
public final class ContractException extends RuntimeException {
    private static final long serialVersionUID = 1;

    public ContractException(String message) {
        super(message);
    }
}
