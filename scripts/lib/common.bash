# Shared by the scripts beside it; sourced, never run.
# shellcheck shell=bash

# Messages go to standard error, so that the output of a command that a script wraps stays its own.
say() {
    printf '%s\n' "$*" >&2
}

die() {
    say "error: $1"
    shift
    local hint
    for hint in "$@"; do
        say "hint: $hint"
    done
    exit 2
}

# How to become root: not at all when we are, else through a sudo that asks nothing.
as_root=()
if ((EUID != 0)); then as_root=(sudo -n); fi

# Ends the script with advice if Debian packages cannot be installed here.
must_be_able_to_install() {
    command -v apt-get >/dev/null ||
        die "not installed: $*, and there is no apt-get to install it with" "install the equivalent of Debian's $*"
    "${as_root[@]}" true >/dev/null 2>&1 || die "not installed: $*" "ask root for: apt-get install $*"
}

install_packages() {
    must_be_able_to_install "$@"
    say "installing $*"
    if ! "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends "$@" >&2; then
        # Package lists that are missing or stale are the usual reason.
        "${as_root[@]}" apt-get update >&2
        "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends "$@" >&2
    fi
}

# Prints a process and all that descend from it. `ps` is not on every machine; /proc is.
process_tree() {
    local key value pid
    local -A children=()
    for pid in /proc/[0-9]*; do
        { while read -r key value; do
            if [[ $key == PPid: ]]; then
                children[$value]+=" ${pid#/proc/}"
                break
            fi
        done <"$pid/status"; } 2>/dev/null || true
    done
    local -a queue=("$1")
    while ((${#queue[@]})); do
        pid=${queue[0]}
        # Word splitting is meant: the value is a list of numbers.
        # shellcheck disable=SC2206
        queue=("${queue[@]:1}" ${children[$pid]:-})
        printf '%s\n' "$pid"
    done
}

# Ends a child of this shell and everything below it: politely, and after ten seconds by force.
end_tree() {
    local -a tree
    mapfile -t tree < <(process_tree "$1")
    kill -TERM "${tree[@]}" 2>/dev/null || true
    local i
    for ((i = 0; i < 100; i++)); do
        kill -0 "${tree[@]}" 2>/dev/null || return 0
        sleep 0.1
    done
    kill -KILL "${tree[@]}" 2>/dev/null || true
}

# Runs a command and returns its status, such that a signal to this script is acted on at once. Bash handles a signal
# only after a foreground command has ended, hence the background and `wait`; a background command would ignore Ctrl-C
# and read from /dev/null, hence `env` and the explicit standard input. Descriptor 9 is for the scripts' own use.
child=
run_interruptibly() {
    local status=0
    env --default-signal=INT,QUIT "$@" <&0 9>&- &
    child=$!
    wait "$child" || status=$?
    child=
    return "$status"
}

# To be called before `run_interruptibly`. The script exits the way the shell reports a death by that signal, through
# its EXIT trap.
exit_on_signals() {
    trap 'end_on_signal 130' INT
    trap 'end_on_signal 143' TERM
    trap 'end_on_signal 129' HUP
}

end_on_signal() {
    # A second Ctrl-C must not cut the cleaning short.
    trap '' INT TERM HUP
    if [[ -n $child ]]; then
        end_tree "$child"
    fi
    exit "$1"
}
