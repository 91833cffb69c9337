// Contract: models/key_bias.h.
#include "models/key_bias.h"

#include <cmath>
#include <limits>

#include "core/error.h"
#include "models/position_table.h"

namespace fsdp::models {

std::vector<double> alibi_slopes(int64_t heads) {
  int64_t power = 1;
  while (2 * power <= heads) power *= 2;
  std::vector<double> slopes;
  const auto add = [&](double i) {
    slopes.push_back(std::exp2(-8.0 * i / static_cast<double>(power)));
  };
  for (int64_t i = 1; i <= power; ++i) add(static_cast<double>(i));
  // The other slopes lie between: every second slope of a model with twice as many heads.
  for (int64_t i = 1; i <= heads - power; ++i) add(static_cast<double>(i) - 0.5);
  return slopes;
}

Tensor make_key_bias(const ModelConfig& config, Backend& backend, DType dtype,
                     const std::vector<int32_t>& mask, int64_t rows) {
  FSDP_CHECK(rows > 0 && mask.size() % static_cast<size_t>(rows) == 0,
             "[attention_mask] expected {} rows of one length, got {} values", rows, mask.size());
  const int64_t length = static_cast<int64_t>(mask.size()) / rows;
  const std::vector<double> slopes = config.positions == PositionKind::kAlibi
                                         ? alibi_slopes(config.heads)
                                         : std::vector<double>{0};
  std::vector<double> values;
  for (int64_t row = 0; row < rows; ++row) {
    for (const double slope : slopes) {
      double position = 0;
      for (int64_t t = 0; t < length; ++t) {
        const bool visible = mask[static_cast<size_t>(row * length + t)] != 0;
        values.push_back(visible ? slope * position : -std::numeric_limits<double>::infinity());
        if (visible) ++position;
      }
    }
  }
  const Shape shape = {rows, static_cast<int64_t>(slopes.size()), length};
  return position_table(backend, shape, std::move(values), dtype, config.buffer_dtype);
}

}  // namespace fsdp::models
