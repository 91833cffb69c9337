// Fuzz target: the index of a model's files, of both kinds. A sharded checkpoint's that is read
// must be written and read again to the same text, and its pieces must be the whole of every
// tensor.
#include "core/io/shard_index.h"
#include "tests/fuzz/fuzz_target.h"

namespace fsdp::fuzz {
namespace {

void use(const ShardIndex& index) {
  for (const auto& [name, tensor] : index.tensors) {
    int64_t numel = 1, covered = 0;
    for (const int64_t extent : tensor.shape) numel *= extent;
    for (const SafetensorsFolder::Piece& piece : tensor.pieces) {
      require(piece.file < index.files.size() && piece.first == covered);
      covered += piece.count;
    }
    require(covered == numel);
  }
  const std::string written = shard_index_json(index);
  require(shard_index_json(parse_shard_index(written, "written")) == written);
}

}  // namespace

std::vector<std::string> seeds() {
  const ShardIndex index = {.files = {numbered_file("shard", 0, 2), numbered_file("shard", 1, 2)},
                            .tensors = {{"a", {"F32", {3, 5}, {{0, 0, 8}, {1, 8, 7}}}},
                                        {"b", {"BF16", {7}, {{1, 0, 7}}}},
                                        {"empty", {"F64", {0, 4}, {}}}}};
  return {shard_index_json(index),
          R"({"metadata":{"total_size":88},"weight_map":{"a":"model-00001-of-00002.safetensors",)"
          R"("b":"model-00002-of-00002.safetensors"}})",
          R"({"weight_map":{"a":"../model.safetensors"}})"};
}

}  // namespace fsdp::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace fsdp;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  // What neither of them can be is refused once: an exception takes as long as the reading.
  if (text.find("weight_map") != text.npos) {
    fuzz::accepts([&] {
      for (const auto& [tensor, file] : parse_weight_map(text, "index.json").files) {
        fuzz::require(!file.empty() && file.find('/') == file.npos);
      }
    });
    return 0;
  }
  fuzz::accepts([&] { fuzz::use(parse_shard_index(text, "shards.json")); });
  return 0;
}
