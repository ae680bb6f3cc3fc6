// The gradients of pooled.h. They only visit the pixels that hold a maximum, which are a quarter of all
// or fewer.

#ifndef FEDJAX_SKEW_POOLED_GRADIENTS_H_
#define FEDJAX_SKEW_POOLED_GRADIENTS_H_

#include <algorithm>
#include <cstring>

#include "direct.h"
#include "pooled.h"
#include "simd.h"

namespace fedjax_skew {

// A pixel that holds the maximum of a window: where its convolution starts in a padded image, and
// the gradient of the result.
struct Active {
  int32_t start;
  float gradient;
};

inline int64_t Vectors(int64_t floats) { return (floats + kLanes - 1) / kLanes; }

// sums[i, k] += sum over active pixels of x[row i, k] gradient, for kVectors vectors of adjacent k.
// Pixels at even and odd places have sums of their own, so that fewer additions wait for others.
template <int kSize, int kVectors>
void AddActive(const float* x, int64_t x_row, const Active* active, int64_t count, float* sums,
               int64_t step) {
  constexpr int kParts = kVectors == 1 ? 2 : 1;
  Vector sum[kParts][kSize][kVectors] = {};
  for (int64_t n = 0; n < count; n += kParts)
    for (int part = 0; part < kParts; ++part) {
      const float* from = x + active[n + part].start;
      for (int i = 0; i < kSize; ++i)
        for (int v = 0; v < kVectors; ++v)
          sum[part][i][v] += active[n + part].gradient * Load(from + i * x_row + v * kLanes);
    }
  for (int i = 0; i < kSize; ++i)
    for (int v = 0; v < kVectors; ++v) {
      Vector total = Load(sums + i * step + v * kLanes);
      for (int part = 0; part < kParts; ++part) total += sum[part][i][v];
      Store(sums + i * step + v * kLanes, total);
    }
}

inline int64_t PooledKernelGradientFloats(const Shape& s) {
  const int64_t actives = s.features * (s.rows * s.columns + 1);
  return s.features * s.size * Vectors(s.size * s.channels) * kLanes +
         WindowsHeight(s) * WindowsWidth(s) * s.channels + 2 * kLanes +
         (actives * static_cast<int64_t>(sizeof(Active)) + s.features * 8) / 4;
}

template <int kSize>
void PooledKernelGradient(const float* x, const int8_t* holder, const float* dy, const Shape& s,
                          float* buffer, float* dkernel, float* dbias) {
  const int64_t entries = kSize * s.channels, most = s.rows * s.columns + 1;
  const int64_t vectors = Vectors(entries), step = vectors * kLanes;
  const int64_t width = WindowsWidth(s), x_row = width * s.channels;
  int64_t* counts = reinterpret_cast<int64_t*>(buffer);           // [features]
  Active* active = reinterpret_cast<Active*>(counts + s.features);  // [features, most]
  float* sums = reinterpret_cast<float*>(active + s.features * most);  // [features, kSize, step]
  float* padded = sums + s.features * kSize * step;
  const int64_t floats = WindowsHeight(s) * x_row;
  const int32_t offsets[] = {0, static_cast<int32_t>(s.channels), static_cast<int32_t>(x_row),
                             static_cast<int32_t>(x_row + s.channels)};
  std::fill(sums, padded + floats + kLanes, 0.0f);
  std::fill(dbias, dbias + s.features, 0.0f);
  for (int64_t n = 0; n < s.images; ++n) {
    Place(x + n * s.height * s.width * s.channels, s.height, s.width, s.channels, s.top, s.left,
          WindowsHeight(s), width, padded);
    std::fill(counts, counts + s.features, 0);
    for (int64_t h = 0; h < s.rows; ++h)
      for (int64_t w = 0; w < s.columns; ++w, holder += s.features, dy += s.features) {
        const int32_t start = 2 * (h * x_row + w * s.channels);
        for (int64_t f = 0; f < s.features; ++f) {
          const int place = holder[f];
          active[f * most + counts[f]] = {start + offsets[place & 3], dy[f]};
          counts[f] += place >= 0;
          dbias[f] += place >= 0 ? dy[f] : 0.0f;
        }
      }
    for (int64_t f = 0; f < s.features; ++f) {
      Active* mine = active + f * most;
      mine[counts[f]] = {0, 0.0f};  // For an odd number.
      float* sum = sums + f * kSize * step;
      int64_t v = 0;
      for (; v + 2 <= vectors; v += 2)
        AddActive<kSize, 2>(padded + v * kLanes, x_row, mine, counts[f], sum + v * kLanes, step);
      for (; v < vectors; ++v)
        AddActive<kSize, 1>(padded + v * kLanes, x_row, mine, counts[f], sum + v * kLanes, step);
    }
  }
  for (int64_t i = 0; i < kSize; ++i)
    for (int64_t k = 0; k < entries; ++k)
      for (int64_t f = 0; f < s.features; ++f)
        dkernel[(i * entries + k) * s.features + f] = sums[(f * kSize + i) * step + k];
}

// The same for kernels with few entries, by vectors of features: each entry has its own sum.
inline int64_t EntriesFloats(const Shape& s) {
  const int64_t entries = s.size * s.size * s.channels;
  return WindowsHeight(s) * WindowsWidth(s) * s.channels +
         Vectors(s.features) * kLanes * (entries + 1);
}

inline Positions Widen(const int8_t* places) {
  PlaceBytes bytes;
  std::memcpy(&bytes, places, kLanes);
#ifdef __AVX512F__
  return reinterpret_cast<Positions>(_mm512_cvtepi8_epi32(reinterpret_cast<__m128i>(bytes)));
#else
  return __builtin_convertvector(bytes, Positions);
#endif
}

// Adds the windows of one image for the features of a vector to sums [entries + 1, kLanes]; the last
// of them is the bias.
template <int kSize, int kChannels>
FEDJAX_SKEW_KEEP_SUMS void AddEntries(const float* padded, const int8_t* holder, const float* dy,
                                      const Shape& s, float* sums) {
  constexpr int kRow = kSize * kChannels, kEntries = kSize * kRow;
  const int64_t x_row = WindowsWidth(s) * kChannels;
  Vector sum[kEntries], bias = Load(sums + kEntries * kLanes);
  for (int e = 0; e < kEntries; ++e) sum[e] = Load(sums + e * kLanes);
  for (int64_t h = 0; h < s.rows; ++h)
    for (int64_t w = 0; w < s.columns; ++w, holder += s.features, dy += s.features) {
      const Positions places = Widen(holder);
      const Vector gradient = Load(dy);
      bias += places >= 0 ? gradient : Vector{};
      for (int place = 0; place < 4; ++place) {
        const Vector part = places == place ? gradient : Vector{};
        const float* x =
            padded + (2 * h + (place >> 1)) * x_row + (2 * w + (place & 1)) * kChannels;
        for (int i = 0; i < kSize; ++i)
          for (int k = 0; k < kRow; ++k) sum[i * kRow + k] += x[i * x_row + k] * part;
      }
    }
  for (int e = 0; e < kEntries; ++e) Store(sums + e * kLanes, sum[e]);
  Store(sums + kEntries * kLanes, bias);
}

// For at least kLanes features; the last vector overlaps the one before it.
template <int kSize, int kChannels>
void EntriesKernelGradient(const float* x, const int8_t* holder, const float* dy, const Shape& s,
                           float* buffer, float* dkernel, float* dbias) {
  constexpr int kEntries = kSize * kSize * kChannels;
  float *sums = buffer, *padded = sums + Vectors(s.features) * kLanes * (kEntries + 1);
  std::fill(sums, padded, 0.0f);
  for (int64_t n = 0; n < s.images; ++n) {
    Pad(x + n * s.height * s.width * kChannels, s.height, s.width, kChannels, s.top, s.left,
        WindowsHeight(s), WindowsWidth(s), padded);
    const int64_t at = n * s.rows * s.columns * s.features;
    for (int64_t v = 0; v < Vectors(s.features); ++v) {
      const int64_t f = at + std::min(v * kLanes, s.features - kLanes);
      AddEntries<kSize, kChannels>(padded, holder + f, dy + f, s,
                                   sums + v * kLanes * (kEntries + 1));
    }
  }
  for (int64_t v = 0; v < Vectors(s.features); ++v) {
    const int64_t f = std::min(v * kLanes, s.features - kLanes);
    const float* from = sums + v * kLanes * (kEntries + 1);
    for (int e = 0; e <= kEntries; ++e)
      std::memcpy((e < kEntries ? dkernel + e * s.features : dbias) + f, from + e * kLanes,
                  4 * kLanes);
  }
}

inline int64_t PooledImageGradientFloats(const Shape& s) {
  const int64_t step = Vectors((s.size + 1) * s.channels) * kLanes;
  return 4 * s.features * (s.size + 1) * step +
         WindowsHeight(s) * WindowsWidth(s) * s.channels + step +
         s.features * static_cast<int64_t>(sizeof(Active)) / 4 + 2;
}

template <int kSize>
void PooledImageGradient(const float* kernel, const int8_t* holder, const float* dy,
                         const Shape& s, float* buffer, float* dx) {
  constexpr int kSpan = kSize + 1;  // Rows and columns of pixels on which a window depends.
  const int64_t step = Vectors(kSpan * s.channels) * kLanes, entries = kSize * s.channels;
  const int64_t height = WindowsHeight(s), width = WindowsWidth(s), row = width * s.channels;
  Active* active = reinterpret_cast<Active*>(buffer);  // [features]
  float* places = reinterpret_cast<float*>(active + s.features);  // [4, features, kSpan, step]
  float* padded = places + 4 * s.features * kSpan * step;
  std::fill(places, padded, 0.0f);
  for (int64_t place = 0; place < 4; ++place)
    for (int64_t f = 0; f < s.features; ++f)
      for (int64_t i = 0; i < kSize; ++i)
        for (int64_t k = 0; k < entries; ++k)
          places[((place * s.features + f) * kSpan + i + (place >> 1)) * step + k +
                 (place & 1) * s.channels] = kernel[(i * entries + k) * s.features + f];
  for (int64_t n = 0; n < s.images; ++n) {
    std::fill(padded, padded + height * row + step, 0.0f);
    for (int64_t w = 0; w < s.rows * s.columns; ++w) {
      int64_t count = 0;
      for (int64_t f = 0; f < s.features; ++f) {
        const int64_t at = (n * s.rows * s.columns + w) * s.features + f;
        active[count] = {(holder[at] * s.features + f) * kSpan * step, dy[at]};
        count += holder[at] >= 0;
      }
      float* to = padded + 2 * (w / s.columns) * row + 2 * (w % s.columns) * s.channels;
      for (int64_t v = 0; v < step; v += kLanes) {
        Vector sum[kSpan];
        for (int i = 0; i < kSpan; ++i) sum[i] = Load(to + i * row + v);
        for (int64_t a = 0; a < count; ++a)
          for (int i = 0; i < kSpan; ++i)
            sum[i] += active[a].gradient * Load(places + active[a].start + i * step + v);
        for (int i = 0; i < kSpan; ++i) Store(to + i * row + v, sum[i]);
      }
    }
    Pad(padded, height, width, s.channels, -s.top, -s.left, s.height, s.width,
        dx + n * s.height * s.width * s.channels);
  }
}

}  // namespace fedjax_skew

#endif  // FEDJAX_SKEW_POOLED_GRADIENTS_H_
