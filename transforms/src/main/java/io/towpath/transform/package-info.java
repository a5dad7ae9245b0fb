/** The name of the transform that pipelines deployed before carry. */
package io.towpath.transform;
