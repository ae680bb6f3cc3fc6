// Batch normalisation of the rows of a batch that count, optionally followed by ReLU.
//
// The arrays are larger than a core's cache, so every pass over them counts: there are two for the
// result, and two for its gradients.

#ifndef FEDJAX_SKEW_NORM_H_
#define FEDJAX_SKEW_NORM_H_

#include <algorithm>
#include <cmath>
#include <cstring>

#include "simd.h"

namespace fedjax_skew {

// Rows [rows, pixels, channels]; channels are a multiple of kLanes.
struct NormShape {
  int64_t rows, pixels, channels;
  float eps;
  bool relu;
};

struct NormParameters {
  const float* scale;
  const float* bias;
};

// The sums of a pass, in double precision, at the start of a buffer; the rest is for floats.
struct Sums {
  Sums(float* buffer, const NormShape& s)
      : first(reinterpret_cast<double*>(buffer)),
        second(first + s.channels),
        rest(buffer + 4 * s.channels),
        channels(s.channels) {
    Clear();
  }

  void Clear() { std::memset(first, 0, 16 * channels); }

  double *first, *second;
  float* rest;
  int64_t channels;
};

inline int64_t NormFloats(const NormShape& s) { return 8 * s.channels; }

// Adds the sums over the pixels of one row of `term(pixel, channel)`, a pair of vectors. Four
// partial sums, because one would wait for each addition.
template <typename Term>
void AddPixels(const NormShape& s, Sums* sums, Term term) {
  for (int64_t c = 0; c < s.channels; c += kLanes) {
    Vector a[4] = {}, b[4] = {};
    int64_t p = 0;
    for (; p + 4 <= s.pixels; p += 4)
      for (int n = 0; n < 4; ++n) term(p + n, c, &a[n], &b[n]);
    for (; p < s.pixels; ++p) term(p, c, &a[0], &b[0]);
    const Vector sum = (a[0] + a[1]) + (a[2] + a[3]), other = (b[0] + b[1]) + (b[2] + b[3]);
    for (int lane = 0; lane < kLanes; ++lane) {
      sums->first[c + lane] += sum[lane];
      sums->second[c + lane] += other[lane];
    }
  }
}

inline int64_t CountValues(const bool* where, const NormShape& s) {
  return std::max<int64_t>(std::count(where, where + s.rows, true) * s.pixels, 1);
}

// Moments relative to the mean of the first row that counts, so that nothing cancels.
inline void Moments(const float* x, const bool* where, const NormShape& s, float* buffer,
                    float* mean, float* var) {
  Sums sums(buffer, s);
  float* shift = sums.rest;
  const int64_t row = s.pixels * s.channels, count = CountValues(where, s);
  std::fill(shift, shift + s.channels, 0.0f);
  const int64_t first = std::find(where, where + s.rows, true) - where;
  if (first < s.rows) {
    const float* from = x + first * row;
    AddPixels(s, &sums, [&](int64_t p, int64_t c, Vector* a, Vector*) {
      *a += Load(from + p * s.channels + c);
    });
    for (int64_t c = 0; c < s.channels; ++c) shift[c] = sums.first[c] / s.pixels;
    sums.Clear();
  }
  for (int64_t n = 0; n < s.rows; ++n) {
    if (!where[n]) continue;
    const float* from = x + n * row;
    AddPixels(s, &sums, [&](int64_t p, int64_t c, Vector* a, Vector* b) {
      const Vector d = Load(from + p * s.channels + c) - Load(shift + c);
      *a += d;
      *b += d * d;
    });
  }
  for (int64_t c = 0; c < s.channels; ++c) {
    const double offset = sums.first[c] / count;
    mean[c] = shift[c] + offset;
    const double found = sums.second[c] / count - offset * offset;
    var[c] = found < 0 ? 0 : found;  // A result that is not finite stays.
  }
}

inline Vector Relu(Vector v) { return v <= 0 ? Vector{} : v; }

inline void BatchNorm(const float* x, const bool* where, const NormParameters& given,
                      const NormShape& s, float* buffer, float* y, float* mean, float* var) {
  Moments(x, where, s, buffer, mean, var);
  float* factor = buffer + 4 * s.channels;
  for (int64_t c = 0; c < s.channels; ++c)
    factor[c] = given.scale[c] / std::sqrt(var[c] + s.eps);
  for (int64_t n = 0; n < s.rows; ++n)
    for (int64_t p = 0; p < s.pixels; ++p) {
      const int64_t at = (n * s.pixels + p) * s.channels;
      for (int64_t c = 0; c < s.channels; c += kLanes) {
        Vector v = Load(given.bias + c);
        if (where[n]) v += (Load(x + at + c) - Load(mean + c)) * Load(factor + c);
        Store(y + at + c, s.relu ? Relu(v) : v);
      }
    }
}

inline void BatchNormGradient(const float* x, const bool* where, const NormParameters& given,
                              const float* mean, const float* var, const float* dy,
                              const NormShape& s, float* buffer, float* dx, float* dscale,
                              float* dbias) {
  Sums sums(buffer, s);  // Of dy, and of dy times the normalised x.
  float *factor = sums.rest, *mean_gradient = factor + s.channels;
  float* slope = mean_gradient + s.channels;
  float* ignored = slope + s.channels;  // Sums of dy over rows that do not count.
  const int64_t row = s.pixels * s.channels, count = CountValues(where, s);
  std::fill(ignored, ignored + s.channels, 0.0f);
  for (int64_t c = 0; c < s.channels; ++c) factor[c] = 1 / std::sqrt(var[c] + s.eps);

  const auto gradient = [&](Vector normalised, Vector g, int64_t c) {
    if (!s.relu) return g;
    return normalised * Load(given.scale + c) + Load(given.bias + c) > 0 ? g : Vector{};
  };
  for (int64_t n = 0; n < s.rows; ++n) {
    const float *from = x + n * row, *g = dy + n * row;
    if (where[n]) {
      AddPixels(s, &sums, [&](int64_t p, int64_t c, Vector* a, Vector* b) {
        const int64_t at = p * s.channels + c;
        const Vector normalised = (Load(from + at) - Load(mean + c)) * Load(factor + c);
        const Vector d = gradient(normalised, Load(g + at), c);
        *a += d;
        *b += d * normalised;
      });
      continue;
    }
    for (int64_t p = 0; p < s.pixels; ++p)
      for (int64_t c = 0; c < s.channels; c += kLanes)
        Store(ignored + c, Load(ignored + c) +
                               gradient(Vector{}, Load(g + p * s.channels + c), c));
  }
  for (int64_t c = 0; c < s.channels; ++c) {
    dbias[c] = sums.first[c] + ignored[c];
    dscale[c] = sums.second[c];
    mean_gradient[c] = sums.first[c] / count;
    slope[c] = sums.second[c] / count;
  }
  for (int64_t n = 0; n < s.rows; ++n)
    for (int64_t p = 0; p < s.pixels; ++p) {
      const int64_t at = n * row + p * s.channels;
      for (int64_t c = 0; c < s.channels; c += kLanes) {
        Vector d{};
        if (where[n]) {
          const Vector normalised = (Load(x + at + c) - Load(mean + c)) * Load(factor + c);
          d = gradient(normalised, Load(dy + at + c), c) - Load(mean_gradient + c) -
              normalised * Load(slope + c);
          d *= Load(given.scale + c) * Load(factor + c);
        }
        Store(dx + at + c, d);
      }
    }
}

}  // namespace fedjax_skew

#endif  // FEDJAX_SKEW_NORM_H_
