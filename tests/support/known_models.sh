# To source: known_models FOLDER prints the model folders below it, a line each, that this program
# knows. The others, which are there for families to come, are named in one [SKIP] line on stderr.
# A folder that cannot be read for any other reason is printed too: its test then fails.
# Environment: FSDP the program.
known_models() {
  local folder model reason unknown=""
  for folder in "$1"/*/; do
    folder=${folder%/}
    model=$folder
    [ -d "$folder/base" ] && model=$folder/base  # of an adapter
    reason=$("$FSDP" inspect "$model" 2>&1 >/dev/null) || true
    if grep -qE '(model family|rope_type|layer_types): expected' <<<"$reason"; then
      unknown+=" ${folder##*/}"
    else
      printf '%s\n' "$folder"
    fi
  done
  [ -z "$unknown" ] || echo "[SKIP] ../shared/fixtures/models: not known yet:$unknown" >&2
}
