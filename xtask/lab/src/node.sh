# Holds the mounts of one real node. Arguments: the node's folder, its machine id.
set -e
dir=$1
# From here on nothing of the node is seen by other nodes.
mount --make-rprivate /
# What kubelet and container runtime leave in these folders stays in the node and goes with it, and pods see
# nothing of the machine's own.
mount -t tmpfs tmpfs /var/log
case $dir in
    /var/lib/*) mkdir -p /var/lib/flock ;;
    *) mount -t tmpfs tmpfs /var/lib; mkdir /var/lib/flock ;;
esac
# The disk that members keep their data on: each node has its own.
mount --bind "$dir/disk" /var/lib/flock
# Every node is a machine of its own.
echo "$2" > "$dir/machine-id"
for file in /etc/machine-id /sys/class/dmi/id/product_uuid; do
    if [ -e "$file" ]; then mount --bind "$dir/machine-id" "$file"; fi
done
# The kubelet sets these for the whole kernel, which is not the lab's: it finds them set already.
mkdir -p "$dir/sysctl"
while read -r key value; do
    echo "$value" > "$dir/sysctl/${key##*/}"
    if [ -e "/proc/sys/$key" ]; then mount --bind "$dir/sysctl/${key##*/}" "/proc/sys/$key"; fi
done <<END
vm/overcommit_memory 1
vm/panic_on_oom 0
kernel/panic 10
kernel/panic_on_oops 1
kernel/keys/root_maxkeys 1000000
kernel/keys/root_maxbytes 25000000
END
# Volumes that the kubelet mounts appear in containers.
mount --make-rshared /
echo ready
exec sleep infinity
