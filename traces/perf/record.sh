#!/bin/sh
# Records the files beside this script again: needs perf, gcc, python3, and root (for the host name
# that perf stores). What `perf script` prints of each is kept with it as the truth.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
demo=/tmp/demo
if [ "$(hostname)" != demo ]; then
    exec unshare --uts sh -c "hostname demo && exec sh '$here/record.sh'"
fi
mkdir -p $demo
cd $demo
gcc -O1 -o demo "$here/demo.c" -ldl -lpthread
cp "$here/demo.py" .
rate=1997
clock="-k CLOCK_MONOTONIC"
perf record -q -N -e cpu-clock,task-clock -F $rate $clock -o two_events.data ./demo
perf record -q -N -e cpu-clock -c 500000 $clock -o fixed_period.data ./demo
perf record -q -N -e cpu-clock/call-graph=fp/,task-clock,page-faults/period=1/ -F $rate -d \
    --sample-cpu --switch-events --buildid-mmap $clock -o mixed.data ./demo
perf record -q -N -z -e cpu-clock -F $rate $clock -o compressed.data ./demo
perf record -q -N -e cpu-clock -F $rate $clock -o - ./demo >pipe.data
perf record -q -N -e cpu-clock -F $rate -o default_clock.data /usr/bin/python3 -I -S demo.py
perf record -q -N -e cpu-clock -F $rate -k CLOCK_MONOTONIC_RAW -o raw_clock.data /usr/bin/python3 -I -S demo.py
# One program, recorded on both clocks at once.
perf record -q -N -e cpu-clock -F 499 -o paired_default.data \
    perf record -q -N -e cpu-clock -F 499 $clock -o paired_monotonic.data \
    /usr/bin/python3 -I -S demo.py
for file in two_events fixed_period mixed compressed pipe default_clock raw_clock \
    paired_default paired_monotonic; do
    perf script -G -i $file.data --ns -F misc,pid,tid,time,event,ip,period \
        --show-task-events --show-mmap-events --show-lost-events | gzip -9n >"$here/$file.txt.gz"
    cp $file.data "$here"
    chmod 644 "$here/$file.data"
done
