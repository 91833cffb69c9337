// Problems of attention that are cuDNN's: those of cudnn_attention_test.cpp. Without a GPU
// cudnn_pieces_test.cpp asks the library for plans of them.
#pragma once

#include "tests/support/attention_case.h"

namespace fsdp::test {

inline const Case kCudnnCases[] = {
    {1, 1, 1, 1, 1, 8},
    {2, 2, 2, 64, 64, 16},
    {2, 3, 3, 67, 67, 24},           // no multiple of a tile
    {2, 4, 2, 65, 65, 64},           // grouped
    {1, 6, 1, 33, 33, 8},            // one head of keys
    {1, 2, 2, 40, 40, 40, false},    // all keys
    {2, 2, 1, 5, 37, 16, false},     // all of more keys
    {2, 2, 1, 70, 70, 16, true, 9},  // window
    {1, 1, 1, 20, 20, 8, true, 1},   // each query sees itself
    {1, 2, 2, 20, 20, 8, true, 20},  // a window that hides none
    {2, 2, 2, 33, 33, 16, true, 0, 0, Layout::kPacked},
    {2, 4, 2, 33, 33, 16, true, 5, 0, Layout::kPacked},
    {2, 3, 3, 33, 33, 16, true, 0, 0, Layout::kInterleaved},
    {2, 3, 3, 24, 24, 8, true, 0, 0, Layout::kInterleaved, {1, 3, 28}},  // ALiBi, a longer table
    {2, 4, 2, 20, 20, 8, true, 0, 0, Layout::kSeparate, {1, 4, 20}},
    {2, 2, 2, 20, 20, 8, false, 0, 0, Layout::kSeparate, {1, 1, 20}},  // one row for all heads
    {3, 4, 2, 40, 40, 16, true, 0, 0, Layout::kPacked, {}, {7, 1, 12}},
    {2, 2, 2, 36, 36, 16, true, 5, 0, Layout::kSeparate, {}, {3, 20}},
    {2, 2, 2, 24, 24, 8, true, 0, 0, Layout::kInterleaved, {1, 2, 24}, {5, 10}},
};

inline const Case kAnyOrder[] = {
    {3, 2, 2, 64, 64, 16},
    {3, 4, 2, 64, 64, 16, true, 9, 0, Layout::kPacked},
    {3, 4, 2, 64, 64, 8, true, 0, 0, Layout::kPacked, {1, 4, 64}},  // ALiBi
    {3, 4, 2, 64, 64, 8, true, 0, 0, Layout::kPacked, {}, {30, 9}},
    {3, 4, 1, 64, 64, 8, false, 0, 0, Layout::kSeparate, {1, 1, 64}},
};

inline const Case kLarge = {4, 6, 3, 64, 64, 8, true, 0, 0, Layout::kPacked, {1, 6, 64}};
inline const Case kPrime = {5, 6, 3, 64, 64, 8, true, 0, 0, Layout::kPacked, {1, 6, 64}};
inline const Case kWide = {1, 1, 1, 33, 33, 256};  // the own kernels have none for heads so wide

}  // namespace fsdp::test
