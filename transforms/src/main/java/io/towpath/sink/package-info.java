/** Records of the contract become writes of mongo-kafka's sink. */
package io.towpath.sink;
