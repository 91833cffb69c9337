// Whether two functions are called in the same way, for comparing a table of functions that are
// opened at run time with the library's own header: enums count as int, handles as pointers,
// structs by their size.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

namespace fsdp::test {

template <size_t bytes>
struct Bytes {};

template <typename T>
constexpr auto plain_value() {
  if constexpr (std::is_enum_v<T>) {
    return 0;
  } else if constexpr (std::is_pointer_v<T>) {
    return static_cast<void*>(nullptr);
  } else if constexpr (std::is_class_v<T>) {
    return Bytes<sizeof(T)>();
  } else {
    return T();
  }
}
template <typename R, typename... P>
auto plain(R (*)(P...)) -> decltype(plain_value<R>()) (*)(decltype(plain_value<P>())...);

template <typename Ours, typename Theirs>
constexpr bool kSameSignature =
    std::is_same_v<decltype(plain(std::declval<Ours>())), decltype(plain(std::declval<Theirs>()))>;

}  // namespace fsdp::test
