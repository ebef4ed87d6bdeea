#pragma once
// NumPy's files: one array (.npy), or several by name in a zip archive (.npz).

#include <map>
#include <string>

#include "tutti/tensor/tensor.h"

namespace tutti::io {

/// The array of a .npy file, C or Fortran order, little or big endian: bool, int8 to int64, uint8
/// to uint64, float16 to float64, complex64 and complex128. NotFound when there is no file;
/// DataLoss when it is damaged or cut short; InvalidArgument when it is none, or is an array of
/// Python objects or of text. Nothing in the file is executed.
Tensor load_npy(const std::string& path);
/// The arrays of a .npz file, stored or deflated; names without `.npy`.
std::map<std::string, Tensor> load_npz(const std::string& path);

/// Written beside `path` and renamed. Unimplemented for a dtype that NumPy has not (bfloat16).
void save_npy(const std::string& path, const Tensor& array);
/// Stored, not deflated, as numpy.savez does.
void save_npz(const std::string& path, const std::map<std::string, Tensor>& arrays);

}  // namespace tutti::io
