// What an operator makes of typical numbers (typical.h): it runs on the CPU with one element for
// each tensor. A comparison is sure if it comes out the same for small, large, negative and zero
// elements.
#pragma once
#include <ATen/Dispatch.h>

#include <array>
#include <cmath>
#include <cstring>
#include <optional>

#include "few_elements.h"

namespace vramcast {

// Larger results of forward and backward passes are not derived: nobody reads them. Larger tensors
// arrive on the host as zeros.
constexpr int64_t max_derived_elements = 64, max_read_elements = 4096;
// A number that is worked out again and again, as in a line search, stays of moderate size. Larger
// ones stay larger: a loss with a large weight falls, too.
constexpr double moderate_number = 1e3;
static double moderate(double number) {
  const auto share = std::abs(number) / moderate_number;
  return share <= 1 ? number : std::copysign(moderate_number * (1 + std::log(share)), number);
}

// Also that it is a part of: a mask where nothing is padded.
static bool is_of_one_number(const at::Tensor& host) {
  const auto& storage = host.storage();
  const auto size = host.itemsize(), num_bytes = storage.nbytes();
  if (num_bytes == 0 || num_bytes > static_cast<size_t>(max_integer_value_bytes)) return false;
  const auto* bytes = static_cast<const char*>(storage.data());
  return std::memcmp(bytes, bytes + size, num_bytes - size) == 0;
}

// What would have written into this host tensor was not run: it holds zeros, and would hold others.
static bool was_left_out(const at::Tensor& tensor, double number) {
  const auto* mapping = number == 0 && tensor.is_floating_point() ? mapping_of(tensor) : nullptr;
  return mapping && !mapping->filled;
}

static Typical typical_of(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return {0};
  const auto* block = block_of(tensor);
  // random numbers are told by how they are spread: what is made of them is not computed
  if (!block || !block->drawn) {
    if (const auto first = first_of_many(block, tensor)) return {*first, true, false};
    // a number of the host is not counted once more
    const auto known = tensor.is_cpu() ? at::Tensor() : known_values(tensor);
    if (const auto& host = tensor.is_cpu() ? tensor : known; host.defined()) {
      const auto number = first_element(host);
      if (was_left_out(tensor, number)) return healthy_now();
      return {number, true, tensor.numel() == 1 || is_of_one_number(host)};
    }
  }
  if (block && (block->typical.derived || !c10::isIntegralType(tensor.scalar_type(), true)))
    return block->typical;
  return {tensor.scalar_type() == at::kBool ? 0. : 1.};
}

// Numbers that a program reads are positive, as losses and norms are. A byte may be part of another
// number, as in a storage that is copied.
static double as_read(const at::Tensor& tensor) {
  const auto typical = typical_of(tensor);
  if (tensor.itemsize() == 1 && c10::isIntegralType(tensor.scalar_type(), true))
    return std::clamp(typical.number, 0., 127.);
  return typical.sure || !c10::isFloatingType(tensor.scalar_type()) ? typical.number
                                                                    : std::abs(typical.number);
}

// Of the whole storage; of a part of it: what the rest contains is not sure any more.
static void set_typical(const at::Tensor& tensor, Typical typical) {
  auto* block = block_of(tensor);
  if (!block) return;
  if (is_whole(tensor))
    block->typical = typical;
  else
    block->typical.sure = false;
}

// The largest number of a row is equal to one of its elements.
static double equal_share(const Operator& info, const Operands& operands,
                          double otherwise) {
  if (operands.size() < 2) return otherwise;
  const auto &a = operands[0].tensor, &b = operands[1].tensor;
  const auto fewer = std::min(a.numel(), b.numel()), more = std::max(a.numel(), b.numel());
  if (!a.is_floating_point() || !b.is_floating_point() || b.dim() == 0 || fewer == more)
    return otherwise;
  const auto share = static_cast<double>(fewer) / more;
  return info.compares_equal ? share : 1 - share;
}

// Clamped numbers are equal to the bound that they passed. Before, they are taken to be normally
// distributed, as wide as what they are clamped to, as in draw_integers.
static std::optional<double> share_at_bound(const Operator& info, c10::ArrayRef<IValue> arguments,
                                            const Typical& typical) {
  if (!(typical.low < typical.high) || arguments.size() != 2 || !arguments[1].isScalar())
    return std::nullopt;
  const auto number = arguments[1].toScalar().toDouble();
  if (number != typical.low && number != typical.high) return std::nullopt;
  const auto below = std::erfc(-number * 2 / (typical.high - typical.low) / std::sqrt(2.)) / 2;
  const auto share = number == typical.low ? below : 1 - below;
  return info.compares_equal ? share : 1 - share;
}

static std::optional<Typical> derive_by_running(const c10::OperatorHandle& op, const Operator& info,
                                                c10::ArrayRef<IValue> arguments,
                                                const at::Tensor& result) {
  Operands operands;
  bool all_sure = true, one_unsure = true;
  const at::Tensor* unsure = nullptr;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto& argument = arguments[i];
    if (argument.isTensorList()) return std::nullopt;
    if (!argument.isTensor() || !argument.toTensor().defined()) continue;
    const auto& tensor = argument.toTensor();
    if (!tensor.is_cuda() && !tensor.is_cpu()) return std::nullopt;
    const bool is_out = info.overwrites && info.writes_to(i);
    operands.push_back({tensor, is_out ? Typical{0, true, true} : typical_of(tensor)});
    if (operands.back().typical.sure) continue;
    all_sure = false;
    if (unsure) one_unsure = one_unsure && same_elements(*unsure, tensor);
    unsure = &tensor;
  }
  if (operands.empty()) return std::nullopt;
  if (info.compares_equal || info.compares_unequal) {
    if (const auto share = share_at_bound(info, arguments, operands[0].typical)) {
      Typical found{static_cast<double>(info.compares_unequal), true};
      found.true_share = *share;
      return found;
    }
  }
  auto number = result_for_one_element(op, info, arguments, operands, 1);
  if (!number) return std::nullopt;
  const auto type = result.scalar_type();
  Typical found{*number, true, all_sure};
  if (type == at::kBool && !all_sure) {
    const bool two_alike = one_unsure && operands.size() == 2 && !operands[0].typical.sure &&
                           !operands[1].typical.sure;
    bool same = one_unsure && (two_alike || c10::isFloatingType(unsure->scalar_type()));
    for (const double factor : {-1., 0., 100.})
      same = same && result_for_one_element(op, info, arguments, operands, factor) == number;
    found.sure = same;
    if (!same) found.true_share = known_true_share(op, info, arguments, operands);
    // elements that have nothing to do with each other are hardly ever equal
    const bool two = operands.size() < 2 || !same_elements(operands[0].tensor, operands[1].tensor);
    if (!same && two && (info.compares_equal || info.compares_unequal)) {
      found.number = info.compares_unequal;
      found.true_share = equal_share(info, operands, found.true_share);
    }
  } else if (info.counts) {
    const auto& input = operands[0];
    const auto count =
        static_cast<double>(input.tensor.numel() / std::max<int64_t>(result.numel(), 1));
    // as nonzero assumes of a mask
    if (input.tensor.scalar_type() == at::kBool && !all_sure)
      found.number = std::floor(count * input.typical.true_share);
    else if (all_sure || !c10::isFloatingType(type))
      found.number *= count;
  }
  const bool is_float = c10::isFloatingType(type) || c10::isComplexType(type);
  if (is_float && !all_sure) {
    if (!std::isfinite(found.number) || found.number == 0) return std::nullopt;
    found.number = moderate(found.number);
  }
  return found;
}

