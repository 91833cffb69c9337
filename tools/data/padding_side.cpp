// Contract: tools/data/padding_side.h.
#include "tools/data/padding_side.h"

#include <filesystem>

#include "core/error.h"
#include "tools/data/tokenizer/python_json.h"
#include "tools/data/tokenizer/vocabulary_files.h"

namespace fsdp::data {

namespace fs = std::filesystem;

std::optional<PadSide> padding_side_of(const std::string& tokenizer) {
  if (tokenizer == "bytes") return std::nullopt;
  const fs::path file =
      fs::is_directory(tokenizer) ? tokenizer_file_in(tokenizer) : fs::path(tokenizer);
  const fs::path folder = file.empty() ? fs::path() : folder_of_tokenizer(file);
  const fs::path config_file = folder / "tokenizer_config.json";
  if (folder.empty() || !fs::exists(config_file)) return std::nullopt;
  const Json config = read_python_json(config_file);
  const Json side = config.is_object() ? config.value("padding_side", Json()) : Json();
  if (side.is_null()) return std::nullopt;
  FSDP_CHECK(side == "left" || side == "right",
             "{}: padding_side: expected \"left\" or \"right\", got {}", config_file.string(),
             side.dump());
  return side == "left" ? PadSide::kLeft : PadSide::kRight;
}

}  // namespace fsdp::data
