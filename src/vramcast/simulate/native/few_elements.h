// An operator run on the CPU, with one element or a few for each tensor: what it makes of typical
// numbers.
#pragma once
#include <ATen/ops/full.h>

#include <optional>
#include <string>
#include <unordered_map>

#include "arguments_key.h"
#include "ranks.h"

namespace vramcast {

constexpr int64_t num_spread = 512;

static double first_element(const at::Tensor& host) {
  // without the dispatcher: a Python number comes with every operator that has one
  const auto type = host.scalar_type();
  if (type == at::kDouble && !host.is_neg())
    return *static_cast<const double*>(host.const_data_ptr());
  if (type == at::kFloat && !host.is_neg())
    return *static_cast<const float*>(host.const_data_ptr());
  if (type == at::kLong && !host.is_neg())
    return static_cast<double>(*static_cast<const int64_t*>(host.const_data_ptr()));
  BelowSimulation below;
  auto first = host;
  while (first.dim() > 0) first = first.select(0, 0);
  const auto number = first.item();
  return number.isComplex() ? number.toComplexDouble().real() : number.toDouble();
}

struct Operand {
  const at::Tensor& tensor;
  Typical typical;
};
using Operands = c10::SmallVector<Operand, 4>;

// Also of a copy to which nothing was written since.
static bool same_elements(const at::Tensor& one, const at::Tensor& other) {
  if (one.is_same(other)) return true;
  if (one.storage_offset() != other.storage_offset() || one.sizes() != other.sizes() ||
      one.strides() != other.strides() || one.dtype() != other.dtype())
    return false;
  const auto *block = block_of(one), *other_block = block_of(other);
  return one.storage().unsafeGetStorageImpl() == other.storage().unsafeGetStorageImpl() ||
         (block && other_block && block->last_write == other_block->last_write);
}

// Also a typical zero must change.
static double with_factor(const Typical& typical, double factor) {
  return typical.sure ? typical.number : typical.number * factor + factor - 1;
}

// What run_on_one_element depends on.
static ArgumentsKey run_key(const Operator& info, c10::ArrayRef<IValue> arguments,
                            const Operands& operands, double factor) {
  ArgumentsKey key(&info);
  size_t next = 0;
  for (const auto& argument : arguments) {
    if (argument.isTensor() && argument.toTensor().defined()) {
      const auto& [tensor, typical] = operands[next++];
      key.add('x', with_factor(typical, factor));
      key.add('t', tensor.scalar_type());
      key.add(tensor.unsafeGetTensorImpl()->is_wrapped_number() ? 'w' : 'i', tensor.dim());
    } else {
      key.add(argument);
    }
  }
  return key;
}

// The operator's result on the CPU, where `elements` gives what stands for each tensor.
template <typename Elements>
static at::Tensor run_on_host(const c10::OperatorHandle& op, c10::ArrayRef<IValue> arguments,
                              const Operands& operands, Elements elements) {
  Stack stack;
  stack.reserve(arguments.size());
  size_t next = 0;
  try {
    BelowSimulation below;
    for (const auto& argument : arguments) {
      if (argument.isTensor() && argument.toTensor().defined()) {
        const auto& operand = operands[next++];
        auto few = elements(operand).to(operand.tensor.scalar_type());
        if (operand.tensor.unsafeGetTensorImpl()->is_wrapped_number())
          few.unsafeGetTensorImpl()->set_wrapped_number(true);
        stack.emplace_back(std::move(few));
      } else if (argument.isDevice()) {
        stack.emplace_back(c10::Device(c10::kCPU));
      } else {
        stack.emplace_back(argument);
      }
    }
    op.callBoxed(&stack);
  } catch (const c10::Error&) {
    return {};  // no CPU kernel, or not for so few elements
  }
  return stack.empty() || !stack[0].isTensor() ? at::Tensor() : stack[0].toTensor();
}

static at::Tensor one_element(const Operand& operand, double number) {
  return at::full(std::vector<int64_t>(operand.tensor.dim(), 1), number, at::kDouble);
}

// The operator's result for one element a tensor; a factor other than 1 changes unsure elements.
static std::optional<double> run_on_one_element(const c10::OperatorHandle& op,
                                                c10::ArrayRef<IValue> arguments,
                                                const Operands& operands,
                                                double factor) {
  const auto result = run_on_host(op, arguments, operands, [&](const Operand& operand) {
    return one_element(operand, with_factor(operand.typical, factor));
  });
  if (!result.defined() || result.numel() != 1) return std::nullopt;
  return first_element(result);
}

// Numbers at equal distances in probability: of a normal distribution, as activations have it, of
// its positive half, or between 0 and 1.
static at::Tensor spread_numbers(bool is_share, bool is_positive = false) {
  BelowSimulation below;
  const auto shares = (at::arange(num_spread, at::kDouble) + 0.5) / num_spread;
  return is_share ? shares : at::special_ndtri(is_positive ? (shares + 1) / 2 : shares);
}

// How many elements of a mask are true. Masks of masks are taken to have nothing to do with each
// other.
static double true_share(const c10::OperatorHandle& op, const Operator& info,
                         c10::ArrayRef<IValue> arguments, const Operands& operands) {
  if (!info.pointwise || info.compares_equal || info.compares_unequal) return 0.5;
  int64_t num_spreads = 0;
  const auto result = run_on_host(op, arguments, operands, [&](const Operand& operand) {
    const auto& typical = operand.typical;
    const auto type = operand.tensor.scalar_type();
    if (typical.sure || operand.tensor.dim() == 0) return one_element(operand, typical.number);
    // along a dimension of its own; what is written to cannot grow
    std::vector<int64_t> shape(std::max<int64_t>(operand.tensor.dim(), 2), 1), whole = shape;
    std::fill_n(whole.rbegin(), 2, num_spread);
    const bool is_known = type == at::kBool || (c10::isFloatingType(type) && !typical.derived);
    TORCH_CHECK(is_known && num_spreads < 2);
    shape[shape.size() - 1 - num_spreads++] = num_spread;
    overlaps.were_asked = overlaps.were_asked || typical.is_overlap;
    const bool is_mask = type == at::kBool;
    const auto numbers =
        is_mask || typical.is_overlap
            ? spread_numbers(true).lt(is_mask ? typical.true_share : overlaps.share).to(at::kDouble)
            : spread_numbers(typical.is_share, typical.is_positive);
    const auto spread = numbers.reshape(shape);
    return info.written_arguments.empty() ? spread : spread.expand(whole).contiguous();
  });
  if (!result.defined() || num_spreads == 0 || result.scalar_type() != at::kBool) return 0.5;
  BelowSimulation below;
  return result.to(at::kDouble).mean().item().toDouble();
}

static double known_true_share(const c10::OperatorHandle& op, const Operator& info,
                               c10::ArrayRef<IValue> arguments,
                               const Operands& operands) {
  static thread_local std::unordered_map<std::string, double> known;
  auto key = run_key(info, arguments, operands, 1);
  for (const auto& [tensor, typical] : operands) {
    key.add('s', typical.sure);
    key.add('d', typical.derived);
    key.add('u', typical.is_share);
    key.add('p', typical.is_positive);
    key.add('b', typical.is_overlap ? overlaps.share : 0.);
    key.add('m', typical.true_share);
  }
  if (!key.is_complete) return true_share(op, info, arguments, operands);
  if (known.size() >= max_known_results) known.clear();
  const auto [found, is_new] = known.try_emplace(std::string(key.bytes()), 0.5);
  if (is_new) found->second = true_share(op, info, arguments, operands);
  return found->second;
}

// The same, remembered: programs do the same to many tensors.
static std::optional<double> result_for_one_element(const c10::OperatorHandle& op,
                                                    const Operator& info,
                                                    c10::ArrayRef<IValue> arguments,
                                                    const Operands& operands,
                                                    double factor) {
  // never destroyed: threads may end after the program
  static auto& known = *new ByArguments<std::optional<double>>();
  const auto key = run_key(info, arguments, operands, factor);
  if (!key.is_complete) return run_on_one_element(op, arguments, operands, factor);
  if (const auto found = known.find(key)) return *found;
  const auto number = run_on_one_element(op, arguments, operands, factor);
  known.put(key, number);
  return number;
}

}  // namespace vramcast