// Operators that move elements or mix them: the result is like the first argument of its kind.
static std::optional<Typical> derive_from_first(const Operator& info,
                                                c10::ArrayRef<IValue> arguments,
                                                const at::Tensor& result) {
  std::optional<Typical> found;
  for (const auto& argument : arguments) {
    for_each_tensor(argument, [&](const at::Tensor& tensor) {
      if ((tensor.scalar_type() == at::kBool) != (result.scalar_type() == at::kBool) ||
          c10::isFloatingType(tensor.scalar_type()) != c10::isFloatingType(result.scalar_type()))
        return;
      const auto typical = typical_of(tensor);
      if (!found)
        found = typical;
      else
        found->sure = found->sure && typical.sure && typical.number == found->number;
    });
  }
  if (!found) return found;
  found->derived = true;
  found->sure = found->sure && info.moves;
  if (!found->sure && found->number == 0 && c10::isFloatingType(result.scalar_type()))
    return std::nullopt;
  return found;
}

// Masks that are added are large, and made of numbers and of other masks.
static bool are_sure(c10::ArrayRef<IValue> arguments) {
  bool maybe = true, sure = true;
  for (const auto& argument : arguments)
    for_each_tensor(argument, [&](const at::Tensor& tensor) {
      const auto* block = tensor.is_cuda() ? block_of(tensor) : nullptr;
      maybe = maybe && (!block || block->values || block->typical.sure);
    });
  if (!maybe) return false;  // without a look at those that are known
  for (const auto& argument : arguments)
    for_each_tensor(argument,
                    [&](const at::Tensor& tensor) { sure = sure && typical_of(tensor).sure; });
  return sure;
}

static bool is_from_0_to_1(const c10::OperatorHandle& op, c10::ArrayRef<IValue> arguments) {
  if (op.schema().name() != "aten::uniform_") return true;
  return arguments[1].toDouble() == 0 && arguments[2].toDouble() == 1;
}

