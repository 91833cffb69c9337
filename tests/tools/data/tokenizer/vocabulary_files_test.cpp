// vocab.json and merges.txt against the ids of transformers, and which file of a folder says its
// tokenizer.
#include "tools/data/tokenizer/vocabulary_files.h"

#include <algorithm>
#include <sstream>

#include <doctest/doctest.h>

#include "core/error.h"
#include "core/io/json.h"
#include "tests/support/temp_folder.h"
#include "tools/data/tokenizer/characters.h"
#include "tools/data/tokenizer/hugging_face.h"

namespace fsdp::data {
namespace {

using test::contains;

using Ids = std::vector<int32_t>;

// The bytes' characters in their order, and what these merges make, one after the other.
constexpr std::string_view kMerges =
    "h e\nt he\n\u0120 the\n\u0120 s\na i\n\u0120 w\n\u0120s ai\n\u0120sai d\na t\ne r\nh at\nl "
    "l\n\u0120 \u00e4\n' d\na n\nb er\nd o\nr e\nt hat\nu m\nv e\n\u00a5 \u00bd\n\u00bd "
    "\u0142\n\u00e5 \u00a5\u00bd\n\u0120 1\n\u0120 f\n\u0120 o\n\u0120 \u0120\n\u0120 he\n\u0120 "
    "an\n\u0120 do\n\u0120 that\nthe r\n\u0120the y\n\u0120w e\nll o\n\u0120\u00e4 "
    "\u00bd\u0142\n\u0120an d\n\u0120\u00e4\u00bd\u0142 \u00e5\u00a5\u00bd\n' s\n";
const std::string kText =
    "hello world the quick It's they'll DON'T it's a  b   c\n\n d \t e 1234567 and 12 \u00fcber "
    "cafe\u0301 caf\u00e9 \u4f60\u597d\u4e16\u754c \u212b \u1e9b\u0323 fi x<|endoftext|>y\r\n\r\n "
    "hi\n def f(x):\n    return x+1 said\u00a0so\u3000yes \U0001f600!!! ??.... //--\n\n\n  ";

// What AutoTokenizer of transformers 4.57.1 makes of the text, by GPT-2's class, by the same with
// add_prefix_space, and by Qwen2's.
const Ids kGpt2 = {
    256, 291, 261, 78,  81,  75,  67,  258, 220, 80,  84,  72,  66,  74,  220, 40,  83,  295,
    289, 6,   267, 220, 35,  46,  45,  6,   51,  220, 72,  83,  295, 220, 64,  220, 220, 65,
    283, 220, 66,  198, 198, 220, 67,  220, 197, 220, 68,  280, 17,  18,  19,  20,  21,  22,
    293, 280, 17,  220, 127, 120, 271, 220, 66,  64,  69,  68,  136, 223, 220, 66,  64,  69,
    127, 102, 294, 160, 116, 244, 163, 243, 234, 220, 158, 226, 104, 220, 157, 118, 249, 136,
    96,  281, 72,  220, 87,  296, 88,  201, 198, 201, 198, 220, 71,  72,  198, 220, 67,  68,
    69,  281, 7,   87,  8,   25,  198, 283, 220, 220, 273, 83,  84,  81,  77,  220, 87,  10,
    16,  263, 126, 254, 82,  78,  159, 222, 222, 88,  68,  82,  220, 172, 253, 246, 222, 0,
    0,   0,   220, 30,  30,  13,  13,  13,  13,  220, 14,  14,  12,  12,  198, 198, 198, 283};
const Ids kPrefixed = {
    284, 291, 261, 78,  81,  75,  67,  258, 220, 80,  84,  72,  66,  74,  220, 40,  83,  295, 289,
    6,   267, 220, 35,  46,  45,  6,   51,  220, 72,  83,  295, 220, 64,  220, 220, 65,  283, 220,
    66,  198, 198, 220, 67,  220, 197, 220, 68,  280, 17,  18,  19,  20,  21,  22,  293, 280, 17,
    220, 127, 120, 271, 220, 66,  64,  69,  68,  136, 223, 220, 66,  64,  69,  127, 102, 294, 160,
    116, 244, 163, 243, 234, 220, 158, 226, 104, 220, 157, 118, 249, 136, 96,  281, 72,  220, 87,
    296, 220, 88,  201, 198, 201, 198, 220, 71,  72,  198, 220, 67,  68,  69,  281, 7,   87,  8,
    25,  198, 283, 220, 220, 273, 83,  84,  81,  77,  220, 87,  10,  16,  263, 126, 254, 82,  78,
    159, 222, 222, 88,  68,  82,  220, 172, 253, 246, 222, 0,   0,   0,   220, 30,  30,  13,  13,
    13,  13,  220, 14,  14,  12,  12,  198, 198, 198, 283};
const Ids kQwen2 = {
    256, 291, 261, 78,  81,  75,  67,  258, 220, 80,  84,  72,  66,  74,  220, 40,  83,  295, 289,
    6,   267, 220, 35,  46,  45,  6,   51,  220, 72,  83,  295, 220, 64,  220, 220, 65,  283, 220,
    66,  198, 198, 220, 67,  220, 197, 220, 68,  220, 16,  17,  18,  19,  20,  21,  22,  293, 220,
    16,  17,  220, 127, 120, 271, 220, 66,  64,  69,  127, 102, 220, 66,  64,  69,  127, 102, 294,
    160, 116, 244, 163, 243, 234, 220, 127, 227, 220, 157, 118, 249, 136, 96,  281, 72,  220, 87,
    27,  91,  68,  77,  67,  91,  29,  88,  201, 198, 201, 198, 220, 71,  72,  198, 220, 67,  68,
    69,  281, 7,   87,  8,   25,  198, 283, 220, 220, 273, 83,  84,  81,  77,  220, 87,  10,  16,
    263, 126, 254, 82,  78,  159, 222, 222, 88,  68,  82,  220, 172, 253, 246, 222, 0,   0,   0,
    220, 30,  30,  13,  13,  13,  13,  220, 14,  14,  12,  12,  198, 198, 198, 283};

Json vocabulary() {
  std::vector<char32_t> characters(byte_characters().begin(), byte_characters().end());
  std::sort(characters.begin(), characters.end());
  Json out = Json::object();
  const auto add = [&](const std::string& token) {
    const auto id = static_cast<int64_t>(out.size());
    out[token] = id;
  };
  for (const char32_t character : characters) {
    std::string token;
    append_utf8(token, character);
    add(token);
  }
  std::istringstream lines{std::string(kMerges)};
  for (std::string left, right; lines >> left >> right;) add(left + right);
  return out;
}

Ids ids_with(const std::string& config, const std::string& tokenizer_config,
             const std::string& merges, const std::string& text) {
  const test::TempFolder folder;
  Json tokens = vocabulary();
  if (!contains(config + tokenizer_config, "wen2")) tokens["<|endoftext|>"] = tokens.size();
  folder.write("vocab.json", tokens.dump());
  folder.write("merges.txt", merges);
  folder.write("config.json", config);
  if (!tokenizer_config.empty()) folder.write("tokenizer_config.json", tokenizer_config);
  const auto tokenizer = make_tokenizer(folder.path().string());
  CHECK(tokenizer->name() == (folder / "vocab.json").string());
  return tokenizer->encode(text);
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != text.npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
  return text;
}

TEST_CASE("vocabulary files: ids of GPT-2's class, as transformers makes them") {
  const std::string config = R"({"model_type": "gpt2"})", version = "#version: 0.2\n";
  const std::string merges = version + std::string(kMerges);
  CHECK(ids_with(config, "", merges, kText) == kGpt2);
  CHECK(ids_with(config, "", replaced(merges, "\n", "\r\n"), kText) == kGpt2);
  CHECK(ids_with(config, "", merges + "q q", kText) == kGpt2);  // what follows the last line end
  CHECK(ids_with(config, "", replaced(merges, "t he\n", "t he\nh e\n"), kText) == kGpt2);
  // The first line is left out whatever it says.
  CHECK(ids_with(config, "", std::string(kMerges), "hello") == Ids{71, 68, 291});
  CHECK(ids_with(config, R"({"add_prefix_space": true})", merges, kText) == kPrefixed);
  Ids begun = kGpt2;
  begun.insert(begun.begin(), 296);
  CHECK(ids_with(R"({"model_type": "llama"})",
                 R"({"tokenizer_class": "GPT2TokenizerFast", "add_bos_token": true})", merges,
                 kText) == begun);
}

TEST_CASE("vocabulary files: ids of Qwen2's class, as transformers makes them") {
  const std::string text = replaced(kText, "<|endoftext|>", "<|end|>");
  const std::string config = R"({"model_type": "qwen2"})", merges(kMerges);
  CHECK(ids_with(config, "", "#version: 0.2\n" + merges, text) == kQwen2);
  CHECK(ids_with(config, "", replaced(merges, "\n", "\n\n"), text) == kQwen2);
  CHECK(ids_with(R"({"model_type": "llama", "tokenizer_class": "Qwen2Tokenizer"})", "", merges,
                 text) == kQwen2);
}

struct Folder {
  Folder() {
    folder.write("vocab.json", R"({"a": 0, "b": 1, "ab": 2})");
    folder.write("merges.txt", "#version: 0.2\na b\n");
    folder.write("config.json", R"({"model_type": "qwen2"})");
  }
  std::string error() const {
    return test::error_of([&] { make_tokenizer(folder.path().string()); });
  }
  test::TempFolder folder;
};

TEST_CASE_FIXTURE(Folder, "vocabulary files: what they cannot be") {
  CHECK(error() == "");
  folder.write("merges.txt", "#version: 0.2\na b c\n");
  CHECK(error() == (folder / "merges.txt").string() + ":2: expected two tokens, got 3");
  folder.write("merges.txt", "a c\n");
  CHECK(contains(error(), "vocab.json: model.merges[0]: \"c\" is not in the vocabulary"));
  folder.write("merges.txt", "version https://git-lfs.github.com/spec/v1\n");
  CHECK(contains(error(), "merges.txt: a pointer of Git LFS, not the file"));
  folder.write("config.json", R"({"model_type": "roberta"})");
  CHECK(contains(error(), "GPT2Tokenizer or Qwen2Tokenizer, got \"\"; tokenizer_class"));
  folder.write("tokenizer_config.json", R"({"tokenizer_class": "RobertaTokenizer"})");
  CHECK(contains(error(), ", got \"RobertaTokenizer\"; in Python, AutoTokenizer.from_pretrained("));
  folder.write("tokenizer_config.json", R"({"tokenizer_class": "CodeGenTokenizer"})");
  CHECK(contains(error(), ", got \"CodeGenTokenizer\"; in Python, "));
}

// transformers raises: LlamaTokenizer reads no vocab.json.
TEST_CASE_FIXTURE(Folder,
                  "vocabulary files: Python helps where its class reads a file that is there") {
  folder.write("config.json", R"({"model_type": "llama"})");
  CHECK(
      contains(error(), ", got \"LlamaTokenizer\"; tokenizer_class of tokenizer_config.json must"));
  folder.write("tokenizer.model", "");
  CHECK(contains(error(), ", got \"LlamaTokenizer\"; in Python, AutoTokenizer.from_pretrained("));
}

TEST_CASE_FIXTURE(Folder, "vocabulary files: the begin token is the one that the class has") {
  folder.write("config.json", R"({"model_type": "gpt2"})");
  folder.write("vocab.json", R"({"a": 0, "b": 1, "ab": 2, "<s>": 3, "<t>": 4})");
  const auto ids = [&] { return make_tokenizer(folder.path().string())->encode("ab"); };
  folder.write("tokenizer_config.json", R"({"add_bos_token": true, "bos_token": "<s>"})");
  CHECK(ids() == Ids{3, 2});
  folder.write("special_tokens_map.json", R"({"bos_token": {"content": "<t>"}})");
  CHECK(ids() == Ids{4, 2});
  const test::TempFolder copied;
  copy_tokenizer_files(folder.path().string(), *make_tokenizer(folder.path().string()),
                       copied.path());
  CHECK(make_tokenizer(copied.path().string())->encode("ab") == Ids{4, 2});
  std::filesystem::remove(folder / "special_tokens_map.json");
  const std::string where = (folder / "tokenizer_config.json").string() + ": add_bos_token";
  folder.write("tokenizer_config.json", R"({"add_bos_token": true})");
  CHECK(error() == where + ": bos_token \"<|endoftext|>\" is not in vocab.json");
  folder.write("tokenizer_config.json", R"({"add_bos_token": true, "bos_token": null})");
  CHECK(error() == where + " puts bos_token before a text, but that is null");
}

TEST_CASE_FIXTURE(Folder, "vocabulary files: which file says a folder's tokenizer") {
  const std::string path = folder.path().string();
  CHECK(default_tokenizer(path) == (folder / "vocab.json").string());
  const test::TempFolder copied;
  copy_tokenizer_files(path, *make_tokenizer(path), copied.path());
  CHECK(std::filesystem::exists(copied / "merges.txt"));
  const std::string copy = default_tokenizer(copied.path().string());
  CHECK(copy == (copied / "tokenizer.json").string());  // as another config.json may be there
  CHECK(make_tokenizer(copy)->encode("abba") == make_tokenizer(path)->encode("abba"));
  std::filesystem::remove(folder / "merges.txt");
  CHECK(default_tokenizer(path) == "bytes");
  folder.write("tokenizer.model", "");
  CHECK(default_tokenizer(path) == (folder / "tokenizer.model").string());
  CHECK(error() == (folder / "tokenizer.model").string() +
                       ": a file of SentencePiece or tiktoken, which is not read; in Python, with "
                       "transformers, AutoTokenizer.from_pretrained(\"" +
                       path + "\").save_pretrained(\"" + path +
                       "\") writes the tokenizer.json that is");
  std::filesystem::create_symlink("../gone", folder / "tokenizer.json");
  CHECK(contains(error(), "tokenizer.json: a link to ../gone, which is not there"));
}

}  // namespace
}  // namespace fsdp::data
