// Tensors of one operator are on one device, as CUDA's kernels demand: a batch that was left on the
// host is an error here too.
#pragma once
#include <array>
#include <string>

namespace vramcast {

// The words of torch. What is in the parentheses follows.
constexpr auto one_device_error =
    "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and "
    "cpu! (in ";

// These take tensors of the host among those of the GPU: positions, lengths, sizes, what is copied.
static bool mixes_devices(const std::string& name) {
  static constexpr std::array parts = {"index.",    "index_put", "_index_put", "masked_index",
                                       "_index.",   "copy",      "ctc_loss",   "_foreach_",
                                       "_packed_",  "_padded_",  "nested",     "tensor_split",
                                       "aten::set_", "sparse",   "_fused_"};
  for (const std::string part : parts)
    if (name.find(part) != std::string::npos) return true;
  return false;
}

static bool wants_one_device(const std::string& name) {
  return name.rfind("aten::", 0) == 0 && !mixes_devices(name);
}

// A number of the host may be anywhere.
static bool is_left_on_host(const at::Tensor& tensor) {
  return tensor.is_cpu() && tensor.dim() > 0 && tensor.layout() == at::kStrided;
}

}  // namespace vramcast
