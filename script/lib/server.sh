# What script/servers/* share: arguments, ports, and life in the background, known by its pid.
# A server defines run (execs it), ready, describe and STOP_SIGNAL, then calls serve.
# shellcheck shell=bash

START_DEADLINE_S=${OUTBOX_START_DEADLINE_S:-180}
STOP_DEADLINE_S=${OUTBOX_STOP_DEADLINE_S:-30}
KILL_DEADLINE_S=10

# parse_server_arguments NAME COMMAND [OPTION...]: sets COMMAND, DIR, PORT.
parse_server_arguments() {
    local name=$1
    COMMAND=${2:-}
    shift $(($# > 1 ? 2 : 1))
    DIR=${OUTBOX_SERVERS:-$ROOT/.servers}/$name
    PORT=
    while [ $# -gt 0 ]; do
        case $1 in
            --dir) DIR=${2:?--dir needs a folder} ;;
            --port) PORT=${2:?--port needs a number} ;;
            *) die "unknown option '$1'; the first lines of $0 say what there is" ;;
        esac
        shift 2
    done
    DIR=$(realpath -m "$DIR")
}

port_answers() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# A port below those that tests take and the kernel gives to outgoing connections. It is this
# folder's while the folder is there: others that look before something listens take another one.
free_port() (
    claims=/tmp/outbox-server-ports-$(id -u)
    mkdir -p "$claims"
    exec 8>"$claims/lock"
    flock 8
    for _ in {1..200}; do
        port=$((17000 + RANDOM % 3000))
        [ ! -d "$(cat "$claims/$port" 2>/dev/null)" ] || continue
        port_answers $port || { echo "$DIR" >"$claims/$port" && echo $port; return; }
    done
    die "no free port between 17000 and 20000"
)

choose_port() {
    [ -n "$PORT" ] || PORT=$(cat "$DIR/port" 2>/dev/null || free_port)
    ! port_answers "$PORT" || die "port $PORT is taken; give another with --port"
    echo "$PORT" >"$DIR/port"
}

# The pid of the server that runs in this folder; fails if there is none. A pid alone could by
# now belong to somebody else, so its start time counts, too.
start_time() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }
running_pid() {
    local pid started
    read -r pid started 2>/dev/null <"$DIR/pid" && [ -n "$started" ] &&
        [ "$(start_time "$pid")" = "$started" ] && echo "$pid"
}

give_up() {
    tail -n 20 "$DIR/log" >&2
    stop >/dev/null
    die "the server $1; its log is $DIR/log"
}

# Becomes that command, with nothing of its caller's: who waits for the end of a pipe must not wait
# for a server.
detach() {
    local file
    for file in "/proc/$BASHPID/fd/"*; do
        file=${file##*/}
        [ "$file" -le 2 ] || eval "exec $file>&-"
    done
    exec setsid "$@"
}

start() {
    local pid deadline
    if pid=$(running_pid); then
        describe
        return
    fi
    mkdir -p "$DIR"
    trap 'stop >/dev/null; exit 130' INT TERM HUP
    detach "$0" run --dir "$DIR" ${PORT:+--port "$PORT"} </dev/null >"$DIR/log" 2>&1 &
    pid=$!
    echo "$pid $(start_time "$pid")" >"$DIR/pid"
    deadline=$((SECONDS + START_DEADLINE_S))
    until [ -s "$DIR/port" ] && ready; do
        running_pid >/dev/null || give_up "ended while starting"
        [ $SECONDS -lt $deadline ] || give_up "is not ready after $START_DEADLINE_S s"
        sleep 0.05
    done
    trap - INT TERM HUP
    describe
}

stop() {
    local pid deadline
    if pid=$(running_pid); then
        # A signal that finds nobody is no failure: what counts is that the process has gone.
        kill -s "$STOP_SIGNAL" "$pid" 2>/dev/null || true
        deadline=$((SECONDS + STOP_DEADLINE_S))
        while running_pid >/dev/null; do
            [ $SECONDS -lt $deadline ] || kill -s KILL "$pid" 2>/dev/null || true
            [ $SECONDS -lt $((deadline + KILL_DEADLINE_S)) ] || die "process $pid does not end; end it, then call stop again"
            sleep 0.05
        done
    fi
    rm -f "$DIR/pid"
    echo stopped
}

status() {
    local pid
    if pid=$(running_pid); then
        echo "running pid=$pid port=$(cat "$DIR/port")"
    else
        echo stopped
        return 3
    fi
}

wipe() {
    stop
    rm -rf "$DIR"
}

install() { :; }

# Java loads the classes of a server a third faster from an archive, which a first start writes at
# its end. In `install`, once everything else is there: the server must run with class_archive.
CLASSES=classes.jsa
archive_classes() {
    local dir
    dir=$(mktemp -d)
    JDK_JAVA_OPTIONS=-XX:ArchiveClassesAtExit=$HOME_DIR/$CLASSES.new "$0" start --dir "$dir" >/dev/null
    # Beside a build it takes its time to write.
    OUTBOX_STOP_DEADLINE_S=300 "$0" wipe --dir "$dir" >/dev/null
    if [ -e "$HOME_DIR/$CLASSES.new" ]; then
        mv "$HOME_DIR/$CLASSES.new" "$HOME_DIR/$CLASSES"
    else
        note "Java left no archive of classes: this server will start more slowly"
    fi
}
# Java takes two such options for a fault.
class_archive() {
    [ ! -e "$HOME_DIR/$CLASSES" ] || echo "-XX:SharedArchiveFile=$HOME_DIR/$CLASSES"
}

serve() {
    case $1 in
        install | start | run | stop | status | wipe) "$1" ;;
        *) die "unknown command '$1'; the first lines of $0 say what there is" ;;
    esac
}
