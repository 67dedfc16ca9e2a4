// Random numbers as torch's CUDA kernels draw them: by seed, thread and how many were drawn before
// (ATen/native/cuda/DistributionTemplates.h). What a program draws is the same in every run if it
// gives a seed, or if nobody does.
#pragma once
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <optional>

#include "generator.h"
#include "operators.h"

namespace vramcast {

using Words = std::array<uint32_t, 4>;

// What at::Philox4_32 gives first, in a quarter of its time.
static Words philox(uint64_t seed, uint64_t thread, uint64_t offset) {
  uint32_t a = offset, b = offset >> 32, c = thread, d = thread >> 32;
  uint32_t first = seed, second = seed >> 32;
  for (int round = 0; round < 10; ++round) {
    const uint64_t left = uint64_t{0xD2511F53} * a, right = uint64_t{0xCD9E8D57} * c;
    a = static_cast<uint32_t>(right >> 32) ^ b ^ first;
    b = static_cast<uint32_t>(right);
    c = static_cast<uint32_t>(left >> 32) ^ d ^ second;
    d = static_cast<uint32_t>(left);
    first += 0x9E3779B9;
    second += 0xBB67AE85;
  }
  return {a, b, c, d};
}

// One kernel's numbers. Every thread makes `per_thread` at once; they are of elements that are
// `num_threads` apart.
struct Draw {
  uint64_t seed, offset;
  int64_t num_threads, per_thread;
};

// What would be drawn next.
static Draw next_of(int64_t count, int64_t per_thread, const GpuRandom& random = gpu_random) {
  constexpr int64_t block = 256;
  const int64_t most = static_cast<int64_t>(gpu.num_multiprocessors) *
                       (gpu.max_threads_per_multiprocessor / block) * block;
  const auto num_threads = std::min(ceil_div(count, block) * block, most);
  return {random.seed, random.offset, num_threads, per_thread};
}

static Draw draw_elements(int64_t count, int64_t per_thread, GpuRandom& random = gpu_random) {
  auto draw = next_of(count, per_thread, random);
  draw.offset = random.take(ceil_div(count, draw.num_threads * per_thread) * 4);
  return draw;
}

// random_(from, to): how many whole numbers it chooses from, and the first of them.
struct WholeNumbers {
  uint64_t count;
  int64_t first;
  bool of_two_words() const { return count >= 1ull << 28; }
};

static std::optional<WholeNumbers> whole_numbers(Draws draws, c10::ArrayRef<IValue> arguments) {
  const auto type = arguments[0].toTensor().scalar_type();
  if (!c10::isIntegralType(type, true)) return std::nullopt;
  if (draws == Draws::whole_from && arguments[2].isInt()) {
    const auto first = arguments[1].toInt();
    return WholeNumbers{static_cast<uint64_t>(arguments[2].toInt()) - first, first};
  }
  if (draws == Draws::whole_to) return WholeNumbers{static_cast<uint64_t>(arguments[1].toInt()), 0};
  if (draws == Draws::whole && type == at::kLong) return WholeNumbers{1ull << 63, 0};
  return std::nullopt;
}

// The generator that the program gave, or the GPU's own.
static GpuRandom& drawn_from(c10::ArrayRef<IValue> arguments) {
  for (const auto& argument : arguments)
    if (argument.isGenerator() && argument.toGenerator().device().is_cuda())
      return *static_cast<GpuGenerator*>(argument.toGenerator().unsafeGetGeneratorImpl())->random;
  return gpu_random;
}

// multinomial(probabilities, count, with_replacement): one exponential number for each probability
// but where several are chosen that may be the same.
static bool takes_one_for_each(c10::ArrayRef<IValue> arguments) {
  return !arguments[2].toBool() || arguments[1].toInt() == 1;
}

// What the operator takes from the generator; nothing where its numbers cannot be told.
static std::optional<Draw> next_draw(Draws draws, c10::ArrayRef<IValue> arguments) {
  auto& random = drawn_from(arguments);
  if (draws == Draws::ten) random.take(10);
  if (draws == Draws::unknown || (draws == Draws::choices && !takes_one_for_each(arguments)))
    random.is_known = false;
  if (draws == Draws::ten || draws == Draws::unknown) return std::nullopt;
  const auto& tensor = arguments[0].toTensor();
  if (tensor.numel() == 0) return std::nullopt;
  if (draws == Draws::coins_each) {
    const Draw draw{random.seed, random.take(10), 1, 4};
    return random.is_known ? std::optional<Draw>(draw) : std::nullopt;
  }
  const bool is_double = tensor.scalar_type() == at::kDouble && draws != Draws::dropout;
  const auto numbers = whole_numbers(draws, arguments);
  const bool of_two_words = numbers ? numbers->of_two_words() : is_double;
  const auto draw = draw_elements(tensor.numel(), of_two_words ? 2 : 4, random);
  return random.is_known ? std::optional<Draw>(draw) : std::nullopt;
}

template <typename Number, typename Make>
static at::Tensor draw_numbers(const Draw& draw, at::IntArrayRef sizes, const Make& make) {
  const auto numbers = at::empty(sizes, c10::CppTypeToScalarType<Number>::value);
  auto* const first_number = numbers.template mutable_data_ptr<Number>();
  const auto count = numbers.numel(), stride = draw.num_threads * draw.per_thread;
  for (int64_t begin = 0; begin < count; begin += stride) {
    for (int64_t thread = 0; thread < std::min(draw.num_threads, count - begin); ++thread) {
      const auto made = make(philox(draw.seed, thread, draw.offset / 4 + begin / stride));
      for (int64_t i = 0; i < draw.per_thread; ++i) {
        const auto place = begin + thread + i * draw.num_threads;
        if (place < count) first_number[place] = made[i];
      }
    }
  }
  return numbers;
}

static at::Tensor draw_whole(const Draw& draw, at::IntArrayRef sizes, const WholeNumbers& of) {
  return draw_numbers<int64_t>(draw, sizes, [&](const Words& words) {
    std::array<int64_t, 4> made{};
    for (int i = 0; i < draw.per_thread; ++i) {
      const uint64_t word = draw.per_thread == 2
                                ? static_cast<uint64_t>(words[2 * i]) << 32 | words[2 * i + 1]
                                : words[i];
      made[i] = static_cast<int64_t>(word % of.count) + of.first;
    }
    return made;
  });
}

// cuRAND's: more than 0, at most 1
static float as_share(uint32_t word) { return word * 0x1p-32f + 0x1p-33f; }

static at::Tensor draw_shares(const Draw& draw, at::IntArrayRef sizes) {
  return draw_numbers<float>(draw, sizes, [](const Words& words) {
    return std::array<float, 4>{as_share(words[0]), as_share(words[1]), as_share(words[2]),
                                as_share(words[3])};
  });
}

// Every thread has four elements that follow each other (ATen/native/cuda/Distributions.cu).
static at::Tensor draw_shares_in_fours(const Draw& draw, at::IntArrayRef sizes) {
  const auto shares = at::empty(sizes, at::kFloat);
  auto* const first = shares.mutable_data_ptr<float>();
  for (int64_t begin = 0, count = shares.numel(); begin < count; begin += 4) {
    const auto words = philox(draw.seed, begin / 4, draw.offset / 4);
    for (int64_t i = 0; i < std::min<int64_t>(4, count - begin); ++i)
      first[begin + i] = as_share(words[i]);
  }
  return shares;
}

// Of dropout (ATen/native/cuda/Dropout.cu): a thread has as many neighbours as it loads at once.
static at::Tensor draw_kept(const Draw& draw, at::IntArrayRef sizes, float share,
                            int64_t item_bytes) {
  const auto count = c10::multiply_integers(sizes);
  int64_t together = 16 / std::max<int64_t>(item_bytes, 2);
  while (count % together) together /= 2;
  if (together == 1) return draw_shares(draw, sizes).lt(share);
  const auto kept = at::empty(sizes, at::kBool);
  auto* const first = kept.mutable_data_ptr<bool>();
  const auto stride = draw.num_threads * together;
  for (int64_t begin = 0, round = 0; begin < count; begin += stride, ++round) {
    const auto threads = std::min(draw.num_threads, (count - begin) / together);
    for (int64_t thread = 0; thread < threads; ++thread) {
      Words words;
      for (int64_t i = 0; i < together; ++i) {
        // of two, the second pair of a thread's four numbers serves the next round
        const auto number = round * together + i;
        if (i == 0 || number % 4 == 0)
          words = philox(draw.seed, thread, draw.offset / 4 + number / 4);
        first[begin + thread * together + i] = as_share(words[number % 4]) < share;
      }
    }
  }
  return kept;
}

// curand's shares, never an infinite number (ATen/core/TransformationHelper.h)
static at::Tensor draw_exponential(const Draw& draw, at::IntArrayRef sizes) {
  const auto shares = draw_shares(draw, sizes);
  constexpr float half = std::numeric_limits<float>::epsilon() / 2;
  return shares.log().masked_fill_(shares.ge(1 - half), -half).neg_();
}

static at::Tensor draw_normal(const Draw& draw, at::IntArrayRef sizes) {
  return draw_numbers<float>(draw, sizes, [](const Words& words) {
    std::array<float, 4> made{};
    for (int i = 0; i < 4; i += 2) {
      const float angle = as_share(words[i + 1]) * static_cast<float>(2 * M_PI);
      const float length = std::sqrt(-2 * std::log(as_share(words[i])));
      made[i] = length * std::sin(angle);
      made[i + 1] = length * std::cos(angle);
    }
    return made;
  });
}

using WriteTo = std::function<void(const at::Tensor& host)>;

// Writes what the operator draws to a tensor; nothing where that cannot be told.
static WriteTo numbers_of(Draws draws, c10::ArrayRef<IValue> arguments, const Draw& draw) {
  if (const auto numbers = whole_numbers(draws, arguments))
    return [=](const at::Tensor& host) { host.copy_(draw_whole(draw, host.sizes(), *numbers)); };
  if (draws == Draws::coins) {
    const auto share = static_cast<float>(arguments[1].toDouble());
    return [=](const at::Tensor& host) { host.copy_(draw_shares(draw, host.sizes()).lt(share)); };
  }
  if (draws == Draws::exponential) {
    const auto rate = arguments[1].toDouble();
    return [=](const at::Tensor& host) {
      host.copy_(draw_exponential(draw, host.sizes()).div_(rate));
    };
  }
  if (draws != Draws::shares && draws != Draws::normal) return nullptr;
  const auto first = arguments[1].toDouble(), second = arguments[2].toDouble();
  if (draws == Draws::normal)
    return [=](const at::Tensor& host) {
      host.copy_(draw_normal(draw, host.sizes()).mul_(second).add_(first));
    };
  return [=](const at::Tensor& host) {
    host.copy_(draw_shares(draw, host.sizes()).mul_(second - first).add_(first));
    host.masked_fill_(host.eq(second), first);  // the upper limit is not among them
  };
}

}  // namespace vramcast
