// AutoAugment's operations on one image; `data/autoaugment.py` defines them.

#ifndef FEDJAX_SKEW_AUTOAUGMENT_H_
#define FEDJAX_SKEW_AUTOAUGMENT_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace fedjax_skew {

// In the order of `autoaugment.RANGES`.
enum Operation {
  kIdentity,
  kShearX,
  kShearY,
  kTranslateX,
  kTranslateY,
  kRotate,
  kAutoContrast,
  kInvert,
  kEqualize,
  kSolarize,
  kPosterize,
  kContrast,
  kBrightness,
  kColor,
  kSharpness,
};

constexpr int kLevels = 256;

typedef float Floats __attribute__((vector_size(16)));
typedef int32_t Ints __attribute__((vector_size(16)));
typedef uint8_t PixelBytes __attribute__((vector_size(4)));

// Returns the size of a buffer for Augmenter.
inline int64_t AugmenterFloats(int64_t height, int64_t width) {
  return 4 * (height + 2) * (width + 2) + 3 * width;
}

// Pixels [height, width, kChannels] in place, and a buffer for copies of them.
template <int kChannels>
class Augmenter {
 public:
  Augmenter(uint8_t* pixels, int64_t height, int64_t width, float* buffer)
      : pixels_(pixels), height_(height), width_(width), buffer_(buffer) {}

  void Apply(int operation, float magnitude) {
    if (operation == kIdentity) return;
    if (operation <= kRotate) {
      Warp(operation, magnitude);
    } else if (operation == kColor) {
      Saturate(magnitude);
    } else if (operation == kSharpness) {
      Sharpen(magnitude);
    } else {
      Recolour(operation, magnitude);
    }
  }

 private:
  int64_t size() const { return height_ * width_ * kChannels; }

  // Resamples with bilinear weights; pixels from outside are black.
  void Warp(int operation, float magnitude) {
    float xx = 1, xy = 0, x0 = 0, yx = 0, yy = 1, y0 = 0;  // The map to pixels of the input.
    if (operation == kShearX) xy = magnitude;
    if (operation == kShearY) yx = magnitude;
    if (operation == kTranslateX) x0 = magnitude * width_;
    if (operation == kTranslateY) y0 = magnitude * height_;
    if (operation == kRotate) {
      const float angle = -magnitude * static_cast<float>(M_PI / 180);
      xx = yy = std::cos(angle);
      xy = std::sin(angle);
      yx = -xy;
    }
    Pad();
    const int64_t height = height_, width = width_, down = 4 * (width + 2);
    const float* __restrict from = buffer_;
    uint8_t* __restrict out = pixels_;
    float* __restrict right_parts = buffer_ + (height + 2) * down;
    float* __restrict bottom_parts = right_parts + width;
    int32_t* __restrict places = reinterpret_cast<int32_t*>(bottom_parts + width);
    for (int64_t row = 0; row < height; ++row) {
      const float y = row + 0.5f - 0.5f * height;
      for (int column = 0; column < width; ++column) {
        const float x = column + 0.5f - 0.5f * width;
        const float from_x = xx * x + xy * y + x0 + 0.5f * width;
        const float from_y = yx * x + yy * y + y0 + 0.5f * height;
        const bool inside = (from_x >= 0) & (from_x < width) & (from_y >= 0) & (from_y < height);
        // One more than the floor of from_x - 0.5, because of the padding.
        const int left = static_cast<int>(from_x + 0.5f), top = static_cast<int>(from_y + 0.5f);
        right_parts[column] = from_x + 0.5f - left;
        bottom_parts[column] = from_y + 0.5f - top;
        places[column] = inside ? top * static_cast<int>(down) + 4 * left : -1;
      }
      for (int64_t column = 0; column < width; ++column, out += kChannels) {
        if (places[column] < 0) {
          std::memset(out, 0, kChannels);
          continue;
        }
        const float* p = from + places[column];
        const Floats upper = Mix(Pixel(p), Pixel(p + 4), right_parts[column]);
        const Floats lower = Mix(Pixel(p + down), Pixel(p + down + 4), right_parts[column]);
        const Ints mixed =
            __builtin_convertvector(Mix(upper, lower, bottom_parts[column]), Ints);
        const PixelBytes bytes = __builtin_convertvector(mixed, PixelBytes);
        if (kChannels == 3 && column + 1 < width) {
          std::memcpy(out, &bytes, 4);  // The next pixel is written later.
        } else {
          std::memcpy(out, &bytes, kChannels);
        }
      }
    }
  }

