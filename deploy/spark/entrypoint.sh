#!/bin/sh
# What a container of the image does: `executor` and `driver` as Spark's scheduler for Kubernetes asks for them, by
# variables of the environment; anything else is a command, such as `kourou pipeline …`.
set -eu

run() {  # as process 1 there has to be one that collects ended children
    if [ "$$" = 1 ]; then exec tini -s -- "$@"; fi
    exec "$@"
}

case "${1:-}" in
executor)
    # SPARK_JAVA_OPT_0, SPARK_JAVA_OPT_1, …: one option each, which may have blanks in it.
    set --
    number=0
    while eval "option=\${SPARK_JAVA_OPT_$number:-}" && [ -n "$option" ]; do
        set -- "$@" "$option"
        number=$((number + 1))
    done
    java="${JAVA_HOME:+$JAVA_HOME/bin/}java"
    run "$java" "$@" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
        -cp "${SPARK_CLASSPATH:+$SPARK_CLASSPATH:}${SPARK_CONF_DIR:+$SPARK_CONF_DIR:}$SPARK_HOME/jars/*" \
        org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
        --driver-url "$SPARK_DRIVER_URL" \
        --executor-id "$SPARK_EXECUTOR_ID" \
        --cores "$SPARK_EXECUTOR_CORES" \
        --app-id "$SPARK_APPLICATION_ID" \
        --hostname "$SPARK_EXECUTOR_POD_IP" \
        --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
        --podName "$SPARK_EXECUTOR_POD_NAME"
    ;;
driver)
    shift
    run "$SPARK_HOME/bin/spark-submit" --deploy-mode client \
        --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" \
        --conf "spark.executorEnv.SPARK_DRIVER_POD_IP=$SPARK_DRIVER_BIND_ADDRESS" "$@"
    ;;
*)
    run "$@"
    ;;
esac
