// The forward passes of pooled.h and pooled_pixels.h for 5x5 kernels, by Winograd's F(2, 5) along the
// columns: both columns of a window take 6 products per row of the kernel instead of 10.

#ifndef FEDJAX_SKEW_POOLED_WINOGRAD_H_
#define FEDJAX_SKEW_POOLED_WINOGRAD_H_

#include <algorithm>
#include <cstring>

#include "pooled.h"
#include "pooled_pixels.h"
#include "simd.h"
#include "winograd.h"

namespace fedjax_skew {

constexpr int kRowTaps = 5, kRowPlaces = kTile * kRowTaps;

// With one or two channels, the transformations cost as much as they save.
inline bool UseRowWinograd(const Shape& s) { return s.size == kRowTaps && s.channels > 2; }

// Transforms the rows of a kernel [5, 5, channels, features] to [6, 5, channels, step].
inline void TransformKernelRows(const float* kernel, const Shape& s, int64_t step, float* out) {
  for (int t = 0; t < kTile; ++t)
    for (int64_t i = 0; i < kRowTaps; ++i)
      for (int64_t c = 0; c < s.channels; ++c, out += step)
        for (int64_t f = 0; f < s.features; ++f) {
          float sum = 0;
          for (int64_t j = 0; j < kRowTaps; ++j)
            sum += KernelEntry<kRowTaps>(t, j) *
                   kernel[((i * kRowTaps + j) * s.channels + c) * s.features + f];
          out[f] = sum;
        }
}

// Returns the pooled result of a window from the products [place][row], and its position.
inline Vector PoolProducts(const Vector (&products)[kTile][2], Vector bias, bool wanted,
                           Positions* holder) {
  Vector pixels[4];
  for (int row = 0; row < 2; ++row) {
    Vector t[kTile];
    for (int n = 0; n < kTile; ++n) t[n] = products[n][row];
    TransformResult<2>(t, pixels + 2 * row);
  }
  return PoolPixels(pixels, bias, wanted, holder);
}

// Vectors of windows, for few features.

// The numbers of features and of rows of windows whose sums fit in the registers.
#ifdef __AVX512F__
constexpr int kRowFeatures = 6, kRowsDown = 2;
#else
constexpr int kRowFeatures = 6, kRowsDown = 1;
#endif

// Transforms rows of adjacent windows: planes [channels, rows, parity, columns] to
// [rows, channels, 6, kLanes].
inline void TransformPlanes(const float* planes, const Shape& s, const PixelPlanes& p,
                            int64_t first, int64_t last, float* out) {
  out += first * s.channels * kTile * kLanes;
  for (int64_t h = first; h < last; ++h)
    for (int64_t c = 0; c < s.channels; ++c, out += kTile * kLanes) {
      const float* even = planes + (c * p.height + h) * 2 * p.width;
      const float* odd = even + p.width;
      const Vector d[] = {Load(even),    Load(odd),      Load(even + 1),
                          Load(odd + 1), Load(even + 2), Load(odd + 2)};
      Vector t[kTile];
      TransformImage(d, t);
      for (int n = 0; n < kTile; ++n) Store(out + n * kLanes, t[n]);
    }
}

template <int kFeatures, int kDown>
void RowPixelPart(const float* x, const float* kernel, const float* bias, const Shape& s,
                  int64_t count, Pooled out) {
  const int64_t row = s.channels * kTile * kLanes;
  Vector products[kDown][kFeatures][kTile][2];
  for (int t = 0; t < kTile; ++t) {
    Vector sum[kFeatures][2 * kDown] = {};
    const float* pixels = x + t * kLanes;
    for (int64_t n = 0; n < kRowTaps * s.channels; ++n) {
      Vector line[2 * kDown];
      for (int r = 0; r < 2 * kDown; ++r) line[r] = Load(pixels + r * row);
      for (int f = 0; f < kFeatures; ++f)
        for (int r = 0; r < 2 * kDown; ++r) sum[f][r] += kernel[f] * line[r];
      kernel += s.features, pixels += kTile * kLanes;
    }
    for (int r = 0; r < 2 * kDown; ++r)
      for (int f = 0; f < kFeatures; ++f) products[r / 2][f][t][r % 2] = sum[f][r];
  }
  for (int d = 0; d < kDown; ++d) {
    Vector results[kFeatures];
    Positions places[kFeatures];
    for (int f = 0; f < kFeatures; ++f)
      results[f] = PoolProducts(products[d][f], Vector{} + bias[f], out.holder, &places[f]);
    WriteWindows(results, places, s, count, out + d * s.columns * s.features);
  }
}

// Computes `count` adjacent windows of `down` rows.
template <int kFeatures = kRowFeatures>
void RowPixels(const float* x, const float* kernel, const float* bias, const Shape& s,
               int64_t group, int64_t down, int64_t count, Pooled out) {
  if (group < kFeatures) {
    if constexpr (kFeatures > 1)
      RowPixels<kFeatures - 1>(x, kernel, bias, s, group, down, count, out);
    return;
  }
  const auto run = down > 1 ? RowPixelPart<kFeatures, 2> : RowPixelPart<kFeatures, 1>;
  for (int64_t begin = 0; begin < s.features; begin += kFeatures) {
    // The last features overlap those before them.
    const int64_t f = std::min(begin, s.features - kFeatures);
    run(x, kernel + f, bias + f, s, count, out + f);
  }
}

inline int64_t RowPixelConvFloats(const Shape& s) {
  const PixelPlanes planes(s);
  return s.channels * (planes.height * (2 * planes.width + kTile * kLanes) +
                       kRowPlaces * s.features);
}

inline void RowPixelConv(const float* x, const float* kernel, const float* bias, const Shape& s,
                         float* buffer, Pooled out) {
  const PixelPlanes planes(s);
  const int64_t parts = (s.features + kRowFeatures - 1) / kRowFeatures;
  const int64_t row = s.channels * kTile * kLanes;
  float *rows = buffer, *weights = rows + planes.height * row;
  float* pixels = weights + kRowPlaces * s.channels * s.features;
  TransformKernelRows(kernel, s, s.features, weights);
  ClearPlanes(s, planes, pixels);
  for (int64_t n = 0; n < s.images; ++n) {
    PadPixels(x + n * s.height * s.width * s.channels, s, planes, pixels);
    for (int64_t w = 0; w < s.columns; w += kLanes) {
      int64_t known = 0;
      for (int64_t h = 0, down = kRowsDown; h < s.rows; h += down) {
        down = std::min(down, s.rows - h);
        const int64_t needed = 2 * (h + down) + kRowTaps - 1;
        TransformPlanes(pixels + w, s, planes, known, needed, rows);
        known = needed;
        const int64_t at = ((n * s.rows + h) * s.columns + w) * s.features;
        RowPixels(rows + 2 * h * row, weights, bias, s, (s.features + parts - 1) / parts, down,
                  std::min<int64_t>(kLanes, s.columns - w), out + at);
      }
    }
  }
}

// Vectors of features.

// Floats between the places of a transformed tile. A vector beyond the channels of one place ends in
// the next one, which is written later.
inline int64_t TileStep(const Shape& s) {
  return s.channels <= kLanes ? s.channels : Vectors(s.channels) * kLanes;
}

// Transforms a padded image [rows, columns, channels] to tiles [rows, windows, 6, TileStep].
inline void TransformRows(const float* x, const Shape& s, float* out) {
  const int64_t step = TileStep(s), width = WindowsWidth(s);
  for (int64_t h = 0; h < WindowsHeight(s); ++h)
    for (int64_t w = 0; w < s.columns; ++w, out += kTile * step) {
      const float* from = x + (h * width + 2 * w) * s.channels;
      for (int64_t c = 0; c < s.channels; c += kLanes) {
        Vector d[kTile], t[kTile];
        for (int n = 0; n < kTile; ++n) d[n] = Load(from + n * s.channels + c);
        TransformImage(d, t);
        for (int n = 0; n < kTile; ++n) Store(out + n * step + c, t[n]);
      }
    }
}

template <int kWindows>
void RowPoolPart(const float* x, const float* kernel, const float* bias, const Shape& s, int64_t f,
                 Pooled out) {
  const int64_t features = PaddedFeatures(s), step = TileStep(s), tile = kTile * step;
  const int64_t row = s.columns * tile;
  Vector products[kWindows][kTile][2];
  for (int t = 0; t < kTile; ++t) {
    Vector sum[kWindows][2] = {};
    for (int64_t i = 0; i < kRowTaps; ++i) {
      const float* pixels = x + i * row + t * step;
      for (int64_t c = 0; c < s.channels; ++c, ++pixels, kernel += features) {
        const Vector weights = Load(kernel);
        for (int n = 0; n < kWindows; ++n) {
          sum[n][0] += pixels[n * tile] * weights;
          sum[n][1] += pixels[n * tile + row] * weights;
        }
      }
    }
    for (int n = 0; n < kWindows; ++n)
      for (int r = 0; r < 2; ++r) products[n][t][r] = sum[n][r];
  }
  for (int n = 0; n < kWindows; ++n) {
    Positions place;
    const Vector result = PoolProducts(products[n], Load(bias), out.holder, &place);
    WriteFeatures(result, place, std::min<int64_t>(kLanes, s.features - f), out + n * s.features);
  }
}

// The last group of windows overlaps the one before it. `windows` is the size of the groups.
template <int kWindows = kMaxRows / 2>
void RowPool(const float* x, const float* kernel, const float* bias, const Shape& s,
             int64_t windows, Pooled out) {
  if (windows < kWindows) {
    if constexpr (kWindows > 1) RowPool<kWindows - 1>(x, kernel, bias, s, windows, out);
    return;
  }
  for (int64_t begin = 0; begin < s.columns; begin += kWindows) {
    const int64_t w = std::max<int64_t>(0, std::min(begin, s.columns - kWindows));
    for (int64_t f = 0; f < s.features; f += kLanes)
      RowPoolPart<kWindows>(x + w * kTile * TileStep(s), kernel + f, bias + f, s, f,
                            out + (w * s.features + f));
  }
}

inline int64_t RowPoolConvFloats(const Shape& s) {
  const int64_t tiles = WindowsHeight(s) * s.columns * kTile * TileStep(s);
  return (kRowPlaces * s.channels + 1) * PaddedFeatures(s) + tiles +
         WindowsHeight(s) * WindowsWidth(s) * s.channels + 2 * kLanes;
}

inline void RowPoolConv(const float* x, const float* kernel, const float* bias, const Shape& s,
                        float* buffer, Pooled out) {
  const int64_t features = PaddedFeatures(s), tile = kTile * TileStep(s);
  const int64_t group = GroupSize(s.columns, kMaxRows / 2, kMinRows / 2);
  float *weights = buffer, *shift = weights + kRowPlaces * s.channels * features;
  float *tiles = shift + features, *end = buffer + RowPoolConvFloats(s);
  float* padded = tiles + WindowsHeight(s) * s.columns * tile + kLanes;
  std::fill(buffer, end, 0.0f);
  TransformKernelRows(kernel, s, features, weights);
  std::copy_n(bias, s.features, shift);
  for (int64_t n = 0; n < s.images; ++n) {
    Place(x + n * s.height * s.width * s.channels, s.height, s.width, s.channels, s.top, s.left,
          WindowsHeight(s), WindowsWidth(s), padded);
    TransformRows(padded, s, tiles);
    for (int64_t h = 0; h < s.rows; ++h) {
      RowPool(tiles + 2 * h * s.columns * tile, weights, shift, s, group,
              out + (n * s.rows + h) * s.columns * s.features);
    }
  }
}

}  // namespace fedjax_skew

#endif  // FEDJAX_SKEW_POOLED_WINOGRAD_H_
