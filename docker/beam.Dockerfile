# Beam's SDK harness with this project: the workers of Flink (worker pool) and Dataflow (--sdk_container_image).
#   docker build -f docker/beam.Dockerfile -t meanstream-beam:0.3.0 .
# Beam's own program `boot` comes from Beam's image of the same version and Python; everything else is locked by hash.
# The lock holds all packages: without --no-deps pip 23 refuses an extra of one that is locked (google-auth[pyopenssl]).
ARG PYTHON=python:3.11.14-slim-bookworm
ARG BEAM=apache/beam_python3.11_sdk:2.77.0

FROM ${BEAM} AS beam

FROM ${PYTHON} AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /src
RUN python -m venv /opt/build && python -m venv /opt/meanstream
COPY requirements/build.lock requirements/beam.lock requirements/

RUN /opt/build/bin/pip install --require-hashes -r requirements/build.lock \
    && /opt/meanstream/bin/pip install --no-compile --no-deps --require-hashes -r requirements/beam.lock
COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY meanstream meanstream
COPY operators operators
COPY streaming streaming
COPY pipelines pipelines
COPY docker/trim_image.py /src/trim_image.py
RUN /opt/build/bin/python -m hatchling build -t wheel -d /src/dist \
    && /opt/meanstream/bin/pip install --no-compile --no-index --no-deps dist/meanstream-*.whl \
    && /opt/meanstream/bin/python trim_image.py \
    && /opt/meanstream/bin/python -m compileall -q /opt/meanstream/lib

FROM ${PYTHON}
RUN groupadd --gid 10001 meanstream \
    && useradd --uid 10001 --gid 10001 --create-home --shell /usr/sbin/nologin meanstream
COPY --from=beam /opt/apache/beam /opt/apache/beam
COPY --from=build /opt/meanstream /opt/meanstream
# RUN_PYTHON_SDK_IN_DEFAULT_ENVIRONMENT: boot makes no virtual environment of its own, for which it would have to be root.
# Dependencies that a pipeline stages are refused by the read-only file system: they belong into this image.
ENV PATH=/opt/meanstream/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    OPENBLAS_NUM_THREADS=1 \
    RUN_PYTHON_SDK_IN_DEFAULT_ENVIRONMENT=1
USER 10001:10001
WORKDIR /home/meanstream
EXPOSE 50000
STOPSIGNAL SIGTERM
# Dataflow gives boot its arguments; compose.yaml starts a pool of workers instead. No HEALTHCHECK: Dataflow ignores it,
# and whether a port answers is asked where a pool runs, in compose.yaml.
ENTRYPOINT ["/opt/apache/beam/boot"]
