#pragma once
// Memory that the ranks of one machine share, without a name that could survive them.

#include <cstddef>
#include <cstdint>
#include <memory>

#include "collectives/group.h"

namespace tutti::collectives {

/// One rank's mapping of an anonymous memory file (memfd). Rank 0 makes it and hands it to the
/// others through a socket of the abstract namespace; strangers are told apart by their user and by
/// a secret from the store. Nothing is left behind, whatever dies and when.
///
/// Each rank holds a lock on one byte of the file, which the kernel takes away when the last
/// descriptor of its opening is closed: that is how the others see that it has died. (A child that
/// a rank forks without exec keeps the rank's lock until it ends.)
class Segment {
 public:
  struct Sizes {
    std::size_t committed = 0;  // memory is there from the start, or ResourceExhausted
    std::size_t total = 0;      // the rest is address space until it is touched
  };
  /// Blocks until this rank has its mapping, and rank 0 until all ranks have. All zeros at first.
  /// Throws DeadlineExceeded, Unavailable, ResourceExhausted, InvalidArgument for ranks that ask
  /// for other sizes.
  Segment(const GroupOptions& options, const Sizes& sizes);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  /// Whether that rank's process (or its Segment) is still there. Only after it said that it is.
  bool is_held(int rank) const;

 private:
  void make_and_hand_out(const GroupOptions& options, const Sizes& sizes);
  void receive(const GroupOptions& options, const Sizes& sizes);
  void open_and_map(int file, int rank, const Sizes& sizes);

  int lock_ = -1;  // this rank's own opening of the file
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace tutti::collectives
