// A program picks the largest of numbers that are not known, after it has left some out by a mask:
// it may check that none of these was picked. Numbers are drawn for the others, and go along with
// what keeps their order.
#pragma once
#include <ATen/ops/masked_fill.h>

#include "deferring.h"

namespace vramcast {

constexpr int64_t max_ranked_elements = 64 << 10;
constexpr double low_number = -1e4;  // as of one in half precision

static bool may_be_ranked(const at::Tensor& tensor) {
  return tensor.is_cuda() && c10::isFloatingType(tensor.scalar_type()) && is_whole(tensor) &&
         tensor.numel() <= max_ranked_elements;
}

static void set_ranked(const at::Tensor& tensor, const at::Tensor& numbers) {
  set_values(tensor, numbers);
  if (auto* block = block_of(tensor)) block->drawn = block->ranked = true;
}

static at::Tensor new_ranks(const at::Tensor& tensor) {
  const DrawnByGpu gpu;
  return at::rand(tensor.sizes(), at::kFloat);
}

// Of the result; undefined where nothing is known.
static at::Tensor ranks_of(const c10::OperatorHandle& op, const Operator& info,
                           c10::ArrayRef<IValue> arguments, const std::vector<IValue>& results) {
  if ((!info.keeps_order && !info.leaves_out) || !may_be_ranked(results[0].toTensor())) return {};
  const auto& x = arguments[0].toTensor();
  const auto* block = block_of(x);
  const bool is_ranked = block && block->ranked;
  if (info.keeps_order) {
    HostCall call;
    const bool computed = is_ranked && compute_values(op, info, arguments, std::nullopt, call);
    return computed ? call.values[0].toTensor() : at::Tensor();
  }
  const auto mask = known_values(arguments[1].toTensor());
  const auto number = arguments[2].toScalar();
  if (!mask.defined() || !(number.toDouble() < low_number)) return {};
  BelowSimulation below;
  return (is_ranked ? known_values(x) : new_ranks(x)).masked_fill(mask, number);
}

// The same where the mask is of bytes, which index_put takes.
static void leave_out(const at::Tensor& tensor, const c10::List<std::optional<at::Tensor>>& places,
                      const at::Tensor& number) {
  const auto value = known_values(number);
  const auto* block = block_of(tensor);
  if (places.size() != 1 || !block || block->values || !may_be_ranked(tensor) ||
      !value.defined() || value.numel() != 1)
    return;
  const std::optional<at::Tensor> place = places.get(0);
  const auto mask = place ? known_values(*place) : at::Tensor();
  BelowSimulation below;
  const auto least = value.item();
  if (!mask.defined() || mask.scalar_type() != at::kByte || !(least.toDouble() < low_number))
    return;
  set_ranked(tensor, new_ranks(tensor).masked_fill(mask.to(at::kBool), least));
}

// Of a kernel that is written in Python, softmax. It makes shares: nothing of what is left out.
static void carry_order(const at::Tensor& tensor, const at::Tensor& other) {
  const auto* block = block_of(other);
  if (!block || !block->ranked || !may_be_ranked(tensor)) return;
  BelowSimulation below;
  const auto numbers = known_values(other);
  const auto& name = recorder.names.at(recorder.current_operator());
  const bool is_log = name.find("log") != std::string::npos;
  set_ranked(tensor, is_log ? numbers : numbers.exp());
}

TORCH_LIBRARY_FRAGMENT(vramcast, library) {
  library.def("leave_out(Tensor tensor, Tensor?[] places, Tensor number) -> ()");
  library.def("carry_order(Tensor tensor, Tensor other) -> ()");
}
TORCH_LIBRARY_IMPL(vramcast, Fake, library) {
  library.impl("leave_out", &leave_out);
  library.impl("carry_order", &carry_order);
}

}  // namespace vramcast
