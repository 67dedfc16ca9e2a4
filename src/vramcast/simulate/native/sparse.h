// Operators on sparse and nested tensors that have a CUDA kernel of their own; host_code.h has the
// others.
#pragma once
#include <ATen/SparseCsrTensorUtils.h>
#include <ATen/SparseTensorImpl.h>
#include <ATen/native/SparseTensorUtils.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/_unique2.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include "host_code.h"

namespace at::native {
// declared in headers of torch that are not installed
DECLARE_DISPATCH(Tensor (*)(const Tensor&, IntArrayRef), flatten_indices_stub)
DECLARE_DISPATCH(void (*)(Tensor&, const Tensor&, const Tensor&), mul_sparse_sparse_out_stub)
DECLARE_DISPATCH(void (*)(Tensor&, const Tensor&, const Tensor&, const std::optional<Tensor>&),
                 sparse_mask_intersection_out_stub)
DECLARE_DISPATCH(void (*)(Tensor&, const Tensor&, const Tensor&, const std::optional<Tensor>&,
                          bool),
                 sparse_mask_projection_out_stub)
}  // namespace at::native

namespace vramcast {

static at::Tensor flatten_indices(const at::Tensor& indices, at::IntArrayRef sizes) {
  auto positions = at::empty({indices.size(1)}, indices.options().dtype(at::kLong));
  if (const auto host = known_values(indices); host.defined()) {
    BelowSimulation below;
    auto sum = host.select(0, 0).clone();
    for (int64_t dim = 1; dim < indices.size(0); ++dim)
      sum = sum.mul(sizes[dim]).add(host.select(0, dim));
    if (may_carry_values(positions)) set_values(positions, sum);
  }
  return positions;
}

static void become(at::Tensor& out, const at::Tensor& like, const at::Tensor& indices,
                   const at::Tensor& values, bool is_coalesced) {
  at::sparse::get_sparse_impl(out)->raw_resize_(like.sparse_dim(), like.dense_dim(), like.sizes());
  at::sparse::alias_into_sparse(out, indices, values);
  out._coalesced_(is_coalesced);
}

// The distinct positions in their order, where they are known.
static at::Tensor distinct(const at::Tensor& positions) {
  const auto host = known_values(positions);
  if (!host.defined()) return host;
  BelowSimulation below;
  return std::get<0>(at::_unique2(host));
}

// thrust sorts the positions by merging, which takes a second copy of both lists, and then selects
// those that differ from the one before. Recorded for 100 to 700,000 entries.
static at::Tensor coalesce(const at::Tensor& self) {
  const auto num_entries = self._nnz();
  if (self.is_coalesced()) return self;
  if (num_entries < 2) return self.clone()._coalesced_(true);
  auto positions = at::sparse::flatten_indices(self._indices(), self.sizes(), true);
  const auto found = distinct(positions);
  const auto length = found.defined() ? found.numel() : num_entries;
  const auto origins = at::empty({num_entries}, self._indices().options());
  const auto starts = at::empty({num_entries}, self._indices().options());
  {
    const auto rounded = [](int64_t num_bytes) { return (num_bytes + 255) / 256 * 256; };
    const auto tiles = num_entries / 4096 + 2, parts = num_entries / 14336 + 33;
    device_allocator.allocate(2 * rounded(8 * num_entries) + rounded(8 * tiles) + 255);
    device_allocator.allocate(rounded(24 * parts) + 511);
  }
  forget_values(positions);
  positions.resize_({1, length});
  if (found.defined()) set_values(positions, found);  // rows and columns follow from them
  auto sizes = self._values().sizes().vec();
  sizes[0] = length;
  const auto values = at::empty(sizes, self._values().options());
  auto indices = positions;
  if (self.sparse_dim() > 1) {
    indices = at::empty({self.sparse_dim(), length}, origins.options());
    for (int64_t dim = self.sparse_dim() - 1; dim >= 0; --dim) {
      auto row = indices.narrow(0, dim, 1);
      row.copy_(positions);
      positions.divide_(self.size(dim), "trunc");
      row.add_(positions, -self.size(dim));
    }
  }
  return at::_sparse_coo_tensor_unsafe(indices, values, self.sizes())._coalesced_(true);
}

static at::Tensor& add_to_dense(at::Tensor& out, const at::Tensor& dense, const at::Tensor& sparse,
                                const at::Scalar& alpha) {
  if (!out.is_same(dense)) {
    out.resize_as_(dense);
    out.copy_(dense);
  }
  if (sparse._nnz() == 0 || sparse.is_coalesced()) return out;
  const auto rows = sparse.sizes().slice(0, sparse.sparse_dim());
  const auto positions = at::sparse::flatten_indices(sparse._indices(), sparse.sizes());
  auto view = out.view({c10::multiply_integers(rows), -1});
  view.index_add_(0, positions, sparse._values().reshape({sparse._nnz(), -1}), alpha);
  return out;
}

static at::Tensor& add_out(const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha,
                           at::Tensor& out) {
  if (!self.is_sparse()) return add_to_dense(out, self, other, alpha);
  const auto scaled = alpha.equal(1) ? other._values() : other._values().mul(alpha);
  const auto indices = at::cat({self._indices(), other._indices()}, 1);
  const auto values = at::cat({self._values(), scaled}, 0);
  become(out, self, indices, values, false);
  if (out._nnz() <= out.numel()) return out;
  const auto together = out.coalesce();
  become(out, self, together._indices(), together._values(), true);
  return out;
}

static at::Tensor& mul_out(const at::Tensor& self, const at::Tensor& other, at::Tensor& out) {
  const auto& sparse = self.is_sparse() ? self : other;
  const auto& factor = self.is_sparse() ? other : self;
  auto values = sparse._values();
  if (factor.dim() == 0) {
    values = values.mul(factor.is_sparse() ? factor._values() : factor);
  } else if (factor.is_sparse()) {
    const auto one = self.coalesce(), two = other.coalesce();
    const auto& fewer = one._nnz() < two._nnz() ? one : two;
    become(out, fewer, fewer._indices().clone(), at::empty_like(fewer._values()), true);
    return out;
  } else {
    const auto positions = at::sparse::flatten_indices(sparse._indices(), sparse.sizes());
    const auto rows = c10::multiply_integers(sparse.sizes().slice(0, sparse.sparse_dim()));
    const auto wide = factor.expand(sparse.sizes()).reshape({rows, -1});
    values = values.mul(wide.index_select(0, positions).view_as(values));
  }
  become(out, sparse, sparse._indices().clone(), values, sparse.is_coalesced());
  return out;
}

static void take_entries(at::Tensor& out, const at::Tensor& self, const at::Tensor& entries) {
  auto sizes = self._values().sizes().vec();
  sizes[0] = entries._nnz();
  become(out, self, entries._indices().clone(), at::empty(sizes, self._values().options()),
         entries.is_coalesced());
}
// Those that the mask has. Both have the others too, as indices are not compared.
static void intersect(at::Tensor& out, const at::Tensor& self, const at::Tensor& mask,
                      const std::optional<at::Tensor>&) {
  take_entries(out, self, mask);
}
// Every entry of the first, with what the other has there.
static void project(at::Tensor& out, const at::Tensor& self, const at::Tensor&,
                    const std::optional<at::Tensor>&, bool) {
  take_entries(out, self, self);
}
static void multiply_entries(at::Tensor& out, const at::Tensor& self, const at::Tensor& other) {
  take_entries(out, self, self._nnz() < other._nnz() ? self : other);
}

inline void install_sparse_stubs() {
  at::native::flatten_indices_stub.set_cuda_dispatch_ptr(&flatten_indices);
  at::native::mul_sparse_sparse_out_stub.set_cuda_dispatch_ptr(&multiply_entries);
  at::native::sparse_mask_intersection_out_stub.set_cuda_dispatch_ptr(&intersect);
  at::native::sparse_mask_projection_out_stub.set_cuda_dispatch_ptr(&project);
}

// A product of sparse matrices: as many entries as if those of the second were spread evenly.
static at::Tensor multiply_sparse(const at::Tensor& self, const at::Tensor& other) {
  const auto one = self.coalesce(), two = other.coalesce();
  const auto rows = self.size(0), columns = other.size(1);
  const auto length =
      std::min(rows * columns, one._nnz() * std::max<int64_t>(1, two._nnz() / self.size(1)));
  {
    const auto scratch = device_allocator.allocate(16 * length + 1024);
  }
  return at::_sparse_coo_tensor_unsafe(at::empty({2, length}, one._indices().options()),
                                       at::empty({length}, one._values().options()),
                                       {rows, columns})
      ._coalesced_(true);
}

static at::Tensor select_rows(const at::Tensor& self, int64_t dim, const at::Tensor& index) {
  auto sizes = self.sizes().vec();
  const auto length = self._nnz() * index.numel() / std::max<int64_t>(1, sizes[dim]);
  sizes[dim] = index.numel();
  auto value_sizes = self._values().sizes().vec();
  value_sizes[0] = length;
  return at::_sparse_coo_tensor_unsafe(
      at::empty({self.sparse_dim(), length}, self._indices().options()),
      at::empty(value_sizes, self._values().options()), sizes);
}

// cuSPARSE wants compressed rows and matrices stored by columns.
static void multiply_compressed(at::Tensor& out, const at::Tensor& self, const at::Tensor& dense,
                                const at::Scalar& beta) {
  if (beta.equal(0))
    out.zero_();
  else if (!out.is_same(self))
    out.copy_(self);
  const bool by_columns = out.stride(0) == 1 && out.stride(1) == out.size(0);
  const auto columns = by_columns ? out : out.t().clone(at::MemoryFormat::Contiguous).t();
  if (dense.stride(0) != 1 && dense.stride(1) != 1) const auto copy = dense.contiguous();
  {
    const auto scratch = device_allocator.allocate(1024);
  }
  if (!by_columns) out.copy_(columns);
}

static at::Tensor& addmm_out(const at::Tensor& self, const at::Tensor& sparse,
                             const at::Tensor& dense, const at::Scalar& beta, const at::Scalar&,
                             at::Tensor& out) {
  const auto wide = self.expand({sparse.size(0), dense.size(1)});
  out.resize_({sparse.size(0), dense.size(1)});
  const auto together = sparse.coalesce();
  const auto type = together._indices().options().dtype(at::kInt);
  const auto rows = at::empty({sparse.size(0) + 1}, type);
  {
    const auto row_numbers = together._indices().select(0, 0).to(at::kInt);
  }
  const auto columns = together._indices().select(0, 1).to(at::kInt);
  multiply_compressed(out, wide, dense, beta);
  return out;
}

static at::Tensor addmm(const at::Tensor& self, const at::Tensor& sparse, const at::Tensor& dense,
                        const at::Scalar& beta, const at::Scalar& alpha) {
  auto out = at::empty({0}, self.options());
  return addmm_out(self, sparse, dense, beta, alpha, out);
}

static at::Tensor& addmm_inplace(at::Tensor& self, const at::Tensor& sparse,
                                 const at::Tensor& dense, const at::Scalar& beta,
                                 const at::Scalar& alpha) {
  return addmm_out(self, sparse, dense, beta, alpha, self);
}

static at::Tensor& bmm_out(const at::Tensor& sparse, const at::Tensor& dense, at::Tensor& out) {
  out.resize_({sparse.size(0), dense.size(2), sparse.size(1)});
  out.transpose_(1, 2);
  const auto together = sparse.coalesce();
  const auto indices = together._indices().to(at::kInt);
  {
    const auto scratch = device_allocator.allocate(1024);
  }
  return out;
}
static at::Tensor bmm(const at::Tensor& sparse, const at::Tensor& dense) {
  auto out = at::empty({0}, dense.options());
  return bmm_out(sparse, dense, out);
}

static at::Tensor& compressed_addmm_out(const at::Tensor& self, const at::Tensor& one,
                                        const at::Tensor& other, const at::Scalar& beta,
                                        const at::Scalar&, at::Tensor& out) {
  if (!out.is_same(self)) {
    out.resize_({one.size(0), other.size(1)});
    if (beta.equal(0))
      out.zero_();
    else
      out.copy_(self.expand(out.sizes()));
  }
  {
    const auto scratch = device_allocator.allocate(1024);
  }
  return out;
}

static at::Tensor& compressed_addmv_out(const at::Tensor& self, const at::Tensor&,
                                        const at::Tensor&, const at::Scalar&, const at::Scalar&,
                                        at::Tensor& out) {
  if (!out.is_same(self)) out.resize_as_(self).copy_(self);
  {
    const auto scratch = device_allocator.allocate(1024);
  }
  return out;
}

// A product of which only the entries of `self` are wanted.
static at::Tensor& sampled_addmm_out(const at::Tensor& self, const at::Tensor&, const at::Tensor&,
                                     const at::Scalar&, const at::Scalar&, at::Tensor& out) {
  if (!out.is_same(self)) out.resize_as_sparse_(self).copy_(self);
  {
    const auto scratch = device_allocator.allocate(1024);
  }
  return out;
}
static at::Tensor sampled_addmm(const at::Tensor& self, const at::Tensor& one,
                                const at::Tensor& other, const at::Scalar& beta,
                                const at::Scalar& alpha) {
  auto out = at::empty({0, 0}, self.options());
  return sampled_addmm_out(self, one, other, beta, alpha, out);
}

// The gradient of a sum spreads over the entries of the input.
static at::Tensor sum_backward(const at::Tensor& grad, const at::Tensor& self, at::IntArrayRef) {
  return at::_sparse_coo_tensor_unsafe(self._indices().clone(), at::empty_like(self._values()),
                                       self.sizes())
      ._coalesced_(self.is_coalesced());
}

static at::Tensor softmax(const at::Tensor& self, int64_t, bool) {
  const auto together = self.coalesce();
  return at::_sparse_coo_tensor_unsafe(together._indices().clone(),
                                       at::empty_like(together._values()), self.sizes())
      ._coalesced_(true);
}
static at::Tensor softmax_backward(const at::Tensor& grad, const at::Tensor& output, int64_t dim,
                                   const at::Tensor&) {
  return softmax(grad, dim, false);
}

// As long as the longest; the kernel gets offsets and sizes in one tensor.
static at::Tensor to_padded(const at::Tensor& self, double, at::OptionalIntArrayRef output_size) {
  const auto parts = self._nested_tensor_size();
  std::vector<int64_t> sizes = {parts.size(0)};
  {
    BelowSimulation below;
    for (int64_t dim = 0; dim < parts.size(1); ++dim)
      sizes.push_back(parts.select(1, dim).max().item<int64_t>());
  }
  if (output_size) sizes = output_size->vec();
  const auto metadata = at::empty({parts.numel() + parts.size(0) + 1},
                                  self.options().layout(c10::kStrided).dtype(at::kInt));
  return at::empty(sizes, self.options().layout(c10::kStrided));
}

// Not when the library is loaded: a build of torch with CUDA would warn of what they replace.
static void register_sparse_kernels() {
  static torch::Library nested(torch::Library::IMPL, "aten", DispatchKey::NestedTensorCUDA,
                               __FILE__, __LINE__);
  nested.impl("to_padded_tensor", &to_padded);
  static torch::Library sparse(torch::Library::IMPL, "aten", DispatchKey::SparseCUDA, __FILE__,
                               __LINE__);
  sparse.impl("_coalesce", &coalesce);
  sparse.impl("add.out", &add_out);
  sparse.impl("mul.out", &mul_out);
  sparse.impl("_sparse_sparse_matmul", &multiply_sparse);
  sparse.impl("index_select", &select_rows);
  sparse.impl("addmm", &addmm);
  sparse.impl("addmm_", &addmm_inplace);
  sparse.impl("addmm.out", &addmm_out);
  sparse.impl("bmm", &bmm);
  sparse.impl("bmm.out", &bmm_out);
  sparse.impl("_sparse_sum_backward", &sum_backward);
  sparse.impl("_sparse_softmax", &softmax);
  sparse.impl("_sparse_log_softmax", &softmax);
  sparse.impl("_sparse_softmax_backward_data", &softmax_backward);
  sparse.impl("_sparse_log_softmax_backward_data", &softmax_backward);
  static torch::Library compressed(torch::Library::IMPL, "aten", DispatchKey::SparseCsrCUDA,
                                   __FILE__, __LINE__);
  compressed.impl("addmm.out", &compressed_addmm_out);
  compressed.impl("addmv.out", &compressed_addmv_out);
  compressed.impl("sparse_sampled_addmm", &sampled_addmm);
  compressed.impl("sparse_sampled_addmm.out", &sampled_addmm_out);
}

}  // namespace vramcast
