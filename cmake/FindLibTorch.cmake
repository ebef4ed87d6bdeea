# Finds LibTorch and makes one imported target, Tutti::LibTorch, that links exactly libtorch_cpu and libc10
# (find_package(Torch) drags in more; see docs/decisions/libtorch.md). Searched, in this order:
#   CMAKE_PREFIX_PATH and TORCH_HOME (an unpacked LibTorch or an installed wheel), then the .venv beside the sources.
if(TARGET Tutti::LibTorch)
  return()
endif()

set(_torch_hints ${CMAKE_PREFIX_PATH})
if(DEFINED ENV{CMAKE_PREFIX_PATH})
  string(REPLACE ":" ";" _from_environment "$ENV{CMAKE_PREFIX_PATH}")
  list(APPEND _torch_hints ${_from_environment})
endif()
if(DEFINED ENV{TORCH_HOME})
  list(APPEND _torch_hints "$ENV{TORCH_HOME}")
endif()
file(GLOB _torch_venv "${CMAKE_SOURCE_DIR}/.venv/lib/python3*/site-packages/torch")
list(APPEND _torch_hints ${_torch_venv} ${TUTTI_TORCH_ROOT})

find_path(TUTTI_TORCH_INCLUDE NAMES ATen/ATen.h HINTS ${_torch_hints} PATH_SUFFIXES include ../include ../../include ../../../include)
find_library(TUTTI_TORCH_CPU_LIBRARY NAMES torch_cpu HINTS ${_torch_hints} PATH_SUFFIXES lib ../lib ../../lib ../../../lib)
find_library(TUTTI_C10_LIBRARY NAMES c10 HINTS ${_torch_hints} PATH_SUFFIXES lib ../lib ../../lib ../../../lib)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorch
  REQUIRED_VARS TUTTI_TORCH_CPU_LIBRARY TUTTI_C10_LIBRARY TUTTI_TORCH_INCLUDE
  REASON_FAILURE_MESSAGE "name a LibTorch >= 2.11 by CMAKE_PREFIX_PATH or TORCH_HOME, or let ./dev make .venv")

if(LibTorch_FOUND)
  file(STRINGS "${TUTTI_TORCH_INCLUDE}/torch/headeronly/version.h" _torch_version REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH)")
  string(REGEX MATCHALL "[0-9]+" _torch_numbers "${_torch_version}")
  list(JOIN _torch_numbers "." TUTTI_TORCH_VERSION)
  if(TUTTI_TORCH_VERSION AND TUTTI_TORCH_VERSION VERSION_LESS 2.11)
    message(FATAL_ERROR "LibTorch ${TUTTI_TORCH_VERSION} in ${TUTTI_TORCH_INCLUDE} is too old: Tutti needs 2.11 or newer")
  endif()
  get_filename_component(TUTTI_TORCH_LIBRARY_DIR "${TUTTI_TORCH_CPU_LIBRARY}" DIRECTORY)
  add_library(Tutti::C10 SHARED IMPORTED GLOBAL)
  set_target_properties(Tutti::C10 PROPERTIES IMPORTED_LOCATION "${TUTTI_C10_LIBRARY}")
  add_library(Tutti::LibTorch SHARED IMPORTED GLOBAL)
  set_target_properties(Tutti::LibTorch PROPERTIES
    IMPORTED_LOCATION "${TUTTI_TORCH_CPU_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${TUTTI_TORCH_INCLUDE};${TUTTI_TORCH_INCLUDE}/torch/csrc/api/include"
    INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "${TUTTI_TORCH_INCLUDE};${TUTTI_TORCH_INCLUDE}/torch/csrc/api/include"
    INTERFACE_LINK_LIBRARIES Tutti::C10)
  if(TUTTI_WITH_CUDA)
    # Nothing of ours names a symbol of torch_cuda: without no-as-needed the linker would leave it, and its kernels, out.
    find_library(TUTTI_TORCH_CUDA_LIBRARY NAMES torch_cuda HINTS ${TUTTI_TORCH_LIBRARY_DIR} NO_DEFAULT_PATH)
    if(NOT TUTTI_TORCH_CUDA_LIBRARY)
      message(FATAL_ERROR "TUTTI_WITH_CUDA: the LibTorch in ${TUTTI_TORCH_LIBRARY_DIR} is one for CPUs only (it has no \
libtorch_cuda), expected one with CUDA; name one by CMAKE_PREFIX_PATH or TORCH_HOME, or configure without TUTTI_WITH_CUDA \
(preset release)")
    endif()
    set_property(TARGET Tutti::LibTorch APPEND PROPERTY INTERFACE_LINK_OPTIONS
      "LINKER:--push-state,--no-as-needed,${TUTTI_TORCH_CUDA_LIBRARY},--pop-state" "LINKER:-rpath,${TUTTI_TORCH_LIBRARY_DIR}")
  endif()
endif()
