# Process 1 of a lab; its arguments are the addresses of the lab's network.
set -e
# Nothing that is mounted in here may be seen outside.
mount --make-rprivate /
mount -t proc proc /proc
# Sockets and locks of container runtimes and iptables: private to the lab, and gone with it.
mount -t tmpfs tmpfs /run
ip link set lo up
# A link that is no loopback carries the addresses; not every kernel has each kind.
link=lo
for kind in bridge dummy; do
    if ip link add lab0 type "$kind" 2>/dev/null; then link=lab0; break; fi
done
ip link set "$link" up
for address in "$@"; do ip address add "$address/32" dev "$link"; done
# Some programs look for the interface of the default route to learn which one is the node's.
[ "$link" = lo ] || ip route add default dev "$link"
echo 1 > /proc/sys/net/ipv4/ip_forward
echo ready
exec >/dev/null
set +e
keep=
while read -r line; do [ "$line" = keep ] && keep=1; done
while [ -n "$keep" ]; do sleep 3600 & wait; done
