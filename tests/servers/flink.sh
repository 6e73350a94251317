#!/usr/bin/env bash
# A Flink cluster on this machine for tests: Flink from PyPI, Beam's job server shaded from Maven's artefacts, Beam's
# pool of Python workers. Nothing listens on other addresses than 127.0.0.1.
#   FLINK=FOLDER flink.sh install        once: Flink's jars and the job server (some minutes)
#   FLINK=FOLDER RUN=FOLDER PYTHON=BIN REST_PORT=N RPC_PORT=N POOL_PORT=N flink.sh start | stop
# Every process is a session of its own, recorded by its id in RUN, and ended by that id.
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

spawn() {
    local name=$1
    shift
    setsid "$@" > "$RUN/$name.log" 2>&1 < /dev/null &
    echo $! > "$RUN/$name.pid"
}

start() {
    mkdir -p "$RUN/conf" && cd "$RUN"
    cat > conf/config.yaml <<CONFIG
jobmanager: {bind-host: 127.0.0.1, rpc: {address: 127.0.0.1, port: $RPC_PORT}, memory: {process: {size: 1024m}}}
taskmanager: {bind-host: 127.0.0.1, host: 127.0.0.1, numberOfTaskSlots: 2, memory: {process: {size: 1728m}, network: {min: 256m, max: 256m}}}
rest: {address: 127.0.0.1, bind-address: 127.0.0.1, port: $REST_PORT}
parallelism: {default: 1}
io: {tmp: {dirs: $RUN/tmp}}
CONFIG
    export FLINK_CONF_DIR=$RUN/conf FLINK_PLUGINS_DIR=$FLINK/deps/plugins FLINK_LIB_DIR=$FLINK/deps/lib
    local opens="--add-exports=java.rmi/sun.rmi.registry=ALL-UNNAMED --add-opens=java.base/sun.nio.ch=ALL-UNNAMED" part
    for part in lang net io nio lang.reflect text time util util.concurrent util.concurrent.atomic util.concurrent.locks; do
        opens="$opens --add-opens=java.base/java.$part=ALL-UNNAMED"
    done
    spawn jobmanager java -Xmx512m $opens -cp "$FLINK/deps/lib/*" \
        org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint --configDir conf
    local sizes
    sizes=$(java -cp "$FLINK/deps/bin/bash-java-utils.jar:$FLINK/deps/lib/*" \
        org.apache.flink.runtime.util.bash.BashJavaUtils GET_TM_RESOURCE_PARAMS --configDir conf 2> /dev/null |
        grep BASH_JAVA_UTILS_EXEC_RESULT | sed 's/.*BASH_JAVA_UTILS_EXEC_RESULT://')
    spawn taskmanager java $(sed -n 1p <<< "$sizes") $opens -cp "$FLINK/deps/lib/*" \
        org.apache.flink.runtime.taskexecutor.TaskManagerRunner --configDir conf $(sed -n 2p <<< "$sizes")
    # The pool starts a bare `python`.
    PATH="$(dirname "$PYTHON"):$PATH" spawn pool "$PYTHON" -m apache_beam.runners.worker.worker_pool_main \
        --service_port="$POOL_PORT"
}

stop() {
    local file
    for file in "$RUN"/*.pid; do
        kill -KILL -- "-$(cat "$file")" 2> /dev/null || true
    done
}

case $1 in
    install) install "$(cd "$(dirname "$0")" && pwd)/flink_pom.xml" ;;
    start | stop) "$1" ;;
    *) echo "unknown: $1" >&2 && exit 2 ;;
esac