  // Writes [height + 2, width + 2, 4] to the buffer: the pixels, with their border repeated.
  void Pad() {
    const int64_t down = 4 * (width_ + 2), last = 4 * (width_ - 1);
    for (int64_t row = 0; row < height_; ++row) {
      float* __restrict to = buffer_ + (row + 1) * down + 4;
      const uint8_t* __restrict from = pixels_ + row * width_ * kChannels;
      for (int64_t i = 0; i <= last; i += 4, from += kChannels)
        for (int c = 0; c < 4; ++c) to[i + c] = c < kChannels ? from[c] : 0;
      std::memcpy(to - 4, to, 16);
      std::memcpy(to + last + 4, to + last, 16);
    }
    std::memcpy(buffer_, buffer_ + down, 4 * down);
    std::memcpy(buffer_ + (height_ + 1) * down, buffer_ + height_ * down, 4 * down);
  }

  static Floats Pixel(const float* p) {
    Floats pixel;
    std::memcpy(&pixel, p, sizeof(pixel));
    return pixel;
  }

  void Recolour(int operation, float magnitude) {
    const float centre = operation == kContrast ? MeanGrey() : 0;
    const float cut = std::exp2(8 - std::nearbyint(magnitude));
    switch (operation) {
      case kAutoContrast:
      case kEqualize:
        return MapChannels(operation);
      case kInvert:
        return Map([](float level) { return 255 - level; });
      case kSolarize:
        return Map([=](float level) { return level < magnitude ? level : 255 - level; });
      case kPosterize:
        return Map([=](float level) { return static_cast<int>(level / cut) * cut; });
      default:  // Contrast and brightness.
        return Map([=](float level) { return Mix<float>(centre, level, magnitude); });
    }
  }

  template <typename Function>
  void Map(Function function) {
    const int64_t n = size();
    uint8_t* __restrict out = pixels_;
    for (int64_t i = 0; i < n; ++i) out[i] = Clip(function(out[i]));
  }

  // Maps the grey levels of each channel by a table.
  void MapChannels(int operation) {
    uint8_t tables[kChannels][kLevels];
    operation == kEqualize ? Equalize(tables) : Stretch(tables);
    for (int64_t i = 0; i < size(); i += kChannels)
      for (int c = 0; c < kChannels; ++c) pixels_[i + c] = tables[c][pixels_[i + c]];
  }

  // Writes the levels that stretch the range of each channel to all levels.
  void Stretch(uint8_t (&tables)[kChannels][kLevels]) const {
    constexpr int block = 48;  // Whole pixels and whole vectors.
    uint8_t low[block], high[block];
    std::memset(low, kLevels - 1, block);
    std::memset(high, 0, block);
    const int64_t end = size() / block * block;
    const auto include = [&](int at, uint8_t least, uint8_t most) {
      low[at] = std::min(low[at], least);
      high[at] = std::max(high[at], most);
    };
    for (int64_t i = 0; i < end; i += block)
      for (int n = 0; n < block; ++n) include(n, pixels_[i + n], pixels_[i + n]);
    for (int64_t i = end; i < size(); ++i) include(i - end, pixels_[i], pixels_[i]);
    for (int n = kChannels; n < block; ++n) include(n % kChannels, low[n], high[n]);
    for (int c = 0; c < kChannels; ++c) {
      const int first = low[c], range = high[c] - low[c];
      for (int level = 0; level < kLevels; ++level)
        tables[c][level] = range > 0 ? Clip(std::floor((level - first) * 255.0f / range)) : level;
    }
  }

