# Runs the tests in the virtual machine. The runs to do, and which tests, are in the file `runs`.
#
# Disks: the system (nvme0n1), this script with the tests (nvme1n1), results (nvme2n1), two empty ones for quotas.

export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
groups=/sys/fs/cgroup
# How much slower than others this machine is.
LIS_PATIENCE=$(cat /payload/patience)
export LIS_PATIENCE

say() { echo "[$(cut -d. -f1 /proc/uptime) s] $*"; }

set_up() {
    mkdir -p /dev/shm /dev/pts /dev/mqueue /out
    mount -t tmpfs -o mode=1777 shm /dev/shm
    mount -t devpts -o gid=5,mode=620,ptmxmode=666 devpts /dev/pts
    mount -t mqueue mqueue /dev/mqueue
    mount -t tmpfs -o mode=755 run /run
    ln -sf /proc/self/fd /dev/fd
    modprobe -a overlay loop xfs quota_v2
    ip link set lo up
    hostname vm
    # As systemd sets them.
    ulimit -Hn 524288
    ulimit -Sn 1024
    echo 9223372036854775807 >/proc/sys/fs/file-max
    printf '127.0.0.1 localhost vm\n::1 localhost\n' >/etc/hosts
    # The kernel reports every process that it kills for lack of memory.
    dmesg -n 1
    mount -t cgroup2 cgroup2 $groups
    enable $groups
    mkdir $groups/init.scope $groups/tests
    echo $$ >$groups/init.scope/cgroup.procs
    say "kernel $(uname -r), $(nproc) processors, $(awk '/MemTotal/ { print int($2 / 1024) }' /proc/meminfo) MiB," \
        "cgroup v2: $(cat $groups/cgroup.controllers)"
}

enable() {
    for controller in memory pids cpu; do echo +$controller >"$1/cgroup.subtree_control"; done
}

# The tests, in the current environment, without a bar of progress: the console is slow. $1: name of the run, $2: directory of the workspace, $3: program before the runner
tests() {
    local name=$1 workspace=$2
    shift 2
    say "run: $name"
    "$@" /payload/cargo-nextest nextest run --profile vm --no-fail-fast --archive-file /payload/tests.tar.zst \
        --extract-to "$workspace/built" --workspace-remap "$workspace" --filterset "${FILTER:-all()}" 2>&1 | cat
    cp "$workspace/target/nextest/vm/junit.xml" "/out/$name.xml"
}

# $1: name of the run
as_root() {
    local home=/srv/$1
    copy "$home"
    echo $BASHPID >$groups/tests/cgroup.procs
    LIS_TEST_ROOTFS=$home/rootfs INSTA_WORKSPACE_ROOT=$home/workspace tests "$1" "$home/workspace" env
}

# Everything a run needs, below $1; unpacked as the user that owns it.
copy() {
    mkdir -p "$1/rootfs" "$1/tmp" "$1/workspace/built"
    if [ -n "$2" ]; then chown -R "$2:$2" "$1"; fi
    ${2:+setpriv --reuid "$2" --regid "$2" --clear-groups} bash -c "
        tar -xf /payload/rootfs.tar --exclude='./dev/*' -C $1/rootfs
        cp -r /payload/workspace/. $1/workspace"
}

# As systemd does it for a user's own service manager: a group that belongs to the user, with the tests in one below.
# $1: name of the run, $2: user
as_user() {
    local home=/home/$1 slice=$groups/user.slice/user-$2.slice manager
    manager=$slice/user@$2.service
    copy "$home" "$2"
    mkdir -p "$manager"
    enable $groups/user.slice
    enable "$slice"
    chown "$2:$2" "$manager" "$manager"/cgroup.{procs,threads,subtree_control}
    local as="setpriv --reuid $2 --regid $2 --clear-groups"
    $as mkdir -p "$manager/app.slice/tests.scope"
    for controller in memory pids cpu; do $as bash -c "echo +$controller >'$manager/cgroup.subtree_control'"; done
    echo $BASHPID >"$manager/app.slice/tests.scope/cgroup.procs"
    local variables=(PATH="$PATH" HOME="$home" TMPDIR="$home/tmp" LLM_IN_SANDBOX_HOME="$home/data"
        LIS_PATIENCE=$LIS_PATIENCE LIS_TEST_ROOTFS="$home/rootfs" INSTA_WORKSPACE_ROOT="$home/workspace")
    tests "$1" "$home/workspace" $as env --ignore-environment "${variables[@]}"
}

# $1: name of the run, $2: disk, then the program that makes a file system there
on_quota() {
    local name=$1 disk=$2
    shift 2
    "$@" "$disk"
    mkdir "/mnt/$name"
    mount -o prjquota "$disk" "/mnt/$name"
    chmod 1777 "/mnt/$name"
    TMPDIR=/mnt/$name as_root "$name"
}

run() {
    case $1 in
    root) as_root root ;;
    user) as_user user 12345 ;;
    subids)
        echo 'subids:x:12346:12346::/home/subids:/bin/bash' >>/etc/passwd
        echo 'subids:200000:65536' | tee -a /etc/subuid >>/etc/subgid
        as_user subids 12346
        ;;
    ext4) on_quota ext4 /dev/nvme3n1 mkfs.ext4 -q -O quota,project -E quotatype=prjquota ;;
    xfs) on_quota xfs /dev/nvme4n1 mkfs.xfs -q ;;
    esac
}

set_up
# Lines of a run and its filter. Each in a process of its own, which moves to another control group.
while read -r name filter <&3; do
    FILTER=$filter
    (run "$name") </dev/null
done 3</payload/runs
say finished
tar -cf /dev/nvme2n1 -C /out .
sync
echo o >/proc/sysrq-trigger
sleep 60
