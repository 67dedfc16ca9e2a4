// Which operators are reductions, and what each needs besides its result.
#pragma once
#include <ATen/core/stack.h>
#include <ATen/ops/as_strided.h>

#include <bitset>
#include <string>
#include <unordered_map>

#include "reduction_scratch.h"

namespace vramcast {

enum class Accumulator : uint8_t {
  opmath,
  input,
  pair_of_inputs,
  pair_with_index,
  welford,
  boolean
};

struct Reduction {
  Accumulator accumulator;
  bool wide_loads;  // 8 two-byte or 16 one-byte values a load instead of 4
  bool converts;    // first converts its input to the result's type, except half precision summed
                    // into float
};

inline const Reduction* find_reduction(const std::string& name, const std::string& overload) {
  static const std::unordered_map<std::string, Reduction> table = {
      {"aten::sum", {Accumulator::opmath, true, true}},
      {"aten::mean", {Accumulator::opmath, false, true}},
      {"aten::nansum", {Accumulator::opmath, false, true}},
      {"aten::prod", {Accumulator::opmath, false, true}},
      {"aten::linalg_vector_norm", {Accumulator::opmath, false, false}},
      {"aten::norm", {Accumulator::opmath, false, false}},
      {"aten::max", {Accumulator::input, false, false}},
      {"aten::min", {Accumulator::input, false, false}},
      {"aten::max.dim", {Accumulator::pair_with_index, false, false}},
      {"aten::min.dim", {Accumulator::pair_with_index, false, false}},
      {"aten::aminmax", {Accumulator::pair_of_inputs, false, false}},
      {"aten::amax", {Accumulator::input, false, false}},
      {"aten::amin", {Accumulator::input, false, false}},
      {"aten::argmax", {Accumulator::pair_with_index, false, false}},
      {"aten::argmin", {Accumulator::pair_with_index, false, false}},
      {"aten::var", {Accumulator::welford, false, false}},
      {"aten::std", {Accumulator::welford, false, false}},
      {"aten::var_mean", {Accumulator::welford, false, false}},
      {"aten::std_mean", {Accumulator::welford, false, false}},
      {"aten::any", {Accumulator::boolean, false, false}},
      {"aten::all", {Accumulator::boolean, false, false}},
  };
  if (const auto found = table.find(name + "." + overload); found != table.end())
    return &found->second;
  if (name == "aten::max" && overload == "other") return nullptr;
  if (name == "aten::min" && overload == "other") return nullptr;
  const auto found = table.find(name);
  return found == table.end() ? nullptr : &found->second;
}

inline int64_t opmath_bytes(c10::ScalarType type) {
  const auto size = static_cast<int64_t>(c10::elementSize(type));
  return c10::isReducedFloatingType(type) ? 4 : size;
}

inline int64_t accumulator_bytes(Accumulator kind, c10::ScalarType type) {
  const auto size = static_cast<int64_t>(c10::elementSize(type));
  switch (kind) {
    case Accumulator::opmath:
      return opmath_bytes(type);
    case Accumulator::input:
      return size;
    case Accumulator::pair_of_inputs:
      return 2 * size;
    case Accumulator::pair_with_index:
      return 16;
    case Accumulator::welford:
      return opmath_bytes(type) == 8 ? 32 : 16;
    case Accumulator::boolean:
      return 1;
  }
  return size;
}

// The dimensions a reduction works on, read off its arguments by name; all of them where none are
// given.
inline std::bitset<64> reduced_dims(const c10::FunctionSchema& schema,
                                    c10::ArrayRef<c10::IValue> arguments, int64_t num_dims) {
  std::bitset<64> mask;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (schema.arguments()[i].name() != "dim") continue;
    if (arguments[i].isInt())
      mask.set((arguments[i].toInt() + num_dims) % std::max<int64_t>(num_dims, 1));
    else if (arguments[i].isIntList())
      for (const int64_t d : arguments[i].toIntVector())
        mask.set((d + num_dims) % std::max<int64_t>(num_dims, 1));
  }
  if (mask.none())
    for (int64_t d = 0; d < num_dims; ++d) mask.set(d);
  return mask;
}

// The iterator the device would launch with: the result seen with one (stride 0) element in every
// reduced dimension.
inline at::TensorIterator reduction_iterator(const at::Tensor& input, const at::Tensor& result,
                                             const std::bitset<64>& mask) {
  std::vector<int64_t> sizes, strides;
  const bool keeps_dims = result.dim() == input.dim();
  int64_t next = 0;
  for (int64_t d = 0; d < input.dim(); ++d) {
    const bool reduced = mask[d];
    sizes.push_back(reduced ? 1 : input.size(d));
    strides.push_back(reduced ? 0 : result.stride(keeps_dims ? d : next));
    if (!reduced) ++next;
  }
  auto view = at::as_strided(result, sizes, strides);
  return at::TensorIterator::reduce_op(view, input);
}

}  // namespace vramcast
