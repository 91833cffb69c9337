# What tests/e2e/recipes.sh and recipes_slow.sh have in common, to be sourced after e2e.sh: the recipes, each
# case once, because no time is looked at; one as a sweep; and the cells of its table.
mkdir tools && cp -r "$SOURCE/tools/recipes" tools && ln -s "$SOURCE/tools/data" tools/data || exit 1
sed -i '/^repeat:/d' tools/recipes/*/*.yaml
# sweep GUIDE/NAME option...: into the folder GUIDE-NAME, which is $table's from then on
sweep() {
  local recipe=$1; shift
  table=${recipe/\//-}
  "$FSDP" sweep "tools/recipes/$recipe.yaml" --out "$table" "$@" >"$table.log" 2>&1 ||
    fail "sweep $recipe $*: status $?: $(tail -20 "$table.log"; cat "$table/table.md" 2>/dev/null)"
}
# cells COLUMN: of all cases, in their order; cell CASE COLUMN: one of them. Names of cases may have commas.
cells() {
  awk -v column="$1" '
    {
      name = $0
      if (sub(/^"/, "", name)) { sub(/".*/, "", name); sub(/^"[^"]*",/, "") } else { sub(/,.*/, "", name); sub(/^[^,]*,/, "") }
      count = split($0, values, ",")
    }
    NR == 1 { for (i = 1; i <= count; ++i) if (values[i] == column) place = i; next }
    { print name, place ? values[place] : "no column " column }' "$table/table.csv"
}
cell() { cells "$2" | awk -v name="$1" '$1 == name { sub(/^[^ ]* /, ""); print }'; }
# holds 'CONDITION' name=value...: awk's, of numbers; an empty value holds nothing
holds() {
  local condition=$1 word given=()
  shift
  for word in "$@"; do
    [ -n "${word#*=}" ] || { fail "$table: $condition: no value for ${word%=*}"; return; }
    given+=(-v "$word")
  done
  awk "${given[@]}" "BEGIN { exit !($condition) }" || fail "$table: not so: $condition, with $*"
}
# close CASE CASE COLUMN TOLERANCE: relative
close() { holds "(a - b)^2 <= (tolerance * b)^2" "a=$(cell "$1" "$3")" "b=$(cell "$2" "$3")" "tolerance=$4"; }
# less CASE CASE COLUMN: the first has less than the second
less() { holds "a < b" "a=$(cell "$1" "$3")" "b=$(cell "$2" "$3")"; }
# all_close COLUMN TOLERANCE [CASE...]: of all cases, or of those named
all_close() {
  local column=$1 tolerance=$2 first name value
  shift 2
  while read -r name value; do
    [ $# = 0 ] || [[ " $* " = *" $name "* ]] || continue
    first=${first:-$value}
    holds "(a - b)^2 <= (tolerance * b)^2" "a=$value" "b=$first" "tolerance=$tolerance"
  done < <(cells "$column")
}
# as_predicted: peaks are those that were predicted, to the byte, in each case that ran
as_predicted() {
  [ "$(cells peak_memory)" = "$(cells peak_predicted)" ] ||
    fail "$table: predicted $(cells peak_predicted | xargs), measured $(cells peak_memory | xargs)"
}
