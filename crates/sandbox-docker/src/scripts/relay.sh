{
# Output goes through a relay that outlives the command: Docker closes the streams of a command soon after
# its end, and a process left in the background would die of its next line.
exec 3>&1 4>&2
exec > >(LLM_IN_SANDBOX_EXEC=relay exec tee -p /dev/null >&3 3>&- 4>&- 2>/dev/null)
exec 2> >(LLM_IN_SANDBOX_EXEC=relay exec tee -p /dev/null >&4 3>&- 4>&- 2>/dev/null)
exec 3>&- 4>&-
# The relay does not yield to others as the command does, which could keep its output back.
exec "${nice[@]}" "$BASH" --norc --noprofile -p -s
}
