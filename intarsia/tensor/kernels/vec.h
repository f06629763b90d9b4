// Vectors of INTARSIA_LANES floats, for kernel bodies that are compiled once for each instruction set. Included inside
// of such a set's namespace, after its target pragma and <cstdint>, <cstring>, <utility>.
// What is 16-bit in memory is bf16 and is widened exactly when it is read, and rounded to nearest even when written.
// Internal to kernels.
#pragma once

constexpr int kLanes = INTARSIA_LANES;
using Floats = float __attribute__((vector_size(kLanes * sizeof(float))));
using Words = std::uint32_t __attribute__((vector_size(kLanes * sizeof(std::uint32_t))));
using Halves = std::uint16_t __attribute__((vector_size(kLanes * sizeof(std::uint16_t))));
using Bf16 = std::uint16_t;

#define INTARSIA_INLINE [[gnu::always_inline]] static inline

INTARSIA_INLINE Floats load(const float* from) {
  Floats x;
  std::memcpy(&x, from, sizeof x);
  return x;
}

INTARSIA_INLINE Floats widened(Halves halves) {
  const Words words = __builtin_convertvector(halves, Words) << 16;
  return reinterpret_cast<Floats>(words);
}

INTARSIA_INLINE Floats load(const Bf16* from) {
  Halves halves;
  std::memcpy(&halves, from, sizeof halves);
  return widened(halves);
}

INTARSIA_INLINE void store(float* to, Floats x) { std::memcpy(to, &x, sizeof x); }

INTARSIA_INLINE Halves narrowed(Floats x) {
  const Words bits = reinterpret_cast<Words>(x);
  const Words rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  const Words nan = Words{} + 0x7fc0U;
  return __builtin_convertvector(x != x ? nan : rounded, Halves);
}

INTARSIA_INLINE void store(Bf16* to, Floats x) {
  const Halves halves = narrowed(x);
  std::memcpy(to, &halves, sizeof halves);
}

// The first `count` elements, zeros behind them; count <= kLanes.
template <class T>
INTARSIA_INLINE Floats load_part(const T* from, std::int64_t count) {
  if (count == kLanes) return load(from);
  T block[kLanes] = {};
  for (std::int64_t i = 0; i < count; ++i) block[i] = from[i];
  return load(block);
}

template <class T>
INTARSIA_INLINE void store_part(T* to, Floats x, std::int64_t count) {
  if (count == kLanes) return store(to, x);
  T block[kLanes];
  store(block, x);
  for (std::int64_t i = 0; i < count; ++i) to[i] = block[i];
}

// a0 b0 a1 b1 ..., from the lower or the upper half of the lanes.
template <std::size_t... I>
INTARSIA_INLINE Floats interleaved(Floats a, Floats b, std::index_sequence<I...>, bool upper) {
  constexpr int half = kLanes / 2;
  return upper ? __builtin_shufflevector(a, b, (half + static_cast<int>(I) / 2 + (I % 2 == 0 ? 0 : kLanes))...)
               : __builtin_shufflevector(a, b, (static_cast<int>(I) / 2 + (I % 2 == 0 ? 0 : kLanes))...);
}

// kLanes rows of a square become its columns: log2(kLanes) perfect shuffles.
INTARSIA_INLINE void transpose(Floats (&rows)[kLanes]) {
  constexpr auto lanes = std::make_index_sequence<kLanes>{};
#pragma GCC unroll 4
  for (int done = 1; done < kLanes; done *= 2) {
    Floats next[kLanes];
#pragma GCC unroll 16
    for (int i = 0; i < kLanes / 2; ++i) {
      next[2 * i] = interleaved(rows[i], rows[i + kLanes / 2], lanes, false);
      next[2 * i + 1] = interleaved(rows[i], rows[i + kLanes / 2], lanes, true);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) rows[i] = next[i];
  }
}
