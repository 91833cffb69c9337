// The list of the element-wise rules. From it: the kinds of optim/optimizer_kind.h, the kernels of
// core/kernel_args.h with their overloads in both backends, the lines of `bench kernels`.
#pragma once

#include "core/optimizer_rules/adadelta.h"
#include "core/optimizer_rules/adam.h"
#include "core/optimizer_rules/adamax.h"
#include "core/optimizer_rules/sgd.h"

// RULE(X, name) of each; X is passed on.
#define FSDP_RULES(RULE, X) \
  RULE(X, AdamW)            \
  RULE(X, Adam)             \
  RULE(X, Adamax)           \
  RULE(X, Adadelta)         \
  RULE(X, Sgd)
