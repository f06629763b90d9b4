#include "intarsia/formats/byte_stream.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <span>

#include "intarsia/base/error.h"
#include "intarsia/base/text.h"
#include "intarsia/io/file.h"

namespace intarsia::formats {
namespace {

constexpr std::uint64_t kBlockBytes = 1 << 20;

class PlainStream : public ByteStream {
 public:
  explicit PlainStream(const std::string& path)
      : path_(path), in_(io::open_read(path)), size_(io::file_size(in_, path)) {}

  bool read(std::string& block) override {
    block.resize(std::min(kBlockBytes, size_ - at_));
    io::read_exact_at(in_, path_, at_, std::as_writable_bytes(std::span(block)));
    at_ += block.size();
    return !block.empty();
  }
  std::uint64_t bytes_done() const override { return at_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  io::Fd in_;
  std::uint64_t size_, at_ = 0;
};

class GzipStream : public ByteStream {
 public:
  explicit GzipStream(const std::string& path) : packed_(path) {
    // 15: the largest window; 16 more: a gzip header is expected.
    INTARSIA_CHECK(kMemory, inflateInit2(&state_, 15 + 16) == Z_OK, path, ": no memory to unpack it");
  }
  ~GzipStream() override { inflateEnd(&state_); }

  bool read(std::string& block) override {
    block.resize(kBlockBytes);
    state_.next_out = reinterpret_cast<Bytef*>(block.data());
    state_.avail_out = static_cast<uInt>(block.size());
    while (state_.avail_out > 0) {
      if (state_.avail_in == 0) {
        if (!packed_.read(input_)) {
          INTARSIA_CHECK(kFormat, !inside_, packed_.path(), ": the gzip file is cut: it ends inside its data");
          break;
        }
        state_.next_in = reinterpret_cast<Bytef*>(input_.data());
        state_.avail_in = static_cast<uInt>(input_.size());
      }
      // A gzip file may be several, one after another.
      if (!inside_) inflateReset(&state_);
      inside_ = true;
      const int result = inflate(&state_, Z_NO_FLUSH);
      if (result == Z_STREAM_END) {
        inside_ = false;
      } else {
        INTARSIA_CHECK(kFormat, result == Z_OK || result == Z_BUF_ERROR, packed_.path(),
                       ": damaged gzip data before byte ", packed_.bytes_done(),
                       " of the file: ", state_.msg != nullptr ? state_.msg : "it cannot be unpacked");
      }
    }
    block.resize(block.size() - state_.avail_out);
    return !block.empty();
  }
  std::uint64_t bytes_done() const override { return packed_.bytes_done(); }

 private:
  PlainStream packed_;
  std::string input_;
  z_stream state_{};
  bool inside_ = false;
};

class ZstdStream : public ByteStream {
 public:
  explicit ZstdStream(const std::string& path) : packed_(path), state_(ZSTD_createDStream(), &ZSTD_freeDStream) {
    INTARSIA_CHECK(kMemory, state_ != nullptr, path, ": no memory to unpack it");
  }

  bool read(std::string& block) override {
    block.resize(kBlockBytes);
    ZSTD_outBuffer out{block.data(), block.size(), 0};
    while (out.pos < out.size) {
      if (in_.pos == in_.size && !flushing_) {
        if (!packed_.read(input_)) {
          INTARSIA_CHECK(kFormat, !inside_, packed_.path(), ": the zstd file is cut: it ends inside its data");
          break;
        }
        in_ = {input_.data(), input_.size(), 0};
      }
      const std::size_t result = ZSTD_decompressStream(state_.get(), &out, &in_);
      INTARSIA_CHECK(kFormat, ZSTD_isError(result) == 0, packed_.path(), ": damaged zstd data before byte ",
                     packed_.bytes_done(), " of the file: ", ZSTD_getErrorName(result));
      inside_ = result != 0;  // 0: a frame is complete
      flushing_ = inside_ && out.pos == out.size;
    }
    block.resize(out.pos);
    return !block.empty();
  }
  std::uint64_t bytes_done() const override { return packed_.bytes_done(); }

 private:
  PlainStream packed_;
  std::unique_ptr<ZSTD_DStream, decltype(&ZSTD_freeDStream)> state_;
  std::string input_;
  ZSTD_inBuffer in_{nullptr, 0, 0};
  bool inside_ = false;    // of a frame
  bool flushing_ = false;  // the state may hold bytes that did not fit
};

}  // namespace

std::unique_ptr<ByteStream> ByteStream::open(const std::string& path) {
  if (path.ends_with(".gz")) return std::make_unique<GzipStream>(path);
  if (path.ends_with(".zst")) return std::make_unique<ZstdStream>(path);
  return std::make_unique<PlainStream>(path);
}

std::string_view unpacked_name(std::string_view path) {
  for (const std::string_view packed : {".gz", ".zst"})
    if (path.ends_with(packed)) return path.substr(0, path.size() - packed.size());
  return path;
}

}  // namespace intarsia::formats
