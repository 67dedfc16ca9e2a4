// t and transpose, of which steps have as many as of matrix products.
#pragma once
#include "work.h"

namespace vramcast {

// They go by three operators to as_strided, which is all that takes time on the host.
// False for what they do with fewer dimensions, and outside of the device.
static bool simulate_transpose(c10::ArrayRef<IValue> arguments, Stack* stack) {
  const auto& tensor = arguments[0].toTensor();
  const auto dims = tensor.dim();
  int64_t one = 0, other = 1;
  if (arguments.size() == 3) {
    one = arguments[1].toInt() + (arguments[1].toInt() < 0 ? dims : 0);
    other = arguments[2].toInt() + (arguments[2].toInt() < 0 ? dims : 0);
  } else if (dims != 2) {
    return false;
  }
  const auto is_dim = [&](int64_t dim) { return 0 <= dim && dim < dims; };
  if (!tensor.is_cuda() || tensor.layout() != at::kStrided || one == other || !is_dim(one) ||
      !is_dim(other))
    return false;
  static const auto name = recorder.intern("aten::as_strided");
  c10::DimVector sizes(tensor.sizes()), strides(tensor.strides());
  std::swap(sizes[one], sizes[other]);
  std::swap(strides[one], strides[other]);
  auto view = view_of(tensor, tensor.dtype(), sizes, strides, tensor.storage_offset());
  work_log.add({0, 0, {0, 0, 0, 0}, name, -1, forward, no_kernel});
  torch::jit::drop(*stack, arguments.size());
  stack->emplace_back(std::move(view));
  return true;
}

}  // namespace vramcast
