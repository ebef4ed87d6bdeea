#pragma once

namespace tutti::rpc {

/// Messages above this are refused by either side.
constexpr int kMostMessageBytes = 64 << 20;

}  // namespace tutti::rpc
