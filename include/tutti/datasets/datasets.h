#pragma once
// Data sets read from local files; nothing is downloaded.

#include <string>

#include "tutti/tensor/tensor.h"

namespace tutti::datasets {

struct Split {
  Tensor images;  ///< uint8 [N, height, width, channels]
  Tensor labels;  ///< int64 [N]
};
struct ImageDataset {
  Split train;
  Split test;
};

/// Fashion-MNIST: 60,000 and 10,000 images of 28 x 28 x 1 in 10 classes. Read from the folder that
/// TUTTI_DATASETS names (or its subfolder fashion-mnist), else from where Debian's package
/// dataset-fashion-mnist puts it; IDX files, plain or gzip. NotFound says which file is missing and
/// which package brings it; DataLoss says what is wrong with a damaged one.
ImageDataset fashion_mnist();

/// CIFAR-10: 50,000 and 10,000 images of 32 x 32 x 3 in 10 classes. Read from the folder that
/// TUTTI_DATASETS names, or its subfolders cifar-10-batches-bin and cifar10: the six files of the
/// binary version (data_batch_1.bin to data_batch_5.bin, test_batch.bin), plain or gzip. NotFound
/// says which file is missing and where it is to be had; DataLoss says what is wrong with a damaged
/// one.
ImageDataset cifar10();
/// True when TUTTI_DATASETS names a folder with all of its files.
bool has_cifar10();

/// One IDX file of bytes: the magic, the sizes, then the bytes. DataLoss when the sizes and the
/// file do not agree.
Tensor read_idx(const std::string& path);

}  // namespace tutti::datasets
