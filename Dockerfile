# Three images, from this checkout alone: the tool; a Kafka Connect worker with the connector plugin; the same for Strimzi.
#   docker build --target towpath -t towpath .
#   docker build --target connect -t towpath-connect .
#   docker build --target strimzi -t towpath-strimzi .
# docker-compose.yml builds the first two; docs/releasing.md tells more.
ARG PYTHON_IMAGE=python:3.11.13-slim-bookworm
ARG KAFKA_IMAGE=apache/kafka:4.3.1
ARG STRIMZI_IMAGE=strimzi/kafka:1.2.0-kafka-4.3.1

FROM ${PYTHON_IMAGE} AS installed
RUN python3 -m venv /opt/towpath
COPY pyproject.toml constraints.txt README.md LICENSE /source/
COPY connectors /source/connectors
COPY towpath /source/towpath
COPY transforms /source/transforms
COPY verifier /source/verifier
RUN /opt/towpath/bin/pip install --no-cache-dir --constraint /source/constraints.txt /source/verifier /source

FROM ${PYTHON_IMAGE} AS plugin
# the folder is missing in slim images, and the JDK's package needs it
RUN mkdir -p /usr/share/man/man1 \
 && apt-get update \
 && apt-get install -y --no-install-recommends maven openjdk-17-jdk-headless \
 && rm -rf /var/lib/apt/lists/*
COPY --from=installed /opt/towpath /opt/towpath
RUN /opt/towpath/bin/towpath stack plugin --dir /plugins

FROM ${KAFKA_IMAGE} AS connect
USER root
# the folder of the secrets files, which the tool writes and the worker reads: a volume that both mount
RUN mkdir -p /var/lib/towpath && chmod 1777 /var/lib/towpath
USER appuser
COPY connectors/worker.properties release/connect /opt/towpath/
COPY --from=plugin /plugins /opt/towpath/plugins
EXPOSE 8083
CMD ["/opt/towpath/connect"]

FROM ${PYTHON_IMAGE} AS towpath
RUN useradd --uid 1000 --create-home towpath \
 && mkdir -p /var/lib/towpath /work \
 && chmod 1777 /var/lib/towpath
COPY --from=installed /opt/towpath /opt/towpath
# what the tool keeps is in /var/lib/towpath
ENV PATH=/opt/towpath/bin:$PATH XDG_STATE_HOME=/var/lib
USER towpath
WORKDIR /work
ENTRYPOINT ["towpath"]

# For Strimzi's operator: its image of the workers, with the plugin (docs/how-to/kubernetes.md). The last stage, since
# builders without BuildKit make every stage before the target.
FROM ${STRIMZI_IMAGE} AS strimzi
COPY --from=plugin /plugins /opt/kafka/plugins
