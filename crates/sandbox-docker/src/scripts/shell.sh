{
# One command of the shell: brings back what the former one left, evaluates, and leaves its own state.
IFS=' ' read -r __lis_nonce __lis_dir __lis_load __lis_save
# When memory runs out the kernel kills commands before the first process.
{ echo 500 >/proc/self/oom_score_adj; } 2>/dev/null
__lis_script=$(cat; printf x)
exec </dev/null
set +p
# What these two show is saved by other means; as variables they would bring back what was removed.
unset -v BASH_ALIASES BASH_CMDS
__lis_state=kept __lis_options=
if [[ $__lis_load != - ]]; then
  set -- "$__lis_nonce" "$__lis_dir" "$__lis_save" "$LLM_IN_SANDBOX_EXEC" "$__lis_script" "$__lis_load"
  mapfile -d '' -t __lis_words </proc/self/environ
  for __lis_word in "${__lis_words[@]}"; do unset -v "${__lis_word%%=*}"; done
  __lis_whole= __lis_args=() __lis_words=()
  . "$2/$6.state"
  __lis_nonce=$1 __lis_dir=$2 __lis_save=$3 __lis_script=$5 __lis_state=kept __lis_options=
  export LLM_IN_SANDBOX_EXEC=$4
  if [[ $__lis_whole == yes ]]; then
    mapfile -t __lis_words <"$2/$6.options"
    printf -v __lis_options '%s; ' "${__lis_words[@]}"
    __lis_word=$OLDPWD
    cd -- "$PWD" || cd /
    OLDPWD=$__lis_word
  else
    __lis_state=lost
  fi
  set -- "${__lis_args[@]}"
  unset -v __lis_whole __lis_args __lis_words __lis_word __lis_load
fi >/dev/null 2>&1
builtin eval "builtin unset -v __lis_script __lis_options; $__lis_options${__lis_script%x}"$'\n'
{
  __lis_code=$?
  builtin set +o >|"$__lis_dir/$__lis_save.options" || builtin :
  builtin set +eux
  {
    # Functions may need it to be read at all; whether it stays on is said right after them.
    builtin printf 'shopt -s extglob\n'
    builtin declare -f
    builtin declare -F
    builtin shopt -p
    builtin alias -p
    builtin trap -p
    builtin trap - DEBUG ERR RETURN EXIT
    builtin umask -p
    builtin unset -v __lis_script __lis_options
    builtin declare -p
    builtin printf '__lis_args=('
    builtin printf ' %q' "$@"
    builtin printf ' )\n__lis_whole=yes\n'
  } >|"$__lis_dir/$__lis_save.state" || __lis_state=unsaved
} >/dev/null 2>&1
builtin printf '\0\0%s %s %s\0\0' "$__lis_nonce" "$__lis_code" "$__lis_state"
builtin printf '\0\0%s %s %s\0\0' "$__lis_nonce" "$__lis_code" "$__lis_state" >&2
builtin exit "$__lis_code"
}
