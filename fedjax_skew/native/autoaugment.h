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
        std::memcpy(out, &bytes, kChannels);
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
    for (int c = 0; c < kChannels; ++c) {
      if (operation == kEqualize) {
        Equalize(c, tables[c]);
        continue;
      }
      int low, high;
      Range(c, &low, &high);
      for (int level = 0; level < kLevels; ++level)
        tables[c][level] =
            Clip(high > low ? std::floor((level - low) * 255.0f / (high - low)) : level);
    }
    for (int64_t i = 0; i < size(); i += kChannels)
      for (int c = 0; c < kChannels; ++c) pixels_[i + c] = tables[c][pixels_[i + c]];
  }

  void Range(int channel, int* low, int* high) const {
    *low = *high = pixels_[channel];
    for (int64_t i = channel; i < size(); i += kChannels) {
      *low = std::min<int>(*low, pixels_[i]);
      *high = std::max<int>(*high, pixels_[i]);
    }
  }

  // Writes the levels that spread the grey levels of a channel.
  void Equalize(int channel, uint8_t* table) const {
    int32_t counts[kLevels] = {};
    for (int64_t i = channel; i < size(); i += kChannels) ++counts[pixels_[i]];
    int last = kLevels - 1;
    while (counts[last] == 0) --last;
    const int step = (static_cast<int>(height_ * width_) - counts[last]) / 255;
    int sum = step / 2;
    for (int level = 0; level < kLevels; ++level) {
      table[level] = step > 0 ? std::min(sum / step, 255) : level;
      sum += counts[level];
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
    uint8_t* copy = reinterpret_cast<uint8_t*>(buffer_);
    std::memcpy(copy, pixels_, size());
    const int64_t down = width_ * kChannels, last = (height_ - 1) * down;
    for (int64_t row = down; row < last; row += down) {
      const uint8_t* __restrict p = copy + row;
      uint8_t* __restrict out = pixels_ + row;
      for (int64_t i = kChannels; i < down - kChannels; ++i) {
        const int above = p[i - down - kChannels] + p[i - down] + p[i - down + kChannels];
        const int below = p[i + down - kChannels] + p[i + down] + p[i + down + kChannels];
        const int sum = above + p[i - kChannels] + 5 * p[i] + p[i + kChannels] + below;
        const int smooth = (2 * sum + 13) / 26;  // Rounded to the nearest integer.
        out[i] = Clip(Mix<float>(smooth, p[i], magnitude));
      }
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
