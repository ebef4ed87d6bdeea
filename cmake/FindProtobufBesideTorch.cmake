# protobuf::libprotobuf and protobuf::protoc, as find_package(Protobuf) gives them, but never the headers and the compiler of
# protobuf 3.13 that LibTorch carries: where CMAKE_PREFIX_PATH names LibTorch, those would be found first.
set(_ignored_paths ${CMAKE_IGNORE_PATH})
if(NOT TUTTI_TORCH_INCLUDE MATCHES "^/usr(/local)?/include$")
  get_filename_component(_torch_headers "${TUTTI_TORCH_INCLUDE}" REALPATH)
  foreach(_folder "${TUTTI_TORCH_INCLUDE}" "${_torch_headers}")
    list(APPEND CMAKE_IGNORE_PATH "${_folder}" "${_folder}/../bin" "${_folder}/../lib")
  endforeach()
  get_filename_component(_torch_root "${_torch_headers}" DIRECTORY)
  list(APPEND CMAKE_IGNORE_PATH "${_torch_root}/bin" "${_torch_root}/lib")
endif()
find_package(Protobuf 3.12 REQUIRED)
set(CMAKE_IGNORE_PATH ${_ignored_paths})
