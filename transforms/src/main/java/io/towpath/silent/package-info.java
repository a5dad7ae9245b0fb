/** Servers whose process sleeps while its machine is up, at either side: what waits for one is given up once there is another primary. */
package io.towpath.silent;
