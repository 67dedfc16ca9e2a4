// Result shapes of frequent operators that have no Meta kernel in C++ (torch has them in Python,
// which costs half a second to load and a hundred microseconds a call): each is computed by an
// operator with the same shape and type that does have one.
#pragma once
#include <ATen/core/stack.h>
#include <ATen/ops/add.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/mul.h>

#include <functional>
#include <string>
#include <unordered_map>

namespace vramcast {

using Arguments = std::vector<c10::IValue>;
using ShapeRule = std::function<at::Tensor(const Arguments&)>;

inline std::vector<int64_t> optional_dims(const c10::IValue& value) {
  if (value.isInt()) return {value.toInt()};
  return value.isIntList() ? value.toIntVector() : std::vector<int64_t>{};
}

inline const ShapeRule* find_shape_rule(const std::string& name) {
  const auto like = [](size_t i) {
    return [i](const Arguments& a) { return at::empty_like(a[i].toTensor()); };
  };
  const auto dense = [](const Arguments& a) {
    return at::empty(a[0].toTensor().sizes(), a[0].toTensor().options());
  };
  const auto both = [](size_t i, size_t j) {
    return [i, j](const Arguments& a) { return at::add(a[i].toTensor(), a[j].toTensor()); };
  };
  const auto whole = [](const Arguments& a) {
    return at::amax(a[0].toTensor(), at::IntArrayRef{}, false);
  };
  const auto moments = [](const Arguments& a) {
    return at::mean(a[0].toTensor(), at::OptionalIntArrayRef(optional_dims(a[1])), a[3].toBool());
  };
  static const std::unordered_map<std::string, ShapeRule> table = {
      {"aten::relu", like(0)},
      {"aten::hardtanh", like(0)},
      {"aten::hardswish", like(0)},
      {"aten::isnan", [](const Arguments& a) { return at::eq(a[0].toTensor(), a[0].toTensor()); }},
      {"aten::where.self",
       [](const Arguments& a) {
         // the order of the operands decides the strides
         return at::mul(a[0].toTensor(), at::add(a[1].toTensor(), a[2].toTensor()));
       }},
      {"aten::rsub.Tensor", both(0, 1)},
      {"aten::floor_divide", both(0, 1)},
      {"aten::native_dropout_backward", like(0)},
      {"aten::mse_loss_backward", both(1, 2)},
      {"aten::log_sigmoid_backward", like(1)},
      {"aten::multi_margin_loss_backward", like(1)},
      {"aten::multilabel_margin_loss_backward", like(1)},
      {"aten::_dirichlet_grad", like(0)},
      {"aten::hardtanh_backward", like(1)},
      {"aten::hardswish_backward", like(1)},
      {"aten::_sample_dirichlet", dense},
      {"aten::_standard_gamma_grad", dense},
      {"aten::roll", dense},
      {"aten::flip", like(0)},
      {"aten::max", whole},
      {"aten::min", whole},
      {"aten::var.correction", moments},
      {"aten::std.correction", moments},
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
