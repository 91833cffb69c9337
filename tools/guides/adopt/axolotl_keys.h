// The table of axolotl's keys. Those that are read together: axolotl.cpp.
#pragma once

#include <vector>

#include "tools/guides/adopt/rules.h"

namespace fsdp::adopt {

// Keys that axolotl hands on to transformers' Trainer have the Trainer's names.
std::vector<Rule> axolotl_rules();

}  // namespace fsdp::adopt
