#!/usr/bin/env bash
# Checks without a GPU, and without CUDA, that the code which is compiled only for CUDA compiles:
# every source with such code goes through the compiler's syntax check against LibTorch's own
# headers. In the place of CUDA's headers stand stubs with what LibTorch's headers name of them;
# nccl.h is the real one, of the wheel nvidia-nccl-cu13 (downloaded once, 0.3 GB, of which the
# header stays in build/cuda_headers).
#
# usage: check_cuda_headers.sh [INCLUDE]      INCLUDE: LibTorch's include folder (default: .venv's)
#
# What it does not show: whether it links, and what it does. scripts/gpu_check.sh does.
set -euo pipefail
cd "$(dirname "$0")/.."
readonly WHEEL=nvidia-nccl-cu13
readonly KEPT=build/cuda_headers
# What marks a source: its own switches, or headers that need CUDA's.
readonly MARKS='^# *(if|elif).*(TUTTI_WITH_(CUDA|NCCL)|USE_C10D_NCCL)|^# *include <(torch/csrc/cuda|ATen/cuda|c10/cuda|cuda|nccl)'

fail() { printf 'check_cuda_headers: %s\n' "$*" >&2; exit 1; }

torch=${1:-$(compgen -G '.venv/lib/python3*/site-packages/torch/include' | head -n 1 || true)}
[ -f "$torch/torch/csrc/cuda/nccl.h" ] ||
  fail "no headers of LibTorch in \"$torch\", expected torch/csrc/cuda/nccl.h there; name the include folder"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# --- nccl.h ------------------------------------------------------------------------------------

pip() {
  if [ -x .venv/bin/pip ]; then .venv/bin/pip "$@"; else python3 -m pip "$@"; fi
}

take_nccl() {
  local folder=$work/wheel
  # shellcheck disable=SC2086  # several arguments, split on purpose
  pip download --quiet --no-deps --dest "$folder" ${TUTTI_PIP_ARGS:-} "$WHEEL" ||
    fail "pip cannot download $WHEEL, which has nccl.h; put an nccl.h into $KEPT, or set TUTTI_PIP_ARGS for another index"
  python3 - "$folder" "$KEPT" <<'PYTHON'
import pathlib, sys, zipfile
folder, kept = map(pathlib.Path, sys.argv[1:])
wheel = zipfile.ZipFile(next(folder.glob("*.whl")))
kept.mkdir(parents=True, exist_ok=True)
name = next(name for name in wheel.namelist() if name.endswith("/nccl.h"))
(kept / "nccl.h").write_bytes(wheel.read(name))
PYTHON
}

[ -f "$KEPT/nccl.h" ] || take_nccl

# --- the stubs ---------------------------------------------------------------------------------

