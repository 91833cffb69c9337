// Clang before 15 has no _Float16 on x86. Included first into every source of the fuzz build there:
// its storage type with the conversions that core/dtype.h asks for.
#pragma once

struct HalfOfOldClang {
  explicit HalfOfOldClang(float number) : value(static_cast<__fp16>(number)) {}
  operator float() const { return value; }
  __fp16 value;
};
#define _Float16 HalfOfOldClang
