#pragma once
// One record of a TFRecord file: u64 length, u32 masked CRC-32C of these 8 bytes, the bytes, u32
// masked CRC-32C of them; little-endian.

#include <cstdint>
#include <string_view>

#include "io/byte_stream.h"

namespace tutti::io {

/// crc32c() of a machine without instructions for it.
uint32_t crc32c_by_tables(std::string_view bytes);

void write_record(ByteSink& sink, std::string_view record);

}  // namespace tutti::io
