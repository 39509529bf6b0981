# Starts the server of the course: `. docs/course/start.sh` in bash, in the root of a clone.
#
# Sets $pid and $port, and the function `load N`, which sends N requests and prints what came of
# them. Its requests are the same each time, and so are the hits of a chapter. The server of an
# earlier chapter is ended, and this one is when the shell ends.
test ! -f .venv/bin/activate || . .venv/bin/activate
test -z "${pid-}" || kill "$pid" 2>/dev/null

ready=$(mktemp -u) && mkfifo "$ready"
{ markerjit/_native/demo/kvserver --port 0 >"$ready" & } 2>/dev/null
read -r _ port pid _ <"$ready"
rm "$ready"
disown
port=${port#port=} pid=${pid#pid=}
trap 'kill "$pid" 2>/dev/null' EXIT
echo "ready pid=$pid"

load() {
    local n='([0-9]+)'
    local all="\"requests\": $n, \"errors\": 0, \"wrong\": 0, \"gets\": $n, \"sets\": $n"
    local gets="\"hits\": $n, \"misses\": $n"
    markerjit/_native/demo/kvload --port "$port" --requests "$1" --connections 1 --keys 50 |
        sed -E "s/.*$all, $gets.*/\\1 requests: \\2 GET (\\4 hits, \\5 misses), \\3 SET/"
}
