// A forward pass that is not run again: its events once more, and tensors in what it leaves.
#pragma once
#include <ATen/ops/as_strided.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <torch/library.h>

#include <unordered_map>

#include "collectives.h"
#include "recorder.h"

namespace vramcast {

struct LeftTensor {
  at::IntArrayRef sizes, strides;
  int64_t offset, block;
  at::ScalarType dtype;

  bool fills(int64_t num_bytes) const {
    int64_t last = 0;
    for (size_t i = 0; i < sizes.size(); ++i) {
      if (sizes[i] == 0) return false;
      last += (sizes[i] - 1) * strides[i];
    }
    return offset == 0 && num_bytes == (last + 1) * int64_t(c10::elementSize(dtype));
  }
  // The tensor itself, where the whole block is nothing else.
  at::Tensor in_new_block(int64_t num_bytes) const {
    const auto options = at::TensorOptions(at::kCUDA).dtype(dtype);
    if (fills(num_bytes)) return at::empty_strided(sizes, strides, options);
    return at::empty({num_bytes / int64_t(c10::elementSize(dtype))}, options);
  }
  at::Tensor in_block(const at::Tensor& made) const {
    if (made.sizes() == sizes && made.strides() == strides) return made;
    return at::as_strided(made, sizes, strides, offset);
  }
};

// Two whole numbers describe a block that the pass leaves: its event, and its number within the
// pass. Four describe a tensor: the number of its block, its type, how many dimensions it has, and
// where its sizes, strides and offset begin in `numbers`, which has the sizes of all allocations
// first. Returns the tensors, and then the blocks without one.
static std::vector<at::Tensor> repeat_pass(int64_t address, int64_t first, int64_t num_events,
                                           int64_t before, at::IntArrayRef blocks,
                                           at::IntArrayRef tensors) {
  const auto* numbers = reinterpret_cast<const int64_t*>(address);
  std::vector<LeftTensor> left;
  std::unordered_map<int64_t, size_t> last_in;  // of the tensors in a block
  for (size_t i = 0; i < tensors.size(); i += 4) {
    const auto dims = tensors[i + 2];
    const auto* own = numbers + tensors[i + 3];
    last_in[tensors[i]] = left.size();
    left.push_back({{own, size_t(dims)}, {own + dims, size_t(dims)}, own[2 * dims], tensors[i],
                    static_cast<at::ScalarType>(tensors[i + 1])});
  }
  std::unordered_map<int64_t, at::Tensor> made;
  std::vector<at::Tensor> results, others;
  auto begin = first;
  for (size_t i = 0; i < blocks.size(); i += 2) {
    const auto event = first + blocks[i], number = blocks[i + 1];
    recorder.repeat(begin, event, begin == first, numbers, before);
    begin = event + 1;
    const CurrentOperator operator_name(recorder, recorder.operator_of(before + number));
    const PartOfKernel is_part(true);
    kernel_has_guessed = false;
    const LeftTensor of_bytes{{}, {}, 1, 0, at::kByte};
    const auto last = last_in.find(number);
    const bool is_left = last != last_in.end();
    made[number] = (is_left ? left[last->second] : of_bytes).in_new_block(numbers[number - 1]);
    if (!is_left) others.push_back(made[number]);
  }
  recorder.repeat(begin, first + num_events, begin == first, numbers, before);
  for (const auto& one : left) results.push_back(one.in_block(made.at(one.block)));
  results.insert(results.end(), others.begin(), others.end());
  return results;
}

static int64_t dtype_code(const at::Tensor& tensor) {
  return static_cast<int64_t>(tensor.scalar_type());
}

TORCH_LIBRARY_FRAGMENT(vramcast, library) {
  library.def("dtype_code(Tensor tensor) -> int");
  library.def(
      "repeat_pass(int numbers, int first, int num_events, int before, int[] blocks, "
      "int[] tensors) -> Tensor[]");
}
TORCH_LIBRARY_IMPL(vramcast, Fake, library) {
  library.impl("dtype_code", &dtype_code);
  library.impl("repeat_pass", &repeat_pass);
}

}  // namespace vramcast
