# A recipe, started in a folder that has a train.txt of its own
# why: a recipe brings its files; another text under the same name gives other losses
# before: the folder's own text was trained, without a line
# expect: data.train: train.txt: that beside recipe/base.yaml is taken, not that in the current folder
# expect: recipe/train.txt
mkdir recipe
printf 'beside beside beside beside beside beside beside\n' >recipe/train.txt
echo here >train.txt
cat >recipe/base.yaml <<'YAML'
model: {model_type: llama, hidden_size: 8, layers: 1, heads: 2}
data: {train: train.txt, sequence_length: 8}
train: {steps: 1, batch: 2}
YAML
"$FSDP" sweep recipe/base.yaml --out out 2>&1
grep -rhom 1 'recipe/train.txt' out --include=case.yaml
