#!/usr/bin/env bash
# Fetch what a Flink cluster of tests is made of, once (some minutes): Flink's jars from PyPI, and Beam's job server
# shaded from Maven's artefacts. tests/servers/support/flink_cluster.py starts them.
#   FLINK=FOLDER PYTHON=BIN flink.sh
set -euo pipefail
: "${FLINK:?folder of the jars}"
VERSION=${VERSION:-1.19.3}
MINOR=${VERSION%.*}
BEAM_JAVA=${BEAM_JAVA:-2.70.0} # newest runner for this Flink in Maven Central
JOB_SERVICE=${JOB_SERVICE:-2.65.0}
PYTHON=${PYTHON:-python3}

install() {
    mkdir -p "$FLINK" && cd "$FLINK"
    if [ ! -d deps/lib ]; then
        "$PYTHON" -m pip download -q --no-deps --no-binary :all: -d dl "apache-flink-libraries==$VERSION"
        tar xzf dl/apache*flink*libraries-"$VERSION"*.tar.gz --strip-components=1 \
            --wildcards '*/deps/lib' '*/deps/plugins' '*/deps/bin'
        rm -rf dl
    fi
    [ -f beam-flink-job-server.jar ] && return
    mkdir -p build
    sed -e "s/@MINOR@/$MINOR/; s/@BEAM@/$BEAM_JAVA/; s/@JOB_SERVICE@/$JOB_SERVICE/" "$1" > build/pom.xml
    mvn -q -B -f build/pom.xml package
    mv build/target/beam-flink-job-server.jar .
    rm -rf build
}

install "$(cd "$(dirname "$0")" && pwd)/flink_pom.xml"
