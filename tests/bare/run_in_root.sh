#!/bin/sh
# run_in_root.sh DIR COMMAND...: a command in a root file system, as root of a machine that has nothing else. It
# sees its own processes only, and what it started or mounted is gone afterwards.
set -eu
export root="$1"
shift
exec unshare --mount --propagation private --pid --fork --kill-child sh -eu -c '
	mount -t proc proc "$root/proc"
	mount --rbind /sys "$root/sys"
	mount --rbind /dev "$root/dev"
	exec chroot "$root" /usr/bin/env -i HOME=/root LANG=C.UTF-8 PATH=/usr/local/bin:/usr/bin:/bin "$@"
' run_in_root "$@"
