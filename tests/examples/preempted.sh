#!/bin/sh
# preempted.sh LAUNCHER PROGRAM FOLDER: worker 1 of two is told to end in the middle of the training, the job ends with 42, and
# the same command goes on where it was and ends with the loss of a job that was never told.
launcher=$1 program=$2 folder=$3
fail() { echo "$1"; cat ./*.out ./*.err; exit 1; }
rm -rf "$folder" && mkdir -p "$folder/told" "$folder/whole" && cd "$folder/told" || exit 1

# Far more steps than it takes: the signal ends it.
"$launcher" --workers 2 --color never -- /bin/sh -c 'echo "pid $$"; exec "$0" "$@"' "$program" 100000000 >first.out 2>first.err &
job=$!
until grep -q '^\[worker 1\] step 10,' first.out; do
  kill -0 $job 2>/dev/null || fail "the job ended before the signal"
  sleep 0.05
done
kill -TERM "$(sed -n 's/^\[worker 1\] pid //p' first.out)"
wait $job
[ $? -eq 42 ] || fail "expected exit code 42"
grep -q '^\[tutti-run\] worker 1 (told first), worker 0: saved and ended$' first.err || fail "tutti-run names no one"
grep -q '^\[tutti-run\] preempted: state is saved; run the same command again (exit code 42)$' first.err || fail "no advice"
! grep -q 'first failure' first.err || fail "told as a failure"

# A checkpoint's step is printed by whoever goes on there; it need not be a multiple of ten.
"$launcher" --workers 2 --color never -- "$program" 1 >look.out 2>look.err || fail "it does not start again"
step=$(sed -n 's/^\[worker 0\] goes on after step //p' look.out)
[ "${step:-0}" -ge 10 ] || fail "it went on after step ${step:-0}"
last=$((step + 15))
"$launcher" --workers 2 --color never -- "$program" $last >second.out 2>second.err || fail "it does not go on"
(cd ../whole && "$launcher" --workers 2 --color never -- "$program" $last >../told/whole.out 2>../told/whole.err) || fail "the whole job failed"
for worker in 0 1; do
  grep -q "^\[worker $worker\] goes on after step $step\$" second.out || fail "worker $worker goes on elsewhere"
  told=$(grep "^\[worker $worker\] done: " second.out)
  whole=$(grep "^\[worker $worker\] done: $last steps, loss: [0-9.]*\$" whole.out) || fail "no last line"
  [ "$told" = "$whole" ] || fail "told: $told, whole: $whole"
done
echo "told after step $step, the same after step $last"
rm -rf "$folder"
