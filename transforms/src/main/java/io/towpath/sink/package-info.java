/** The exactly-once sink: records of the contract, and the offsets behind them, in transactions of the destination. */
package io.towpath.sink;
