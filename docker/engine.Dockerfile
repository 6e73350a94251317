# The embedded engine: `meanstream` with Kafka, nothing else.
#   docker build -f docker/engine.Dockerfile -t meanstream-engine:0.3.0 .
# Every package comes with its hash from requirements/; docker/README.md says what of this was run, and where.
ARG PYTHON=python:3.11.14-slim-bookworm

FROM ${PYTHON} AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /src
# The compiler builds the reader of JSON records and stays behind in this stage, so that its version need not be pinned.
# Of tini the final image takes one file.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev tini && rm -rf /var/lib/apt/lists/*
RUN python -m venv /opt/build && python -m venv /opt/sbom && python -m venv /opt/meanstream
COPY requirements/build.lock requirements/engine.lock requirements/sbom.lock requirements/
RUN /opt/build/bin/pip install --require-hashes -r requirements/build.lock \
    && /opt/sbom/bin/pip install --require-hashes --only-binary :all: -r requirements/sbom.lock \
    && /opt/meanstream/bin/pip install --no-compile --no-deps --require-hashes --only-binary :all: -r requirements/engine.lock
COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY meanstream meanstream
COPY operators operators
COPY streaming streaming
COPY pipelines pipelines
COPY docker/trim_image.py /src/trim_image.py
RUN /opt/build/bin/python -m hatchling build -t wheel -d /src/dist \
    && /opt/meanstream/bin/pip install --no-compile --no-index --no-deps dist/meanstream-*.whl \
    && /opt/meanstream/bin/pip uninstall -y pip setuptools \
    && /opt/sbom/bin/cyclonedx-py environment --of JSON --pyproject pyproject.toml -o /opt/meanstream/sbom.json \
        /opt/meanstream/bin/python \
    && /opt/meanstream/bin/python trim_image.py --compile

FROM ${PYTHON}
# A numbered user, so that Kubernetes can see that it is not root. The store's folder is its only place to write.
RUN groupadd --gid 10001 meanstream \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin meanstream \
    && install -d -o 10001 -g 10001 -m 0700 /var/lib/meanstream
COPY --from=build /usr/bin/tini-static /usr/bin/tini
COPY --from=build /opt/meanstream /opt/meanstream
COPY docker/probe.py /opt/meanstream/probe.py
COPY docker/producer.py /opt/meanstream/producer.py
ENV PATH=/opt/meanstream/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    OPENBLAS_NUM_THREADS=1
USER 10001:10001
WORKDIR /var/lib/meanstream
VOLUME /var/lib/meanstream
EXPOSE 9464
# SIGTERM finishes the batch at hand, commits and ends with code 0: no shell may stand between. The kernel ignores it for
# process 1 before Python has set a handler; tini passes it on from the first moment.
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=15s --timeout=5s --start-period=60s --retries=4 \
    CMD ["python", "/opt/meanstream/probe.py", "http://127.0.0.1:9464/healthz"]
ENTRYPOINT ["tini", "--", "meanstream"]
CMD ["--help"]
