// Result shapes of frequent operators that have no Meta kernel in C++ (torch has them in Python,
// which costs a second to load and a hundred microseconds a call): each is computed by an operator
// with the same shape and type that does have one.
#pragma once
#include <ATen/ExpandUtils.h>
#include <ATen/core/stack.h>
#include <ATen/ops/add.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/mean.h>
#include <ATen/core/Reduction.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/neg.h>

#include <functional>
#include <string>
#include <unordered_map>

namespace vramcast {

using Arguments = std::vector<c10::IValue>;
struct Shapes {
  Shapes(at::Tensor one) : tensors{std::move(one)} {}
  Shapes(at::Tensor one, at::Tensor other) : tensors{std::move(one), std::move(other)} {}
  std::vector<at::Tensor> tensors;
};
using ShapeRule = std::function<Shapes(const Arguments&)>;

inline std::vector<int64_t> optional_dims(const c10::IValue& value) {
  if (value.isInt()) return {value.toInt()};
  return value.isIntList() ? value.toIntVector() : std::vector<int64_t>{};
}

inline std::vector<int64_t> distances(const at::Tensor& one, const at::Tensor& other) {
  const auto batch = [](const at::Tensor& t) { return t.sizes().slice(0, t.dim() - 2); };
  auto sizes = at::infer_size(batch(one), batch(other));
  sizes.insert(sizes.end(), {one.size(-2), other.size(-2)});
  return sizes;
}

inline Shapes losses2d(const Arguments& a) {
  const auto& options = a[0].toTensor().options();
  const bool is_each = a[3].toInt() == at::Reduction::None;
  const auto sizes = is_each ? a[1].toTensor().sizes() : at::IntArrayRef{};
  return {at::empty(sizes, options), at::empty({}, options)};
}

// As the last dimensions of one become those that were asked for.
inline at::Tensor pooled(const at::Tensor& x, at::IntArrayRef last) {
  auto sizes = x.sizes().vec();
  std::copy(last.begin(), last.end(), sizes.end() - last.size());
  return at::empty(sizes, x.options().memory_format(x.suggest_memory_format()));
}

inline at::Tensor places(const at::Tensor& of, bool are_short) {
  return at::empty(of.sizes(), of.options().dtype(are_short ? at::kInt : at::kLong));
}

inline const ShapeRule* find_shape_rule(const std::string& name) {
  const auto like = [](size_t i) {
    return [i](const Arguments& a) { return at::empty_like(a[i].toTensor()); };
  };
  const auto dense = [](size_t i) {
    return [i](const Arguments& a) {
      return at::empty(a[i].toTensor().sizes(), a[i].toTensor().options());
    };
  };
  // As torch's TensorIterator makes it: where all dimensions but two have one element, a result
  // has the strides of a contiguous tensor even if the operand has those of channels_last.
  const auto each = [](const Arguments& a) { return at::neg(a[0].toTensor()); };
  const auto both = [](size_t i, size_t j) {
    return [i, j](const Arguments& a) { return at::add(a[i].toTensor(), a[j].toTensor()); };
  };
  const auto compared = [](size_t i, size_t j) {
    return [i, j](const Arguments& a) { return at::eq(a[i].toTensor(), a[j].toTensor()); };
  };
  const auto whole = [](const Arguments& a) {
    return at::amax(a[0].toTensor(), at::IntArrayRef{}, false);
  };
  const auto moments = [](const Arguments& a) {
    return at::mean(a[0].toTensor(), at::OptionalIntArrayRef(optional_dims(a[1])), a[3].toBool());
  };
  const auto two = [](const ShapeRule& one, const ShapeRule& other) {
    return [=](const Arguments& a) { return Shapes(one(a).tensors[0], other(a).tensors[0]); };
  };
  // with out=, which is the last; in place it may be a view with strides of its own
  const auto into = [](const ShapeRule& rule) {
    return [rule](const Arguments& a) {
      const auto& out = a.back().toTensor();
      auto made = rule(a);
      return out.sizes() == made.tensors[0].sizes() ? Shapes(out) : made;
    };
  };
  static const std::unordered_map<std::string, ShapeRule> table = {
      {"aten::relu", each},
      {"aten::hardtanh", like(0)},
      {"aten::hardswish", each},
      {"aten::isnan", compared(0, 0)},
      {"aten::logical_not.out", into(compared(0, 0))},
      {"aten::logical_and.out", into(compared(0, 1))},
      {"aten::logical_or.out", into(compared(0, 1))},
      {"aten::logical_xor.out", into(compared(0, 1))},
      {"aten::abs.out", into(each)},
      {"aten::nan_to_num.out", into(each)},
      {"aten::where.self",
       [](const Arguments& a) {
         // the order of the operands decides the strides
         return at::mul(a[0].toTensor(), at::add(a[1].toTensor(), a[2].toTensor()));
       }},
      {"aten::rsub.Tensor", both(0, 1)},
      {"aten::floor_divide", both(0, 1)},
      {"aten::native_dropout_backward", like(0)},
      {"aten::mse_loss_backward", dense(1)},
      {"aten::log_sigmoid_backward", like(0)},
      {"aten::multi_margin_loss_backward", like(1)},
      {"aten::multilabel_margin_loss_backward", like(1)},
      {"aten::_dirichlet_grad", like(0)},
      {"aten::binary_cross_entropy_backward", like(1)},
      {"aten::glu_backward", dense(1)},
      {"aten::_prelu_kernel", like(0)},
      {"aten::_prelu_kernel_backward", two(like(0), like(0))},
      {"aten::_weight_norm_interface", two(both(0, 1), like(1))},
      {"aten::_weight_norm_interface_backward", two(like(1), like(2))},
      {"aten::nll_loss2d_forward", losses2d},
      {"aten::nll_loss2d_backward", dense(1)},
      {"aten::_adaptive_avg_pool2d",
       [](const Arguments& a) { return pooled(a[0].toTensor(), a[1].toIntVector()); }},
      {"aten::_adaptive_avg_pool2d_backward",
       [](const Arguments& a) { return pooled(a[1].toTensor(), {}); }},
      {"aten::_cdist_forward",
       [](const Arguments& a) {
         const auto &one = a[0].toTensor(), &other = a[1].toTensor();
         return at::empty(distances(one, other), one.options());
       }},
      {"aten::searchsorted.Tensor",
       [](const Arguments& a) { return places(a[1].toTensor(), a[2].toBool()); }},
      {"aten::bucketize.Tensor",
       [](const Arguments& a) { return places(a[0].toTensor(), a[2].toBool()); }},
      {"aten::multinomial",
       [](const Arguments& a) {
         auto sizes = a[0].toTensor().sizes().vec();
         sizes.back() = a[1].toInt();
         return at::empty(sizes, a[0].toTensor().options().dtype(at::kLong));
       }},
      {"aten::unfold_backward",
       [](const Arguments& a) {
         return at::empty(a[1].toIntVector(), a[0].toTensor().options());
       }},
      {"aten::hardtanh_backward", both(0, 1)},
      {"aten::hardswish_backward", both(0, 1)},
      {"aten::_sample_dirichlet", dense(0)},
      {"aten::_standard_gamma_grad", dense(0)},
      {"aten::roll", dense(0)},
      {"aten::flip", like(0)},
      {"aten::max", whole},
      {"aten::min", whole},
      {"aten::var.correction", moments},
      {"aten::std.correction", moments},
      {"aten::var_mean.correction", two(moments, moments)},
      {"aten::std_mean.correction", two(moments, moments)},
      {"aten::index_select",
       [](const Arguments& a) {
         auto sizes = a[0].toTensor().sizes().vec();
         if (!sizes.empty())
           sizes[(a[1].toInt() + sizes.size()) % sizes.size()] = a[2].toTensor().numel();
         return at::empty(sizes, a[0].toTensor().options());
       }},
  };
  const auto found = table.find(name);
  return found == table.end() ? nullptr : &found->second;
}

}  // namespace vramcast
