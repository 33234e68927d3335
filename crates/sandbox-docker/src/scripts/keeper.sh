{
# The first process of a container. It answers questions from outside with builtins alone, so that it
# works when no further process can be started, and it ends when the other side of its input is gone.
shopt -s nullglob

counters() {
  local key value
  oom=0 pids=0
  if [[ -e /sys/fs/cgroup/cgroup.controllers ]]; then
    while read -r key value; do [[ $key == oom_kill ]] && oom=$value; done </sys/fs/cgroup/memory.events
    while read -r key value; do [[ $key == max ]] && pids=$value; done </sys/fs/cgroup/pids.events
  else
    while read -r key value; do [[ $key == oom_kill ]] && oom=$value; done </sys/fs/cgroup/memory/memory.oom_control
    while read -r key value; do [[ $key == max ]] && pids=$value; done </sys/fs/cgroup/pids/pids.events
  fi 2>/dev/null
}

# Parent, start time and mark of every process but this one and the dead.
scan() {
  local dir pid line word
  local -a words
  parent=() start=() mark=()
  for dir in /proc/[0-9]*; do
    pid=${dir#/proc/} line=
    [[ $pid == 1 ]] && continue
    IFS= read -r -d '' line <"$dir/stat"
    # The name may hold anything, parentheses too; the last one ends it.
    line=${line##*) }
    [[ $line && $line != Z* ]] || continue
    words=($line)
    parent[pid]=${words[1]} start[pid]=${words[19]} mark[pid]=
    words=()
    mapfile -d '' -t words <"$dir/environ"
    for word in "${words[@]}"; do
      [[ $word == LLM_IN_SANDBOX_EXEC=* ]] && { mark[pid]=${word#*=}; break; }
    done
  done 2>/dev/null
}

# Hundredths of a second since the machine started, as processes' start times are counted.
clock() {
  local up rest
  read -r up rest </proc/uptime
  now=${up/./}
}

# Whether a process belongs to a command: by its mark, by that of an ancestor, or because it is younger
# than the command, hides its mark, and descends from nothing that is older.
belongs() {
  local pid=$1
  while [[ ${parent[pid]} ]]; do
    [[ ${mark[pid]} == "$2" ]] && return 0
    [[ ${mark[pid]} ]] && return 1
    (( start[pid] <= $3 )) && return 1
    (( parent[pid] <= 1 )) && return 0
    pid=${parent[pid]}
  done
  return 0
}

# All processes of a command that was started after this time.
collect() {
  local pid
  scan
  found=()
  for pid in "${!parent[@]}"; do
    belongs "$pid" "$1" "$2" && found+=("$pid")
  done
}

# Stops them all before killing any, so that nobody is left to start more.
slay() {
  local round known=
  for (( round = 0; round < 200; round++ )); do
    collect "$1" "$2"
    (( ${#found[@]} )) || return 0
    if [[ "${found[*]}" == "$known" ]]; then
      kill -KILL "${found[@]}"
    else
      known="${found[*]}"
      kill -STOP "${found[@]}"
    fi
  done 2>/dev/null
}

relay=cat
tee -p /dev/null </dev/null >/dev/null 2>&1 && relay=tee
# By its path, because a specification may change where programs are looked for.
nice=$(type -P nice) || nice=-
echo "ready $relay $BASH $nice"
while read -r tag verb name after; do
  [[ $tag ]] || continue
  case $verb in
    clock) clock; answer=$now ;;
    count) counters; answer="$oom $pids" ;;
    term) collect "$name" "$after"; (( ${#found[@]} )) && kill -TERM "${found[@]}" 2>/dev/null; answer=${#found[@]} ;;
    kill) slay "$name" "$after"; answer=${#found[@]} ;;
    all) kill -KILL -1 2>/dev/null; answer=0 ;;
    *) answer=unknown ;;
  esac
  echo "$tag $answer"
done
exit 0
}