  // Writes the levels that spread the grey levels of each channel.
  void Equalize(uint8_t (&tables)[kChannels][kLevels]) const {
    int32_t counts[kChannels][kLevels] = {};
    for (int64_t i = 0; i < size(); i += kChannels)
      for (int c = 0; c < kChannels; ++c) ++counts[c][pixels_[i + c]];
    for (int c = 0; c < kChannels; ++c) {
      int last = kLevels - 1;
      while (counts[c][last] == 0) --last;
      const int step = (static_cast<int>(height_ * width_) - counts[c][last]) / 255;
      int sum = step / 2, sums[kLevels];
      for (int level = 0; level < kLevels; ++level) sums[level] = sum, sum += counts[c][level];
      // The quotients of floats have the same integer parts as those of integers below 2^24.
      const float divisor = std::max(step, 1);
      for (int level = 0; level < kLevels; ++level)
        tables[c][level] = step > 0 ? std::min(sums[level] / divisor, 255.0f) : level;
    }
  }

  // Blends with the grey image.
  void Saturate(float magnitude) {
    const int64_t n = size();
    uint8_t* __restrict out = pixels_;
    uint8_t* __restrict grey = reinterpret_cast<uint8_t*>(buffer_);
    for (int64_t i = 0; i < n; i += kChannels) std::memset(grey + i, Grey(out + i), kChannels);
    for (int64_t i = 0; i < n; ++i) out[i] = Clip(Mix<float>(grey[i], out[i], magnitude));
  }

  // Blends with the image smoothed by 3x3 weights (centre 5, others 1), except for its border.
  void Sharpen(float magnitude) {
    const int64_t n = size(), down = width_ * kChannels;
    const uint8_t* __restrict copy = reinterpret_cast<uint8_t*>(buffer_);
    std::memcpy(buffer_, pixels_, n);
    uint8_t* __restrict out = pixels_;
    for (int64_t i = down + kChannels; i < n - down - kChannels; ++i) {
      const uint8_t *p = copy + i, *up = p - down, *low = p + down;
      const int sum = up[-kChannels] + up[0] + up[kChannels] + p[-kChannels] + 5 * p[0] +
                      p[kChannels] + low[-kChannels] + low[0] + low[kChannels];
      // Rounded to the nearest integer. A number in the middle of two does not occur.
      const int smooth = static_cast<int>((sum + 6.5f) * (1 / 13.0f));
      out[i] = Clip(Mix<float>(smooth, p[0], magnitude));
    }
    for (int64_t row = down; row < n; row += down) {
      std::memcpy(out + row - kChannels, copy + row - kChannels, kChannels);
      std::memcpy(out + row, copy + row, kChannels);
    }
  }

  // Returns the mean luminance, rounded to an integer.
  float MeanGrey() const {
    int64_t sum = 0;
    for (int64_t i = 0; i < size(); i += kChannels) sum += Grey(pixels_ + i);
    return std::floor(sum / static_cast<float>(height_ * width_) + 0.5f);
  }

  static int Grey(const uint8_t* p) {
    return kChannels == 1 ? p[0] : (19595 * p[0] + 38470 * p[1] + 7471 * p[2] + 32768) >> 16;
  }

  template <typename T>
  static T Mix(T a, T b, float part) {
    return a + (b - a) * part;
  }

  static uint8_t Clip(float value) { return std::min(std::max(value, 0.0f), 255.0f); }

  uint8_t* pixels_;
  int64_t height_, width_;
  float* buffer_;
};

}  // namespace fedjax_skew

#endif  // FEDJAX_SKEW_AUTOAUGMENT_H_