// Boxes are rows of four, a corner and the one across: the second minus the first is a side.
static bool are_sides_of_boxes(c10::ArrayRef<IValue> arguments) {
  const auto &second = arguments[0].toTensor(), &first = arguments[1].toTensor();
  return second.is_cuda() && first.is_cuda() && second.dim() > 0 && second.dim() == first.dim() &&
         second.strides() == first.strides() && second.stride(-1) == 4 &&
         block_of(second) == block_of(first) &&
         second.storage_offset() == first.storage_offset() + 2;
}

// Every box with every other: the sides of what they share.
static bool are_sides_of_overlaps(c10::ArrayRef<IValue> arguments) {
  const auto& tensor = arguments[0].toTensor();
  return arguments[1].isScalar() && arguments[2].isNone() && tensor.dim() == 3 &&
         tensor.size(2) == 2 && arguments[1].toScalar().equal(0);
}

// The first column of a matrix on the host: others than those that select are told by it, without
// the eight operators that look at all of them.
static bool begins_with_one_1(const at::Tensor& host, int64_t dim) {
  if (!c10::isFloatingType(host.scalar_type()) || host.is_neg()) return true;
  double sum = 0;
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, host.scalar_type(), "selects", [&] {
    const auto* numbers = host.const_data_ptr<scalar_t>();
    for (int64_t i = 0; i < host.size(dim) && sum <= 1; ++i) {
      const double number = numbers[i * host.stride(dim)];
      sum += number == 0 || number == 1 ? number : 2;
    }
  });
  return sum == 1;
}

// A product with a matrix of which every column has one 1, and else 0, moves elements.
static bool selects(const at::Tensor& matrix, int64_t dim) {
  if (matrix.numel() > max_read_elements || !matrix.is_cuda()) return false;
  const auto values = known_values(matrix);
  if (!values.defined()) return false;
  if (values.numel() && !begins_with_one_1(values, dim)) return false;
  const BelowSimulation below;
  return at::logical_or(values.eq(0), values.eq(1)).all().item<bool>() &&
         values.sum(dim).eq(1).all().item<bool>();
}

// Of tensors that become one.
static std::optional<Typical> common_typical(const IValue& moved) {
  std::optional<Typical> found;
  bool are_alike = true;
  for_each_tensor(moved, [&](const at::Tensor& tensor) {
    if (tensor.numel() == 0) return;
    const auto one = typical_of(tensor);
    are_alike = are_alike && (!found || found->is_like(one));
    found = one;
  });
  return are_alike ? found : std::nullopt;
}

static std::optional<Typical> spread_of(const c10::OperatorHandle& op, const Operator& info,
                                        c10::ArrayRef<IValue> arguments) {
  auto found = healthy_now();
  if (info.gives_shares && is_from_0_to_1(op, arguments)) {
    found.is_share = true;
  } else if (info.subtracts && are_sides_of_boxes(arguments)) {
    found.is_positive = true;
  } else if (info.clamps && arguments[1].isScalar() && arguments[2].isScalar()) {
    found.low = arguments[1].toScalar().toDouble();
    found.high = arguments[2].toScalar().toDouble();
    if (found.low >= found.high) found = {found.high, true, true};
  } else if (info.clamps && are_sides_of_overlaps(arguments)) {
    found.is_overlap = true;
  } else if (info.keeps_zeros) {
    found.is_overlap = typical_of(arguments[0].toTensor()).is_overlap;
  } else if (info.moves) {
    found = common_typical(arguments[0]).value_or(found);
  } else if (info.is_gemm && info.first_matrix == 0 && arguments[1].isTensor()) {
    const auto &first = arguments[0].toTensor(), &second = arguments[1].toTensor();
    if (selects(second, -2)) found = typical_of(first);
    else if (selects(first, -1)) found = typical_of(second);
  }
  return found.has_spread() || found.sure ? std::optional(found) : std::nullopt;
}

static std::optional<Typical> derive(const c10::OperatorHandle& op, const Operator& info,
                                     c10::ArrayRef<IValue> arguments, const at::Tensor& result) {
  if (result.numel() > max_derived_elements && c10::isFloatingType(result.scalar_type())) {
    if (const auto spread = spread_of(op, info, arguments)) return spread;
  }
  if (info.uninitialised || info.samples) return std::nullopt;
  if (info.fills) {
    if (arguments.size() < 2) return Typical{0, true, true};
    if (arguments[1].isTensor()) return typical_of(arguments[1].toTensor());
    const auto number = arguments[1].toScalar();
    if (number.isComplex()) return std::nullopt;
    return Typical{number.toDouble(), true, true};
  }
  const bool is_bool = result.scalar_type() == at::kBool;
  if (!c10::isIntegralType(result.scalar_type(), true) && result.numel() > max_derived_elements &&
      !is_update() && !(info.pointwise && are_sure(arguments)))
    return std::nullopt;
  if (info.pointwise || info.folds) return derive_by_running(op, info, arguments, result);
  if (is_bool || is_update()) return derive_from_first(info, arguments, result);
  return std::nullopt;
}

