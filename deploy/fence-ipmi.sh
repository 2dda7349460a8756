#!/bin/sh
# An example of a fence command: turns a host off through its management controller (IPMI), and
# succeeds only when that reports that the power is off.
#
#   fence_command = ["/etc/berth/fence-ipmi.sh", "{host}"]
#
# The controller's name is the host's name with the suffix "-bmc"; user and password are read from
# the environment of the conductor (IPMI_USER, IPMI_PASSWORD).
set -eu
host=${1:?usage: fence-ipmi.sh HOST}
power() {
    ipmitool -I lanplus -H "$host-bmc" -U "${IPMI_USER:?}" -E chassis power "$1"
}
power off || true
# The reported state counts, not the success of the request.
for _ in 1 2 3 4 5 6 7 8 9 10; do
    case $(power status) in
        *"is off"*) echo "$host is off"; exit 0 ;;
    esac
    sleep 2
done
echo "$host is not off: $(power status)" >&2
exit 1
