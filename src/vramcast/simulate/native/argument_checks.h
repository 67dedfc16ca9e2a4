// What CUDA's kernels refuse, with torch's words.
#pragma once
#include "operators.h"

namespace vramcast {

// Masks of bytes are not taken any more.
static void check_mask(const Operator& info, c10::ArrayRef<IValue> arguments) {
  if (!info.wants_mask) return;
  const auto type = arguments[1].toTensor().scalar_type();
  TORCH_CHECK(type == at::kBool, "masked_fill only supports boolean masks, but got dtype ", type);
}

}  // namespace vramcast
