# Functions for the cases: folders and files of the shapes that real ones have, at tiny sizes.
# Read by walk.sh before each case; not a program.

# tokenizer DIR [ADDED_TOKENS [POST_PROCESSOR]]: a byte-level BPE tokenizer.json as GPT-2's. Ids 0 to
# 255 are the bytes in the order of their symbols ("!" is 0), 256 "hi", 257 "th", 258 "the",
# 259 " the"; ADDED_TOKENS is the text between the brackets of that key.
tokenizer() {
  mkdir -p "$1"
  awk -v added="${2:-}" -v post="${3:-null}" 'BEGIN {
    for (byte = 33; byte < 256; ++byte) {
      if (byte == 127) byte = 161
      if (byte == 173) byte = 174
      vocab = vocab sprintf("%s\"\\u%04x\": %d", id ? ", " : "", byte, id++)
    }
    for (; id < 256; ++symbol)  # bytes without a symbol of their own: U+0100 and on
      vocab = vocab sprintf(", \"\\u%04x\": %d", 256 + symbol, id++)
    vocab = vocab ", \"hi\": 256, \"th\": 257, \"the\": 258, \"\\u0120the\": 259"
    byte_level = "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true}"
    printf "{\"version\": \"1.0\", \"added_tokens\": [%s], \"normalizer\": null,\n", added
    printf " \"pre_tokenizer\": %s, \"decoder\": %s,\n \"post_processor\": %s,\n", byte_level,
           byte_level, post
    printf " \"model\": {\"type\": \"BPE\", \"vocab\": {%s},\n", vocab
    printf "  \"merges\": [\"h i\", \"t h\", \"th e\", \"\\u0120 the\"]}}\n"
  }' >"$1/tokenizer.json"
}

# model DIR [FIXTURE]: config.json and weights of a folder of tests/fixtures/models (default gpt2).
model() {
  mkdir -p "$1"
  cp "$SOURCE/tests/fixtures/models/${2:-gpt2}/"{config.json,*.safetensors} "$1"
  rm -f "$1/reference.safetensors"
}

# tiny ARGUMENTS: trains a model of 8 features for as many steps as --steps says, without a monitor.
tiny() {
  "$FSDP" train --batch 2 "$@" --set model.model_type=llama model.hidden_size=8 model.layers=1 \
    model.heads=2 runtime.run_dir=run runtime.monitor_s=0
}
