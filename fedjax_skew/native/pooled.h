// relu(max_pool(convolution + bias)) with windows of 2x2 pixels, for few channels.
//
// The four pixels of a window stay in registers until their maximum is known. A result keeps the
// position of the maximum, 0 to 3, or -1 where the gradient of ReLU is 0.

#ifndef FEDJAX_SKEW_POOLED_H_
#define FEDJAX_SKEW_POOLED_H_

#include <algorithm>
#include <cstring>

#ifdef __AVX512F__
#include <immintrin.h>
#endif

#include "direct.h"
#include "simd.h"

namespace fedjax_skew {

// `rows` and `columns` of the shape are those of the pooled result.
inline int64_t WindowsHeight(const Shape& s) { return 2 * s.rows + s.size - 1; }
inline int64_t WindowsWidth(const Shape& s) { return 2 * s.columns + s.size - 1; }

// Copies one image [height, width, channels] to padded planes [channels, ...].
inline void PadPlanes(const float* x, const Shape& s, float* out) {
  const int64_t height = WindowsHeight(s), width = WindowsWidth(s);
  std::fill(out, out + s.channels * height * width, 0.0f);
  const int64_t last_row = std::min(s.height, height - s.top);
  const int64_t last_column = std::min(s.width, width - s.left);
  const int64_t first_column = std::max<int64_t>(0, -s.left);
  for (int64_t h = std::max<int64_t>(0, -s.top); h < last_row; ++h)
    for (int64_t c = 0; c < s.channels; ++c) {
      const float* from = x + h * s.width * s.channels + c;
      float* to = out + (c * height + h + s.top) * width + s.left;
      for (int64_t w = first_column; w < last_column; ++w) to[w] = from[w * s.channels];
    }
}

inline int64_t PaddedFeatures(const Shape& s) {
  return (s.features + kLanes - 1) / kLanes * kLanes;
}

// Pooled results and the positions of the maxima, which are not computed if `holder` is null.
struct Pooled {
  Pooled operator+(int64_t n) const { return {y + n, holder ? holder + n : nullptr}; }

