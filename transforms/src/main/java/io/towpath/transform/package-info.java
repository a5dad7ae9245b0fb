/** The transform under the name in pipelines that earlier versions deployed. */
package io.towpath.transform;