stubs=$work/stubs
mkdir -p "$stubs/c10/cuda/impl"
# CMake makes this one where LibTorch is built with CUDA.
echo '#define C10_CUDA_BUILD_SHARED_LIBS' >"$stubs/c10/cuda/impl/cuda_cmake_macros.h"
cat >"$stubs/cuda_runtime_api.h" <<'CUDA'
#pragma once
#include <cstddef>
#include <cstdint>
#define CUDART_VERSION 13000
#define CUDA_VERSION 13000
#define __host__
#define __device__
#define __global__
#define __forceinline__ inline
typedef struct CUstream_st* cudaStream_t;
typedef struct CUevent_st* cudaEvent_t;
typedef struct CUgraph_st* cudaGraph_t;
typedef struct CUgraphExec_st* cudaGraphExec_t;
typedef enum cudaError {
  cudaSuccess = 0,
  cudaErrorMemoryAllocation = 2,
  cudaErrorNotReady = 600
} cudaError_t;
enum cudaMemcpyKind {
  cudaMemcpyHostToHost, cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice, cudaMemcpyDefault
};
enum cudaStreamCaptureStatus {
  cudaStreamCaptureStatusNone, cudaStreamCaptureStatusActive, cudaStreamCaptureStatusInvalidated
};
enum cudaStreamCaptureMode {
  cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeRelaxed
};
#define cudaEventDefault 0x00
#define cudaEventDisableTiming 0x02
#define cudaEventInterprocess 0x04
#define cudaEventRecordDefault 0x00
#define cudaEventRecordExternal 0x01
#define cudaEventWaitDefault 0x00
#define cudaEventWaitExternal 0x01
struct cudaDeviceProp { char name[256]; int major, minor, multiProcessorCount, warpSize; size_t totalGlobalMem; };
struct cudaIpcEventHandle_t { char reserved[64]; };
cudaError_t cudaGetLastError();
const char* cudaGetErrorString(cudaError_t);
cudaError_t cudaMemGetInfo(size_t* free, size_t* total);
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t count, cudaMemcpyKind, cudaStream_t = 0);
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest);
cudaError_t cudaStreamSynchronize(cudaStream_t);
cudaError_t cudaStreamQuery(cudaStream_t);
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus*);
cudaError_t cudaStreamGetPriority(cudaStream_t, int*);
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned flags = 0);
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t, cudaStreamCaptureStatus*, unsigned long long* id = 0, ...);
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t*, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t);
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t begin, cudaEvent_t end);
cudaError_t cudaEventQuery(cudaEvent_t);
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t = 0);
cudaError_t cudaEventRecordWithFlags(cudaEvent_t, cudaStream_t = 0, unsigned flags = 0);
cudaError_t cudaEventSynchronize(cudaEvent_t);
cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t*, cudaEvent_t);
cudaError_t cudaIpcOpenEventHandle(cudaEvent_t*, cudaIpcEventHandle_t);
CUDA
for header in cuda cuda_runtime cuda_fp16 cuda_bf16 cuda_fp8 nvml cusolver_common; do
  printf '#pragma once\n#include <cuda_runtime_api.h>\n' >"$stubs/$header.h"
done
cat >"$stubs/cublas_v2.h" <<'CUDA'
#pragma once
typedef struct cublasContext* cublasHandle_t;
typedef enum { CUBLAS_STATUS_SUCCESS = 0 } cublasStatus_t;
CUDA
cat >"$stubs/cublasLt.h" <<'CUDA'
#pragma once
typedef struct cublasLtContext* cublasLtHandle_t;
CUDA
cat >"$stubs/cusparse.h" <<'CUDA'
#pragma once
typedef struct cusparseContext* cusparseHandle_t;
typedef enum { CUSPARSE_STATUS_SUCCESS = 0 } cusparseStatus_t;
const char* cusparseGetErrorString(cusparseStatus_t);
CUDA
cat >"$stubs/cusolverDn.h" <<'CUDA'
#pragma once
typedef struct cusolverDnContext* cusolverDnHandle_t;
typedef enum { CUSOLVER_STATUS_SUCCESS = 0, CUSOLVER_STATUS_EXECUTION_FAILED = 6 } cusolverStatus_t;
CUDA

# --- the check ---------------------------------------------------------------------------------

# syntax FILE: warnings in our own code are errors, as a user of the CUDA build would see them.
syntax() {
  ${CXX:-g++} -std=c++20 -fsyntax-only -Wall -Wextra -Wno-unused-parameter -Wno-missing-field-initializers -Werror \
    -DTUTTI_WITH_CUDA -DTUTTI_WITH_NCCL -DUSE_C10D_NCCL -Iinclude -Isrc -Itests \
    -isystem "$stubs" -isystem "$KEPT" -isystem "$torch" -isystem "$torch/torch/csrc/api/include" "$1"
}

mapfile -t sources < <(git ls-files --cached --others --exclude-standard -- 'src/*.cpp' 'tests/*.cpp' 'benchmarks/*.cpp' \
  'examples/*.cpp' | xargs -r grep -lE "$MARKS" || true)
[ ${#sources[@]} -gt 0 ] || fail "no source has code for CUDA only; are the marks in this script still right?"
for source in "${sources[@]}"; do
  syntax "$source" || fail "$source does not compile for CUDA"
  printf '    %s\n' "$source"
done
# NCCL between processes, by the header that its backend will include.
echo '#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>' >"$stubs/process_group.cpp"
syntax "$stubs/process_group.cpp" || fail "the stubs lack what c10d's ProcessGroupNCCL.hpp needs of CUDA"
printf '    %s\n' c10d/ProcessGroupNCCL.hpp
