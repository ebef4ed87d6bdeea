#pragma once
// Weights in files, and what all files of models have in common.

#include <string>
#include <utility>
#include <vector>

#include "tutti/io/tensor_file.h"
#include "tutti/keras/model.h"

namespace tutti::keras {

inline constexpr int kModelFormat = 1;

/// FailedPrecondition inside a replica: every one would do it, on one file.
void check_outside_replicas(const char* operation, const std::string& path);

/// Says once a model that the replicas have each their own of this variable, and that what is saved
/// is the first one's.
void warn_of_own_statistics(const Model& model, const Variable& weight);

/// Tensors whose names begin with `prefix`, in the order of the file; their number.
std::vector<const Tensor*> tensors_under(const io::TensorFile& file, const std::string& prefix);
std::size_t count_tensors(const io::TensorFile& file, const std::string& prefix);

/// `weights/…`, once each, in the user's layout; ON_READ ones as their aggregate.
void put_weights(const Model& model, io::TensorFile& file);
/// `weights/…` of the file to the model, by place. InvalidArgument when they are those of another
/// model; nothing is changed then.
void take_weights(Model& model, const io::TensorFile& file, const std::string& path);

/// Model::save_weights, and Model::save; `make_folder`: that of the file too.
void save_weights_file(const Model& model, const std::string& path, bool make_folder);
void save_model_file(const Model& model, const std::string& path, bool make_folder);

}  // namespace tutti::keras
