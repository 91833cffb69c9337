// The kinds of optimizers, as core/optimizer_rules/list.h lists their rules. Apart from
// optim/optimizer.h, so that a new rule rebuilds only the code that names kinds.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/optimizer_rules/list.h"

namespace fsdp::optim {

#define FSDP_KIND(_, Rule) k##Rule,
enum class OptimizerKind : uint8_t { FSDP_RULES(FSDP_KIND, ) };
#undef FSDP_KIND
#define FSDP_KIND(_, Rule) OptimizerKind::k##Rule,
inline constexpr std::array kOptimizerKinds = {FSDP_RULES(FSDP_KIND, )};
#undef FSDP_KIND
// Whether the kind reads an option of its rule ("beta1"). The kinds that do, with commas.
bool reads(OptimizerKind kind, std::string_view option);
std::string kinds_that_read(std::string_view option);

}  // namespace fsdp::optim
