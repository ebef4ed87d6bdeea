#pragma once
// How a test and its rank processes talk: frames of bytes over a socket.

#include <ATen/ATen.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

namespace tutti::testing {

/// A frame that is written or read field by field.
class Frame {
 public:
  template <class T>
  Frame& put(const T& value) requires std::is_trivially_copyable_v<T> {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
    return *this;
  }
  Frame& put(const std::string& text) {
    put(static_cast<int64_t>(text.size()));
    bytes_ += text;
    return *this;
  }
  Frame& put(const at::Tensor& tensor) {
    put(static_cast<int64_t>(tensor.scalar_type())).put(tensor.dim());
    for (const int64_t size : tensor.sizes()) put(size);
    const at::Tensor whole = tensor.detach().contiguous();
    return put(std::string(static_cast<const char*>(whole.const_data_ptr()), whole.nbytes()));
  }

  template <class T>
  T get() requires std::is_trivially_copyable_v<T> {
    T value;
    std::memcpy(&value, taken(sizeof(value)), sizeof(value));
    return value;
  }
  std::string get_text() {
    const auto size = static_cast<std::size_t>(get<int64_t>());
    return std::string(taken(size), size);
  }
  at::Tensor get_tensor() {
    const auto dtype = static_cast<at::ScalarType>(get<int64_t>());
    std::vector<int64_t> sizes(static_cast<std::size_t>(get<int64_t>()));
    for (int64_t& size : sizes) size = get<int64_t>();
    const std::string bytes = get_text();
    at::Tensor tensor = at::empty(sizes, dtype);
    if (!bytes.empty()) std::memcpy(tensor.mutable_data_ptr(), bytes.data(), bytes.size());
    return tensor;
  }

  void write_to(int socket) const {
    const auto size = static_cast<int64_t>(bytes_.size());
    write_all(socket, reinterpret_cast<const char*>(&size), sizeof(size));
    write_all(socket, bytes_.data(), bytes_.size());
  }
  /// Throws when the other side has gone.
  static Frame read_from(int socket) {
    int64_t size = 0;
    read_all(socket, reinterpret_cast<char*>(&size), sizeof(size));
    Frame frame;
    frame.bytes_.resize(static_cast<std::size_t>(size));
    read_all(socket, frame.bytes_.data(), frame.bytes_.size());
    return frame;
  }

 private:
  const char* taken(std::size_t count) {
    if (count > bytes_.size() - at_) throw std::runtime_error("a frame is too short");
    const char* from = bytes_.data() + at_;
    at_ += count;
    return from;
  }
  static void write_all(int socket, const char* from, std::size_t count) {
    while (count > 0) {
      const ssize_t done = send(socket, from, count, MSG_NOSIGNAL);
      if (done <= 0) throw std::runtime_error("a rank's process has gone");
      from += done;
      count -= static_cast<std::size_t>(done);
    }
  }
  static void read_all(int socket, char* to, std::size_t count) {
    while (count > 0) {
      const ssize_t done = recv(socket, to, count, 0);
      if (done <= 0) throw std::runtime_error("a rank's process has gone");
      to += done;
      count -= static_cast<std::size_t>(done);
    }
  }

  std::string bytes_;
  std::size_t at_ = 0;
};

/// What a rank's process is told; each command is answered by one frame that begins with a bool:
/// done, or an ErrorCode and a text.
enum class Command : int32_t {
  kMake,     // group, backend, host, folder of the store, prefix, rank, size, milliseconds
  kDestroy,  // group
  kCall,     // group, verb, op, root, options, tensor; answered with a tensor
  kStart,    // group, op, options, tensor; answered with the number of the work
  kWait,     // work; answered with a tensor
  kDrop,     // work
  kLoop,   // group, entries, calls, options: all-reduces until one fails; answered after the first
           // one with "begun", and at the end
  kAbort,  // group, reason; on the second socket
};

}  // namespace tutti::testing
