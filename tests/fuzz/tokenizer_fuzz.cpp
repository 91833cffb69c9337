// Fuzz target: a tokenizer.json and, behind a zero byte, a text that it encodes and decodes.
#include "core/io/json.h"
#include "tests/fuzz/fuzz_target.h"
#include "tools/data/tokenizer/hugging_face.h"

namespace fsdp::fuzz {
namespace {

using data::HuggingFaceTokenizer;
using data::SpecialTokens;

void use(const HuggingFaceTokenizer& tokenizer, std::string_view text) {
  std::vector<int32_t> ids;
  if (!accepts([&] { ids = tokenizer.encode(text); })) return;
  for (const int32_t id : ids) require(id >= 0 && id < tokenizer.vocab_size());
  // Words that the cache knows by now get the same ids.
  require(tokenizer.encode(text) == ids);
  accepts([&] { tokenizer.decode(ids); });
  ids.insert(ids.end(), {-1, 0, 1, 2, 258, INT32_MAX, INT32_MIN});
  accepts([&] { tokenizer.decode(ids, SpecialTokens::kInclude); });
}

// The parts of the published tokenizers, with a vocabulary of a few words.
struct Kind {
  const char* normalizer;
  const char* pre_tokenizer;
  const char* post_processor;
  const char* decoder;
  const char* model;  // what it has beside vocabulary and merges
};

constexpr const char* kByteLevel =
    R"({"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true})";
constexpr const char* kTemplate =
    R"({"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>","type_id":0}},)"
    R"({"Sequence":{"id":"A","type_id":0}}],"pair":[],)"
    R"("special_tokens":{"<s>":{"id":"<s>","ids":[1],"tokens":["<s>"]}}})";

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all = {
      {"null", kByteLevel, kByteLevel, kByteLevel, ""},
      {R"({"type":"NFC"})",
       R"({"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":)"
       R"(" ?[^(\\s|[.,!?])]+"},"behavior":"Isolated","invert":false},)"
       R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":false}]})",
       kTemplate, kByteLevel, R"("ignore_merges":true,)"},
      {R"({"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"▁"},)"
       R"({"type":"Replace","pattern":{"String":" "},"content":"▁"}]})",
       "null", kTemplate,
       R"({"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"▁"},)"
       R"("content":" "},{"type":"ByteFallback"},{"type":"Fuse"},)"
       R"({"type":"Strip","content":" ","start":1,"stop":0}]})",
       R"("unk_token":"<unk>","fuse_unk":true,"byte_fallback":true,)"},
      {R"({"type":"Sequence","normalizers":[{"type":"NFKD"},{"type":"Lowercase"},)"
       R"({"type":"Strip","strip_left":true,"strip_right":true}]})",
       R"({"type":"Metaspace","replacement":"▁","prepend_scheme":"first","split":true})", "null",
       R"({"type":"Metaspace","replacement":"▁","prepend_scheme":"first"})",
       R"("unk_token":"<unk>",)"},
      {"null",
       R"({"type":"Sequence","pretokenizers":[{"type":"Digits","individual_digits":true},)"
       R"({"type":"Punctuation","behavior":"MergedWithPrevious"},{"type":"Whitespace"},)"
       R"({"type":"Split","pattern":{"String":"a"},"behavior":"MergedWithNext","invert":true}]})",
       "null", "null", ""},
      {R"x({"type":"Replace","pattern":{"Regex":"(?i:[a-f]{2,3})\\p{L}*|\\d+(?!\\S)"},"content":"x"})x",
       R"({"type":"WhitespaceSplit"})", "null", R"({"type":"Fuse"})", ""},
  };
  return all;
}

std::string tokenizer_json(const Kind& kind) {
  const char* const rest =
      R"("vocab":{"<unk>":0,"<s>":1,"</s>":2,"a":3,"b":4,"Ġ":5,"▁":6,"<0x0A>":7,"<0xC3>":8,)"
      R"("<0xA9>":9,"ab":10,"Ġa":11,"▁ab":12,"é":13,"aba":14,"1":15,"▁a":16},)"
      R"("merges":["a b",["▁","a"],"Ġ a","▁a b","ab a"]})";
  return fmt::format(
      R"({{"version":"1.0","truncation":null,"padding":null,"added_tokens":[{{"id":1,)"
      R"("content":"<s>","single_word":false,"lstrip":false,"rstrip":true,"normalized":false,)"
      R"("special":true}},{{"id":20,"content":"A b","lstrip":true,"single_word":true}}],)"
      R"("normalizer":{},"pre_tokenizer":{},"post_processor":{},"decoder":{},)"
      R"("model":{{"type":"BPE",{}{}}})",
      kind.normalizer, kind.pre_tokenizer, kind.post_processor, kind.decoder, kind.model, rest);
}

constexpr std::string_view kText =
    "ab aba  A b<s> abab\n\u00e9e\u0301 1234, \u4f60\u597d \U0001f600\t \u1100\u1161\u11a7 "
    "aaaaaaaaaa";

}  // namespace

std::vector<std::string> seeds() {
  std::vector<std::string> out;
  for (const Kind& kind : kinds()) {
    out.push_back(tokenizer_json(kind) + std::string(1, '\0') + std::string(kText));
    require(accepts([&] { HuggingFaceTokenizer(tokenizer_json(kind), "seed"); }));
  }
  return out;
}

}  // namespace fsdp::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using fsdp::data::HuggingFaceTokenizer;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t zero = input.find('\0');
  const std::string_view text = zero == input.npos ? fsdp::fuzz::kText : input.substr(zero + 1);
  fsdp::fuzz::accepts([&] {
    // Short stretches, so that a text has several.
    const HuggingFaceTokenizer tokenizer(input.substr(0, zero), "tokenizer.json", 8);
    fsdp::fuzz::use(tokenizer, text);
  });
  return 0;
}
