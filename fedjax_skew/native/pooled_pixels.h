// The forward pass of pooled.h for few features: vectors hold adjacent windows, not features.
//
// The even and the odd columns of an image are apart, so that each of the four pixels of adjacent
// windows is a vector in memory.

#ifndef FEDJAX_SKEW_POOLED_PIXELS_H_
#define FEDJAX_SKEW_POOLED_PIXELS_H_

#include <algorithm>
#include <cstring>

#include "pooled.h"
#include "simd.h"

namespace fedjax_skew {

// The number of features whose four sums fit in the registers.
#ifdef __AVX512F__
constexpr int kPixelFeatures = 6;
#else
constexpr int kPixelFeatures = 2;
#endif

// `rows` and `columns` of the shape are those of the pooled result.
struct PixelPlanes {
  explicit PixelPlanes(const Shape& s)
      : height(2 * s.rows + s.size - 1),
        width((s.columns + kLanes - 1) / kLanes * kLanes + s.size / 2 + 1) {}

  int64_t height;
  int64_t width;  // Of the even or the odd columns, with those that a vector reads beyond the last.
};

inline void ClearPlanes(const Shape& s, const PixelPlanes& planes, float* out) {
  std::fill(out, out + s.channels * planes.height * 2 * planes.width, 0.0f);
}

#ifdef __AVX512F__
inline Vector Permute(Vector one, Positions at, Vector other) {
  return reinterpret_cast<Vector>(_mm512_permutex2var_ps(
      reinterpret_cast<__m512>(one), reinterpret_cast<__m512i>(at), reinterpret_cast<__m512>(other)));
}

// Returns every sixth of 96 numbers.
inline Vector EverySixth(const float* x, int first) {
  const Positions at = first + 6 * Positions{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  Vector parts[3];
  for (int n = 0; n < 3; ++n) parts[n] = Permute(Load(x + 32 * n), at, Load(x + 32 * n + 16));
  return at >= 64 ? parts[2] : at >= 32 ? parts[1] : parts[0];
}

// Returns vector n of the six whose number i is lane i / 6 of x[i % 6].
inline Vector Interleave(const Vector (&x)[6], int n) {
  const Positions at =
      16 * n + Positions{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const Positions lane = at / 6, from = at - 6 * lane;
  const Positions both = lane + 16 * (from & 1);
  Vector parts[3];
  for (int i = 0; i < 3; ++i) parts[i] = Permute(x[2 * i], both, x[2 * i + 1]);
  return from >= 4 ? parts[2] : from >= 2 ? parts[1] : parts[0];
}
#endif

// Copies one image [height, width, channels] into planes [channels, rows, parity, columns], whose
// padding is clear.
inline void PadPixels(const float* x, const Shape& s, const PixelPlanes& planes, float* out) {
  const int64_t last_row = std::min(s.height, planes.height - s.top);
  const int64_t first = std::max<int64_t>(0, -s.left);
  const int64_t end = std::min(s.width, 2 * planes.width - s.left);
  for (int64_t h = std::max<int64_t>(0, -s.top); h < last_row; ++h) {
    const float* line = x + h * s.width * s.channels;
    float* to = out + (h + s.top) * 2 * planes.width;
    const int64_t plane = 2 * planes.height * planes.width;
    int64_t w = first;
#ifdef __AVX512F__
    for (; s.channels == 3 && w + 2 * kLanes <= end; w += 2 * kLanes)
      for (int n = 0; n < 6; ++n) {
        const int64_t column = w + n / 3 + s.left;
        Store(to + n % 3 * plane + (column & 1) * planes.width + column / 2,
              EverySixth(line + 3 * w, n));
      }
#endif
    for (; w < end; ++w)
      for (int64_t c = 0; c < s.channels; ++c)
        to[c * plane + ((w + s.left) & 1) * planes.width + (w + s.left) / 2] =
            line[w * s.channels + c];
  }
}

// Writes results [kFeatures, kLanes] of `count` adjacent windows.
template <int kFeatures>
void WriteWindows(const Vector (&results)[kFeatures], const Positions (&places)[kFeatures],
                  const Shape& s, int64_t count, Pooled out) {
#ifdef __AVX512F__
  if constexpr (kFeatures == 6) {
    if (s.features == 6) {  // All numbers are adjacent.
      alignas(64) float numbers[6 * kLanes];
      for (int n = 0; n < 6; ++n) Store(numbers + n * kLanes, Interleave(results, n));
      std::memcpy(out.y, numbers, 4 * 6 * count);
      if (!out.holder) return;
      alignas(64) int8_t bytes[6 * kLanes];
      Vector at[6];
      for (int f = 0; f < 6; ++f) at[f] = reinterpret_cast<Vector>(places[f]);
      for (int n = 0; n < 6; ++n) {
        const PlaceBytes part = Narrow(reinterpret_cast<Positions>(Interleave(at, n)));
        std::memcpy(bytes + n * kLanes, &part, sizeof(part));
      }
      std::memcpy(out.holder, bytes, 6 * count);
      return;
    }
  }
#endif
  for (int64_t n = 0; n < count; ++n)
    for (int f = 0; f < kFeatures; ++f) {
      out.y[n * s.features + f] = results[f][n];
      if (out.holder) out.holder[n * s.features + f] = places[f][n];
    }
}

// Computes adjacent windows of one row for kFeatures features. `x` is the first pixel of the first
// window, `kernel` [channels, size, size, features] and `bias` start at the first feature.
template <int kSize, int kFeatures>
void PixelPart(const float* x, const float* kernel, const float* bias, const Shape& s,
               const PixelPlanes& planes, int64_t count, Pooled out) {
  const int64_t row = 2 * planes.width;
  Vector sum[kFeatures][4] = {};
  for (int64_t c = 0; c < s.channels; ++c)
    for (int i = 0; i < kSize; ++i) {
      const float* line = x + (c * planes.height + i) * row;
      for (int j = 0; j < kSize; ++j, kernel += s.features) {
        const float* left = line + (j & 1) * planes.width + j / 2;
        const float* right = line + (~j & 1) * planes.width + (j + 1) / 2;
        const Vector pixels[] = {Load(left), Load(right), Load(left + row), Load(right + row)};
        for (int f = 0; f < kFeatures; ++f)
          for (int place = 0; place < 4; ++place) sum[f][place] += kernel[f] * pixels[place];
      }
    }
  Vector results[kFeatures];
  Positions places[kFeatures];
  for (int f = 0; f < kFeatures; ++f)
    results[f] = PoolPixels({sum[f][0], sum[f][1], sum[f][2], sum[f][3]}, Vector{} + bias[f],
                            out.holder, &places[f]);
  WriteWindows(results, places, s, count, out);
}

// Computes all features, at most kFeatures at a time and as evenly as possible.
template <int kSize, int kFeatures = kPixelFeatures>
void PixelRow(const float* x, const float* kernel, const float* bias, const Shape& s,
              const PixelPlanes& planes, int64_t group, Pooled out) {
  if (group < kFeatures) {
    if constexpr (kFeatures > 1)
      PixelRow<kSize, kFeatures - 1>(x, kernel, bias, s, planes, group, out);
    return;
  }
  for (int64_t begin = 0; begin < s.features; begin += kFeatures) {
    // The last features overlap those before them.
    const int64_t f = std::min(begin, s.features - kFeatures);
    for (int64_t w = 0; w < s.columns; w += kLanes)
      PixelPart<kSize, kFeatures>(x + w, kernel + f, bias + f, s, planes,
                                  std::min<int64_t>(kLanes, s.columns - w),
                                  out + (w * s.features + f));
  }
}

inline int64_t PixelConvFloats(const Shape& s) {
  const PixelPlanes planes(s);
  return s.channels * (planes.height * 2 * planes.width + s.size * s.size * s.features);
}

template <int kSize>
void PixelConv(const float* x, const float* kernel, const float* bias, const Shape& s,
               float* buffer, Pooled out) {
  const PixelPlanes planes(s);
  const int64_t taps = s.size * s.size, image = s.height * s.width * s.channels;
  const int64_t parts = (s.features + kPixelFeatures - 1) / kPixelFeatures;
  float *weights = buffer, *pixels = buffer + s.channels * taps * s.features;
  for (int64_t t = 0; t < taps; ++t)
    for (int64_t c = 0; c < s.channels; ++c)
      std::copy_n(kernel + (t * s.channels + c) * s.features, s.features,
                  weights + (c * taps + t) * s.features);
  ClearPlanes(s, planes, pixels);
  for (int64_t n = 0; n < s.images; ++n) {
    PadPixels(x + n * image, s, planes, pixels);
    for (int64_t h = 0; h < s.rows; ++h) {
      PixelRow<kSize>(pixels + 4 * h * planes.width, weights, bias, s, planes,
                      (s.features + parts - 1) / parts,
                      out + (n * s.rows + h) * s.columns * s.features);
    }
  }
}

}  // namespace fedjax_skew

#endif  // FEDJAX_SKEW_POOLED_PIXELS_H_