  float* y;
  int8_t* holder;
};

// One row of windows on padded planes, with a padded kernel [channels, size, size, features].
struct WindowRow {
  const float* planes;
  const float* kernel;
  const float* bias;
  const Shape& s;
  Pooled out;
};

typedef decltype(Vector{} > Vector{}) Positions;

// Returns relu(max(pixels) + bias) and writes the position of the maximum if it is wanted.
inline Vector PoolPixels(const Vector (&pixels)[4], Vector bias, bool wanted, Positions* holder) {
  Vector most = pixels[0];
  Positions at{};
  for (int place = 1; place < 4; ++place) {
    const Vector pixel = pixels[place];
    const Positions larger = (pixel > most) | (pixel != pixel);  // A result that is NaN stays.
    most = larger ? pixel : most;
    if (wanted) at = larger ? Positions{} + place : at;
  }
  most += bias;
  const Positions inactive = most <= 0;
  if (wanted) *holder = inactive ? Positions{} - 1 : at;
  return inactive ? Vector{} : most;
}

typedef int8_t PlaceBytes __attribute__((vector_size(kLanes)));

inline PlaceBytes Narrow(Positions places) {
#ifdef __AVX512F__  // GCC would move one number at a time.
  return reinterpret_cast<PlaceBytes>(_mm512_cvtepi32_epi8(reinterpret_cast<__m512i>(places)));
#else
  return __builtin_convertvector(places, PlaceBytes);
#endif
}

// Writes `count` adjacent features of a window.
inline void WriteFeatures(Vector result, Positions place, int64_t count, Pooled out) {
  if (count == kLanes) {
    Store(out.y, result);
  } else {
    std::memcpy(out.y, &result, 4 * count);
  }
  if (!out.holder) return;
  const PlaceBytes bytes = Narrow(place);
  if (count == kLanes) {
    std::memcpy(out.holder, &bytes, kLanes);
  } else {
    std::memcpy(out.holder, &bytes, count);
  }
}

// GCC would keep pixels for the next entry of the kernel in the registers of the sums.
#if defined(__GNUC__) && !defined(__clang__)
#define FEDJAX_SKEW_KEEP_SUMS __attribute__((optimize("no-predictive-commoning")))
#else
#define FEDJAX_SKEW_KEEP_SUMS
#endif

template <int kWindows>
FEDJAX_SKEW_KEEP_SUMS void PoolPart(const WindowRow& r, int64_t first, int64_t f) {
  const Shape& s = r.s;
  const int64_t width = WindowsWidth(s), step = PaddedFeatures(s);
  Vector sum[kWindows][4] = {};
  const float* kernel = r.kernel + f;
  for (int64_t c = 0; c < s.channels; ++c)
    for (int64_t i = 0; i < s.size; ++i) {
      const float* x0 = r.planes + (c * WindowsHeight(s) + i) * width + 2 * first;
      const float* x1 = x0 + width;
      for (int64_t j = 0; j < s.size; ++j, ++x0, ++x1, kernel += step) {
        const Vector weights = Load(kernel);
        for (int n = 0; n < kWindows; ++n) {
          sum[n][0] += x0[2 * n] * weights;
          sum[n][1] += x0[2 * n + 1] * weights;
          sum[n][2] += x1[2 * n] * weights;
          sum[n][3] += x1[2 * n + 1] * weights;
        }
      }
    }
  const int64_t count = std::min<int64_t>(kLanes, s.features - f);
  for (int n = 0; n < kWindows; ++n) {
    Positions place;
    const Vector result = PoolPixels({sum[n][0], sum[n][1], sum[n][2], sum[n][3]},
                                     Load(r.bias + f), r.out.holder, &place);
    WriteFeatures(result, place, count, r.out + ((first + n) * s.features + f));
  }
}

template <int kWindows>
void PoolRow(const WindowRow& r) {
  const int64_t columns = r.s.columns;
  for (int64_t begin = 0; begin < columns; begin += kWindows) {
    const int64_t first = std::max<int64_t>(0, std::min(begin, columns - kWindows));
    for (int64_t f = 0; f < r.s.features; f += kLanes) PoolPart<kWindows>(r, first, f);
  }
}

// The last group of windows overlaps the one before it. `windows` is the size of the groups.
template <int kWindows = kMaxRows / 2>
void PoolRow(const WindowRow& r, int64_t windows) {
  if (windows == kWindows) {
    PoolRow<kWindows>(r);
  } else if constexpr (kWindows > 1) {
    PoolRow<kWindows - 1>(r, windows);
  }
}

inline int64_t PooledConvFloats(const Shape& s) {
  return s.channels * (WindowsHeight(s) * WindowsWidth(s) + s.size * s.size * PaddedFeatures(s)) +
         PaddedFeatures(s);
}

inline void PooledConv(const float* x, const float* kernel, const float* bias, const Shape& s,
                       float* buffer, Pooled out) {
  const int64_t features = PaddedFeatures(s), taps = s.size * s.size;
  float *weights = buffer, *shift = weights + s.channels * taps * features;
  float* planes = shift + features;
  std::fill(weights, planes, 0.0f);
  for (int64_t t = 0; t < taps; ++t)
    for (int64_t c = 0; c < s.channels; ++c)
      std::copy_n(kernel + (t * s.channels + c) * s.features, s.features,
                  weights + (c * taps + t) * features);
  std::copy_n(bias, s.features, shift);
  const int64_t group = GroupSize(s.columns, kMaxRows / 2, kMinRows / 2);
  for (int64_t n = 0; n < s.images; ++n) {
    PadPlanes(x + n * s.height * s.width * s.channels, s, planes);
    for (int64_t h = 0; h < s.rows; ++h) {
      const Pooled row = out + (n * s.rows + h) * s.columns * s.features;
      PoolRow({planes + 2 * h * WindowsWidth(s), weights, shift, s, row}, group);
    }
  }
}

}  // namespace fedjax_skew

#endif  // FEDJAX_SKEW_POOLED_H_
