// Sizes of unsharded units computed from the shapes of parameters alone, for formulas of bytes.
// Not for other plans than a unit per block.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/module.h"

namespace fsdp::test {

// Elements of each unit's unsharded buffer, root first: parameters start at multiples of `block`
// elements, and shards are multiples of it.
inline std::vector<int64_t> unit_numels(const Module& model, int64_t shards, int64_t block = 64) {
  std::map<std::string, int64_t> units;  // "" is the root
  for (const Parameter* p : model.parameters()) {
    const std::string& name = p->name();
    const bool in_block = name.starts_with("blocks.");
    units[in_block ? name.substr(0, name.find('.', 7)) : ""] +=
        (p->numel() + block - 1) / block * block;
  }
  std::vector<int64_t> out;
  for (const auto& [name, numel] : units) {
    out.push_back((numel + block * shards - 1) / (block * shards) * (block * shards));
  }
  return out;
}

}  // namespace fsdp::test
