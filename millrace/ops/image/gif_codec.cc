#include <gif_lib.h>

#include <algorithm>
#include <cstring>

#include "millrace/ops/image/codec.h"

namespace millrace {
namespace {

int ReadGifBytes(GifFileType* gif, GifByteType* to, int n) {
  auto* left = static_cast<absl::string_view*>(gif->UserData);
  const size_t take = std::min(left->size(), static_cast<size_t>(std::max(n, 0)));
  std::memcpy(to, left->data(), take);
  left->remove_prefix(take);
  return static_cast<int>(take);
}

std::string GifError(int code) {
  const char* text = GifErrorString(code);
  return text == nullptr ? "unknown error" : text;
}

class GifReading {
 public:
  ~GifReading() {
    if (gif_ != nullptr) DGifCloseFile(gif_, nullptr);
  }

  Status Run(absl::string_view bytes, bool all_frames, PictureMemory memory) {
    int error = D_GIF_SUCCEEDED;
    gif_ = DGifOpen(&bytes, ReadGifBytes, &error);
    if (gif_ == nullptr) return InvalidArgument("Invalid GIF data: failed to open gif file: ", GifError(error));
    if (DGifSlurp(gif_) != GIF_OK && !KeepWholeFrames(all_frames)) {
      return InvalidArgument("Invalid GIF data: failed to slurp gif file: ", GifError(gif_->Error));
    }
    if (gif_->ImageCount <= 0) return InvalidArgument("Invalid GIF data: gif file does not contain any image");
    Picture picture{all_frames ? gif_->ImageCount : 1, 0, 0, 3};
    for (int k = 0; k < gif_->ImageCount; ++k) {
      const GifImageDesc& frame = gif_->SavedImages[k].ImageDesc;
      picture.width = std::max<int64_t>(picture.width, frame.Width + std::max(frame.Left, 0));
      picture.height = std::max<int64_t>(picture.height, frame.Height + std::max(frame.Top, 0));
    }
    // Frames decide, not the screen that the file declares, which may be enormous.
    picture.width = std::min<int64_t>(picture.width, gif_->SWidth);
    picture.height = std::min<int64_t>(picture.height, gif_->SHeight);
    MR_RETURN_IF_ERROR(CheckPictureSize(picture.frames, picture.height, picture.width, 3));
    MR_ASSIGN_OR_RETURN(void* const pixels, memory(picture));
    for (int64_t k = 0; k < picture.frames; ++k) {
      MR_RETURN_IF_ERROR(Draw(static_cast<int>(k), picture, static_cast<uint8_t*>(pixels)));
    }
    return absl::OkStatus();
  }

 private:
  // Of a truncated file, the first frame may be whole.
  bool KeepWholeFrames(bool all_frames) const {
    return !all_frames && gif_->ImageCount > 0 && gif_->SavedImages[0].RasterBits != nullptr;
  }

  Status Draw(int k, const Picture& picture, uint8_t* pixels) {
    const SavedImage& image = gif_->SavedImages[k];
    const GifImageDesc& desc = image.ImageDesc;
    const int64_t frame_size = picture.height * picture.width * 3;
    uint8_t* const out = pixels + k * frame_size;
    if (k > 0) {
      std::memcpy(out, out - frame_size, static_cast<size_t>(frame_size));
    } else {
      std::memset(out, 0, static_cast<size_t>(frame_size));
    }
    if (image.RasterBits == nullptr) return InvalidArgument("Invalid GIF data: frame ", k, " has no pixels");
    const ColorMapObject* colors = desc.ColorMap != nullptr ? desc.ColorMap : gif_->SColorMap;
    if (colors == nullptr) return InvalidArgument("Invalid GIF data: missing color map for frame ", k);
    GraphicsControlBlock control;
    control.TransparentColor = NO_TRANSPARENT_COLOR;
    DGifSavedExtensionToGCB(gif_, k, &control);
    const int64_t top = std::max(desc.Top, 0), bottom = std::min<int64_t>(desc.Top + desc.Height, picture.height);
    const int64_t left = std::max(desc.Left, 0), right = std::min<int64_t>(desc.Left + desc.Width, picture.width);
    for (int64_t y = top; y < bottom; ++y) {
      for (int64_t x = left; x < right; ++x) {
        const int color = image.RasterBits[(y - desc.Top) * desc.Width + (x - desc.Left)];
        if (color == control.TransparentColor) continue;
        if (color >= colors->ColorCount) {
          return InvalidArgument("Invalid GIF data: found color index ", color, " outside of color map range ",
                                 colors->ColorCount);
        }
        const GifColorType& rgb = colors->Colors[color];
        uint8_t* const to = out + (y * picture.width + x) * 3;
        to[0] = rgb.Red, to[1] = rgb.Green, to[2] = rgb.Blue;
      }
    }
    return absl::OkStatus();
  }

  GifFileType* gif_ = nullptr;
};

}  // namespace

Status DecodeGifPicture(absl::string_view bytes, bool all_frames, PictureMemory memory) {
  return GifReading().Run(bytes, all_frames, memory);
}

}  // namespace millrace