// Where the contents are not computed. Tensors written to lose what was known of them.
static void assume_values(const c10::OperatorHandle& op, const Operator& info,
                          c10::ArrayRef<IValue> arguments, const std::vector<IValue>& results) {
  const bool is_view = !results.empty() && info.result_aliases[0] >= 0 && !info.result_writes[0];
  if (is_view) return;
  const bool has_result =
      !results.empty() && results[0].isTensor() && results[0].toTensor().defined();
  const auto typical =
      has_result ? derive(op, info, arguments, results[0].toTensor()) : std::nullopt;
  for (const int i : info.written_arguments)
    for_each_tensor(arguments[i], [](const at::Tensor& tensor) { forget_values(tensor); });
  if (typical) set_typical(results[0].toTensor(), *typical);
}

// Matrices have an inverse, a root or a decomposition.
static void report_no_error(const Operator& info, const std::vector<IValue>& results) {
  const auto& tensor = results[info.info_result].toTensor();
  set_typical(tensor, {0, true, true});
}

// Written arguments share their host bytes with the values just computed.
static void keep_values(const Operator& info, const std::vector<IValue>& results, HostCall& call) {
  for (size_t i = 0; i < std::min(results.size(), call.values.size()); ++i) {
    if (info.result_aliases.size() > i && info.result_aliases[i] >= 0) continue;
    if (results[i].isTensor() && results[i].toTensor().defined() && call.values[i].isTensor()) {
      const auto& tensor = results[i].toTensor();
      const auto host = std::exchange(call.values[i], IValue()).toTensor();
      // the CPU's kernel may want a buffer that the GPU's does not fill, as log_sigmoid's
      const bool is_alike = host.defined() && host.sizes() == tensor.sizes();
      if (is_alike && (!call.drawn || i == info.picked_result)) set_computed(tensor, host);
      if (call.guessed) note_guess(tensor);
    } else if (results[i].isTensorList() && call.values[i].isTensorList()) {
      const auto tensors = results[i].toTensorVector(), hosts = call.values[i].toTensorVector();
      for (size_t j = 0; j < tensors.size() && j < hosts.size(); ++j) {
        if (!may_carry_values(tensors[j])) continue;
        set_values(tensors[j], hosts[j]);
        if (call.guessed) note_guess(tensors[j]);
      }
    }
  }
}

static void carry_values(const c10::OperatorHandle& op, const Operator& info,
                         c10::ArrayRef<IValue> arguments, const std::vector<IValue>& results) {
  if (info.info_result >= 0) report_no_error(info, results);
  for (const int i : info.written_arguments) for_each_tensor(arguments[i], &note_write);
  const auto draw =
      info.draws == Draws::nothing ? std::nullopt : next_draw(info.draws, arguments);
  if (!worth_computing(info, arguments, results)) {
    const auto ranks = ranks_of(op, info, arguments, results);
    auto later = info.is_deferred ? deferred(op, info, arguments, results[0].toTensor()) : nullptr;
    const bool guessed = later && is_any_guess(arguments);
    assume_values(op, info, arguments, results);
    if (ranks.defined()) return set_ranked(results[0].toTensor(), ranks);
    return later ? set_deferred(results[0].toTensor(), std::move(later), guessed) : void();
  }
  if (only_views(info)) return;  // the storage has them
  const bool is_new = info.is_deferred && info.written_arguments.empty();
  if (is_new && defer_integers(op, info, arguments, results[0].toTensor())) return;
  // fill_(), random_() and out= overwrite a tensor whose contents are not known yet
  if (info.samples || info.overwrites) {
    for (const int i : info.written_arguments)
      for_each_tensor(arguments[i],
                      [&](const at::Tensor& tensor) { begin_values(tensor, info.samples); });
  }
  if (info.scatters) {
    for (const int i : info.written_arguments) for_each_tensor(arguments[i], &begin_uniform);
  }
  HostCall call;
  const bool computed = compute_values(op, info, arguments, draw, call);
  if (computed) {
    keep_values(info, results, call);
    if (call.guessed)
      for (const int i : info.written_arguments) for_each_tensor(arguments[i], &note_guess);
  }
  if (!computed || (call.drawn && info.picked_result > 0))
    assume_values(op, info, arguments, results);
  if (const auto spread = info.samples ? spread_of(op, info, arguments) : std::nullopt)
    set_typical(results[0].toTensor(), *spread);
}

}  // namespace vramcast
