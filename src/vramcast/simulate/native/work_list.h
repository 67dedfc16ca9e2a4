// What operators did, in order. Of a million few differ: each kind is kept once, with a number.
#pragma once
#include <array>
#include <cstring>
#include <deque>
#include <string_view>
#include <unordered_map>

#include "long_list.h"

namespace vramcast {

// How its kernel can go through memory: in long vectors, converting between types, or following
// strides and broadcasts. `turned`: both matrices of a product, as one of it is `converting`.
enum Access : int32_t { no_kernel = 0, plain = 1, converting = 2, strided = 3, turned = 4 };

struct Work {
  double flops;
  double num_bytes;  // read and written
  // products and attention: batch, rows, columns, inner size; lists of tensors: how many; others:
  // whether units lie across each other in memory [0], and how many [3]; additions [1] to places
  // [2] that threads share; reductions: how many make a result [1], neighbours among them [2];
  // pointwise ones that follow strides: as note_walk says
  int64_t sizes[4];
  int32_t operator_name;  // -1 where a step begins
  int32_t dtype;          // of the first floating-point argument, or -1
  int32_t phase;
  int32_t access;
  int64_t stream = 0;
};

// as a dtype: fp32 that may be rounded for the tensor cores
static constexpr int32_t tf32 = 1006;

// The number of a kind, and its phase.
struct Done {
  int32_t kind, phase;
};

class WorkList {
 public:
  using value_type = Work;

  size_t size() const { return kinds_.size(); }
  const Work& operator[](size_t i) const { return distinct_[kinds_[i]]; }
  const Work& kind(size_t number) const { return distinct_.at(number); }
  Done done(size_t i) const { return {kinds_[i], (*this)[i].phase}; }
  void push_back(const Work& work) { kinds_.push_back(kind_of(work)); }
  void set(size_t i, const Work& work) { kinds_[i] = kind_of(work); }
  void swap(WorkList& other) {
    kinds_.swap(other.kinds_);
    distinct_.swap(other.distinct_);
    numbers_.swap(other.numbers_);
  }

 private:
  static std::string_view bytes_of(const Work& work) {
    return {reinterpret_cast<const char*>(&work), sizeof(work)};
  }
  int32_t kind_of(const Work& work) {
    // most are found where the last of this operator and size was
    const auto size = static_cast<size_t>(work.num_bytes);
    auto& last = last_[(work.operator_name * 31 + size / 4 + work.phase) % last_.size()];
    if (last < distinct_.size() && bytes_of(distinct_[last]) == bytes_of(work)) return last;
    const auto found = numbers_.find(bytes_of(work));
    if (found != numbers_.end()) return last = found->second;
    last = static_cast<int32_t>(distinct_.size());
    distinct_.push_back(work);
    return numbers_[bytes_of(distinct_.back())] = last;
  }

  LongList<int32_t> kinds_;
  std::deque<Work> distinct_;  // which stay where they are
  std::unordered_map<std::string_view, int32_t> numbers_;
  std::array<uint32_t, 256> last_ = {};
};

}  // namespace vramcast
