#!/bin/bash
# The first process of the virtual machine: mounts what everything needs, and starts the script on the second disk.
mount -t proc proc /proc
mount -t sysfs sys /sys
mountpoint -q /dev || mount -t devtmpfs dev /dev
mkdir -p /payload
tar -xf /dev/nvme1n1 -C /payload
exec /bin/bash /payload/guest.sh
